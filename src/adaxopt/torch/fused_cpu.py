"""The rule by torch's own fused CPU kernel: one pass over memory.

Adam's kernel with beta2 = 1 - k_t, eps = eps_t and an infinite step (so that its bias corrections are 1) computes

    m <- b1*m + (1-b1)*g,   v <- (1-k)*v + k*g^2,   x <- x*(1 - lr*wd) - lr*m/(sqrt(v) + eps)

which is the rule for p = 1/2. It agrees with the foreach form to rounding, not to the bit. Late-activated coordinates
(v exactly 0) are given g^2 for v before (`wake_guard.wake`): the kernel then mixes g^2 with itself.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from adaxopt.rule import StepCoefficients
from adaxopt.torch import host_share, private, wake_guard
from adaxopt.torch.layout import beside

if TYPE_CHECKING:
    from adaxopt.torch.engine import Engine

LEAST_GAIN = 1e-9
"""Below it 1 - k no longer holds k."""


def is_half(p: Any) -> bool:
    """Whether p is 1/2 and stays so: a tensor may change in place, and to read it could mean to wait for a device."""
    return not isinstance(p, Tensor) and p == 0.5


def impossible(optimizer: Engine, group: Mapping[str, Any]) -> str | None:
    """Why this kernel can never serve a group with these options, or None."""
    rule = optimizer.method.rule
    if private.fused_adam_ is None or private.fused_adamw_ is None:
        return "this torch has no fused CPU kernel"
    if rule.memory is None or rule.mean != "average" or rule.eps_inside or not is_half(group["p"]):
        return "torch's CPU kernel computes an averaged m over sqrt(v) + eps, and no other form"
    if group["clip_update"] is not None:
        return "torch's CPU kernel does not bound the update (clip_update)"
    if group.get("cautious"):
        return "torch's CPU kernel does not leave out updates (cautious)"
    return None if optimizer._project is None else "torch's CPU kernel does not project"


def unsuitable(p: Tensor, entry: Mapping[str, Tensor], g: Tensor | None) -> str | None:
    """Why this parameter and its state, as reals, cannot be served, or None."""
    why = host_share.unsuitable(p, entry, g)
    if why is not None:
        return why
    m, v, top = entry["exp_avg"], entry["exp_avg_sq"], entry.get("max_exp_avg_sq")
    if not (p.is_cpu and m.is_cpu and v.is_cpu):
        return f"it is on {p.device}, its state on {m.device}"
    if top is not None and (top.stride(), top.dtype) != (v.stride(), v.dtype):
        return "its running maximum is laid out or stored otherwise"
    return _apart(p, m, m, v)


def key(p: Tensor, entry: Mapping[str, Tensor], g: Tensor | None, scaled: bool) -> tuple[Any, ...]:
    """What parameters have in common that are stepped together."""
    return (p.dtype,)


def _apart(x: Tensor, g: Tensor, m: Tensor, v: Tensor) -> str | None:
    """Why these four tensors cannot be read as flat memory side by side, or None."""
    if not x.shape == g.shape == m.shape == v.shape:
        # a parameter that was resized: the kernel knows memory alone, and would write past the end of its state
        return "its gradient or state has another shape"
    if x.dtype != g.dtype or x.dtype != m.dtype or x.dtype != v.dtype:
        return f"dtypes differ (parameter {x.dtype}, gradient {g.dtype}, state {m.dtype})"
    if x.dtype not in (torch.float32, torch.float64):
        return f"{x.dtype} is rounded by the kernel in its own way"
    if not (beside(g, x) and beside(m, x) and beside(v, x)):
        strides = (tuple(t.stride()) for t in (x, g, m))
        return "memory layouts differ or have gaps (parameter {}, gradient {}, state {})".format(*strides)
    return None


@functools.cache
def _never() -> Tensor:
    return torch.full((), math.inf, dtype=torch.float32, device="cpu")


def update(
    xs: list[Tensor],
    gs: list[Tensor],
    ms: list[Tensor],
    vs: list[Tensor],
    tops: list[Tensor],
    n: StepCoefficients,
    *,
    maximize: bool = False,
    wake: Sequence[int] = (),
) -> None:
    """One step in place; `wake` are positions to be guarded. Gradients are read, never written (so no `grad_scale`
    reaches the kernel).
    """
    lr = n.lr * n.s
    for i in wake:
        wake_guard.wake(vs[i], gs[i], x=xs[i] if n.l2 else None, l2=-n.l2 if maximize else n.l2)
    if n.k == 1:
        private.foreach_zero_(vs)  # an infinite v is forgotten: 0*inf is NaN
    kernel = private.fused_adam_ if n.l2 else private.fused_adamw_
    kernel(
        xs,
        gs,
        ms,
        vs,
        tops,
        [_never()] * len(xs),
        amsgrad=bool(tops),
        lr=lr,
        beta1=n.a,
        beta2=1 - n.k,
        weight_decay=n.l2 or (n.shrink / lr if lr else 0.0),
        eps=n.eps,
        maximize=maximize,
    )


class Share(host_share.HostShare):
    """Parameters of one dtype that the kernel serves."""

    least_gain = LEAST_GAIN
    unfit = staticmethod(_apart)
    update = staticmethod(update)
