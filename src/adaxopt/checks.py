"""Hyper-parameters given as plain numbers: what is allowed, and errors that say so.

Values that are not plain numbers (a traced array, a schedule) pass: they are known only when a step runs.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

from adaxopt.rule import Rule
from adaxopt.zoo import DECAYS

PLACEMENTS = ("paper", "plain")
SUSPICIOUS = 0.01
"""A growth rate above this looks like a decay pasted from Adam."""


def check(options: Mapping[str, Any], rule: Rule, stacklevel: int = 3) -> None:
    """Raise ValueError or TypeError at the first option that is not allowed; warn of a b2 that looks like Adam's.

    >>> from adaxopt.zoo import METHODS
    >>> check({**METHODS["adaxw"].defaults, "weight_decay": -0.1}, METHODS["adaxw"].rule)
    Traceback (most recent call last):
    ValueError: weight_decay=-0.1: must be >= 0
    """
    b1, b2 = options["betas"]
    power = rule.memory is not None and rule.memory.kind == "power"
    _number("lr", options["lr"], 0.0)
    _number("b1", b1, 0.0, 1.0)
    _number("b2", b2, 0.0, math.inf if power else 1.0)
    _number("eps", options["eps"], 0.0)
    _number("weight_decay", options["weight_decay"], 0.0)
    if not isinstance(options["p"], (int, float)) or not 0 <= options["p"] <= 0.5:
        raise ValueError(
            f"p={options['p']!r}: must be a plain number in [0, 0.5], fixed before the first step"
        )
    clip = options.get("clip_update")
    if isinstance(clip, (int, float)) and not clip > 0:
        raise ValueError(f"clip_update={clip!r}: must be > 0, or None for no bound")
    _choice("decay", options["decay"], DECAYS)
    _choice("eps_placement", options["eps_placement"], PLACEMENTS)
    _choice("wake", options["wake"], (True, False))
    if rule.mean == "window":
        window = options["window"]
        if not isinstance(window, int) or isinstance(window, bool) or window < 1:
            raise ValueError(f"window={window!r}: must be an int >= 1")
        if _plain(options["eps"]) and options["eps"] == 0:
            raise ValueError(
                "eps=0: must be > 0 here, because the second moment is empty while the window fills"
            )
    if rule.memory is not None and rule.memory.kind == "growing" and _plain(b2) and b2 > SUSPICIOUS:
        warnings.warn(
            f"b2={b2!r} looks like Adam's decay; AdaX's b2 is a growth rate (paper: 1e-4), and at this value the "
            f"second moment is frozen after {_frozen_after(b2)} steps",
            stacklevel=stacklevel,
        )


def _plain(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _number(name: str, value: Any, low: float, high: float = math.inf) -> None:
    bound = f">= {low:g}" if high == math.inf else f"in [{low:g}, {high:g})"
    if isinstance(value, (bool, str, type(None))):
        raise TypeError(f"{name}={value!r}: must be a number {bound}")
    if _plain(value) and not low <= value < high:
        raise ValueError(f"{name}={value!r}: must be {bound}")


def _choice(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name}={value!r}: must be one of {', '.join(repr(a) for a in allowed)}")


def _frozen_after(b2: float) -> int:
    """Steps until the gain is below 2^-24, half a unit in the last place of float32."""
    return math.ceil(math.log1p(b2 * 2.0**24) / math.log1p(b2))
