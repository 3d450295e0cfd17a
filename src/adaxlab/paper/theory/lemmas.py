"""Numerical tests of Lemma 4.1, of its version in the appendix, and of bounds on v-hat.

Gradient sequences are the columns of one array; the second moments come from the rule.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adaxlab.paper.theory.problems import Array
from adaxlab.paper.theory.simulate import SCHEDULES, Setting, path
from adaxlab.paper.theory.variant import FADING_GROWTH, bias
from adaxlab.stats import t_interval


def sequences(steps: int, lanes: int, seed: int) -> Array:
    """Return six kinds of gradient sequences, `lanes` of each: normal, heavy-tailed, sparse, decaying, growing, and a
    single gradient followed by values near zero. The first gradient is never zero."""
    rng = np.random.default_rng(seed)
    shape = (steps, lanes)
    t = np.arange(steps)[:, None]
    normal = rng.normal(size=shape)
    heavy = np.exp(3 * rng.normal(size=shape))
    sparse = normal * (rng.random(shape) < 0.05)
    fading = normal * rng.uniform(0.9, 0.9999, lanes) ** t
    growing = normal * np.minimum(rng.uniform(1.0001, 1.05, lanes) ** t, 1e6)
    lonely = np.where(t == 0, 1.0, 1e-9 * normal)
    g = np.concatenate([normal, heavy, sparse, fading, growing, lonely], axis=1)
    g[0] = np.where(g[0] == 0, 1.0, g[0])
    return g


def second_moments(setting: Setting, g: Array) -> Array:
    """Return the paper's v-hat for all steps (rows) and sequences (columns), computed by the rule. The factor s_t^-2
    restores the bias that `variant` moves into s_t."""
    steps, lanes = g.shape
    states = path(setting, lambda t, x: g[t - 1], np.zeros(lanes), steps)
    return np.array([s.v / s.s**2 for s in states])


def growth(v: Array, schedule: str) -> Array:
    """Return (V_t / alpha_t^2) / (V_{t-1} / alpha_{t-1}^2) for t = 2, 3, ...; the lemma says that none is below 1."""
    alpha = SCHEDULES[schedule](np.arange(1.0, len(v) + 1))[:, None]
    scaled = v / alpha**2
    return scaled[1:] / scaled[:-1]


def lemma_41(
    schedule: str, b2: float = 1e-4, steps: int = 400, lanes: int = 200, seed: int = 0
) -> dict[str, Any]:
    """Return the smallest ratio over random and adversarial sequences, and a short sequence that attains it."""
    setting = Setting("adax", "adax", {"betas": (0.0, b2), "eps": 0.0})
    g = sequences(steps, lanes, seed)
    ratio = growth(second_moments(setting, g), schedule)
    row, column = np.unravel_index(int(np.argmin(ratio)), ratio.shape)
    return {
        "schedule": schedule,
        "b2": b2,
        "steps": steps,
        "sequences": g.shape[1],
        "smallest_ratio": float(ratio[row, column]),
        "at_step": int(row) + 2,
        "violations": int((ratio < 1 - 1e-12).sum()),
        "checked": int(ratio.size),
        "violations_share_normal": float((ratio[:, :lanes] < 1 - 1e-12).mean()),
        "gradients": [float(z) for z in g[max(0, row) : row + 2, column]],
    }


def lemma_41_example(steps: int = 20, b2: float = 1e-4) -> dict[str, list[float]]:
    """Return V_t/alpha_t^2 relative to its first value for one gradient of 1 and then zeros, with both schedules."""
    g = np.zeros((steps, 1))
    g[0] = 1.0
    v = second_moments(Setting("adax", "adax", {"betas": (0.0, b2), "eps": 0.0}), g)
    t = np.arange(1.0, steps + 1)[:, None]
    return {name: (v / SCHEDULES[name](t) ** 2)[:, 0].tolist() for name in ("sqrt", "constant")}


def lemma_41_bound(b2: float) -> float:
    """Return the worst case, g = (1, 0) with constant step sizes: v-hat_2 / v-hat_1 = 1 - k_2 = (1+b2)/(2+b2)."""
    return (1 + b2) / (2 + b2)


def lemma_71(b2: float, steps: int = 400, lanes: int = 200, seed: int = 0) -> dict[str, Any]:
    """Test the appendix's lemma for b2_t = b2/t and alpha/sqrt(t) on the same sequences, and its worst case (one
    gradient followed by zeros) for a million steps."""
    setting = Setting("adax-b2/t", FADING_GROWTH, {"betas": (0.0, b2)})
    ratio = growth(second_moments(setting, sequences(steps, lanes, seed)), "sqrt")
    t = np.arange(1.0, 1_000_001)
    scale = bias(t, b2)
    gain = FADING_GROWTH.numbers(t, {"betas": (0.0, b2)}, xp=np).k
    worst = (1 - gain[1:]) * scale[1:] / scale[:-1] * t[1:] / t[:-1]
    return {
        "b2": b2,
        "smallest_ratio": float(ratio.min()),
        "violations": int((ratio < 1 - 1e-12).sum()),
        "checked": int(ratio.size),
        "worst_case_smallest": float(worst.min()),
        "worst_case_steps": len(t),
    }


def floor_of_v(b2: float = 1e-4, steps: int = 400, lanes: int = 200, seed: int = 0) -> dict[str, Any]:
    """Test the lower bound of v-hat_t / v-hat_1. The stationary-point proof uses 1; b2/(1+b2) is true (erratum 10)."""
    setting = Setting("adax", "adax", {"betas": (0.0, b2), "eps": 0.0})
    v = second_moments(setting, sequences(steps, lanes, seed))
    lonely = 1 - setting.numbers(np.arange(2.0, 1_000_001)).k
    worst = np.exp(np.cumsum(np.log(lonely)))
    return {
        "b2": b2,
        "paper": 1.0,
        "bound": b2 / (1 + b2),
        "smallest_seen": float((v / v[0]).min()),
        "worst_at_step_2": float(worst[0]),
        "worst_at_step_1e6": float(worst[-1]),
        "sequences": v.shape[1],
    }


def unbiased(
    b2: float = 1e-4, at: tuple[int, ...] = (1, 10, 100, 1000), lanes: int = 4000, seed: int = 0
) -> dict[str, Any]:
    """Return the mean of v-hat_t / E g^2 over independent runs of standard normal gradients, with a 95% interval."""
    rng = np.random.default_rng(seed)
    setting = Setting("adax", "adax", {"betas": (0.0, b2), "eps": 0.0})
    rows = []
    for state in path(setting, lambda t, x: rng.normal(size=lanes), np.zeros(lanes), max(at)):
        if state.t in at:
            e = t_interval(state.v.tolist())
            rows.append({"t": state.t, "mean": e.mean, "low": e.low, "high": e.high})
    biases = bias(np.arange(1.0, max(at) + 1), b2)
    return {"b2": b2, "n": lanes, "rows": rows, "bias_of_theorem": {str(t): float(biases[t - 1]) for t in at}}


def step_bound(
    b2: float = 1e-4, b1: float = 0.9, steps: int = 400, lanes: int = 200, seed: int = 0
) -> dict[str, Any]:
    """Return the largest |alpha_t m_t / sqrt(v-hat_t)| relative to alpha G / c, with c = sqrt(v-hat_1) and G the
    largest gradient. The proof remarks that A2's bound on the update is always satisfied."""
    g = sequences(steps, lanes, seed)
    setting = Setting("adax", "adax", {"lr": 1.0, "betas": (b1, b2), "eps": 0.0}, "sqrt")
    worst = 0.0
    limit = np.abs(g).max(axis=0) / np.abs(g[0])
    for s in path(setting, lambda t, x: g[t - 1], np.zeros(g.shape[1]), steps):
        worst = max(worst, float((np.abs(s.after - s.x) / limit).max()))
    return {"largest": worst, "sequences": g.shape[1], "steps": steps}
