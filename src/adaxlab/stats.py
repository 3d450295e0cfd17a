"""Statistics of small samples: intervals, tests, pairs over seeds, and the rule of a comparison.

Everything is plain Python on small samples; n goes with every number.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

from adaxlab.claim import LEAST
from adaxlab.errors import LabError


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean, summed exactly."""
    if not values:
        raise ValueError("mean of no values")
    return math.fsum(values) / len(values)


def sd(values: Sequence[float]) -> float:
    """The standard deviation of a sample (n - 1); NaN for a single value.

    >>> sd([1.0, 3.0])
    1.4142135623730951
    """
    if len(values) < 2:
        return math.nan
    m = mean(values)
    return math.sqrt(math.fsum((x - m) ** 2 for x in values) / (len(values) - 1))


# -- Student's t ----------------------------------------------------------------------------------------------


def _beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method (DLMF 8.17.22)."""
    tiny = 1e-300
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > tiny else tiny)
    result = d
    for m in range(1, 1000):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 + numerator * d
            d = 1 / (d if abs(d) > tiny else tiny)
            c = 1 + numerator / c
            c = c if abs(c) > tiny else tiny
            result *= d * c
        if abs(d * c - 1) < 1e-16:
            break
    return result


def beta_regularized(a: float, b: float, x: float) -> float:
    """I_x(a, b), the regularized incomplete beta function."""
    if not 0 <= x <= 1:
        raise ValueError(f"x={x!r}: must be in [0, 1]")
    if x in (0.0, 1.0):
        return x
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(a, b, x) / a
    return 1 - front * _beta_fraction(b, a, 1 - x) / b


def t_cdf(t: float, df: float) -> float:
    """P(T <= t) for Student's t with df degrees of freedom."""
    tail = 0.5 * beta_regularized(df / 2, 0.5, df / (df + t * t))
    return 1 - tail if t > 0 else tail


@functools.lru_cache(4096)
def t_quantile(p: float, df: float) -> float:
    """The t with P(T <= t) = p, by bisection on the tail.

    >>> round(t_quantile(0.975, 4), 6)
    2.776445
    """
    if not 0 < p < 1:
        raise ValueError(f"p={p!r}: must be in (0, 1)")
    if df <= 0:
        raise ValueError(f"df={df!r}: must be > 0")
    if p == 0.5:
        return 0.0
    tail = min(p, 1 - p)
    low, high = 0.0, 1.0
    while t_cdf(-high, df) > tail:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if t_cdf(-middle, df) > tail:
            low = middle
        else:
            high = middle
    return math.copysign((low + high) / 2, p - 0.5)


def p_value(values: Sequence[float], margin: float = 0.0) -> float:
    """Two-sided p of the t test of mean = `margin`: below 1 - c exactly where `t_interval(values, c)` excludes it.

    >>> round(p_value([1.0, 2.0, 3.0]), 4)
    0.0742
    """
    n, gap, s = len(values), mean(values) - margin, sd(values)
    if n < 2:
        return 1.0
    if s == 0:
        return 0.0 if gap else 1.0
    return min(1.0, 2 * t_cdf(-abs(gap) * math.sqrt(n) / s, n - 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment of p values that are judged together, in the order given.

    With p_(1) <= ... <= p_(m), the adjusted p_(i) = max over j <= i of min(1, (m - j + 1) p_(j)). Rejecting where the
    adjusted value is below alpha keeps the chance of any false rejection below alpha, whatever the dependence
    (Holm 1979).

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03, 0.005])]
    [0.03, 0.06, 0.06, 0.02]
    """
    for p in p_values:
        if not 0 <= p <= 1:
            raise ValueError(f"p={p!r}: must be in [0, 1]")
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted


# -- intervals ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Estimate:
    """A mean with its interval. `low` and `high` are NaN if n < 2; such a mean gives no verdict."""

    n: int
    mean: float
    sd: float
    low: float
    high: float
    confidence: float = 0.95
    method: str = "t"


def t_interval(values: Sequence[float], confidence: float = 0.95) -> Estimate:
    """mean +- t * sd/sqrt(n), for a sample from an approximately normal distribution.

    >>> e = t_interval([1.0, 2.0, 3.0])
    >>> round(e.low, 4), round(e.high, 4)
    (-0.4841, 4.4841)
    """
    _check_confidence(confidence)
    n, m, s = len(values), mean(values), sd(values)
    half = t_quantile((1 + confidence) / 2, n - 1) * s / math.sqrt(n) if n > 1 else math.nan
    return Estimate(n, m, s, m - half, m + half, confidence, "t")


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise LabError(f"confidence={confidence!r}: must be in (0, 1)")


# -- pairs and verdicts ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DecisionRule:
    """The decision rule of a comparison, fixed before the runs and stored with the study (see adaxlab.verdict).

    An optimizer is better than the baseline if the difference per seed is significantly above `margin`, worse if it is
    significantly below -`margin`, at the `confidence` of all comparisons of the study together. Fewer than `least`
    seeds give no verdict.
    """

    confidence: float = 0.95
    margin: float = 0.0
    least: int = LEAST
    correction: Literal["holm", "none"] = "holm"
    """The correction for the number of optimizers that are compared with the baseline."""

    def __post_init__(self) -> None:
        _check_confidence(self.confidence)
        if not 0 <= self.margin < math.inf:
            raise LabError(f"margin={self.margin!r}: must be a finite number >= 0, such as 0.01")
        if self.correction not in ("holm", "none"):
            raise LabError(f"correction={self.correction!r}: must be holm or none")
        if self.least < LEAST:
            raise LabError(f"least={self.least!r}: must be >= {LEAST}")


def paired(
    a: Mapping[int, float | None], b: Mapping[int, float | None], higher_is_better: bool = True
) -> dict[int, float]:
    """Per seed, how much better A is than B, for the seeds on which both have a number.

    >>> paired({0: 0.9, 1: 0.8, 2: None}, {0: 0.5, 1: 0.9, 2: 0.7})
    {0: 0.4, 1: -0.09999999999999998}
    """
    sign = 1 if higher_is_better else -1
    both = sorted(s for s in a if a[s] is not None and b.get(s) is not None)
    return {s: sign * (a[s] - b[s]) for s in both}  # type: ignore[operator]


def unpaired(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """Welch's 95% interval of mean(a) - mean(b), which ignores that runs share seeds.

    It does not affect the verdict; it is shown if it would give another one. Runs of one seed have the same initial
    weights, data order and crops, but training is chaotic, so a narrow paired interval of few seeds may be due to
    chance.

    >>> low, high = unpaired([1.0, 2.0, 3.0], [0.0, 1.0, 2.0])
    >>> round(low, 3), round(high, 3)
    (-1.267, 3.267)
    """
    parts = [sd(x) ** 2 / len(x) for x in (a, b)]
    middle, whole = mean(a) - mean(b), sum(parts)
    if whole == 0:
        return middle, middle
    free = whole**2 / sum(p**2 / (len(x) - 1) for p, x in zip(parts, (a, b), strict=True))
    half = t_quantile(0.975, free) * whole**0.5
    return middle - half, middle + half


def sample_size(
    gap: float, sd: float, confidence: float = 0.95, least: int = 2, most: int = 1_000_000, power: float = 0.5
) -> int | None:
    """The smallest n at which a difference of `gap` is significant with the probability `power`; None beyond `most`.

    For a power of 0.5 the interval of half-width t * sd/sqrt(n) is narrower than `gap`.

    >>> sample_size(0.2, 0.25), sample_size(0.2, 0.25, power=0.8), sample_size(0.0, 0.25)
    (9, 15, None)
    """
    z = NormalDist().inv_cdf((1 + confidence) / 2) + NormalDist().inv_cdf(power)
    if not gap > 0 or (z * sd / gap) ** 2 > most:
        return None
    n = max(least, 2, math.ceil((z * sd / gap) ** 2))  # too small by a few: the search starts there
    while (t_quantile((1 + confidence) / 2, n - 1) + t_quantile(power, n - 1)) * sd / math.sqrt(n) >= gap:
        n += 1
    return n
