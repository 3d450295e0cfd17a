"""Paths of SGDM, Adam and AdaX on a two-dimensional non-convex surface.

The surface is the Mueller-Brown potential (1979), a standard test problem of theoretical chemistry with three minima,
divided by 100:

    f(x, y) = sum_k A_k exp( a_k (x-x_k)^2 + b_k (x-x_k)(y-y_k) + c_k (y-y_k)^2 ) / 100

Gradients are exact. The drawn paths use learning rates in the paper's ratio (AdaX's is five times Adam's), large enough
to be visible and not tuned. The record also has tuned results: the best of ten learning rates, a factor sqrt(10) apart,
by the mean final value over `starts` random starting points, evaluated on new ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adaxlab.paper.theory.problems import Array
from adaxlab.paper.theory.simulate import Setting, path

A = np.array([-200.0, -100.0, -170.0, 15.0]) / 100
a = np.array([-1.0, -1.0, -6.5, 0.7])
b = np.array([0.0, 0.0, 11.0, 0.6])
c = np.array([-10.0, -10.0, -6.5, 0.7])
X = np.array([1.0, 0.0, -0.5, -1.0])
Y = np.array([0.0, 0.5, 1.5, 1.0])
BOX = ((-1.5, 1.2), (-0.4, 2.0))
MINIMA = {"deepest": (-0.5582, 1.4417), "second": (0.6235, 0.0280), "third": (-0.0500, 0.4667)}
METHODS_SHOWN = {"SGDM": ("sgdm", (0.9, 0.0)), "Adam": ("adam", (0.9, 0.999)), "AdaX": ("adax", (0.9, 1e-4))}
DRAWN = {"SGDM": 0.01, "Adam": 0.02, "AdaX": 0.1}
RATES = tuple(10.0 ** (-4 + i / 2) for i in range(10))
SHOWN = ((-0.95, 1.9), (0.35, 1.25), (1.1, 0.75))
"""Three starting points for the figure, chosen at the edge before any path was computed."""


def _terms(z: Array) -> tuple[Array, Array, Array]:
    dx, dy = z[..., :1] - X, z[..., 1:] - Y
    return A * np.exp(a * dx * dx + b * dx * dy + c * dy * dy), dx, dy


def height(z: Array) -> Array:
    """Return f at points of shape (..., 2).

    >>> height(np.array([-0.5582, 1.4417])).round(3)
    np.float64(-1.467)
    """
    return _terms(z)[0].sum(axis=-1)


def gradient(z: Array) -> Array:
    terms, dx, dy = _terms(z)
    along = (terms * (2 * a * dx + b * dy)).sum(axis=-1)
    across = (terms * (b * dx + 2 * c * dy)).sum(axis=-1)
    return np.stack([along, across], axis=-1)


def setting(label: str, lr: float) -> Setting:
    name, betas = METHODS_SHOWN[label]
    return Setting(label, name, {"lr": lr, "betas": betas})


def descend(label: str, lr: float, starts: Array, steps: int) -> Array:
    """Return all points, steps+1 x starts x 2, projected onto the drawn box."""
    low, high = np.array(BOX).T
    walked = path(setting(label, lr), lambda t, z: gradient(z), starts, steps, (low, high))
    return np.array([starts, *(state.after for state in walked)])


def random_starts(n: int, seed: int) -> Array:
    low, high = np.array(BOX).T
    return np.random.default_rng(seed).uniform(low, high, (n, 2))


def basin(z: Array) -> Array:
    """Return the index of the nearest minimum, -1 if none is within 0.1."""
    distance = np.linalg.norm(z[:, None] - np.array(list(MINIMA.values())), axis=-1)
    return np.where(distance.min(axis=1) < 0.1, distance.argmin(axis=1), -1)


def shares(ends: Array) -> dict[str, float]:
    """Return the fraction of runs that ended in each minimum."""
    where = basin(ends)
    return {name: float((where == i).mean()) for i, name in enumerate([*MINIMA])} | {
        "none": float((where == -1).mean())
    }


def study(steps: int = 1000, starts: int = 400) -> dict[str, Any]:
    """Tune, then run new starting points at both learning rates, and the three that are drawn."""
    tuning, fresh = random_starts(starts, seed=1), random_starts(starts, seed=2)
    rows = []
    for label in METHODS_SHOWN:
        scores = {lr: float(height(descend(label, lr, tuning, steps)[-1]).mean()) for lr in RATES}
        lr = min(scores, key=scores.__getitem__)
        tuned, shown = (descend(label, rate, fresh, steps)[-1] for rate in (lr, DRAWN[label]))
        drawn = descend(label, DRAWN[label], np.array(SHOWN), steps)
        keep = np.unique(np.concatenate([np.arange(0, 80), np.geomspace(80, steps, 60).astype(int)]))
        rows.append(
            {
                "label": label,
                "lr": DRAWN[label],
                "shares": shares(shown),
                "tuned_lr": lr,
                "tuned_shares": shares(tuned),
                "tuned_mean_end": float(height(tuned).mean()),
                "tuning": {f"{r:.2g}": s for r, s in scores.items()},
                "paths": drawn[keep].transpose(1, 0, 2).round(4).tolist(),
            }
        )
    return {"steps": steps, "starts": starts, "rates": len(RATES), "rows": rows}
