"""The foreach form as a backend, for dense float32 and float64 parameters on any device.

Checks of the tensors are not repeated at every step. This is the last backend that a plan tries. Parameters that it
does not support take the foreach form, or operators, through `dispatch.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from adaxopt.torch import foreach, host_share

if TYPE_CHECKING:
    from adaxopt.torch.engine import Engine


def impossible(optimizer: Engine, group: Mapping[str, Any]) -> str | None:
    """Why this backend supports no parameter of a group with these options, or None."""
    rule = optimizer.method.rule
    if rule.memory is None or rule.mean in ("none", "window"):
        return "it serves methods that keep m and v"
    if optimizer._project is not None or group["capturable"]:
        return "it serves neither a projection nor a step that is captured"
    return "foreach=False steps one parameter at a time" if group["foreach"] is False else None


def unsuitable(p: Tensor, entry: Mapping[str, Tensor], g: Tensor | None) -> str | None:
    """Why this parameter and its state (as real tensors) are not supported, or None."""
    why = host_share.unsuitable(p, entry, g)
    return why or _mismatch(p, entry.get("max_exp_avg_sq", p), entry["exp_avg"], entry["exp_avg_sq"])


def key(p: Tensor, entry: Mapping[str, Tensor], g: Tensor | None, scaled: bool) -> tuple[Any, ...]:
    """The key that parameters of one share have in common."""
    return p.dtype, p.device, type(p)


def _mismatch(x: Tensor, g: Tensor, m: Tensor, v: Tensor) -> str | None:
    if not x.shape == g.shape == m.shape == v.shape:
        return "its gradient or state has another shape"
    if not x.device == g.device == m.device == v.device:
        return "its gradient or state is on another device"
    if x.dtype not in (torch.float32, torch.float64) or not x.dtype == g.dtype == m.dtype == v.dtype:
        return f"dtypes differ, or are rounded (parameter {x.dtype}, gradient {g.dtype}, state {m.dtype})"
    return None


class Share(host_share.HostShare):
    unfit = staticmethod(_mismatch)
    update = staticmethod(foreach.update)
