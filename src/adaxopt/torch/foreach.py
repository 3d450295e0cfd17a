"""The update rule on lists of tensors, in place. The for-loop calls it with lists of one; results are bitwise the same.

StepCoefficients are floats shared by the whole list (an eager step), or one 0-d tensor per parameter for k, s and eps
(a captured or compiled step, where the step counts are on the device).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from adaxopt.rule import LEAST_SHARE, StepCoefficients
from adaxopt.torch import private, wake_guard
from adaxopt.torch.project import Project, projected


def update(
    xs: list[Tensor],
    gs: list[Tensor],
    ms: list[Tensor],
    vs: list[Tensor],
    v_maxes: list[Tensor],
    n: StepCoefficients,
    *,
    maximize: bool = False,
    olds: list[Tensor] | None = None,
    wake: Sequence[int],
    project: Project | None = None,
) -> None:
    """One step. `ms`, `vs`, `v_maxes` (running maxima of v) are empty if the method has none.

    `wake` lists the indices of parameters with inactive coordinates. Gradients are not modified. All tensors have one
    dtype (float32 or float64).
    """
    own = maximize  # whether gs are temporaries that may be modified
    if maximize:
        gs = list(private.foreach_neg(gs))
    if _nonzero(n.l2):
        gs = _plus(gs, xs, n.l2, own)
    seen = gs if olds is None else olds  # what is squared
    if olds is not None:
        gs = list(private.foreach_sub(gs, private.foreach_mul(olds, n.forget)))
    if _nonzero(n.decay):
        private.foreach_mul_(xs, 1 - n.decay)
    means = gs
    if ms:
        means = ms
        if isinstance(n.b, float) and not isinstance(n.a, Tensor) and n.b == 1 - n.a:
            private.foreach_lerp_(ms, gs, n.b)
        else:
            private.foreach_mul_(ms, n.a)
            private.foreach_add_(ms, gs if _is(n.b, 1) else private.foreach_mul(gs, n.b))
    same = [_same_sign(m, g) for m, g in zip(means, gs, strict=True)] if n.cautious else []
    ds: list[Tensor] | None = None
    if vs:
        for i in wake:
            wake_guard.wake(vs[i], seen[i], read=isinstance(n.k, float))
        _remember(vs, seen, n.k)
        del gs, seen  # free memory
        if v_maxes:
            private.foreach_maximum_(v_maxes, vs)
        ds = list(
            private.foreach_sqrt(v_maxes or vs) if n.p == 0.5 else private.foreach_pow(v_maxes or vs, n.p)
        )
        private.foreach_add_(ds, n.eps)
        if n.outer != 1.0:
            private.foreach_pow_(ds, n.outer)
    if n.clip is not None:
        if ds is None:
            means = list(private.foreach_clamp_max(means, n.clip))
        else:
            means = list(private.foreach_div(means, ds))
            private.foreach_clamp_max_(means, n.clip)
        private.foreach_clamp_min_(means, -n.clip)
    means, over = _cautious(means, same), ds if n.clip is None else None
    if over is not None and isinstance(n.s, float) and not isinstance(n.lr, Tensor):
        private.foreach_addcdiv_(xs, means, over, value=-n.lr * n.s)
    else:
        _descend(xs, means, n, over)
    if project is not None:
        for i, x in enumerate(xs):
            x.copy_(projected(project, x, torch.ones_like(x) if ds is None else ds[i]))


def _remember(vs: list[Tensor], gs: list[Tensor], k: Any) -> None:
    """v <- (1-k)*v + k*g*g. This form keeps an infinite v infinite. For k = 1, v is zeroed first, because 0*inf is NaN.

    (k*g)*g overflows later than k*(g*g). Torch's CUDA operators compute k*(g*g); another pass would cost a tenth of a
    step.
    """
    if isinstance(k, float):
        if k == 1:
            private.foreach_zero_(vs)
        else:
            private.foreach_mul_(vs, 1 - k)
        private.foreach_addcmul_(vs, gs, gs, value=k)
        return
    private.foreach_clamp_max_(vs, [torch.where(one < 1, torch.inf, 0.0) for one in k])
    private.foreach_mul_(vs, [1 - one for one in k])
    private.foreach_addcmul_(vs, private.foreach_mul(gs, k), gs)


def _same_sign(m: Tensor, g: Tensor) -> Tensor:
    return ((m > 0) & (g > 0)) | ((m < 0) & (g < 0))


def _cautious(updates: list[Tensor], same: list[Tensor]) -> list[Tensor]:
    """Zero updates whose sign is not the gradient's, and divide the others by the share kept. No-op without `same`."""
    if not same:
        return updates
    shares = [
        torch.where(s, torch.ones_like(u), 0.0).mean().clamp(min=LEAST_SHARE)
        for s, u in zip(same, updates, strict=True)
    ]
    return [torch.where(s, u / share, 0.0) for s, u, share in zip(same, updates, shares, strict=True)]


def _descend(
    xs: list[Tensor], updates: list[Tensor], n: StepCoefficients, ds: list[Tensor] | None = None
) -> None:
    """x <- x - lr*s*update/d, in this order, because update/d alone may overflow."""
    if ds is None and not isinstance(n.s, list) and not isinstance(n.lr, Tensor):
        private.foreach_add_(xs, updates, alpha=-n.lr * n.s)
        return
    rate = [n.lr * s for s in n.s] if isinstance(n.s, list) else n.lr * n.s
    updates = list(private.foreach_mul(updates, rate))
    if ds is not None:
        private.foreach_div_(updates, ds)
    private.foreach_sub_(xs, updates)


def _plus(gs: list[Tensor], xs: list[Tensor], weight: Any, own: bool) -> list[Tensor]:
    if isinstance(weight, Tensor):
        return list(private.foreach_add(gs, private.foreach_mul(xs, weight)))
    if own:
        private.foreach_add_(gs, xs, alpha=weight)
        return gs
    return list(private.foreach_add(gs, xs, alpha=weight))


def _nonzero(number: Any) -> bool:
    return isinstance(number, Tensor) or number != 0


def _is(number: Any, value: float) -> bool:
    return not isinstance(number, Tensor) and number == value
