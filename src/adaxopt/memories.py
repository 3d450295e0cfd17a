"""Memories: the gain k_t of a method as an object, chosen independently of the other options.

    AdaXW(params, memory=Growing.over(10_000))      b2 = 3/T
    AdaXW(params, memory=LogTime(8))                k_t = 8/(8+t-1)
    AdaXW(params, memory=Growing(1e-4).floor(1e-3).freeze(50_000))

A memory replaces k_t, and eps_t is computed from it. To add a memory, define a class in this module and list it in
`KINDS`. The class has a kind, the name and bounds of its number, and the gain as a function of (t, number, xp) that is
accurate for every t from 1 to 10**9 (see `memory.py`). For the CUDA kernel, also add a kind to `KINDS` and a branch to
`_gain` in `torch/kernel_numbers.py`.

A param group and a checkpoint store a memory as its `text` (a string), and its number in betas[1].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from adaxopt import memory
from adaxopt.bounds import number as check_number
from adaxopt.bounds import own, plain
from adaxopt.memory import Number, scalars

PRODUCT = 3.0
"""b2*T if the run length T is given."""


@dataclass(frozen=True)
class Memory:
    """A gain k_t: a family with the value of its parameter, `number`.

    `least` is a lower bound on k_t; after step `last`, k_t is 0.

    >>> Growing(1e-4).floor(1e-3).freeze(50_000)
    Growing(0.0001).floor(0.001).freeze(50000)
    """

    number: Number
    least: float = 0.0
    last: float = math.inf

    kind: ClassVar[str]
    name: ClassVar[str] = "b2"
    bounds: ClassVar[dict[str, Any]] = {"below": 1.0}
    gain: ClassVar[Callable[..., Number]]
    """k_t as a function of (t, number, xp), without `least` and `last`."""
    log_norm: ClassVar[Callable[..., Number] | None] = None
    """log c_t as a function of (t, number, xp), or None if it has no closed form: eps is then added as in Adam."""

    def __post_init__(self) -> None:
        who = type(self).__name__
        object.__setattr__(self, "number", own(self.number))
        check_number(f"{who}: {self.name or 'number'}", self.number, **self.bounds)
        check_number(f"{who}.floor: gain", self.least, ())
        if self.least > 1:
            raise ValueError(f"{who}.floor({self.least!r}): must be in [0, 1]; for a horizon h give 1/h")
        if not (plain(self.last) and self.last >= 1):
            raise ValueError(f"{who}.freeze({self.last!r}): must be a number of steps >= 1")

    def k(self, t: Number, xp: Any = scalars) -> Number:
        """The gain at step t.

        >>> [round(LogTime(8).k(t), 4) for t in (1, 2, 9)], LogTime(8).freeze(5).k(6)
        ([1.0, 0.8889, 0.5], 0.0)
        """
        return bounded(type(self).gain(t, self.number, xp), t, self.least, self.last, xp)

    def floor(self, gain: float) -> Memory:
        """A copy whose k_t is at least `gain`: v forgets gradients older than about 1/gain steps."""
        return replace(self, least=own(gain))

    def freeze(self, after: float) -> Memory:
        """A copy whose v is constant after that many steps. A v that is still 0 takes its first squared gradient, so
        this implies `wake=True`."""
        return replace(self, last=own(after))

    @property
    def text(self) -> str:
        """The memory without its number, as stored in a param group.

        >>> Power(0.5).text, Power(0.5).floor(1e-3).freeze(10).text
        ('power', 'power floor 0.001 freeze 10')
        """
        floor = f" floor {self.least!r}" if self.least else ""
        return self.kind + floor + (f" freeze {self.last!r}" if self.last < math.inf else "")

    def __repr__(self) -> str:
        floor = f".floor({self.least!r})" if self.least else ""
        freeze = f".freeze({self.last!r})" if self.last < math.inf else ""
        number = repr(self.number) if self.name else ""
        return f"{type(self).__name__}({number}){floor}{freeze}"


@dataclass(frozen=True, repr=False)
class Growing(Memory):
    """k_t = b2/((1+b2)^t - 1): past weights grow by 1+b2 at every step (AdaX)."""

    kind = "growing"
    gain = staticmethod(memory.growing_gain)
    log_norm = staticmethod(memory.growing_log_norm)

    @classmethod
    def over(cls, total_steps: Number) -> Growing:
        """The memory for a run of T = `total_steps` steps: b2 = 3/T, at most 0.75.

        >>> Growing.over(30_000)
        Growing(0.0001)
        """
        check_number("total_steps", total_steps, positive=True)
        half = total_steps / 2  # an int32 array would overflow in sums
        return cls(PRODUCT / (half + 2 + abs(half - 2)))  # max(T, 4), for arrays too


@dataclass(frozen=True, repr=False)
class Fading(Memory):
    """k_t = (1-b2)/(1-b2^t): past weights decay by b2 at every step (Adam)."""

    kind = "fading"
    gain = staticmethod(memory.fading_gain)
    log_norm = staticmethod(memory.fading_log_norm)


@dataclass(frozen=True, repr=False)
class Unnormalised(Memory):
    """k = 1-b2 from the first step on, so v is biased towards 0 at the start (RMSProp, AMSGrad)."""

    kind = "unnormalised"
    gain = staticmethod(memory.constant_gain)
    log_norm = staticmethod(memory.fading_log_norm)


@dataclass(frozen=True, repr=False)
class Equal(Memory):
    """k_t = 1/t: all squares have equal weight (AdaGrad's sum, divided by t). `number` is not used."""

    number: Number = 0.0

    kind = "equal"
    name = ""
    gain = staticmethod(memory.equal_gain)
    log_norm = staticmethod(memory.equal_log_norm)


@dataclass(frozen=True, repr=False)
class Power(Memory):
    """k_t = t^-c / sum_{i<=t} i^-c for any real c: the weights are i^-c (NosAdam)."""

    kind = "power"
    name = "c"
    bounds: ClassVar[dict[str, Any]] = {"least": -math.inf}
    gain = staticmethod(memory.power_gain)


@dataclass(frozen=True, repr=False)
class LogTime(Memory):
    """k_t = delta/(delta+t-1): v averages over a fixed fraction of past steps (ADANA, arXiv 2602.05298: delta = 8)."""

    kind = "log_time"
    name = "delta"
    bounds: ClassVar[dict[str, Any]] = {"positive": True}
    gain = staticmethod(memory.log_time_gain)


@dataclass(frozen=True, repr=False)
class Polynomial(Memory):
    """k_t = t^-c, c >= 0 (Adafactor: c = 0.8; c = 1 is `Equal`)."""

    kind = "polynomial"
    name = "c"
    bounds: ClassVar[dict[str, Any]] = {}
    gain = staticmethod(memory.polynomial_gain)


KINDS: dict[str, type[Memory]] = {
    one.kind: one for one in (Growing, Fading, Unnormalised, Equal, Power, LogTime, Polynomial)
}


def bounded(k: Number, t: Number, least: float, last: float, xp: Any = scalars) -> Number:
    """Clamp a gain to at least `least`, and set it to 0 after step `last`."""
    if least:
        k = xp.clip(k, min=least)
    return k if last == math.inf else xp.where(t > last, 0.0 * k, k)


_READ: dict[str, tuple[type[Memory], float, float]] = {}


def read(text: str) -> tuple[type[Memory], float, float]:
    """(class, least, last) of a memory's `text`.

    >>> read("power floor 0.001")[1:]
    (0.001, inf)
    """
    if text not in _READ:
        _READ[text] = _parsed(text)
    return _READ[text]


def guarded(options: Mapping[str, Any]) -> bool:
    """Whether a coordinate that has received no gradient yet takes k = 1 at its first one: with `wake`, and with a
    memory that freezes, because k is 0 from then on."""
    text = options.get("memory")
    return bool(options["wake"]) or (text is not None and read(text)[2] < math.inf)


def _parsed(text: str) -> tuple[type[Memory], float, float]:
    kind, *words = text.split(" ")
    try:
        given = {word: float(value) for word, value in zip(words[::2], words[1::2], strict=True)}
        found = KINDS[kind], given.pop("floor", 0.0), given.pop("freeze", math.inf)
        found[0](1.0 if found[0].bounds.get("positive") else 0.0, *found[1:])  # raises if a bound is invalid
    except (KeyError, ValueError):
        raise ValueError(f"memory={text!r}: {ALLOWED}") from None
    if given:
        raise ValueError(f"memory={text!r}: {ALLOWED}")
    return found


ALLOWED = "must be one of {}, or its text in a checkpoint".format(
    ", ".join(f"adaxopt.{one.__name__}" for one in KINDS.values() if one is not Unnormalised)
)
