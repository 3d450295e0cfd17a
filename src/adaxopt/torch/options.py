"""Hyper-parameters: what is allowed, and errors that say so."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from adaxopt.rule import Rule
from adaxopt.zoo import DECAYS

ROUNDINGS = ("nearest", "stochastic", "kahan")
PLACEMENTS = ("paper", "plain")
STATE_DTYPES = (None, torch.float32, torch.float64, torch.bfloat16)
FORMAT = 1
"""Version of the state that a checkpoint holds; stands in every param group as `format`."""

ENGINE_DEFAULTS: dict[str, Any] = {
    "foreach": None,
    "fused": None,
    "capturable": False,
    "differentiable": False,
    "maximize": False,
    "state_dtype": None,
    "rounding": "nearest",
    "seed": 0,
    "format": FORMAT,
}


def _number(name: str, value: Any, low: float, high: float = math.inf, *, open_high: bool = False) -> None:
    bound = f">= {low:g}" if high == math.inf else f"in [{low:g}, {high:g}{')' if open_high else ']'}"
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise ValueError(f"{name}=<tensor of shape {tuple(value.shape)}>: a tensor must have one element")
        if value.is_meta or torch.compiler.is_compiling():
            return
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name}={value!r}: must be a number {bound}")
    if not (low <= value <= high) or (open_high and value >= high):
        raise ValueError(f"{name}={value!r}: must be {bound}")
    if math.isinf(value):
        raise ValueError(f"{name}={value!r}: must be {bound} and finite")


def _choice(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name}={value!r}: must be one of {', '.join(repr(a) for a in allowed)}")


def check(options: Mapping[str, Any], rule: Rule) -> None:
    """Raise ValueError or TypeError at the first option that is not allowed; warn of a b2 that looks like Adam's."""
    _number("lr", options["lr"], 0.0)
    betas = options["betas"]
    if not isinstance(betas, (tuple, list)) or len(betas) != 2:
        raise ValueError(f"betas={betas!r}: must be a pair (b1, b2)")
    _number("betas[0]", betas[0], 0.0, 1.0, open_high=True)
    if rule.memory is not None and rule.memory.kind == "power":
        _number("betas[1]", betas[1], 0.0)
    else:
        _number("betas[1]", betas[1], 0.0, 1.0, open_high=True)
    if rule.mean == "none" and not isinstance(betas[0], Tensor) and betas[0] != 0:
        raise ValueError(f"betas[0]={betas[0]!r}: must be 0, because this method keeps no first moment")
    _number("eps", options["eps"], 0.0)
    _number("weight_decay", options["weight_decay"], 0.0)
    _number("p", options["p"], 0.0, 0.5)
    if options["clip_update"] is not None:
        _number("clip_update", options["clip_update"], 0.0)
        if options["clip_update"] == 0:
            raise ValueError("clip_update=0: must be > 0, or None for no bound")
    _choice("decay", options["decay"], DECAYS)
    _choice("eps_placement", options["eps_placement"], PLACEMENTS)
    _choice("rounding", options["rounding"], ROUNDINGS)
    _choice("state_dtype", options["state_dtype"], STATE_DTYPES)
    for flag in ("foreach", "fused"):
        _choice(flag, options[flag], (None, True, False))
    for flag in ("capturable", "differentiable", "maximize", "wake", "correct"):
        _choice(flag, options.get(flag, False), (True, False))
    if not isinstance(options["seed"], int) or isinstance(options["seed"], bool):
        raise TypeError(f"seed={options['seed']!r}: must be an int")
    if rule.mean == "window":
        window = options["window"]
        if not isinstance(window, int) or isinstance(window, bool) or window < 1:
            raise ValueError(f"window={window!r}: must be an int >= 1")
        if options["eps"] == 0:
            raise ValueError(
                "eps=0: must be > 0 here, because the second moment is empty while the window fills"
            )
    _together(options)
    b2 = betas[1]
    if rule.memory is not None and rule.memory.kind == "growing" and not isinstance(b2, Tensor) and b2 > 0.01:
        warnings.warn(
            f"betas[1]={b2!r} looks like Adam's decay; AdaX's b2 is a growth rate (paper: 1e-4), and at this "
            f"value the second moment is frozen after {_frozen_after(b2)} steps",
            stacklevel=4,  # check, the engine, the class, its caller
        )


def _frozen_after(b2: float) -> int:
    """Steps until the gain is below 2^-24, half a unit in the last place of float32."""
    return math.ceil(math.log1p(b2 * 2.0**24) / math.log1p(b2))


def _together(o: Mapping[str, Any]) -> None:
    if o["foreach"] and o["fused"]:
        raise ValueError("foreach=True, fused=True: choose one of the two")
    if o["differentiable"]:
        for flag in ("foreach", "fused", "capturable"):
            if o[flag]:
                raise ValueError(f"differentiable=True, {flag}=True: a differentiable step has its own path")
        if o["rounding"] != "nearest":
            raise ValueError(f"differentiable=True, rounding={o['rounding']!r}: rounding has no derivative")
        if o["state_dtype"] is torch.bfloat16:
            raise ValueError("differentiable=True, state_dtype=torch.bfloat16: rounding has no derivative")


def check_parameter(p: Tensor) -> None:
    if not (p.is_floating_point() or p.is_complex()):
        raise TypeError(f"parameter of dtype {p.dtype}: must be floating point or complex")
    if p.layout != torch.strided:
        raise TypeError(f"parameter of layout {p.layout}: must be dense (its gradient may be sparse)")
