"""Options of the torch optimizers: validation beyond `adaxopt.checks`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from adaxopt import checks, memories
from adaxopt.bounds import own
from adaxopt.bounds import plain as plain_number
from adaxopt.memories import Memory
from adaxopt.rule import Rule
from adaxopt.torch import hyper
from adaxopt.zoo import Method

Betas = tuple[float | Tensor, float | Tensor | None]
Rounding = Literal["nearest", "stochastic", "kahan", "24bit"]
ROUNDINGS: tuple[str, ...] = get_args(Rounding)
STATE_DTYPES = (None, torch.float32, torch.float64, torch.bfloat16, torch.uint8)
FORMAT = 2
"""Version of the checkpoint format, stored in every param group as `format`."""
FORMAT_ROWS = 3
"""The format of a saved group in which a parameter has a step count per row (sparse gradients)."""
INTERNAL = ("format", "method", "reference_lr")
"""Keys of a param group that are not user options."""

ENGINE_DEFAULTS: dict[str, Any] = {
    "foreach": None,
    "fused": None,
    "capturable": False,
    "differentiable": False,
    "maximize": False,
    "state_dtype": None,
    "rounding": "nearest",
    "seed": 0,
}


FLAGS = ("foreach", "fused", "capturable", "differentiable", "maximize", "wake", "cautious", "correct")


def check(options: Mapping[str, Any], rule: Rule, stacklevel: int = 1) -> None:
    """Raise ValueError or TypeError for the first invalid option; warn if b2 looks like Adam's.

    `stacklevel` is the value with which a warning issued by the caller would show the user's line.
    """
    betas = options["betas"]
    checks.pair(betas)
    names = ("betas[0]", "betas[1]")
    read = {k: _read(k, options[k]) for k in ("lr", "eps", "weight_decay", "p", "clip_update")}
    check_memory(options)
    read["betas"] = tuple(_read(name, b) for name, b in zip(names, betas, strict=True))
    checks.check({**options, **read}, rule, names=names, arrays=(Tensor,), stacklevel=stacklevel + 2)
    checks.choice("rounding", options["rounding"], ROUNDINGS)
    checks.choice("state_dtype", options["state_dtype"], STATE_DTYPES)
    for flag in ("foreach", "fused"):
        checks.choice(flag, options[flag], (None, True, False))
    for flag in ("capturable", "differentiable", "maximize"):
        checks.choice(flag, options[flag], (True, False))
    if not isinstance(options["seed"], int) or isinstance(options["seed"], bool):
        raise TypeError(f"seed={options['seed']!r}: must be an int")
    _together(options)
    if options["state_dtype"] is torch.uint8 and (rule.memory is None or rule.mean == "window"):
        kept = "no second moment" if rule.memory is None else "a window of gradients"
        raise ValueError(f"state_dtype=torch.uint8: 8-bit state is m and v, and this method keeps {kept}")


def dtype_of(value: Any) -> Any:
    """The dtype for a `state_dtype` that a checkpoint stores by name; other values unchanged."""
    if isinstance(value, str):
        return next((d for d in STATE_DTYPES if d is not None and str(d) == f"torch.{value}"), value)
    return value


def dtype_name(dtype: torch.dtype | None) -> str | None:
    """
    >>> dtype_name(torch.bfloat16), dtype_of("bfloat16"), dtype_name(None)
    ('bfloat16', torch.bfloat16, None)
    """
    return None if dtype is None else str(dtype).removeprefix("torch.")


def complete(group: dict[str, Any], defaults: Mapping[str, Any]) -> None:
    """Add the options that a group of a file lacks. A file without `memory` or `total_steps` was saved before these
    existed: its b2 is not the number of the new optimizer's memory or run length, so they become None."""
    for key, value in defaults.items():
        group.setdefault(key, None if key in ("memory", "total_steps") else value)


def settle_copied(group: dict[str, Any], method: Method) -> None:
    """Settle a Memory, or a b2 of None, that ZeroRedundancyOptimizer copied from its arguments into a group."""
    (b1, b2), memory = group["betas"], group.get("memory")
    if b2 is None or (isinstance(memory, Memory) and plain_number(b2) and b2 == memory.number):
        group.update(checks.settle(method, (b1, None), memory, group.get("total_steps")))


def check_memory(options: Mapping[str, Any]) -> None:
    """Raise if a Memory object, or a text that is not a memory's, was written into a param group."""
    memory = options.get("memory")
    if not isinstance(memory, (str, type(None))):
        raise TypeError(f"memory={memory!r} in a group: give it to the constructor or add_param_group")
    if memory is not None:
        memories.read(memory)


def check_reference(options: Mapping[str, Any]) -> None:
    """Raise ValueError if fully decoupled decay is used and the first lr is not > 0."""
    first = options.get("reference_lr", 1.0)
    if options["decay"] != "fully_decoupled" or isinstance(first, Tensor):
        return
    decays = isinstance(options["weight_decay"], Tensor) or options["weight_decay"] != 0
    if decays and not (isinstance(first, (int, float)) and 0 < first < math.inf):
        raise ValueError(
            f"reference_lr={first!r}, decay='fully_decoupled': weight decay is measured against the first lr, which "
            "must be > 0; set group['reference_lr']"
        )


def plain(given: Mapping[str, Any]) -> dict[str, Any]:
    """Convert numbers of other libraries (NumPy scalars) to Python's: checkpoints hold only tensors and plain numbers.

    Flags given as 0 or 1 become bools, and a `total_steps` tensor becomes a number.
    """
    result = {k: own(v) for k, v in given.items()}
    result.update({k: bool(v) for k, v in result.items() if k in FLAGS and type(v) is int and v in (0, 1)})
    if isinstance(given.get("betas"), (tuple, list)):
        result["betas"] = tuple(map(own, given["betas"]))
    if "total_steps" in result:
        result["total_steps"] = hyper.read(result["total_steps"])
    return result


def _read(name: str, value: Any) -> Any:
    if isinstance(value, Tensor) and value.numel() != 1:
        raise ValueError(f"{name}=<tensor of shape {tuple(value.shape)}>: a tensor must have one element")
    return hyper.read(value)


def _together(o: Mapping[str, Any]) -> None:
    if o["foreach"] and o["fused"]:
        raise ValueError("foreach=True, fused=True: choose one of the two")
    if o["differentiable"]:
        for flag in ("foreach", "fused"):
            if o[flag]:
                raise ValueError(f"differentiable=True, {flag}=True: a differentiable step has its own path")
        if o["rounding"] != "nearest":
            raise ValueError(f"differentiable=True, rounding={o['rounding']!r}: rounding has no derivative")
        if o["state_dtype"] in (torch.bfloat16, torch.uint8):
            raise ValueError(
                f"differentiable=True, state_dtype={o['state_dtype']}: rounding has no derivative"
            )


def given_by(constructor: Mapping[str, Any]) -> dict[str, Any]:
    """The options among the local variables of a constructor."""
    others = ("self", "params", "project", "__class__")
    return {name: value for name, value in constructor.items() if name not in others}


def renamed(given: Mapping[str, Any], method: Method, betas: tuple[Any, Any]) -> dict[str, Any]:
    """Move a method's own name for one of its betas (`momentum`, `alpha` or `c`) into `betas`."""
    result = dict(given)
    for word, place in method.names.items():
        if word in result:
            if "betas" in result:
                raise ValueError(f"{word}={given[word]!r}, betas={given['betas']!r}: give one of the two")
            pair = list(betas)
            pair[place] = result.pop(word)
            result["betas"] = tuple(pair)
    return result


def check_parameter(p: Tensor, state_dtype: torch.dtype | None = None, rounding: str = "nearest") -> None:
    if not (p.is_floating_point() or p.is_complex()):
        raise TypeError(f"parameter of dtype {p.dtype}: must be floating point or complex")
    if p.layout != torch.strided:
        raise TypeError(f"parameter of layout {p.layout}: must be dense (its gradient may be sparse)")
    if p.is_complex() and state_dtype in (torch.bfloat16, torch.uint8):
        raise ValueError(
            f"state_dtype={state_dtype}: complex state needs 64 bits or more; leave it None here"
        )
    if rounding in ("kahan", "24bit") and p.dtype == torch.complex32:
        raise ValueError(
            f"rounding={rounding!r}: parameters of dtype {p.dtype} are not supported; take 'nearest' or 'stochastic'"
        )
    if rounding == "24bit" and p.dtype == torch.float16:
        raise ValueError(
            "rounding='24bit': 8 correction bits are kept for torch.bfloat16, and this parameter is torch.float16; "
            "take rounding='kahan'"
        )
