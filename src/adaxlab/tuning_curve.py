"""Tuning curves: the best score after n trials, and, for random trials, confidence bands of that curve.

The bands are opda's (Lourie, Cho and He 2023, "Show Your Work with Confidence"). They assume settings that were drawn
independently, so they are computed for `sampler="random"` only, not for a search along a grid or quasi-random trials.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Scores = Sequence[float | None]
"""In the order of the trials; None where the trial diverged."""


def best_so_far(scores: Scores, higher_is_better: bool) -> tuple[float | None, ...]:
    """
    >>> best_so_far([None, 0.5, 0.4, 0.6], True)
    (None, 0.5, 0.5, 0.6)
    """
    better = max if higher_is_better else min
    best: list[float | None] = []
    for score in scores:
        found = [value for value in (score, *best[-1:]) if value is not None]
        best.append(better(found) if found else None)
    return tuple(best)


@dataclass(frozen=True)
class Band:
    """The median of the best of `trials` random settings, and the ends of its simultaneous confidence band; infinite
    if the trials give no bound."""

    trials: int
    median: float
    low: float
    high: float


def bands(scores: Scores, higher_is_better: bool) -> tuple[Band, ...]:
    """The tuning curve of random search with its 95% bands; a diverged trial is worse than any other. Needs opda."""
    import numpy as np
    from opda.nonparametric import EmpiricalDistribution

    sign = 1.0 if higher_is_better else -1.0
    values = [-math.inf if score is None else sign * score for score in scores]
    lower, point, upper = EmpiricalDistribution.confidence_bands(
        values, 0.95, method="ld_equal_tailed", generator=np.random.default_rng(0)
    )
    ns = np.arange(1, len(values) + 1)
    curves = (cdf.quantile_tuning_curve(ns) for cdf in (point, upper, lower))
    found = [tuple(sign * float(value) for value in row) for row in zip(*curves, strict=True)]
    return tuple(Band(n, middle, min(a, b), max(a, b)) for n, (middle, a, b) in enumerate(found, 1))
