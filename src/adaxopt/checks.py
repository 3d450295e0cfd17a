"""Validation of hyper-parameters that are plain numbers.

Other values (a traced array, a schedule) are not checked: they are known only when a step runs.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any, Literal, get_args

from adaxopt import memories
from adaxopt.bounds import number, own, plain
from adaxopt.memories import Growing, Memory
from adaxopt.rule import Rule
from adaxopt.zoo import DECAYS, Method

EpsPlacement = Literal["paper", "plain"]
PLACEMENTS: tuple[str, ...] = get_args(EpsPlacement)
SUSPICIOUS = 0.01
"""A growth rate above this looks like Adam's decay rate."""
MOST = 50.0
"""The largest b2*T of the paper's runs. No warning is given up to this value if the run length is known."""


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
    """Raise ValueError or TypeError for the first invalid option; warn if b2 looks like Adam's.

    `names`, `lr` and `eps` are the caller's names for the betas, lr and eps, used in messages. Values of the types in
    `arrays` are not checked.

    >>> from adaxopt.zoo import METHODS
    >>> check({**METHODS["adaxw"].defaults, "weight_decay": -0.1}, METHODS["adaxw"].rule)
    Traceback (most recent call last):
    ValueError: weight_decay=-0.1: must be >= 0
    """
    b1, b2 = options["betas"]
    number(lr, options["lr"], arrays)
    number(names[0], b1, arrays, below=1.0)
    bounds: dict[str, Any] = {"below": 1.0}
    if rule.memory is not None:
        bounds = (
            rule.memory if options.get("memory") is None else memories.read(options["memory"])[0]
        ).bounds
    number(names[1], b2, arrays, **bounds)
    if rule.mean == "none" and plain(b1) and b1 != 0:
        raise ValueError(f"{names[0]}={b1!r}: must be 0, because this method keeps no first moment")
    number(eps, options["eps"], arrays)
    number("weight_decay", options["weight_decay"], arrays)
    wrong = TypeError if isinstance(options["p"], (bool, str, type(None))) else ValueError
    if not plain(options["p"]) or not 0 <= options["p"] <= 0.5:
        raise wrong(f"p={options['p']!r}: must be a plain number in [0, 0.5], fixed before the first step")
    clip = options.get("clip_update")
    if clip is not None:
        number("clip_update", clip, arrays)
        if plain(clip) and clip == 0:
            raise ValueError(f"clip_update={clip!r}: must be > 0, or None for no bound")
    choice("decay", options["decay"], DECAYS)
    choice("eps_placement", options["eps_placement"], PLACEMENTS)
    for flag in ("wake", "correct", "cautious"):
        choice(flag, options.get(flag, False), (True, False))
    if rule.mean == "window":
        window = options["window"]
        if not isinstance(window, int) or isinstance(window, bool) or window < 1:
            raise ValueError(f"window={window!r}: must be an int >= 1")
        if plain(options["eps"]) and options["eps"] == 0:
            raise ValueError(
                f"{eps}=0: must be > 0 here, because the second moment is empty while the window fills"
            )
    if suspicious(options, rule):
        warnings.warn(looks_like_adams(names[1], b2), stacklevel=stacklevel)


def settle(
    method: Method,
    betas: Any,
    memory: Memory | str | None = None,
    total_steps: Any = None,
    name: str = "betas[1]",
) -> dict[str, Any]:
    """Resolve the options `betas`, `memory` and `total_steps` of a param group.

    Where betas[1] is None, it becomes the memory's number, 3/total_steps or the method's default.

    >>> from adaxopt.zoo import METHODS
    >>> settle(METHODS["adaxw"], (0.9, None), total_steps=30_000)
    {'betas': (0.9, 0.0001), 'memory': None, 'total_steps': 30000}
    >>> settle(METHODS["adaxw"], (0.9, None), memories.LogTime(8))
    {'betas': (0.9, 8), 'memory': 'log_time', 'total_steps': None}
    """
    pair(betas)
    (b1, b2), total_steps = betas, own(total_steps)
    if memory is not None and not isinstance(memory, (Memory, str)):
        raise TypeError(f"memory={memory!r}: {memories.ALLOWED}")
    if memory is not None and total_steps is not None:
        raise ValueError(
            f"memory={memory!r}, total_steps={total_steps!r}: give one of the two (total_steps=T is "
            "memory=Growing.over(T))"
        )
    if isinstance(memory, Memory):
        if b2 is not None:
            raise ValueError(
                f"memory={memory!r}, {name}={b2!r}: a memory has its own number; leave {name} None"
            )
        b2, memory = memory.number, memory.text
    elif memory is not None and b2 is None:
        raise ValueError(f"memory={memory!r}: {memories.ALLOWED}, with its number as {name}")
    elif callable(total_steps) or isinstance(total_steps, (str, list, tuple)):
        raise TypeError(f"total_steps={total_steps!r}: must be a number, the steps of the whole run")
    elif total_steps is not None:
        over = Growing.over(total_steps).number
        if b2 is not None and not (plain(b2) and plain(over) and b2 == over):
            raise ValueError(
                f"total_steps={total_steps!r}, {name}={b2!r}: total_steps sets b2 = 3/T; give one of the two"
            )
        b2 = over
    if b2 is None:
        b2 = method.defaults["betas"][1]
    settled = {"betas": (b1, b2), "memory": memory, "total_steps": total_steps}
    return {key: value for key, value in settled.items() if key in method.defaults}


def suspicious(options: Mapping[str, Any], rule: Rule) -> bool:
    """Whether b2 looks like a decay rate although the method's b2 is a growth rate.

    False if the run length makes the value plausible, or if a `memory` is given.
    """
    b2, total = options["betas"][1], options.get("total_steps")
    if (
        rule.memory is not Growing
        or options.get("memory") is not None
        or not plain(b2)
        or not b2 > SUSPICIOUS
    ):
        return False
    return not (plain(total) and b2 * total <= MOST)


def looks_like_adams(name: str, b2: float) -> str:
    return (
        f"{name}={b2!r} looks like Adam's decay; AdaX's b2 is a growth rate (paper: 1e-4), and at this value "
        f"the second moment is frozen after {_frozen_after(b2)} steps"
    )


def pair(betas: Any) -> None:
    """Raise ValueError unless betas is a tuple or list of two."""
    if not isinstance(betas, (tuple, list)) or len(betas) != 2:
        raise ValueError(f"betas={betas!r}: must be a pair (b1, b2)")


def choice(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    """Raise ValueError unless the value is one of those allowed."""
    if value not in allowed:
        raise ValueError(f"{name}={value!r}: must be one of {', '.join(repr(a) for a in allowed)}")


def _frozen_after(b2: float) -> int:
    """Steps until the gain is below 2^-24, half a unit in the last place of float32."""
    return math.ceil(math.log1p(b2 * 2.0**24) / math.log1p(b2))
