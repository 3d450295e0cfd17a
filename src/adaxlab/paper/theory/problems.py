"""The paper's two synthetic problems and their gradients.

Problem (3), after Reddi et al. 2018: f_t(x) = C x if t mod 3 = 1, else -x, on [-1, 1]. Their stochastic variant: 1010 x
with probability 0.01, else -10 x. The optimum of both is -1. Problem (4): f_t(x) = C lambda^(t-1) x for x >= 0, and 0
for x < 0 (for the first n steps |C lambda^(t-1) x|), on [-2, C/(1-lambda)]. The optimum is 0; below 0 the gradient is
zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Alternating:
    """Problem (3). Its losses are linear, so the gradients do not depend on x.

    >>> Alternating().gradients(4)
    array([ 3., -1., -1.,  3.])
    """

    C: float = 3.0
    domain: tuple[float, float] = (-1.0, 1.0)
    best: float = -1.0

    def gradients(self, steps: int) -> Array:
        return np.where(np.arange(1, steps + 1) % 3 == 1, self.C, -1.0)


@dataclass(frozen=True)
class Rare:
    """Reddi et al.'s stochastic problem: rare large gradients in the right direction, frequent small wrong ones."""

    large: float = 1010.0
    small: float = -10.0
    probability: float = 0.01
    domain: tuple[float, float] = (-1.0, 1.0)
    best: float = -1.0

    def gradients(self, steps: int, seed: int) -> Array:
        rare = np.random.default_rng(seed).random(steps) < self.probability
        return np.where(rare, self.large, self.small)

    @property
    def mean(self) -> float:
        """The expected gradient, 0.2; the optimum is therefore -1."""
        return self.probability * self.large + (1 - self.probability) * self.small


@dataclass(frozen=True)
class Fading:
    """Problem (4). The values are those of the paper's section 5.2, which the statement (C > 1) excludes.

    >>> problem = Fading()
    >>> problem.gradient(1, 0.5), problem.gradient(2, -0.5), round(problem.domain[1], 9)
    (0.001, 0.0, 10.0)
    """

    C: float = 1e-3
    fade: float = 0.9999
    """lambda."""
    n: int = 1
    x0: float = 1.0

    @property
    def domain(self) -> tuple[float, float]:
        return (-2.0, self.C / (1 - self.fade))

    def gradient(self, t: float, x: float) -> float:
        size = self.C * self.fade ** (t - 1)
        if x >= 0:
            return size
        return -size if t <= self.n else 0.0

    def sizes(self, steps: int) -> Array:
        """Return C lambda^(t-1) for all steps, for any sign of x: the gradients in the panel of update sizes."""
        return self.C * self.fade ** np.arange(steps, dtype=np.float64)

    def total_loss(self, x: Array, steps: int) -> Array:
        """Return sum_{t <= steps} f_t(x), to find the optimum."""
        sizes = self.sizes(steps)
        return np.where(x >= 0, sizes.sum() * x, -sizes[: self.n].sum() * x)
