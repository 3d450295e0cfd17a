"""The update rule by torch's fused CPU kernel for Adam, in one pass over memory.

With beta2 = 1 - k_t, eps = eps_t and an infinite step (so that its bias corrections are 1) the kernel computes

    m <- b1*m + (1-b1)*g,   v <- (1-k)*v + k*g^2,   x <- x*(1 - lr*wd) - lr*m/(sqrt(v) + eps)

which is the rule for p = 1/2. Results agree with the foreach form up to rounding, not bitwise. For coordinates without
a gradient so far (v exactly 0), v is set to g^2 before the kernel runs (`wake_guard.wake`): the kernel then averages
g^2 with itself.
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
"""For a smaller gain k, too few digits of k are left in 1 - k."""


def is_half(p: Any) -> bool:
    """Whether p is the plain number 1/2. A tensor may change in place, and reading it may synchronise with a device."""
    return not isinstance(p, Tensor) and p == 0.5


def impossible(optimizer: Engine, group: Mapping[str, Any]) -> str | None:
    """Why this kernel supports no parameter of a group with these options, or None."""
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
    """Why this parameter and its state (as real tensors) are not supported, or None."""
    why = host_share.unsuitable(p, entry, g)
    if why is not None:
        return why
    m, v, v_max = entry["exp_avg"], entry["exp_avg_sq"], entry.get("max_exp_avg_sq")
    if not (p.is_cpu and m.is_cpu and v.is_cpu):
        return f"it is on {p.device}, its state on {m.device}"
    if v_max is not None and (v_max.stride(), v_max.dtype) != (v.stride(), v.dtype):
        return "its running maximum has another memory layout or dtype than v"
    return _mismatch(p, None, m, v)


def key(p: Tensor, entry: Mapping[str, Tensor], g: Tensor | None, scaled: bool) -> tuple[Any, ...]:
    """The key that parameters of one share have in common."""
    return (p.dtype,)


def _mismatch(x: Tensor, g: Tensor | None, m: Tensor, v: Tensor) -> str | None:
    """Why these tensors do not have one shape, a supported dtype and one dense memory order, or None.

    Without a gradient, only the parameter and its state are compared.
    """
    named = {"parameter": x, "gradient": g, "state": m, "second moment": v}
    tensors = {name: t for name, t in named.items() if t is not None}
    if any(t.shape != x.shape for t in tensors.values()):
        # the parameter was resized: the kernel does not check shapes, and would write past the end of the state
        return "its gradient or state has another shape"
    if x.dtype not in (torch.float32, torch.float64):
        return f"the kernel does not use this package's rounding for {x.dtype}"
    if any(t.dtype != x.dtype for t in tensors.values()):
        return f"dtypes differ ({', '.join(f'{name} {t.dtype}' for name, t in tensors.items())})"
    if not all(beside(t, x) for t in tensors.values()):
        strides = ", ".join(f"{name} {tuple(t.stride())}" for name, t in tensors.items())
        return f"memory layouts differ or have gaps ({strides})"
    return None


@functools.cache
def _never() -> Tensor:
    return torch.full((), math.inf, dtype=torch.float32, device="cpu")


def update(
    xs: list[Tensor],
    gs: list[Tensor],
    ms: list[Tensor],
    vs: list[Tensor],
    v_maxes: list[Tensor],
    n: StepCoefficients,
    *,
    maximize: bool = False,
    wake: Sequence[int] = (),
) -> None:
    """One step in place. `wake` lists the indices of parameters with inactive coordinates.

    Gradients are not modified, so `grad_scale` is not passed to the kernel.
    """
    lr = n.lr * n.s
    for i in wake:
        wake_guard.wake(vs[i], gs[i], x=xs[i] if n.l2 else None, l2=-n.l2 if maximize else n.l2)
    if n.k == 1:
        private.foreach_zero_(vs)  # an infinite v would give 0*inf = NaN
    kernel = private.fused_adam_ if n.l2 else private.fused_adamw_
    kernel(
        xs,
        gs,
        ms,
        vs,
        v_maxes,
        [_never()] * len(xs),
        amsgrad=bool(v_maxes),
        lr=lr,
        beta1=n.a,
        beta2=1 - n.k,
        weight_decay=n.l2 or (n.decay / lr if lr else 0.0),
        eps=n.eps,
        maximize=maximize,
    )


class Share(host_share.HostShare):
    """Parameters of one dtype that the kernel supports."""

    least_gain = LEAST_GAIN
    unfit = staticmethod(_mismatch)
    update = staticmethod(update)
