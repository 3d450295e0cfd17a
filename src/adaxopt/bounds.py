"""Range checks for plain numbers. Errors name the given value and the allowed range."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any


def plain(value: Any) -> bool:
    """Whether `value` is a Python number. Arrays are excluded, because they may be traced."""
    return isinstance(value, Real) and not isinstance(value, bool)


def own(value: Any) -> Any:
    """Convert a number of another library, such as a NumPy scalar, to a Python number; return other values unchanged.

    >>> from fractions import Fraction
    >>> own(Fraction(1, 4)), own(3), own("adax")
    (0.25, 3, 'adax')
    """
    if type(value).__module__ == "numpy" and hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return value.item()
    return float(value) if isinstance(value, Real) and not isinstance(value, (int, float)) else value


def number(
    name: str,
    value: Any,
    arrays: tuple[type, ...] = (object,),
    least: float = 0.0,
    below: float = math.inf,
    *,
    positive: bool = False,
) -> None:
    """Raise unless `value` is a finite number in [least, below) (and > 0 if `positive`), or an instance of `arrays`.

    >>> number("eps", -1.0)
    Traceback (most recent call last):
    ValueError: eps=-1.0: must be >= 0
    """
    bound = f"in [0, {below:g})" if below < math.inf else ">= 0" if least == 0 else "finite"
    bound = "> 0" if positive else bound
    if isinstance(value, (bool, str, type(None))) or not (plain(value) or isinstance(value, arrays)):
        raise TypeError(f"{name}={value!r}: must be a number {bound}")
    inside = (
        plain(value) and least <= value < below and math.isfinite(value) and not (positive and value == 0)
    )
    if plain(value) and not inside:
        finite = " and finite" if bound.endswith("0") and value == math.inf else ""
        raise ValueError(f"{name}={value!r}: must be {bound}{finite}")
