"""The update rule shared by all methods, and its coefficients at step t.

    g <- g + l2*x                                     L2 form only; the decoupled forms leave g alone
    m <- a*m + b*g                                    first moment
    v <- v + k_t*(g*g - v)                            second moment, normalised: methods differ in k_t alone;
                                                      an infinite v stays infinite, and x is no longer updated
    x <- P_F( x - lr*s_t*m/(v**p + eps_t) - decay*x )

(`cautious` multiplies the update by phi/max(mean(phi), 1e-3), phi = 1 where m and g have the same sign, else 0)
where c_t is the norm of the memory (see `memory.py`), sigma and tau are two powers that a method sets, and

    s_t   = c_t**sigma / (1 - b1**t)        the denominator only if the method bias-corrects m
    eps_t = eps * c_t**tau                  AdaX: tau = -p, because Algorithm 3 adds eps before it divides by c_t**p

`zoo.py` defines every method as one row of these values. A backend receives `StepCoefficients`, or the rule and the
hyper-parameters (the CUDA kernel, which computes the coefficients on the device), never the name of a method.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from adaxopt import memories
from adaxopt.memories import Memory
from adaxopt.memory import Number, missing, scalars

TINY = {"float32": 2.0**-126, "float64": 2.0**-1022}
"""The smallest normal number of the dtype in which a step is computed."""
LEAST_SHARE = 1e-3
"""A cautious update is scaled up by at most its inverse (the code of Liang et al. 2024)."""


@dataclass(frozen=True)
class Rule:
    """The definition of a method, without the values of its hyper-parameters."""

    memory: type[Memory] | None
    """None: the method has no second moment, and the denominator is exactly 1."""
    mean: Literal["average", "sum", "none", "window"] = "average"
    """a, b = b1, 1-b1 | b1, 1 | no first moment, m is g | the b1-weighted mean of the last n gradients."""
    debias: bool = False
    """Divide the mean by 1 - b1^t."""
    sigma: float = 0.0
    tau: float | Literal["-p"] = 0.0
    maximum: bool = False
    """Divide by the running maximum of v instead of v."""
    eps_inside: bool = False
    """(v**(1/2) + eps)**(2p) instead of v**p + eps."""
    floor: bool = False
    """Keep eps_t at or above sqrt(smallest normal): the square of a smaller |g| underflows."""

    def using(self, memory: str | None) -> Rule:
        """The rule with another memory, given by its text; None returns the rule unchanged."""
        return self if memory is None else replace(self, memory=memories.read(memory)[0])


class StepCoefficients(NamedTuple):
    """The coefficients of one step: floats, device scalars, or one value per row. They do not name the method."""

    a: Number
    b: Number
    k: Number
    p: Number
    outer: Number
    """The denominator is (v**p + eps)**outer; 1 for all but Padam."""
    s: Number
    eps: Number
    lr: Number
    l2: Number
    """Coefficient of x added to the gradient."""
    decay: Number
    """x <- x - decay*x: lr*wd, or wd*lr/reference_lr for fully decoupled decay."""
    clip: float | None = None
    """Bound on |m / denominator|."""
    forget: Number = 0.0
    """Weight of the oldest gradient, which leaves the window (AdaShift)."""
    cautious: bool = False
    """Leave out updates whose sign is not the gradient's, and scale the others up."""


def numbers(
    rule: Rule,
    t: Number,
    *,
    lr: Number,
    b1: Number,
    b2: Number,
    eps: Number,
    p: Number,
    l2: Number = 0.0,
    decay: Number = 0.0,
    clip: float | None = None,
    window: int = 0,
    plain_eps: bool = False,
    memory: str | None = None,
    correct: bool = True,
    cautious: bool = False,
    dtype: str = "float32",
    xp: Any = scalars,
) -> StepCoefficients:
    """The coefficients of step t = 1, 2, 3, ...

    `plain_eps` adds eps after v is normalised. `correct=False` omits both bias corrections of a method with a running
    maximum, as in the AMSGrad and AdaX papers. `memory` is the text of a memory that replaces the rule's own
    (`memories.py`); b2 is then its number.
    """
    a, b = {"average": (b1, 1 - b1), "sum": (b1, 1.0), "none": (0.0, 1.0), "window": (b1, 1.0)}[rule.mean]
    forget: Number = 0.0
    if rule.mean == "window":
        b, forget = (1 - b1) / (1 - b1**window), b1**window
    k: Number = 0.0
    s: Number = 1.0
    inner, outer = (0.5, 2 * p) if rule.eps_inside else (p, 1.0)
    own = rule.memory
    if own is None:
        return StepCoefficients(a, b, k, 0.0, 1.0, s, 0.0, lr, l2, decay, clip, forget, cautious)
    family, least, last = (own, 0.0, math.inf) if memory is None else memories.read(memory)
    if rule.mean == "window":
        awake = t > window
        elapsed = xp.clip(t - window, min=1)
        k = memories.bounded(family.gain(elapsed, b2, xp), elapsed, least, last, xp)
        k = xp.where(awake, _at_least(k, TINY[dtype], xp), 0.0)
        s = xp.where(awake, t * 0 + 1.0, 0.0)
        eps = xp.where(awake, t * 0 + eps, 1.0)  # s*m/eps is 0 whatever eps is, unless m/eps overflows
    else:  # a gain that underflowed would let m/sqrt(v) overflow
        k = _at_least(memories.bounded(family.gain(t, b2, xp), t, least, last, xp), TINY[dtype], xp)
    if rule.debias and correct:
        s = s / missing(t, b1, xp)
    tau: Number = -p if rule.tau == "-p" else float(rule.tau)
    log_norm = family.log_norm if least == 0 and last == math.inf else None
    if correct and log_norm is not None:
        if rule.sigma:
            s = s * xp.exp(rule.sigma * log_norm(t, b2, xp))
        if not _nothing(tau) and not plain_eps:
            eps = eps * xp.exp(tau * log_norm(t, b2, xp))
    if rule.floor:
        eps = _at_least(eps, TINY[dtype] ** 0.5, xp)
    return StepCoefficients(a, b, k, inner, outer, s, eps, lr, l2, decay, clip, forget, cautious)


def _at_least(x: Number, least: float, xp: Any) -> Number:
    return max(x, least) if isinstance(x, (int, float)) else xp.clip(x, min=least)


def denominator(v: Number, n: StepCoefficients, xp: Any = scalars) -> Number:
    """(v**p + eps)**outer: the denominator of the update, and the metric of a projection."""
    root = xp.sqrt(v) if _is(n.p, 0.5) else v**n.p
    return root + n.eps if _is(n.outer, 1.0) else (root + n.eps) ** n.outer


def toward(v: Number, g: Number, k: Number, xp: Any = scalars) -> Number:
    """v + k*(g*g - v), computed so that k = 1 gives exactly g*g, however large v was.

    >>> toward(1e20, 1.0, 1.0), 1e20 + 1.0 * (1.0 - 1e20)
    (1.0, 0.0)

    v overflows only if k*g*g does, not if only g*g does. An infinite v stays infinite while k < 1.

    >>> toward(0.0, 2.0**520, 2.0**-40) == 2.0**1000, toward(0.0, 2.0**520, 0.5)
    (True, inf)
    >>> toward(math.inf, 1.0, 0.5), toward(math.inf, 1.0, 1.0)
    (inf, 1.0)
    """
    new = (k * g) * g
    held = xp.where(v < math.inf, v, 0.0)
    if isinstance(k, (int, float)):
        return v + (new - k * held) if k < 0.5 else new + (1 - k) * v if k < 1 else new
    far = new + (1 - k) * held + xp.where(k < 1, v - held, 0.0)
    return xp.where(k < 0.5, v + (new - k * held), far)


def step(
    x: Number,
    g: Number,
    m: Number | None,
    v: Number | None,
    n: StepCoefficients,
    *,
    v_max: Number | None = None,
    old: Number | None = None,
    wake: bool = False,
    xp: Any = scalars,
) -> tuple[Number, Number | None, Number | None, Number | None, Number]:
    """One step in operator form, used by tests, the differentiable path, JAX and simulations with Python numbers.

    `m`, `v` and `v_max` (the running maximum) are None if the method has no such state. `old` is the gradient that
    leaves the window. Returns (x, m, v, v_max, denominator). Nothing is modified in place.

    >>> from adaxopt.zoo import METHODS
    >>> n = METHODS["adaxw"].numbers(1, dict(lr=0.1, weight_decay=0.0))
    >>> x, m, v, _, _ = step(1.0, 2.0, 0.0, 0.0, n)
    >>> round(x, 9), round(m, 9), v                                # |update| = lr*(1-b1) at the first step
    (0.99, 0.2, 4.0)
    """
    if not _nothing(n.l2):
        g = g + n.l2 * x
    seen = g if old is None else old
    if old is not None:
        g = g - n.forget * old
    if m is None:
        mean = g
    else:
        mean = m = n.a * m + n.b * g
    d: Number = 1.0
    if v is not None:
        if wake:  # a coordinate without a gradient so far uses k = 1
            v = xp.where(v == 0, seen * seen, v)
        v = toward(v, seen, n.k, xp)
        if v_max is not None:
            v_max = xp.maximum(v_max, v)
        d = denominator(v if v_max is None else v_max, n, xp)
    if n.clip is None:
        update = n.lr * n.s * mean / d  # in this order, because mean / d alone may overflow
    else:
        update = n.lr * n.s * xp.clip(mean / d, min=-n.clip, max=n.clip)
    if n.cautious:
        same = ((mean > 0) & (g > 0)) | ((mean < 0) & (g < 0))
        share = xp.mean(xp.where(same, xp.ones_like(mean), 0.0))
        update = xp.where(same, update / xp.clip(share, min=LEAST_SHARE), 0.0)
    kept = x if _nothing(n.decay) else x - n.decay * x
    return kept - update, m, v, v_max, d


def _nothing(n: Number) -> bool:
    """Whether `n` is a plain zero, so that its term can be skipped."""
    return _is(n, 0)


def _is(n: Number, value: float) -> bool:
    """Whether `n` is a plain number equal to `value`. False for arrays, because they may be traced."""
    return isinstance(n, (int, float)) and n == value
