"""Formatting of numbers in a report: intervals, percentages, significant digits."""

from __future__ import annotations

import math
from collections.abc import Sequence

from adaxlab import stats
from adaxlab.verdict import EQUAL


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean and 95% t interval; one value is its own interval."""
    seen = stats.t_interval(values)
    return (seen.mean, seen.low, seen.high) if seen.n > 1 else (seen.mean, seen.mean, seen.mean)


def percent(share: float) -> str:
    """A fraction as a percentage, without trailing zeros.

    >>> percent(0.95), percent(0.9875)
    ('95%', '98.75%')
    """
    return f"{100 * share:.6g}%"


def published(mean: float, margin: float) -> str:
    """A published value with the digits of its margin.

    >>> published(92.3, 0.09)
    '92.30 ± 0.09'
    """
    digits = max(0, -math.floor(math.log10(margin))) if margin > 0 else 2
    return f"{mean:.{digits}f} ± {margin:.{digits}f}"


class Figures:
    """Numbers with as many digits as their uncertainty allows: two digits of `width`.

    >>> Figures(0.031).number(0.98765), Figures(0.0).number(0.98765)
    ('0.988', '0.98765')
    """

    def __init__(self, width: float) -> None:
        self.decimals = min(8, max(0, 1 - math.floor(math.log10(width)))) if width > 0 else None

    def number(self, value: float, signed: bool = False) -> str:
        if self.decimals is None or abs(value) >= 1e7:
            text = f"{value:+.5g}" if signed else f"{value:.5g}"
        else:
            value = round(value, self.decimals) + 0.0  # the sum turns -0 into 0
            text = f"{value:{'+' if signed and value else ''}.{self.decimals}f}"
        return text.replace("-", "\N{MINUS SIGN}")

    def interval(self, mean: float, low: float, high: float, signed: bool = False) -> str:
        """The mean with its interval, or only the mean if the interval is no wider than the rounding error.

        >>> Figures(0.2).interval(0.5, 0.4, 0.6), Figures(1e-17).interval(-0.02, -0.02, -0.02 + 1e-17)
        ('0.50 [0.40, 0.60]', '−0.02')
        """
        if low == high:
            return self.number(mean, signed)
        if high - low <= EQUAL * abs(mean):
            return Figures(0.0).number(mean, signed)
        return f"{self.number(mean, signed)} [{self.number(low, signed)}, {self.number(high, signed)}]"


def listed(names: Sequence[str]) -> str:
    """
    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
