"""Hyper-parameters given as plain numbers: what is allowed, and errors that say so.

Values that are not plain numbers (a traced array, a schedule) pass: they are known only when a step runs.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from numbers import Real
from typing import Any

from adaxopt.rule import Rule
from adaxopt.zoo import DECAYS

PLACEMENTS = ("paper", "plain")
SUSPICIOUS = 0.01
"""A growth rate above this looks like a decay pasted from Adam."""


def check(
    options: Mapping[str, Any],
    rule: Rule,
    *,
    names: tuple[str, str] = ("b1", "b2"),
    lr: str = "lr",
    eps: str = "eps",
    arrays: tuple[type, ...] = (object,),
    stacklevel: int = 3,
) -> None:
    """Raise ValueError or TypeError at the first option that is not allowed; warn of a b2 that looks like Adam's.

    `names`, `lr` and `eps` are what a caller calls the betas and these two; `arrays` are the types that pass unseen.

    >>> from adaxopt.zoo import METHODS
    >>> check({**METHODS["adaxw"].defaults, "weight_decay": -0.1}, METHODS["adaxw"].rule)
    Traceback (most recent call last):
    ValueError: weight_decay=-0.1: must be >= 0
    """
    b1, b2 = options["betas"]
    kind = rule.memory.kind if rule.memory is not None else None
    _number(lr, options["lr"], arrays)
    _number(names[0], b1, arrays, below=1.0)
    least, below = (-math.inf, math.inf) if kind == "power" else (0.0, 1.0)
    _number(names[1], b2, arrays, least, below)
    if rule.mean == "none" and _plain(b1) and b1 != 0:
        raise ValueError(f"{names[0]}={b1!r}: must be 0, because this method keeps no first moment")
    _number(eps, options["eps"], arrays)
    _number("weight_decay", options["weight_decay"], arrays)
    wrong = TypeError if isinstance(options["p"], (bool, str, type(None))) else ValueError
    if not _plain(options["p"]) or not 0 <= options["p"] <= 0.5:
        raise wrong(f"p={options['p']!r}: must be a plain number in [0, 0.5], fixed before the first step")
    clip = options.get("clip_update")
    if clip is not None:
        _number("clip_update", clip, arrays)
        if _plain(clip) and clip == 0:
            raise ValueError(f"clip_update={clip!r}: must be > 0, or None for no bound")
    _choice("decay", options["decay"], DECAYS)
    _choice("eps_placement", options["eps_placement"], PLACEMENTS)
    for flag in ("wake", "correct"):
        _choice(flag, options.get(flag, False), (True, False))
    if rule.mean == "window":
        window = options["window"]
        if not isinstance(window, int) or isinstance(window, bool) or window < 1:
            raise ValueError(f"window={window!r}: must be an int >= 1")
        if _plain(options["eps"]) and options["eps"] == 0:
            raise ValueError(
                f"{eps}=0: must be > 0 here, because the second moment is empty while the window fills"
            )
    if kind == "growing" and _plain(b2) and b2 > SUSPICIOUS:
        warnings.warn(
            f"{names[1]}={b2!r} looks like Adam's decay; AdaX's b2 is a growth rate (paper: 1e-4), and at this value "
            f"the second moment is frozen after {_frozen_after(b2)} steps",
            stacklevel=stacklevel,
        )


def _plain(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _number(
    name: str, value: Any, arrays: tuple[type, ...], least: float = 0.0, below: float = math.inf
) -> None:
    bound = f"in [0, {below:g})" if below < math.inf else ">= 0" if least == 0 else "finite"
    if isinstance(value, (bool, str, type(None))) or not (_plain(value) or isinstance(value, arrays)):
        raise TypeError(f"{name}={value!r}: must be a number {bound}")
    if _plain(value) and not (least <= value < below and math.isfinite(value)):
        finite = " and finite" if bound == ">= 0" and value == math.inf else ""
        raise ValueError(f"{name}={value!r}: must be {bound}{finite}")


def _choice(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name}={value!r}: must be one of {', '.join(repr(a) for a in allowed)}")


def _frozen_after(b2: float) -> int:
    """Steps until the gain is below 2^-24, half a unit in the last place of float32."""
    return math.ceil(math.log1p(b2 * 2.0**24) / math.log1p(b2))
