"""How a method weights past squared gradients: the gain k_t of v <- v + k_t (g^2 - v).

Let w_i be the weight of the squared gradient of step i. Then v_t = sum_i w_i g_i^2 / c_t with c_t = sum_i w_i, and the
newest square has the gain k_t = w_t / c_t. Every method of the paper's Table 1 uses one of the first four families of
weights (written up to a factor that cancels in k_t). The other two families are defined by their gain:

    family      weights, i <= t      c_t                  k_t                     method
    growing     b2 (1+b2)^(t-i)      (1+b2)^t - 1         b2 / ((1+b2)^t - 1)     AdaX: the past grows
    fading      (1-b2) b2^(t-i)      1 - b2^t             (1-b2) / (1-b2^t)       Adam: the past fades
    equal       1                    t                    1/t                     AdaGrad: equal weights
    power       i^-c                 sum_{i<=t} i^-c      t^-c / c_t              NosAdam
    log-time                                              delta / (delta+t-1)     ADANA
    polynomial                                            t^-c                    Adafactor

With r = 1+b2, b2 and 1, the first three share one formula: k_t = (1-r)/(1-r^t), or recursively
k_t = k_{t-1}/(k_{t-1} + r) with k_1 = 1.

The functions take a namespace `xp` (`scalars` below, torch, jax.numpy), so t may be a Python number (an eager step), a
device scalar (a CUDA graph), one count per row (sparse gradients) or a traced value (JAX). Each function is stable for
every t from 1 to 10**9: (1+b2)**t is never computed.
"""

from __future__ import annotations

import math
from typing import Any

Number = Any
"""A float, or an array of the namespace in use."""


class scalars:
    """Python floats under the names that torch and jax.numpy use for arrays."""

    log = staticmethod(math.log)
    log1p = staticmethod(math.log1p)
    sqrt = staticmethod(math.sqrt)
    maximum = staticmethod(max)

    @staticmethod
    def mean(x: Number) -> Number:
        """The mean of a single number."""
        return x

    @staticmethod
    def ones_like(x: Number) -> Number:
        return 1.0

    @staticmethod
    def exp(x: Number) -> Number:
        """Infinite on overflow, as for arrays; `math.exp` raises OverflowError."""
        return math.exp(x) if x < 709 else math.inf

    @staticmethod
    def expm1(x: Number) -> Number:
        return math.expm1(x) if x < 709 else math.inf

    @staticmethod
    def where(condition: bool, yes: Number, no: Number) -> Number:
        return yes if condition else no

    @staticmethod
    def clip(x: Number, min: Number | None = None, max: Number | None = None) -> Number:
        if min is not None and x < min:
            return min
        return max if max is not None and x > max else x


def _plain(number: Number) -> bool:
    return isinstance(number, (int, float))


def _of_number(function: str, b: Number, xp: Any) -> Number:
    """Apply the function of `math` to a plain number (in float64 for every namespace), that of `xp` to an array."""
    return getattr(math, function)(b) if _plain(b) else getattr(xp, function)(b)


def growing_gain(t: Number, b2: Number, xp: Any = scalars) -> Number:
    """k_t = b2 / ((1+b2)^t - 1): the newest square has the weight b2, past weights grow by 1+b2 per step (AdaX).

    >>> growing_gain(1, 1e-4), growing_gain(887_000, 1e-4) > 0, growing_gain(10**9, 1e-4)
    (1.0, True, 0.0)

    b2 = 0 is the limit 1/t: all squares have equal weight. For an array b2 the derivative at 0, (1-t)/(2t), is correct
    too: the quotient is b2/log(1+b2) * y/(e^y - 1) / t with y = t*log(1+b2), and each factor has a series at 0.
    """
    if _plain(b2) and b2 == 0:
        return 1.0 / t
    rate = _of_number("log1p", b2, xp)
    y = t * rate
    if _plain(b2):
        return xp.clip(b2 * xp.exp(-y) / -xp.expm1(-y), max=1.0)
    small, near = b2 < 1e-3, y < 0.05
    some, far = xp.where(small, 1.0, b2), xp.where(near, 1.0, y)
    first = 1 + b2 * (1 / 2 + b2 * (-1 / 12 + b2 * (1 / 24 - b2 * 19 / 720)))
    first = xp.where(small, first, some / xp.log1p(some))
    z = xp.where(near, y, 0.0)
    second = 1 - z / 2 + z * z * (1 / 12 + z * z * (-1 / 720 + z * z / 30240))
    second = xp.where(near, second, far * xp.exp(-far) / -xp.expm1(-far))
    return xp.clip(first * second / t, max=1.0)


def growing_log_norm(t: Number, b2: Number, xp: Any = scalars) -> Number:
    """log c_t = log((1+b2)^t - 1). At b2 = 0, where c_t is 0, this is log t, as for the equal memory."""
    if _plain(b2) and b2 == 0:
        return equal_log_norm(t, b2, xp)
    some = b2 if _plain(b2) else xp.where(b2 == 0, 1.0, b2)
    y = t * _of_number("log1p", some, xp)
    norm = y + xp.log(-xp.expm1(-y))
    return norm if _plain(b2) else xp.where(b2 == 0, equal_log_norm(t, b2, xp), norm)


def missing(t: Number, b: Number, xp: Any = scalars) -> Number:
    """1 - b^t: the bias correction of an exponential average after t steps. Accurate in float32 for b near 1.

    >>> round(missing(1, 0.75), 12), round(missing(10, 1 - 2**-30) * 2**30, 6)
    (0.25, 10.0)

    For an array b, the derivative at 0 is correct too: -1 at t = 1, else 0.
    """
    if _plain(b) and b == 0:
        return t * 0 + 1.0
    some = b if _plain(b) else xp.where(b == 0, 0.5, b)
    found = -xp.expm1(t * _of_number("log", some, xp))
    return found if _plain(b) else xp.where(b == 0, xp.where(t > 1, 1 + 0 * b, 1 - b), found)


def fading_gain(t: Number, b2: Number, xp: Any = scalars) -> Number:
    """k_t = (1-b2) / (1-b2^t): Adam's average with its bias correction folded in.

    >>> round(fading_gain(1, 0.999), 12), round(fading_gain(10**6, 0.999), 12)
    (1.0, 0.001)

    For an array b2, the derivative at 0 is correct too: 0 at t = 1, else -1.
    """
    if _plain(b2) and b2 == 0:
        return t * 0 + 1.0
    some = b2 if _plain(b2) else xp.where(b2 == 0, 0.5, b2)
    gain = xp.clip((1 - some) / missing(t, some, xp), max=1.0)
    return gain if _plain(b2) else xp.where(b2 == 0, xp.where(t > 1, 1 - b2, 1 + 0 * b2), gain)


def fading_log_norm(t: Number, b2: Number, xp: Any = scalars) -> Number:
    """log c_t = log(1 - b2^t)."""
    if _plain(b2) and b2 == 0:
        return t * 0.0
    some = b2 if _plain(b2) else xp.where(b2 == 0, 0.5, b2)
    norm = xp.log(missing(t, some, xp))
    return norm if _plain(b2) else xp.where(b2 == 0, xp.where(t > 1, 0 * b2, -b2), norm)


def constant_gain(t: Number, b2: Number, xp: Any = scalars) -> Number:
    """k = 1-b2: the fading memory without normalisation, v_t = b2 v_{t-1} + (1-b2) g^2 (RMSProp, AMSGrad)."""
    return t * 0 + (1 - b2)


def equal_gain(t: Number, b2: Number, xp: Any = scalars) -> Number:
    """k_t = 1/t: the plain mean of all squares (AdaGrad's sum, divided by t)."""
    return 1.0 / t


def equal_log_norm(t: Number, b2: Number, xp: Any = scalars) -> Number:
    """log c_t = log t."""
    return xp.log(t)


def power_gain(t: Number, c: Number, xp: Any = scalars) -> Number:
    """k_t = t^-c / sum_{i<=t} i^-c (NosAdam's hyperharmonic weights), for every real c.

    1/k_t = sum_{j<t} (1 - j/t)^-c. The sum is computed term by term if t is small, or if c is so far below 0 that the
    remaining terms vanish; otherwise by its Euler-Maclaurin expansion at t.

    >>> round(power_gain(3, 0.1), 12) == round(3**-0.1 / (1 + 2**-0.1 + 3**-0.1), 12)
    True
    >>> power_gain(1, -7), round(power_gain(2, -7), 12) == round(2**7 / (1 + 2**7), 12)
    (1.0, True)
    """
    c = xp.clip(c, max=POWER_LIMIT) if not _plain(c) else min(c, POWER_LIMIT)
    terms = FEW_TERMS if _plain(c) and c > -6 else MANY_TERMS
    counted = t * 0 + 1.0
    for j in range(1, terms):
        there = j < t
        counted = counted + xp.where(there, xp.exp(-c * xp.log1p(-xp.where(there, j / t, 0.0))), 0.0)
    log = xp.log(t)
    summed = xp.exp(c * log) * power_constant(c, scalars if _plain(c) else xp)
    summed = summed + t * log * _mean_decay((1 - c) * log, xp) + 0.5 - _power_series(t, c)
    return 1.0 / xp.where((t <= terms) | (-c * terms > 38 * t), counted, summed)


FEW_TERMS, MANY_TERMS = 12, 48
POWER_LIMIT = 2000.0
"""Above this c, the gains no longer change: 1 at t = 1, then 0."""
BERNOULLI = (
    1 / 12, 1 / 720, 1 / 30240, 1 / 1209600, 1 / 47900160, 691 / 1307674368000, 1 / 74724249600,
    3617 / 10670622842880000, 43867 / 5109094217170944000, 174611 / 802857662698291200000,
)  # fmt: skip
"""|B_2i| / (2i)! for i = 1, 2, ...; the signs alternate."""


def _mean_decay(u: Number, xp: Any) -> Number:
    """(1 - e^-u) / u, the mean of e^-s over s from 0 to u."""
    some = xp.where(u == 0, 1.0, u)
    return xp.where(u == 0, 1.0, -xp.expm1(-some) / some)


def _power_series(t: Number, c: Number) -> Number:
    """The Euler-Maclaurin corrections of sum_{i<=t} i^-c in units of t^-c: c/12t - c(c+1)(c+2)/720t^3 + ..."""
    total: Number = 1.0
    for i in range(len(BERNOULLI) - 1, 0, -1):
        total = 1 - BERNOULLI[i] / BERNOULLI[i - 1] * ((c + 2 * i - 1) / t) * ((c + 2 * i) / t) * total
    return BERNOULLI[0] * (c / t) * total


def power_constant(c: Number, xp: Any = scalars) -> Number:
    """The constant term of the expansion at t: zeta(c) - 1/(c-1), Euler's gamma at c = 1.

    Below c = -14 it is negligible wherever the expansion is used, and 0 is returned.
    """
    some = xp.clip(c, min=-14.0)
    x = 12.0
    log = math.log(x)
    total = 0.0 * some - xp.exp(-some * log) * (0.5 - _power_series(x, some))
    for i in range(1, 13):
        total = total + xp.exp(-some * math.log(i))
    u = (some - 1) * log
    return xp.where(c < -14, 0.0, total - log * _mean_decay(u, xp))


def log_time_gain(t: Number, delta: Number, xp: Any = scalars) -> Number:
    """k_t = delta/(delta+t-1): the gain falls as delta/t, so v averages over a fixed fraction of the run so far.

    >>> log_time_gain(1, 8.0), log_time_gain(9, 8.0)
    (1.0, 0.5)
    """
    return delta / (delta + (t - 1))


def polynomial_gain(t: Number, c: Number, xp: Any = scalars) -> Number:
    """k_t = t^-c: Adafactor's 1 - k_t = 1 - t^-0.8.

    >>> polynomial_gain(1, 0.8), round(polynomial_gain(32, 0.8), 12)
    (1.0, 0.0625)
    """
    return xp.exp(-c * xp.log(t))
