"""AdamW with a second moment that rises fast and falls slowly: a prototype of the memory study.

    k = max(fast, k_t) where g^2 > v, else k_t,     k_t = b2/((1+b2)^t - 1), AdaX's
    v <- v + k*(g^2 - v)

The rest is AdamW's: a bias-corrected mean, a plain eps, decoupled decay. It is not part of the library, whose memories
depend on t alone.
"""

from __future__ import annotations

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
        for group in self.param_groups:
            (b1, b2), lr = group["betas"], group["lr"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["step"] = torch.zeros((), dtype=torch.float64, device=p.device)
                    state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
                t, m, v = state["step"], state["exp_avg"], state["exp_avg_sq"]
                t += 1
                growth = torch.log1p(torch.full_like(t, b2))
                k = (b2 / torch.expm1(t * growth)).clamp(max=1.0).to(p.dtype)
                square = p.grad * p.grad
                v.lerp_(square, torch.where(square > v, k.clamp(min=group["fast"]), k))
                m.lerp_(p.grad, 1 - b1)
                mean = m / (1 - b1**t).to(p.dtype)
                p.mul_(1 - lr * group["weight_decay"]).addcdiv_(mean, v.sqrt().add_(group["eps"]), value=-lr)
        return loss
