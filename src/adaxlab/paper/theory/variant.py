"""The memory of the regret theorem (4.1), which differs from Algorithm 2's (erratum 9).

In the theorem b2 decays, b2_t = b2/t, and v is divided by (1+b2_t)^t - 1:

    v_t = (1 + b2/t) v_{t-1} + (b2/t) g_t^2          v-hat_t = v_t / ((1 + b2/t)^t - 1)

The weights sum to N_t = prod_{i<=t} (1 + b2/i) - 1, not to the divisor, so v-hat is a mean of squares times the bias
N_t / ((1 + b2/t)^t - 1): 1 at the first step, about log t later for a small b2, and t^b2 in the limit. As a row of the
zoo, the gain is (b2/t)/N_t, and the bias is part of s_t.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adaxlab.paper.theory.problems import Array
from adaxopt.memories import Memory
from adaxopt.rule import Rule
from adaxopt.zoo import Method


def divisor(t: Array, b2: float) -> Array:
    """(1 + b2/t)^t - 1."""
    return np.expm1(t * np.log1p(b2 / t))


def weight_sum(t: Array, b2: float) -> Array:
    """N_t = prod_{i<=t} (1 + b2/i) - 1; `t` must be 1, 2, ..., T."""
    return np.expm1(np.cumsum(np.log1p(b2 / t)))


def bias(t: Array, b2: float) -> Array:
    """E v-hat_t / E g^2 under stationary gradients.

    >>> bias(np.arange(1.0, 4), 0.5).round(4)
    array([1.    , 1.5556, 2.0197])
    """
    return weight_sum(t, b2) / divisor(t, b2)


class FadingGrowth(Memory):
    """Weights that grow by 1 + b2/t."""

    kind = "growing by b2/t"

    @staticmethod
    def gain(t: Array, b2: float, xp: Any = np) -> Array:
        return b2 / t / weight_sum(t, b2)

    @staticmethod
    def log_norm(t: Array, b2: float, xp: Any = np) -> Array:
        return -np.log(bias(t, b2))


FADING_GROWTH = Method(
    "adax-b2/t",
    Rule(FadingGrowth, sigma=0.5),
    {
        "lr": 1e-3,
        "betas": (0.9, 1e-4),
        "eps": 0.0,
        "weight_decay": 0.0,
        "decay": "l2",
        "p": 0.5,
        "eps_placement": "plain",
    },
    "Li et al. 2020, Theorem 4.1",
)
"""Coefficients of this row must be computed for all steps 1..T at once, as in `simulate`."""
