"""Checkpoints of torch's Adam and AdamW and of the released AdaX code, converted.

`exp_avg_sq` holds the normalised v. The released AdaX code holds v * ((1+b2)^t - 1), torch's AdamW v * (1 - b2^t).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from adaxopt.memory import fading_log_norm, growing_log_norm
from adaxopt.torch import checkpoint, foreign, state

if TYPE_CHECKING:
    from adaxopt.torch.engine import Engine


def load_released_state_dict(optimizer: Engine, state_dict: Mapping[str, Any]) -> None:
    """Load a checkpoint of the released AdaX or AdaXW class into AdaX, AdaXW or Padax.

        v = v_released / ((1+b2)^t - 1)

    Its lr, betas, eps and weight_decay are taken over; everything that the released code did not have keeps this
    optimizer's value. A second moment that has overflowed (after about 887,000 steps in float32) cannot be mended, and
    raises.
    """
    _check_kinds(optimizer, state_dict, "released")
    taken = ("lr", "betas", "eps", "weight_decay")
    _convert(optimizer, state_dict, taken, lambda t, b2: growing_log_norm(t, b2))


def load_adamw_state_dict(optimizer: Engine, state_dict: Mapping[str, Any]) -> None:
    """Load a checkpoint of torch.optim.Adam or AdamW into AdaX, AdaXW or Padax.

        v = v_adam / (1 - b2^t)

    Only m, v and t are taken over: Adam's lr and betas mean other things here, so the hyper-parameters stay this
    optimizer's. After many steps the memory hardly moves (see `stats()`); `restart_memory()` begins it anew.
    """
    _check_kinds(optimizer, state_dict, "adamw")
    _convert(optimizer, state_dict, (), lambda t, b2: fading_log_norm(t, b2))


def _check_kinds(optimizer: Engine, given: Mapping[str, Any], kind: str) -> None:
    """Whether the optimizer is one of AdaX's, and the checkpoint of this kind."""
    if not foreign.converts(optimizer.method):
        raise TypeError(f"load_{kind}_state_dict({type(optimizer).__name__}): must be AdaX, AdaXW or Padax")
    checkpoint.check_form(given)
    if any("format" in group for group in given["param_groups"]):
        raise ValueError("this is a checkpoint of adaxopt itself: load it with optimizer.load_state_dict")
    found = foreign.recognised(given)
    if found.kind != kind:
        raise ValueError(f"load_{kind}_state_dict: {foreign.refusal(found, optimizer)}")


def _convert(optimizer: Engine, given: Mapping[str, Any], taken: tuple[str, ...], log_norm: Any) -> None:
    own = optimizer.state_dict()["param_groups"]
    theirs = deepcopy(given["param_groups"])
    if len(own) != len(theirs):
        raise ValueError(f"checkpoint with {len(theirs)} parameter groups: this optimizer has {len(own)}")
    groups = [
        {**mine, "params": other["params"], **{k: other[k] for k in taken if k in other}}
        for mine, other in zip(own, theirs, strict=True)
    ]
    b2_of = {name: float(group["betas"][1]) for group in theirs for name in group["params"]}
    entries: dict[Any, dict[str, Any]] = {}
    for name, entry in given["state"].items():
        if not entry:
            continue
        missing = sorted({"step", "exp_avg", "exp_avg_sq"} - set(entry))
        if missing:
            raise ValueError(
                f"checkpoint's parameter {name!r} has no {missing[0]!r}: not a checkpoint of this kind"
            )
        step = checkpoint.counted(entry["step"], "step", name)
        if not state.readable(step):
            raise ValueError(
                f"checkpoint's parameter {name!r} has a 'step' without a value (device {step.device}): load the file "
                'with map_location="cpu"'
            )
        t = step.item()
        raw = entry["exp_avg_sq"]
        for key in ("exp_avg", "exp_avg_sq"):
            checkpoint.check_moment(entry[key], key, name)
        real = torch.view_as_real(raw) if raw.is_complex() else raw
        if state.readable(real) and not bool(torch.isfinite(real).all()):
            raise ValueError(
                f"checkpoint's parameter {name!r} has a second moment that is not finite at step {t:.0f}: the code "
                "that wrote it had overflowed. Load the parameters alone and begin the optimizer anew"
            )
        entries[name] = {"step": step, "exp_avg": _wide(entry["exp_avg"])}
        shift = log_norm(t, b2_of[name]) if t > 0 else 0.0
        double = raw.to(torch.complex128 if raw.is_complex() else torch.float64)
        # two factors, because exp(shift) alone may overflow where the quotient does not
        half = math.exp(-shift / 2)
        entries[name]["exp_avg_sq"] = (double * half * half).to(_wide(raw).dtype)
    checkpoint.load(optimizer, {"state": entries, "param_groups": groups})


def _wide(t: Tensor) -> Tensor:
    return t.float() if t.dtype in state.LOW else t
