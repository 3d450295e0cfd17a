"""Theorem 4.2's rate, log T / sqrt(T), on a noisy non-convex function.

    f(x) = sum_i x_i^2 / (1 + x_i^2) + w (1 - cos 3 x_i) / 3        w = 0.15, d = 10

Its gradient is bounded and Lipschitz (A1, A2), it has plateaus and ripples, and the noise is uniform on [-1, 1] in
every coordinate (A2, A3). alpha_t = alpha/sqrt(t), b1 = 0.9, b2 = 1e-4. The proof bounds the average of |grad f(x_t)|^2
with weights alpha_t, which is an upper bound of the minimum in the theorem; both are measured.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adaxlab.paper.theory.problems import Array
from adaxlab.paper.theory.simulate import Setting, path
from adaxlab.stats import t_interval

RIPPLE = 0.15
NOISE = 1.0
METHODS_COMPARED = {
    "adax": {"lr": 0.5, "betas": (0.9, 1e-4)},
    "amsgrad": {"lr": 0.5, "betas": (0.9, 0.999)},
}


def slope_field(x: Array) -> Array:
    """grad f."""
    return 2 * x / (1 + x * x) ** 2 + RIPPLE * np.sin(3 * x)


def measure(name: str, steps: int, seeds: int, d: int = 10, seed: int = 0) -> dict[str, Any]:
    """Measure |grad f|^2 in `seeds` runs: its weighted average per run, and the minimum over t of its mean."""
    rng = np.random.default_rng(seed)
    start = rng.uniform(-2, 2, (seeds, d))
    setting = Setting(name, name, METHODS_COMPARED[name], "sqrt")
    marks = np.unique(np.geomspace(max(10, steps // 100), steps, 13).round().astype(int))
    total, weight, lowest, near = np.zeros(seeds), 0.0, np.inf, 0.0
    averages, minima = [], []

    def noisy(t: int, x: Array) -> Array:
        nonlocal total, weight, lowest, near
        true = slope_field(x)
        square = (true * true).sum(axis=1)
        share = t**-0.5
        total, weight = total + share * square, weight + share
        near = float(square.mean()) if t == 1 else 0.95 * near + 0.05 * float(square.mean())
        lowest = min(lowest, near)
        return true + NOISE * rng.uniform(-1, 1, x.shape)

    for state in path(setting, noisy, start, steps):
        if state.t in marks:
            averages.append(total / weight)
            minima.append(lowest)
    claimed = np.log(marks) / np.sqrt(marks)
    average = np.mean(averages, axis=1)
    return {
        "method": name,
        "steps": steps,
        "seeds": seeds,
        "d": d,
        "settings": {k: list(v) if isinstance(v, tuple) else v for k, v in METHODS_COMPARED[name].items()},
        "T": marks.tolist(),
        "average": average.tolist(),
        "reference": (claimed / claimed[0] * average[0]).tolist(),
        "minimum": minima,
        **slopes(marks, np.array(averages)),
        "minimum_slope": float(np.polyfit(np.log(marks), np.log(minima), 1)[0]),
        "claimed_slope": float(np.polyfit(np.log(marks), np.log(claimed), 1)[0]),
    }


def slopes(marks: Array, averages: Array) -> dict[str, Any]:
    """Return the slope of log(average) against log(T): one per run, their mean and a 95% t interval over runs."""
    per_run = np.polyfit(np.log(marks), np.log(averages), 1)[0]
    estimate = t_interval(per_run.tolist())
    return {"slope": estimate.mean, "slope_low": estimate.low, "slope_high": estimate.high}
