"""The rule by torch's own fused CPU kernel: one pass over memory.

Adam's kernel with beta2 = 1 - k_t, eps = eps_t and an infinite step (so that its bias corrections are 1) computes

    m <- b1*m + (1-b1)*g,   v <- (1-k)*v + k*g^2,   x <- x*(1 - lr*wd) - lr*m/(sqrt(v) + eps)

which is the rule for p = 1/2. It agrees with the foreach form to rounding, not to the bit. Late-activated coordinates
(v exactly 0) are given g^2 for v before (`wake_guard.wake`): the kernel then mixes g^2 with itself.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from adaxopt.rule import Rule, StepCoefficients
from adaxopt.torch import wake_guard
from adaxopt.torch.layout import dense

LEAST_GAIN = 1e-9
"""Below it 1 - k no longer holds k."""


def impossible(
    rule: Rule, n_p: float, clip: float | None, projected: bool, cautious: bool = False
) -> str | None:
    """Why this kernel can never serve a group with these options, or None."""
    if rule.memory is None or rule.mean != "average" or rule.eps_inside or n_p != 0.5:
        return "torch's CPU kernel computes an averaged m over sqrt(v) + eps, and no other form"
    if clip is not None:
        return "torch's CPU kernel does not bound the update (clip_update)"
    if cautious:
        return "torch's CPU kernel does not leave out updates (cautious)"
    if projected:
        return "torch's CPU kernel does not project"
    return None


def unsuitable(x: Tensor, g: Tensor, m: Tensor, v: Tensor) -> str | None:
    """Why these four tensors cannot be read as flat memory side by side, or None."""
    if x.dtype != g.dtype or x.dtype != m.dtype or x.dtype != v.dtype:
        return f"dtypes differ (parameter {x.dtype}, gradient {g.dtype}, state {m.dtype})"
    if x.dtype not in (torch.float32, torch.float64):
        return f"{x.dtype} is rounded by the kernel in its own way"
    strides = x.stride()
    if strides != g.stride() or strides != m.stride() or strides != v.stride():
        if not (x.is_contiguous() and g.is_contiguous() and m.is_contiguous() and v.is_contiguous()):
            return f"memory layouts differ (parameter {strides}, gradient {g.stride()}, state {m.stride()})"
    elif not (x.is_contiguous() or dense(x)):
        return f"strides {strides} leave gaps or overlap"
    return None


def update(
    xs: list[Tensor],
    gs: list[Tensor],
    ms: list[Tensor],
    vs: list[Tensor],
    tops: list[Tensor],
    n: StepCoefficients,
    *,
    maximize: bool = False,
    wake: wake_guard.Guarded,
) -> None:
    """One step in place; `wake` are positions to be guarded. Gradients are read, never written (so no `grad_scale`
    reaches the kernel).
    """
    lr = n.lr * n.s
    for i, known in wake.items():
        wake_guard.wake(vs[i], gs[i], known, x=xs[i] if n.l2 else None, l2=-n.l2 if maximize else n.l2)
    if n.k == 1:
        torch._foreach_zero_(vs)  # an infinite v is forgotten: 0*inf is NaN
    kernel = torch._fused_adam_ if n.l2 else torch._fused_adamw_
    kernel(
        xs,
        gs,
        ms,
        vs,
        tops,
        [torch.full((), math.inf, dtype=torch.float32, device="cpu")] * len(xs),
        amsgrad=bool(tops),
        lr=lr,
        beta1=n.a,
        beta2=1 - n.k,
        weight_decay=n.l2 or (n.shrink / lr if lr else 0.0),
        eps=n.eps,
        maximize=maximize,
    )
