"""Hyper-parameters of a group that are tensors: read to the host, or shaped for the device."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from adaxopt.torch import state

Group = dict[str, Any]
NAMES = ("lr", "eps", "weight_decay", "reference_lr")


def readable(group: Group) -> bool:
    """Whether the host can read all that are tensors."""
    given = (group["lr"], *group["betas"], group["eps"], group["weight_decay"])
    return all(state.readable(t) for t in given if isinstance(t, Tensor))


def floats(group: Group) -> Group:
    """The group with tensor hyper-parameters read to the host, once a step."""
    read = {k: group[k].item() for k in NAMES if isinstance(group[k], Tensor)}
    betas = tuple(b.item() if isinstance(b, Tensor) else b for b in group["betas"])
    return {**group, **read, "betas": betas}


def pointlike(group: Group) -> Group:
    """The group with tensor hyper-parameters of no dimension: one element in any shape is allowed, and broadcasts."""
    read = {k: group[k].reshape(()) for k in NAMES if isinstance(group[k], Tensor)}
    betas = tuple(b.reshape(()) if isinstance(b, Tensor) else b for b in group["betas"])
    return {**group, **read, "betas": betas}


def traced(group: Group, time: Tensor) -> Group:
    """The group with lr and b1 as tensors: a compiled step then serves every value that a scheduler writes."""
    one = time.new_ones(())
    return {**group, "lr": one * group["lr"], "betas": (one * group["betas"][0], group["betas"][1])}
