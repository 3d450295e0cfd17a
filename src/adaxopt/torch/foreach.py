"""The rule on lists of tensors, in place. A for-loop is this on lists of one: bitwise the same.

StepCoefficients are floats shared by the whole list (a plain step), or one 0-d tensor per parameter for k, s and eps
(a captured or compiled step, where each parameter's time lives on the device).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from adaxopt.rule import LEAST_SHARE, StepCoefficients
from adaxopt.torch import wake_guard

Project = Callable[[Tensor, Tensor], Tensor]


def update(
    xs: list[Tensor],
    gs: list[Tensor],
    ms: list[Tensor],
    vs: list[Tensor],
    tops: list[Tensor],
    n: StepCoefficients,
    *,
    maximize: bool = False,
    olds: list[Tensor] | None = None,
    wake: wake_guard.Guarded,
    project: Project | None = None,
) -> None:
    """One step. `ms`, `vs`, `tops` are empty where a method keeps none; `wake` are positions to be guarded.

    Gradients are read, never written. Everything else is in one arithmetic (float32 or float64).
    """
    own = maximize  # whether gs are temporaries of ours
    if maximize:
        gs = list(torch._foreach_neg(gs))
    if _nonzero(n.l2):
        gs = _plus(gs, xs, n.l2, own)
    seen = gs if olds is None else olds  # what is squared
    if olds is not None:
        gs = list(torch._foreach_sub(gs, torch._foreach_mul(olds, n.forget)))
    if _nonzero(n.shrink):
        torch._foreach_mul_(xs, 1 - n.shrink)
    means = gs
    if ms:
        means = ms
        if isinstance(n.b, float) and not isinstance(n.a, Tensor) and n.b == 1 - n.a:
            torch._foreach_lerp_(ms, gs, n.b)
        else:
            torch._foreach_mul_(ms, n.a)
            torch._foreach_add_(ms, gs if _is(n.b, 1) else torch._foreach_mul(gs, n.b))
    same = [_same_sign(m, g) for m, g in zip(means, gs, strict=True)] if n.cautious else []
    if not vs:
        if n.clip is not None:
            means = list(torch._foreach_clamp_max(means, n.clip))
            torch._foreach_clamp_min_(means, -n.clip)
        _descend(xs, _cautious(means, same), n)
        if project is not None:
            for x in xs:
                x.copy_(project(x, torch.ones_like(x)))
        return
    for i, known in wake.items():
        if torch.compiler.is_compiling():
            vs[i].copy_(torch.where(vs[i] == 0, seen[i] * seen[i], vs[i]))
        elif wake_guard.served(vs[i]):
            wake_guard.wake(vs[i], seen[i], known)
        else:
            torch.where(vs[i] == 0, seen[i] * seen[i], vs[i], out=vs[i])
    _remember(vs, seen, n.k)
    del gs, seen
    if tops:
        torch._foreach_maximum_(tops, vs)
    ds = list(torch._foreach_sqrt(tops or vs) if n.p == 0.5 else torch._foreach_pow(tops or vs, n.p))
    torch._foreach_add_(ds, n.eps)
    if n.outer != 1.0:
        torch._foreach_pow_(ds, n.outer)
    if n.clip is None:
        means = _cautious(means, same)
    if n.clip is not None:
        means = list(torch._foreach_div(means, ds))
        torch._foreach_clamp_max_(means, n.clip)
        torch._foreach_clamp_min_(means, -n.clip)
        _descend(xs, _cautious(means, same), n)
    elif isinstance(n.s, float) and not isinstance(n.lr, Tensor):
        torch._foreach_addcdiv_(xs, means, ds, -n.lr * n.s)
    else:  # in this order: a quotient alone may overflow
        _descend(xs, means, n, ds)
    if project is not None:
        for x, d in zip(xs, ds, strict=True):
            x.copy_(project(x, d))


def _remember(vs: list[Tensor], gs: list[Tensor], k: Any) -> None:
    """v <- (1-k)*v + k*g*g. No difference is formed, so an infinite v stays infinite; k = 1 forgets it (0*inf is NaN).

    (k*g)*g overflows later than g*g. Torch's CUDA operators compute k*(g*g); another pass would cost a tenth of a step.
    """
    if isinstance(k, float):
        if k == 1:
            torch._foreach_zero_(vs)
        else:
            torch._foreach_mul_(vs, 1 - k)
        torch._foreach_addcmul_(vs, gs, gs, value=k)
        return
    torch._foreach_clamp_max_(vs, [torch.where(one < 1, torch.inf, 0.0) for one in k])
    torch._foreach_mul_(vs, [1 - one for one in k])
    torch._foreach_addcmul_(vs, torch._foreach_mul(gs, k), gs)


def _same_sign(m: Tensor, g: Tensor) -> Tensor:
    return ((m > 0) & (g > 0)) | ((m < 0) & (g < 0))


def _cautious(updates: list[Tensor], same: list[Tensor]) -> list[Tensor]:
    """0 where the sign is not the gradient's, the others over the share that is left; unchanged if not asked."""
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
    """x <- x - lr*s*update/d."""
    if ds is None and not isinstance(n.s, list) and not isinstance(n.lr, Tensor):
        torch._foreach_add_(xs, updates, alpha=-n.lr * n.s)
        return
    rate = [n.lr * s for s in n.s] if isinstance(n.s, list) else n.lr * n.s
    updates = list(torch._foreach_mul(updates, rate))
    if ds is not None:
        torch._foreach_div_(updates, ds)
    torch._foreach_sub_(xs, updates)


def _plus(gs: list[Tensor], xs: list[Tensor], weight: Any, own: bool) -> list[Tensor]:
    if isinstance(weight, Tensor):
        return list(torch._foreach_add(gs, torch._foreach_mul(xs, weight)))
    if own:
        torch._foreach_add_(gs, xs, alpha=weight)
        return gs
    return list(torch._foreach_add(gs, xs, alpha=weight))


def _nonzero(number: Any) -> bool:
    return isinstance(number, Tensor) or number != 0


def _is(number: Any, value: float) -> bool:
    return not isinstance(number, Tensor) and number == value
