"""How a method remembers squared gradients: the gain k_t of v <- v + k_t (g^2 - v).

Give the square of step i the weight w_i. Then v_t = sum_i w_i g_i^2 / c_t with c_t = sum_i w_i, and the newest
square enters with the gain k_t = w_t / c_t. Every memory of the paper's Table 1 is one of four families of weights
(written up to a factor that cancels in k_t):

    family    weights, i <= t        c_t                  k_t                     who
    growing   b2 (1+b2)^(t-i)        (1+b2)^t - 1         b2 / ((1+b2)^t - 1)     AdaX: the past grows
    fading    (1-b2) b2^(t-i)        1 - b2^t             (1-b2) / (1-b2^t)       Adam: the past fades
    equal     1                      t                    1/t                     AdaGrad: all count alike
    power     i^-c                   sum_{i<=t} i^-c      t^-c / c_t              NosAdam

With r = 1+b2, b2 and 1 the first three are one: k_t = (1-r)/(1-r^t), that is k_t = k_{t-1}/(k_{t-1} + r), k_1 = 1.

The functions are written over a namespace `xp` (`scalars` below, torch, jax.numpy), so that t may be a Python number
(a plain step), a device scalar (a CUDA graph), one count per row (sparse gradients) or a traced value (JAX).
Each is stable for every t from 1 to 10**9: nothing here ever forms (1+b2)**t.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

Number = Any
"""A float, or an array of the namespace in use: the formulas are the same."""


class scalars:
    """Python floats under the names that torch and jax.numpy use for arrays."""

    exp = staticmethod(math.exp)
    expm1 = staticmethod(math.expm1)
    log = staticmethod(math.log)
    log1p = staticmethod(math.log1p)
    sqrt = staticmethod(math.sqrt)
    maximum = staticmethod(max)

    @staticmethod
    def where(condition: bool, yes: Number, no: Number) -> Number:
        return yes if condition else no

    @staticmethod
    def clip(x: Number, min: Number | None = None, max: Number | None = None) -> Number:
        if min is not None and x < min:
            return min
        return max if max is not None and x > max else x


def _of_number(function: str, b: Number, xp: Any) -> Number:
    """math's function of a plain number (exact to float64 in every namespace), xp's of an array."""
    return getattr(math, function)(b) if isinstance(b, (int, float)) else getattr(xp, function)(b)


def growing_gain(t: Number, b2: Number, xp: Any = scalars) -> Number:
    """k_t = b2 / ((1+b2)^t - 1): the newest square counts b2, the past grows by 1+b2 (AdaX).

    >>> growing_gain(1, 1e-4), growing_gain(887_000, 1e-4) > 0, growing_gain(10**9, 1e-4)
    (1.0, True, 0.0)

    b2 = 0 is the limit 1/t: every square counts alike.
    """
    if isinstance(b2, (int, float)) and b2 == 0:
        return 1.0 / t
    rate = _of_number("log1p", b2, xp)
    gain = xp.clip(b2 * xp.exp(-t * rate) / -xp.expm1(-t * rate), max=1.0)
    return gain if isinstance(b2, (int, float)) else xp.where(b2 == 0, 1.0 / t, gain)


def growing_log_norm(t: Number, b2: Number, xp: Any = scalars) -> Number:
    """log c_t = log((1+b2)^t - 1). At b2 = 0, where it vanishes, the equal memory's log t."""
    if isinstance(b2, (int, float)) and b2 == 0:
        return equal_log_norm(t, b2, xp)
    rate = _of_number("log1p", b2, xp)
    norm = t * rate + xp.log(-xp.expm1(-t * rate))
    return norm if isinstance(b2, (int, float)) else xp.where(b2 == 0, equal_log_norm(t, b2, xp), norm)


def fading_gain(t: Number, b2: Number, xp: Any = scalars) -> Number:
    """k_t = (1-b2) / (1-b2^t): Adam's average with its bias correction folded in.

    >>> round(fading_gain(1, 0.999), 12), round(fading_gain(10**6, 0.999), 12)
    (1.0, 0.001)
    """
    if isinstance(b2, (int, float)) and b2 == 0:
        return t * 0 + 1.0
    return xp.clip((1 - b2) / -xp.expm1(t * _of_number("log", b2, xp)), max=1.0)


def fading_log_norm(t: Number, b2: Number, xp: Any = scalars) -> Number:
    """log c_t = log(1 - b2^t)."""
    if isinstance(b2, (int, float)) and b2 == 0:
        return t * 0.0
    return xp.log(-xp.expm1(t * _of_number("log", b2, xp)))


def constant_gain(t: Number, b2: Number, xp: Any = scalars) -> Number:
    """k = 1-b2: the fading memory left unnormalised, v_t = b2 v_{t-1} + (1-b2) g^2 (RMSProp, AMSGrad)."""
    return t * 0 + (1 - b2)


def equal_gain(t: Number, b2: Number, xp: Any = scalars) -> Number:
    """k_t = 1/t: the plain mean of all squares (AdaGrad's sum, divided by t)."""
    return 1.0 / t


def equal_log_norm(t: Number, b2: Number, xp: Any = scalars) -> Number:
    """log c_t = log t."""
    return xp.log(t)


def power_gain(t: Number, c: Number, xp: Any = scalars) -> Number:
    """k_t = t^-c / sum_{i<=t} i^-c (NosAdam's hyperharmonic weights).

    The sum comes from its Euler-Maclaurin expansion far out, minus the few terms in between, so that any t
    can be entered directly.

    >>> round(power_gain(3, 0.1), 12) == round(3**-0.1 / (1 + 2**-0.1 + 3**-0.1), 12)
    True
    """
    far = 12
    total = _power_tail(t + far, c, xp) + _power_constant(c)
    for j in range(1, far + 1):
        total = total - (t + j) ** -c
    return xp.clip(t**-c / total, max=1.0)


def _power_tail(x: Number, c: Number, xp: Any) -> Number:
    """Euler-Maclaurin for sum_{i<=x} i^-c without its constant."""
    whole = xp.log(x) if c == 1 else x ** (1 - c) / (1 - c)
    third = c * (c + 1) * (c + 2)
    fifth = third * (c + 3) * (c + 4)
    seventh = fifth * (c + 5) * (c + 6)
    series = c / x / 12 - third / x**3 / 720 + fifth / x**5 / 30240 - seventh / x**7 / 1209600
    return whole + x**-c * (0.5 - series)


def _power_constant(c: float) -> float:
    """The expansion's constant: zeta(c), or Euler's gamma at c = 1, from a sum of 64 terms."""
    x = 64.0
    return math.fsum(i**-c for i in range(1, 65)) - _power_tail(x, c, scalars)


class Memory(NamedTuple):
    """A family of weights: its gain k_t and the log of its norm c_t, both functions of (t, b2, xp)."""

    kind: str
    gain: Callable[..., Number]
    log_norm: Callable[..., Number] | None


GROWING = Memory("growing", growing_gain, growing_log_norm)
FADING = Memory("fading", fading_gain, fading_log_norm)
UNNORMALISED = Memory("unnormalised", constant_gain, fading_log_norm)
EQUAL = Memory("equal", equal_gain, equal_log_norm)
POWER = Memory("power", power_gain, None)
