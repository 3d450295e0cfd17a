"""Theorems 3.1 and 3.2 on problem (4), with the quantifiers that they need.

The gradients C lambda^(t-1) are the same for all x >= 0, so the first step below zero is the first at which the sum of
the updates exceeds x0.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from adaxlab.paper.theory import closed
from adaxlab.paper.theory.problems import Fading
from adaxlab.paper.theory.simulate import SCHEDULES, Setting, updates


def first_below(setting: Setting, problem: Fading, steps: int) -> tuple[int | None, float]:
    """Return the first step that leads below zero (None: not within `steps`), and the sum of all updates."""
    travelled = np.cumsum(updates(setting, problem.sizes(steps)).update)
    over = travelled > problem.x0
    return (int(np.argmax(over)) + 1 if over.any() else None), float(travelled[-1])


def _longest(fade: float, most: int) -> int:
    """Return the number of steps before the squared gradients underflow in float64."""
    return int(min(most, -650 / (2 * np.log(fade))))


def theorem_31(most: int = 200_000, momentum: bool = False) -> dict[str, Any]:
    """Run Adam with eps = 0 in every cell of a grid b2 x lambda x x0 x alpha x schedule.

    Cells whose crossing is beyond the horizon by the theorem's lower bound are left out and counted."""
    cells, crossed, beyond, latest = 0, 0, 0, 0
    grid = itertools.product(
        (0.5, 0.9, 0.99, 0.999),
        (0.2, 0.5, 0.9),
        (0.1, 1.0, 10.0),
        (1e-3, 1e-2, 0.1),
        ("constant", "sqrt", "inverse"),
    )
    for b2, place, x0, alpha, schedule in grid:
        fade = b2**0.5 + place * (1 - b2**0.5)
        b1 = 0.9 * b2**0.5 if momentum else 0.0
        steps = _longest(fade, most)
        needed = x0 / (alpha * closed.adam_floor(fade, b2, b1))
        proven = np.searchsorted(np.cumsum(SCHEDULES[schedule](np.arange(1.0, steps + 1))), needed) + 1
        if proven >= steps:
            beyond += 1
            continue
        setting = Setting("adam", "adam", {"lr": alpha, "betas": (b1, b2), "eps": 0.0}, schedule)
        step, _ = first_below(setting, Fading(C=2.0, fade=fade, x0=x0), int(proven) + 1)
        cells += 1
        crossed += step is not None
        latest = max(latest, step or 0)
    return {
        "cells": cells,
        "crossed": crossed,
        "beyond_horizon": beyond,
        "latest_crossing": latest,
        "eps": 0.0,
    }


def theorem_31_with_eps(steps: int = 600_000) -> dict[str, Any]:
    """Test the theorem with Adam's default eps = 1e-8: once the gradients are below eps, the updates decay too."""
    problem = Fading(x0=5.0)
    options = {"lr": 1e-5, "betas": (0.0, 0.999)}
    _, reach = first_below(Setting("adam", "adam", {**options, "eps": 1e-8}), problem, steps)
    _, reach_0 = first_below(Setting("adam", "adam", {**options, "eps": 0.0}), problem, steps)
    return {
        "x0": problem.x0,
        "alpha": 1e-5,
        "b2": 0.999,
        "fade": problem.fade,
        "C": problem.C,
        "steps": steps,
        "x_end": problem.x0 - reach,
        "x_end_eps_0": problem.x0 - reach_0,
    }


def theorem_32_counterexample(steps: int = 400_000) -> dict[str, Any]:
    """Run b2 = .999, lambda = .9999, x0 = 1, alpha = 1e-5: AMSGrad never reaches 0, with or without bias correction."""
    problem = Fading()
    base = {"lr": 1e-5, "betas": (0.0, 0.999), "eps": 0.0}
    _, with_correction = first_below(Setting("amsgrad", "amsgrad", base), problem, steps)
    _, without = first_below(Setting("amsgrad", "amsgrad", {**base, "correct": False}), problem, steps)
    return {
        "b2": 0.999,
        "fade": problem.fade,
        "x0": 1.0,
        "alpha": 1e-5,
        "steps": steps,
        "x_end_corrected": 1 - with_correction,
        "x_end_uncorrected": 1 - without,
        "x_end_closed_form": 1 - 1e-5 * closed.amsgrad_reach(problem.fade, 0.999),
    }


def theorem_32_as_stated() -> dict[str, Any]:
    """For each lambda the total distance of AMSGrad at alpha = 1 is finite, so it never reaches 0 from an x0 above it
    (or with alpha below its inverse): the statement 'one lambda for all x0 and alpha' fails for every lambda."""
    rows = []
    for gap in (1e-2, 1e-3, 1e-4, 1e-5, 1e-6):
        for b2 in (0.9, 0.99, 0.999):
            if (1 - gap) ** 2 > b2:
                rows.append({"b2": b2, "fade": 1 - gap, "reach": closed.amsgrad_reach(1 - gap, b2)})
    return {"rows": rows, "all_finite": bool(np.isfinite([r["reach"] for r in rows]).all())}


def theorem_32_corrected(most: int = 2_000_000) -> dict[str, Any]:
    """For every x0 and alpha of a grid, find a lambda with which AMSGrad goes below zero: 1-lambda is halved until the
    closed form reaches x0; then the rule must cross zero too."""
    rows = []
    for b2, x0, alpha in itertools.product((0.9, 0.99, 0.999), (0.1, 1.0, 3.0), (1e-4, 1e-3, 1e-2)):
        gap = (1 - b2**0.5) / 2
        while alpha * closed.amsgrad_reach(1 - gap, b2) < 1.05 * x0:
            gap /= 2
        steps = min(most, int(-8 / np.log1p(-gap)) + 1)
        setting = Setting(
            "amsgrad", "amsgrad", {"lr": alpha, "betas": (0.0, b2), "eps": 0.0, "correct": False}
        )
        step, _ = first_below(setting, Fading(C=2.0, fade=1 - gap, x0=x0), steps)
        rows.append({"b2": b2, "x0": x0, "alpha": alpha, "one_minus_fade": gap, "crossing": step})
    return {"rows": rows, "cells": len(rows), "crossed": sum(r["crossing"] is not None for r in rows)}


def adax_can_stop(steps: int = 400_000) -> dict[str, Any]:
    """With a suitable step size AdaX converges to 0 on problem (4): alpha = x0 / sum of the closed form's directions;
    twice that step size crosses zero."""
    problem = Fading()
    b2 = 1e-4
    reach = float(closed.adax_direction(np.arange(1.0, steps + 1), problem.fade, b2).sum())
    rows = []
    for factor in (1.0, 2.0):
        alpha = factor * problem.x0 / reach
        setting = Setting("adax", "adax", {"lr": alpha, "betas": (0.0, b2), "eps": 0.0})
        step, travelled = first_below(setting, problem, steps)
        ends = 1 - travelled if step is None or abs(1 - travelled) < 1e-9 else None
        rows.append({"alpha": alpha, "crossing": None if ends is not None else step, "x_end": 1 - travelled})
    sgd = Setting("sgd", "sgdm", {"lr": (1 - problem.fade) / problem.C, "betas": (0.0, 0.0)})
    _, travelled = first_below(sgd, problem, steps)
    return {
        "reach_at_alpha_1": reach,
        "rows": rows,
        "sgd_alpha": sgd.options["lr"],
        "sgd_x_end": 1 - travelled,
    }


def kept_decay(settings: list[Setting], start: int = 40_000, stop: int = 50_000) -> dict[str, float]:
    """Return d log|u| / d log|g| late on problem (4): 1 if the update decays like the gradient, 0 if its size stays
    constant."""
    problem = Fading()
    g = problem.sizes(stop)
    out = {}
    for setting in settings:
        u = np.abs(updates(setting, g).update)
        out[setting.label] = float(np.log(u[-1] / u[start]) / np.log(g[-1] / g[start]))
    return out
