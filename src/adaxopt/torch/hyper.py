"""Hyper-parameters that are tensors: reading them on the host, or reshaping them for the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from adaxopt.torch import state

Group = dict[str, Any]
NAMES = ("lr", "eps", "weight_decay", "reference_lr", "p", "clip_update")


def read(value: Any) -> Any:
    """The value of a one-element tensor, if it can be read; other values unchanged."""
    if not isinstance(value, Tensor) or torch.compiler.is_compiling() or not state.readable(value):
        return value
    return value.item()


def readable(group: Group) -> bool:
    """Whether the host can read all hyper-parameters that are tensors."""
    given = (*group["betas"], *(group[name] for name in NAMES))
    return all(state.readable(t) for t in given if isinstance(t, Tensor))


def floats(group: Group) -> Group:
    """The group with tensor hyper-parameters read to the host, once per step."""
    return _turned(group, Tensor.item)


def pointlike(group: Group) -> Group:
    """The group with tensor hyper-parameters reshaped to 0-d. Users may give one-element tensors of any shape."""
    return _turned(group, lambda t: t.reshape(()))


def _turned(group: Group, turn: Callable[[Tensor], Any]) -> Group:
    tensors = {name: turn(group[name]) for name in NAMES if isinstance(group[name], Tensor)}
    betas = tuple(turn(b) if isinstance(b, Tensor) else b for b in group["betas"])
    return {**group, **tensors, "betas": betas}


def traced(group: Group, time: Tensor) -> Group:
    """The group with lr and b1 as tensors, so that a compiled step is not recompiled when a scheduler changes them."""
    one = time.new_ones(())
    return {**group, "lr": one * group["lr"], "betas": (one * group["betas"][0], group["betas"][1])}
