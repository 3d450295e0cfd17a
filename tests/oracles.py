"""Every method from its own paper, in plain float64 numpy: what the library is judged against.

Nothing here comes from `adaxopt`. A method is a function of its hyper-parameters that returns `direction(t, g)`,
the thing that is multiplied by the step size; `run` adds what all methods share (ascent, decay, the loop).
Moments are kept as the papers keep them: AdaX's v grows, Adam's is corrected afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Direction = Callable[[int, np.ndarray], np.ndarray]


def sgdm(momentum: float = 0.9, **_: Any) -> Direction:
    """Polyak: buf = momentum*buf + g."""
    m = 0.0

    def direction(t, g):
        nonlocal m
        m = momentum * m + g
        return m

    return direction


def adagrad(eps: float = 1e-10, **_: Any) -> Direction:
    """Duchi et al.: g / (sqrt(sum of squares) + eps)."""
    total = 0.0

    def direction(t, g):
        nonlocal total
        total = total + g * g
        return g / (np.sqrt(total) + eps)

    return direction


def rmsprop(b2: float = 0.99, eps: float = 1e-8, **_: Any) -> Direction:
    """Tieleman and Hinton, as torch writes it: no correction, eps outside the root."""
    v = 0.0

    def direction(t, g):
        nonlocal v
        v = b2 * v + (1 - b2) * g * g
        return g / (np.sqrt(v) + eps)

    return direction


def adam(b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, **_: Any) -> Direction:
    """Kingma and Ba, Algorithm 1."""
    m = v = 0.0

    def direction(t, g):
        nonlocal m, v
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g * g
        return m / (1 - b1**t) / (np.sqrt(v / (1 - b2**t)) + eps)

    return direction


def amsgrad(
    b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, correct: bool = True, **_: Any
) -> Direction:
    """Reddi et al., Algorithm 2 (`correct=False`); with torch's corrections of the raw maximum otherwise."""
    m = v = v_max = 0.0

    def direction(t, g):
        nonlocal m, v, v_max
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g * g
        v_max = np.maximum(v_max, v)
        if not correct:
            return m / (np.sqrt(v_max) + eps)
        return m / (1 - b1**t) / (np.sqrt(v_max) / np.sqrt(1 - b2**t) + eps)

    return direction


def padam(b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, p: float = 1 / 8, **_: Any) -> Direction:
    """Chen et al.'s code: lr*sqrt(1-b2^t)/(1-b1^t) * m / (sqrt(vmax) + eps)^(2p)."""
    m = v = v_max = 0.0

    def direction(t, g):
        nonlocal m, v, v_max
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g * g
        v_max = np.maximum(v_max, v)
        return np.sqrt(1 - b2**t) / (1 - b1**t) * m / (np.sqrt(v_max) + eps) ** (2 * p)

    return direction


def nosadam(b1: float = 0.9, c: float = 0.1, eps: float = 1e-8, **_: Any) -> Direction:
    """Huang et al.: b_k = k^-c, B_t = sum b_k, v = B_{t-1}/B_t v + (1 - B_{t-1}/B_t) g^2; Adam's mean."""
    m = v = 0.0
    before = 0.0

    def direction(t, g):
        nonlocal m, v, before
        now = before + t**-c
        m = b1 * m + (1 - b1) * g
        v = before / now * v + (1 - before / now) * g * g
        before = now
        return m / (1 - b1**t) / (np.sqrt(v) + eps)

    return direction


def adamnx(b1: float = 0.9, b2: float = 0.99, eps: float = 1e-8, **_: Any) -> Direction:
    """Zhu et al. (arXiv 2511.13465): the past keeps (1-q^(t-1))/(1-q^t), q = b2^(1-b2), of v; Adam's mean."""
    m = v = 0.0
    q = b2 ** (1 - b2)

    def direction(t, g):
        nonlocal m, v
        old = (b1 - b1**t) / (1 - b1**t)
        m = old * m + (1 - old) * g
        old = (1 - q ** (t - 1)) / (1 - q**t)
        v = old * v + (1 - old) * g * g
        return m / (np.sqrt(v) + eps)

    return direction


def adashift(b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, window: int = 10, **_: Any) -> Direction:
    """Zhou et al., Algorithm 2, element-wise: the mean of the last n gradients over the squares before them."""
    past: list[np.ndarray] = []
    v = 0.0

    def direction(t, g):
        nonlocal v
        past.append(g)
        if t <= window:
            return np.zeros_like(g)
        v = b2 * v + (1 - b2) * past[-1 - window] ** 2
        weights = [b1**i for i in range(window)]
        mean = sum(w * past[-1 - i] for i, w in enumerate(weights)) / sum(weights)
        return mean / (np.sqrt(v / (1 - b2 ** (t - window))) + eps)

    return direction


def adax_algorithm_2(b1: float = 0.9, b2: float = 1e-4, **_: Any) -> Direction:
    """The AdaX paper, Algorithm 2: v = (1+b2) v + b2 g^2, divided by (1+b2)^t - 1. No eps."""
    m = v = 0.0

    def direction(t, g):
        nonlocal m, v
        m = b1 * m + (1 - b1) * g
        v = (1 + b2) * v + b2 * g * g
        return m / np.sqrt(v / ((1 + b2) ** t - 1))

    return direction


def adax(
    b1: float = 0.9, b2: float = 1e-4, eps: float = 1e-12, p: float = 0.5, plain: bool = False, **_: Any
) -> Direction:
    """The AdaX paper, Algorithm 3 (p = 1/2), and Padax (section 5.3): d = v^p + eps, divided by ((1+b2)^t - 1)^p.

    `plain` adds eps after the division. The sign of its decay is mended in `run` (see the errata).
    """
    m = v = 0.0

    def direction(t, g):
        nonlocal m, v
        m = b1 * m + (1 - b1) * g
        v = (1 + b2) * v + b2 * g * g
        c = ((1 + b2) ** t - 1) ** p
        return m / (v**p / c + eps if plain else (v**p + eps) / c)

    return direction


METHODS: dict[str, Callable[..., Direction]] = {
    "sgdm": sgdm,
    "adagrad": adagrad,
    "rmsprop": rmsprop,
    "adam": adam,
    "adamw": adam,
    "amsgrad": amsgrad,
    "amsgradw": amsgrad,
    "adashift": adashift,
    "nosadam": nosadam,
    "adamnx": adamnx,
    "padam": padam,
    "adax": adax,
    "adaxw": adax,
    "padax": lambda **o: adax(**{"p": 1 / 8, **o}),
}

PUBLISHED: dict[str, dict[str, Any]] = {
    "adax": dict(lr=1.5e-3, betas=(0.9, 1e-4), eps=1e-12, weight_decay=0.0, decay="l2", p=0.5, wake=True),
    "adaxw": dict(
        lr=5e-3, betas=(0.9, 1e-4), eps=1e-12, weight_decay=5e-2, decay="decoupled", p=0.5, wake=True
    ),
    "padax": dict(lr=0.1, betas=(0.9, 1e-4), eps=1e-12, weight_decay=5e-4, decay="l2", p=0.125, wake=True),
    "padam": dict(lr=0.1, betas=(0.9, 0.999), eps=1e-8, weight_decay=5e-4, decay="l2", p=0.125, wake=False),
    "nosadam": dict(lr=1e-3, betas=(0.9, 0.1), eps=1e-8, weight_decay=0.0, p=0.5, wake=False),
    "adashift": dict(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, window=10, wake=False),
    "adamnx": dict(
        lr=1e-3, betas=(0.9, 0.99**-0.01 - 1), eps=1e-8, weight_decay=0.01, decay="decoupled", wake=False
    ),
}
"""Defaults as their sources have them, of the methods that torch does not have."""


def run(
    direction: Direction,
    gradient: Callable[[int, np.ndarray], np.ndarray],
    x: np.ndarray,
    steps: int,
    *,
    lr: float | Callable[[int], float],
    weight_decay: float = 0.0,
    decay: str = "l2",
    maximize: bool = False,
    first: int = 1,
) -> np.ndarray:
    """x after `steps` steps. `lr` may be a function of t; fully decoupled decay is measured against lr(first)."""
    x = np.array(x, dtype=np.float64)
    size = lr if callable(lr) else lambda t: lr
    for t in range(first, first + steps):
        g = np.array(gradient(t, x), dtype=np.float64)
        if maximize:
            g = -g
        if decay == "l2":
            g = g + weight_decay * x
        shrink = {"l2": 0.0, "decoupled": size(t) * weight_decay}.get(
            decay, weight_decay * size(t) / size(first)
        )
        x = x - shrink * x - size(t) * direction(t, g)
    return x


def adax_gain(t: float, b2: float, digits: int = 60) -> Any:
    """b2/((1+b2)^t - 1) of the float b2, in as many digits as it takes."""
    import mpmath

    with mpmath.workdps(digits):
        b = mpmath.mpf(b2)
        return b / (mpmath.power(1 + b, int(t)) - 1)


def adax_from(t: int, m: np.ndarray, v: np.ndarray, *, b1: float, b2: float, eps: float, tiny: float):
    """Algorithm 3 continued from step t with its normalised moments: gains from mpmath, the rest float64.

    The raw v of step t would be v*((1+b2)^t - 1), a number that float64 cannot hold after 7 million steps, so the
    recursion is divided through by the norm: v_{t+1} = (1-k) v_t + k g^2 with the exact k.
    """
    import mpmath

    m, v = np.array(m, np.float64), np.array(v, np.float64)

    def direction(now, g):
        nonlocal m, v
        k = adax_gain(now, b2)
        m = b1 * m + (1 - b1) * g
        v = v + float(k) * (g * g - v)
        small = max(float(mpmath.mpf(eps) * mpmath.sqrt(k / mpmath.mpf(b2))), tiny**0.5)
        return m / (np.sqrt(v) + small)

    return direction


def project_to_ball(y: np.ndarray, d: np.ndarray, radius: float) -> np.ndarray:
    """argmin sum d (x-y)^2 over ||x|| <= radius, by bisection of the Lagrange multiplier in 50 digits."""
    import mpmath

    with mpmath.workdps(50):
        ys, ds = [mpmath.mpf(float(a)) for a in y], [mpmath.mpf(float(a)) for a in d]
        if mpmath.sqrt(sum(a * a for a in ys)) <= radius:
            return np.array(y, np.float64)

        def point(mu):
            return [b * a / (b + mu) for a, b in zip(ys, ds, strict=True)]

        def size(mu):
            return mpmath.sqrt(sum(a * a for a in point(mu)))

        low, high = mpmath.mpf(0), mpmath.mpf(1)
        while size(high) > radius:
            high *= 4
        for _ in range(220):
            mid = (low + high) / 2
            low, high = (mid, high) if size(mid) > radius else (low, mid)
        return np.array([float(a) for a in point(high)])
