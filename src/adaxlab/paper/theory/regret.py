"""Regret on random online convex problems against Theorem 4.1's bound and its corollary.

The losses are separable, so the best point in hindsight is known exactly for every horizon T:

    linear      f_t(x) = sum_i g_ti x_i            best: the corner against the summed gradient
    absolute    f_t(x) = sum_i |x_i - z_ti|        best: the median of z, clipped to the box
    quadratic   f_t(x) = sum_i (x_i - z_ti)^2 / 2  best: the mean of z, clipped to the box

on the box [-1, 1]^d (D = 2), with alpha_t = alpha/sqrt(t). The bound, with the constant of its proof
(C = sqrt(e^b2 - 1)), is

    D^2/(2 alpha_T (1-b1)) sum_i vhat_T,i^(1/2)  +  D^2/(2 (1-b1)) sum_t sum_i b1_t vhat_t,i^(1/2)/alpha_t
        +  alpha C sqrt(T) / ((1-b1)^3 sqrt(b2)) sum_i |g_1:T,i|_2
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adaxlab.paper.theory.problems import Array
from adaxlab.paper.theory.simulate import Setting, path
from adaxlab.paper.theory.variant import FADING_GROWTH

KINDS = ("linear", "absolute", "quadratic")
WIDTH = 2.0
"""D: the box is [-1, 1]^d."""


def draw(steps: int, problems: int, d: int, seed: int) -> Array:
    """Return the adversary's draws, steps x problems x d: gradients (linear losses) or targets. Drift and noise differ
    between coordinates."""
    rng = np.random.default_rng(seed)
    drift = rng.uniform(-0.6, 0.6, (problems, d))
    noise = rng.uniform(-1, 1, (steps, problems, d)) * rng.uniform(0.2, 1.0, (problems, d))
    return drift + noise


def gradient(kind: str, x: Array, z: Array) -> Array:
    return {"linear": lambda: z + 0.0 * x, "absolute": lambda: np.sign(x - z), "quadratic": lambda: x - z}[
        kind
    ]()


def loss(kind: str, x: Array, z: Array) -> Array:
    """Return the loss summed over coordinates; x and z broadcast."""
    values = {
        "linear": lambda: x * z,
        "absolute": lambda: np.abs(x - z),
        "quadratic": lambda: 0.5 * (x - z) ** 2,
    }
    return values[kind]().sum(axis=-1)


def best(kind: str, z: Array) -> Array:
    """Return the best point in hindsight for the draws z (steps x problems x d)."""
    if kind == "linear":
        return -np.sign(z.sum(axis=0))
    return np.clip(np.median(z, axis=0) if kind == "absolute" else z.mean(axis=0), -1, 1)


def horizons(steps: int) -> list[int]:
    return [int(t) for t in np.unique(np.geomspace(max(10, steps // 100), steps, 9).round())]


def play(
    kind: str,
    variant: str,
    steps: int,
    problems: int = 8,
    d: int = 5,
    seed: int = 0,
    alpha: float = 0.5,
    b1: float = 0.9,
    b2: float = 1e-4,
    fade: float | None = 0.99,
) -> dict[str, Any]:
    """Run `problems` problems of one kind at once. `variant` is "theorem" (b2_t = b2/t) or "algorithm" (as published,
    constant b2); `fade` is the corollary's lambda in b1_t = b1 lambda^(t-1), None keeps b1 constant."""
    z = draw(steps, problems, d, seed)
    t = np.arange(1.0, steps + 1)
    b1_t = b1 * fade ** (t - 1) if fade is not None else np.full(steps, b1)
    name: Any = FADING_GROWTH if variant == "theorem" else "adax"
    setting = Setting(variant, name, {"lr": alpha, "betas": (b1_t, b2), "eps": 0.0}, "sqrt")
    xs, roots, squares, means, after = (np.empty_like(z) for _ in range(5))
    box = (-1.0, 1.0)
    for s in path(setting, lambda t, x: gradient(kind, x, z[t - 1]), np.zeros((problems, d)), steps, box):
        xs[s.t - 1], roots[s.t - 1], squares[s.t - 1] = s.x, np.sqrt(s.v) / s.s, s.g**2
        means[s.t - 1], after[s.t - 1] = s.m, s.after
    paid = np.cumsum(loss(kind, xs, z), axis=0)
    middle = np.cumsum((roots * (b1_t * np.sqrt(t) / alpha)[:, None, None]).sum(axis=-1), axis=0)
    norms = np.sqrt(np.cumsum(squares, axis=0)).sum(axis=-1)
    C = np.sqrt(np.expm1(b2))
    alphas = (alpha / np.sqrt(t))[:, None, None]
    fades = (b1_t / (2 * (1 - b1_t)))[:, None, None]
    second_lemma = np.cumsum((fades * alphas * means**2 / roots).sum(axis=-1), axis=0)
    third_lemma = furthest(xs, after, roots / alphas)
    rows = []
    for T in horizons(steps):
        regret = paid[T - 1] - loss(kind, best(kind, z[:T]), z[:T]).sum(axis=0)
        first = WIDTH**2 * T**0.5 / (2 * alpha * (1 - b1)) * roots[T - 1].sum(axis=-1)
        second = WIDTH**2 / (2 * (1 - b1)) * middle[T - 1]
        third = alpha * C * T**0.5 / ((1 - b1) ** 3 * b2**0.5) * norms[T - 1]
        bound = first + second + third
        row = {"T": T, "regret": float(regret.mean()), "worst": float((regret / bound).max())}
        row |= {"bound": float(bound.mean()), "first": float(first.mean()), "second": float(second.mean())}
        row |= {"third": float(third.mean()), "lemma_72": float((second_lemma[T - 1] / third).max())}
        halved = WIDTH**2 * T**0.5 / (2 * alpha) * roots[T - 1].sum(axis=-1)
        row["lemma_73"] = float((third_lemma[T - 1] / halved).max())
        if fade is not None and b1 > 0:
            largest = float(np.sqrt(squares.max()))
            constant = d * b1 * WIDTH**2 * largest / (2 * alpha * (1 - b1) * (1 - fade) ** 2)
            row["worst_corollary"] = float((regret / (first + constant + third)).max())
            row["second_over_constant"] = float((second / constant).max())
        rows.append(row)
    return {
        "kind": kind,
        "variant": variant,
        "problems": problems,
        "d": d,
        "alpha": alpha,
        "b1": b1,
        "b2": b2,
        "fade": fade,
        "trivial": WIDTH * d * float(np.sqrt(squares.max())) * steps,
        "regret_exponent": exponent(rows, "regret"),
        "first_exponent": exponent(rows, "first"),
        "third_exponent": exponent(rows, "third"),
        "highest_v_over_t": float((roots**2 / t[:, None, None]).max() / squares.max()),
        "rows": rows,
    }


def furthest(x: Array, after: Array, weight: Array) -> Array:
    """Return Lemma 7.3's sum over t <= T of weight_t [(x_t - x*)^2 - (x_(t+1) - x*)^2] for each T, maximised over x* in
    the box; it is linear in x*, so the maximum is at a corner."""
    square = np.cumsum(weight * (x**2 - after**2), axis=0)
    slope = np.cumsum(weight * (x - after), axis=0)
    return (square + 2 * np.abs(slope)).sum(axis=-1)


def lemma_73_example(D: float = 2.0, b1: float = 0.9) -> dict[str, float]:
    """T = d = 1, x_1 - x* = D and alpha (1-b1) = D: one step by the rule leads to x*, and the left side is
    D^2 |g|/alpha, twice the right side."""
    alpha = D / (1 - b1)
    setting = Setting("theorem", FADING_GROWTH, {"lr": alpha, "betas": (b1, 1e-4), "eps": 0.0}, "sqrt")
    (state,) = path(setting, lambda t, x: np.ones(1), np.full(1, D / 2), 1, (-D / 2, D / 2))
    root, best = float(np.sqrt(state.v[0]) / state.s), -D / 2
    left = root / alpha * ((state.x[0] - best) ** 2 - (state.after[0] - best) ** 2)
    return {"D": D, "b1": b1, "alpha": alpha, "left": float(left), "right": D**2 / (2 * alpha) * root}


def exponent(rows: list[dict[str, Any]], key: str) -> float:
    """Return the slope of log(value) against log(T)."""
    T = np.log([r["T"] for r in rows])
    values = np.array([r[key] for r in rows])
    return float(np.polyfit(T, np.log(np.maximum(values, 1e-12)), 1)[0])
