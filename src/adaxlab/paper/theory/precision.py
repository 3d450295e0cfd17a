"""The raw recursion v <- (1+b2) v + b2 g^2 in finite precision, compared with the normalised one.

The published algorithm keeps the raw v and divides by (1+b2)^t - 1 at every step. Both grow without end.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from adaxopt.memory import growing_gain, growing_log_norm, scalars
from adaxopt.rule import step
from adaxopt.zoo import METHODS


def overflow_step(b2: float, dtype: Any = np.float32, most: int = 12_000_000) -> int:
    """Return the step at which the raw v of unit gradients is inf, with every operation rounded to `dtype`."""
    grow, add = dtype(1 + b2), dtype(b2)
    v, t = dtype(0.0), 0
    with np.errstate(over="ignore"):
        while np.isfinite(v) and t < most:
            v = v * grow + add
            t += 1
    return t


def overflow_formula(b2: float, largest: float = float(np.finfo(np.float32).max)) -> float:
    """log(largest) / log(1+b2)."""
    return math.log(largest) / math.log1p(b2)


def raw_in(dtype: torch.dtype, steps: int, size: float = 1.0, b2: float = 1e-4, eps: float = 1e-12) -> float:
    """Return the denominator of the raw recursion after `steps` gradients of the given size relative to the true one,
    with state and operations in `dtype`. 1 is correct; 0 makes the update infinite."""
    g = torch.tensor(size, dtype=dtype)
    v = torch.zeros((), dtype=dtype)
    for _ in range(steps):
        v.mul_(1 + b2).addcmul_(g, g, value=b2)
    d = v.sqrt().add_(eps) / math.exp(0.5 * growing_log_norm(steps, b2))
    return float(d) / size


def normalised_in(dtype: torch.dtype, steps: int, size: float = 1.0, b2: float = 1e-4) -> float:
    """Return the same for the normalised v in float32, which adaxopt uses for parameters of `dtype`."""
    g = torch.tensor(size, dtype=dtype).float()
    v = torch.zeros(())
    for t in range(1, steps + 1):
        v.lerp_(g * g, growing_gain(t, b2))
    return float(v.sqrt()) / float(g)


def first_update_size(steps: int, b1: float = 0.9, b2: float = 1e-4) -> float:
    """Return |update|/lr of a coordinate whose first gradient comes at step t, without the guard: (1-b1)/sqrt(k_t)."""
    return (1 - b1) / math.sqrt(growing_gain(steps, b2))


class Counted:
    """A number that counts the arithmetic operations on it and on results derived from it."""

    done = 0

    def __init__(self, value: float) -> None:
        self.value = value

    def _count(self, value: float) -> Counted:
        Counted.done += 1
        return Counted(value)

    def __add__(self, other: Any) -> Counted:
        return self._count(self.value + getattr(other, "value", other))

    def __sub__(self, other: Any) -> Counted:
        return self._count(self.value - getattr(other, "value", other))

    def __mul__(self, other: Any) -> Counted:
        return self._count(self.value * getattr(other, "value", other))

    def __truediv__(self, other: Any) -> Counted:
        return self._count(self.value / getattr(other, "value", other))

    __radd__, __rmul__ = __add__, __mul__

    def __lt__(self, other: Any) -> bool:
        return self.value < getattr(other, "value", other)

    def sqrt(self) -> Counted:
        return self._count(math.sqrt(self.value))


class _Counting:
    """The array namespace of a step on counted numbers."""

    sqrt = staticmethod(Counted.sqrt)
    where = staticmethod(scalars.where)


def operations(b2: float, steps: int = 5) -> int:
    """Return the number of additions, multiplications, divisions and roots per parameter in `steps` steps of AdaX-W."""
    Counted.done = 0
    row = METHODS["adaxw"]
    x: Any = Counted(1.0)
    m: Any = Counted(0.0)
    v: Any = Counted(0.0)
    for t in range(1, steps + 1):
        n = row.numbers(t, {"betas": (0.9, b2)})
        x, m, v, _, _ = step(x, Counted(0.3 * t), m, v, n, xp=_Counting)
    return Counted.done


def report(full: bool = True) -> dict[str, Any]:
    """Return all of the above. `full=False` uses a larger b2 for the overflow and fewer steps in bfloat16."""
    rates = (1e-3, 1e-4) if full else (1e-3,)
    steps = 10_000 if full else 4000
    return {
        "overflow_fp32": {str(b2): overflow_step(b2) for b2 in rates},
        "overflow_formula": {str(b2): overflow_formula(b2) for b2 in (1e-3, 1e-4, 1e-5)},
        "bf16_steps": steps,
        "bf16_raw": raw_in(torch.bfloat16, steps),
        "bf16_normalised": normalised_in(torch.bfloat16, steps),
        "fp16_step_1": raw_in(torch.float16, 1, size=1e-2),
        "operations": {str(b2): operations(b2) for b2 in (1e-3, 1e-4, 1e-5)},
        "late_activated": {str(t): first_update_size(t) for t in (50_000, 100_000, 200_000, 887_000)},
    }
