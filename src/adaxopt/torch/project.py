"""Projections onto a domain F in the metric of the step (Algorithm 1, line 7).

    P_F(y) = argmin_{x in F} sum_i d_i (x_i - y_i)^2,      d = v**p + eps_t, the step's denominator

A projection is any callable (y, d) -> x; the two here are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Project = Callable[[Tensor, Tensor], Tensor]


def projected(project: Project, y: Tensor, d: Tensor) -> Tensor:
    """project(y, d). Raises TypeError or ValueError if the result is not a tensor of the shape of y."""
    x = project(y, d)
    if not isinstance(x, Tensor):
        raise TypeError(f"project: returned a {type(x).__name__}; must return a tensor of the shape of y")
    if x.shape != y.shape:
        raise ValueError(
            f"project: returned a tensor of shape {tuple(x.shape)} for y of shape {tuple(y.shape)}; must return a "
            "tensor of the shape of y"
        )
    return x


@dataclass(frozen=True)
class Box:
    """lo <= x_i <= hi. Coordinates are independent, so the result does not depend on the metric.

    >>> Box(-1, 1)(torch.tensor([3.0, -0.5]), torch.ones(2))
    tensor([ 1.0000, -0.5000])
    """

    lo: float
    hi: float

    def __post_init__(self) -> None:
        if not self.lo <= self.hi:
            raise ValueError(f"Box(lo={self.lo!r}, hi={self.hi!r}): lo must be <= hi")

    def __call__(self, y: Tensor, d: Tensor) -> Tensor:
        return y.clamp(self.lo, self.hi)


@dataclass(frozen=True)
class Ball:
    """||x||_2 <= radius, for each tensor separately, centred at 0.

    Outside the ball the minimiser is x_i = y_i / (1 + mu/d_i) with the unique mu > 0 that gives ||x|| = radius.
    phi(mu) = 1/||x(mu)|| is concave and increasing, so Newton's method on phi(mu) = 1/radius increases to the root.

    >>> Ball(1.0)(torch.tensor([3.0, 4.0]), torch.ones(2))
    tensor([0.6000, 0.8000])
    """

    radius: float

    def __post_init__(self) -> None:
        if not self.radius > 0:
            raise ValueError(f"Ball(radius={self.radius!r}): must be > 0")

    def __call__(self, y: Tensor, d: Tensor) -> Tensor:
        norm = torch.linalg.vector_norm(y, dtype=torch.float64)
        if not bool(norm > self.radius):
            return y
        y64, d64 = y.double(), d.double().clamp(torch.finfo(torch.float64).tiny, 1e300)
        mu = torch.zeros((), dtype=torch.float64, device=y.device)
        for _ in range(100):
            x = y64 * (d64 / (d64 + mu))
            size = torch.linalg.vector_norm(x)
            slope = (x * x / (d64 + mu)).sum() / size**3
            rise = (1 / self.radius - 1 / size) / slope
            mu = mu + rise
            if bool(rise.abs() <= 1e-15 * mu):
                break
        x = y64 * (d64 / (d64 + mu))
        inside: Tensor = x * (self.radius / torch.linalg.vector_norm(x))
        return inside.to(y.dtype)
