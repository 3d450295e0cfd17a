"""AdamW with a second moment that rises fast and falls slowly: a prototype of the memory study.

    k = max(fast, k_t) where g^2 > v, else k_t,     k_t = b2/((1+b2)^t - 1), AdaX's
    v <- v + k*(g^2 - v)

The rest is AdamW's: a bias-corrected mean, a plain eps, decoupled decay. It is not part of the library, whose memories
depend on t alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import ParamsT


class AsymmetricAdamW(torch.optim.Optimizer):
    """Nothing is read on the host, so that a step can be captured in a CUDA graph (with a Python float as lr).

    >>> p = torch.nn.Parameter(torch.zeros(2)); o = AsymmetricAdamW([p], betas=(0.9, 1e-4), fast=0.1)
    >>> for g in (1.0, 3.0): p.grad = torch.tensor([g, 1 / g]); o.step()
    >>> [round(v, 3) for v in o.state[p]["exp_avg_sq"].tolist()]           # k_2 is 1/2, above fast
    [5.0, 0.556]
    """

    elementwise = True

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 1e-4),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        fast: float = 0.1,
        capturable: bool = False,
    ) -> None:
        if not 0.0 <= fast <= 1.0:
            raise ValueError(f"fast={fast!r}: must be in [0, 1]")
        if not (0.0 <= betas[0] < 1.0 and 0.0 < betas[1] < 1.0):
            raise ValueError(f"betas={betas!r}: must be b1 in [0, 1) and b2 in (0, 1)")
        super().__init__(
            params,
            dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, fast=fast, capturable=capturable),
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        groups = [group for group in self.param_groups if group["params"]]
        for number, group in enumerate(groups):
            missing = [i for i, p in enumerate(group["params"]) if p.grad is None]
            if missing or len({bool(self.state[p]) for p in group["params"]}) > 1:
                which = (
                    f"has no gradient for parameters {missing}"
                    if missing
                    else "has parameters with different step counts"
                )
                raise ValueError(
                    f"group {number} {which}: its parameters share one step count; put parameters that are trained at "
                    "other steps into a group of their own"
                )
        for group in groups:
            self._step(group)
        return loss

    def _step(self, group: dict[str, Any]) -> None:
        """Step all parameters of a group in a few launches."""
        params, (b1, b2), lr = group["params"], group["betas"], group["lr"]
        grads = [p.grad for p in params]
        for p in params:
            if not (state := self.state[p]):
                state["step"] = torch.zeros((), dtype=torch.float64, device=p.device)
                state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
        steps, mean, v = ([self.state[p][key] for p in params] for key in ("step", "exp_avg", "exp_avg_sq"))
        torch._foreach_add_(steps, 1.0)
        t = steps[0]
        k = (b2 / torch.expm1(t * math.log1p(b2))).clamp(max=1.0)
        more = (group["fast"] - k).clamp(min=0.0)
        rise = torch._foreach_sub(torch._foreach_mul(grads, grads), v)
        torch._foreach_add_(v, torch._foreach_mul(rise, k.to(params[0].dtype)))
        torch._foreach_clamp_min_(rise, 0.0)
        torch._foreach_add_(v, torch._foreach_mul(rise, more.to(params[0].dtype)))
        torch._foreach_lerp_(mean, grads, 1 - b1)
        debiased = torch._foreach_div(mean, (1 - b1**t).to(params[0].dtype))
        root = torch._foreach_sqrt(v)
        torch._foreach_add_(root, group["eps"])
        torch._foreach_mul_(params, 1 - lr * group["weight_decay"])
        torch._foreach_addcdiv_(params, debiased, root, -lr)
