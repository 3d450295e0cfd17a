"""The appendix's closed forms: second moments and updates on g_t = C lambda^(t-1), without a recursion.

They are written from the paper's formulas and share no code with the rule, so each is a test of the other. b1 = 0 and
eps = 0 unless stated otherwise; `t` is an array of steps from 1.
"""

from __future__ import annotations

import numpy as np

from adaxlab.paper.theory.problems import Array


def adam_second_moment(t: Array, C: float, fade: float, b2: float) -> Array:
    """v_t = (1-b2) C^2 (lambda^2t - b2^t) / (lambda^2 - b2), without bias correction."""
    return (1 - b2) * C**2 * (fade ** (2 * t) - b2**t) / (fade**2 - b2)


def adam_direction(t: Array, fade: float, b2: float, b1: float = 0.0) -> Array:
    """m_t / sqrt(v_t), both uncorrected:
    (1-b1) sqrt(lambda^2-b2) / ((lambda-b1) sqrt(1-b2)) * (1-(b1/lambda)^t) / sqrt(1-(b2/lambda^2)^t)."""
    scale = (1 - b1) * np.sqrt(fade**2 - b2) / ((fade - b1) * np.sqrt(1 - b2))
    return scale * (1 - (b1 / fade) ** t) / np.sqrt(1 - (b2 / fade**2) ** t)


def adam_floor(fade: float, b2: float, b1: float = 0.0) -> float:
    """The lower bound of |m_t|/sqrt(v_t) that Theorem 3.1 uses."""
    scale = (1 - b1) * np.sqrt(fade**2 - b2) / ((fade - b1) * np.sqrt(1 - b2))
    return float(scale * (1 - b1 / fade))


def adax_direction(t: Array, fade: float, b2: float) -> Array:
    """g_t / sqrt(v-hat_t) = sqrt((1+b2-lambda^2)/b2) lambda^(t-1) sqrt((1+b2)^t - 1) / sqrt((1+b2)^t -
    lambda^2t)."""
    grown = np.expm1(t * np.log1p(b2))
    root = np.sqrt(grown / (grown - np.expm1(2 * t * np.log(fade))))
    return np.sqrt((1 + b2 - fade**2) / b2) * fade ** (t - 1) * root


def adax_ceiling(t: Array, fade: float, b2: float) -> Array:
    """sqrt((1+b2-lambda^2)/b2) lambda^(t-1): the geometric bound on AdaX's direction."""
    return np.sqrt((1 + b2 - fade**2) / b2) * fade ** (t - 1)


def amsgrad_peak(fade: float, b2: float) -> float:
    """The real t at which lambda^2t - b2^t is largest: ln(ln b2 / ln lambda^2) / ln(lambda^2/b2)."""
    return float(np.log(np.log(b2) / np.log(fade**2)) / np.log(fade**2 / b2))


def _highest(fade: float, b2: float) -> float:
    """The integer step at which v_t is largest."""
    peak = amsgrad_peak(fade, b2)
    around = np.array([max(np.floor(peak), 1.0), max(np.ceil(peak), 1.0)])
    return float(around[np.argmax(adam_second_moment(around, 1.0, fade, b2))])


def amsgrad_direction(t: Array, fade: float, b2: float) -> Array:
    """g_t / sqrt(max_{i<=t} v_i), b1 = 0, uncorrected: equal to Adam's until the peak, geometric after it."""
    top = adam_second_moment(np.minimum(t, _highest(fade, b2)), 1.0, fade, b2)
    return fade ** (t - 1) / np.sqrt(top)


def amsgrad_reach(fade: float, b2: float) -> float:
    """The sum over all t of AMSGrad's directions: the total distance with a constant step size of 1. It is finite for
    every lambda < 1, so no lambda is a counterexample for every x0 and every step size."""
    last = _highest(fade, b2)
    rising = amsgrad_direction(np.arange(1.0, last + 1), fade, b2).sum()
    tail = fade**last / (1 - fade) / np.sqrt(adam_second_moment(np.array(last), 1.0, fade, b2))
    return float(rising + tail)
