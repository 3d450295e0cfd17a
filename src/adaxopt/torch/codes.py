"""Moments in 8 bits: codes beside the parameter, element by element, and one shared exponent for 32 of them.

    m = S * q*|q|           q = -127 ... 127 (int8);  -128: infinite or NaN, read as NaN
    sqrt(v) = S * c*c       c = 1 ... 254 (uint8);  0: exactly zero;  255: infinite or NaN, read as infinite

S = 2^(E - 127) is stored as E (uint8), one for every 32 consecutive elements of the codes' memory (the last group may be
shorter): the smallest power of two with which the largest finite number of the group has a code. Together 2.0625 bytes a
parameter. A power of two makes decoding exact in float32, so that a number that does not change keeps its code, and
one that is not finite costs its neighbours nothing.

Rounding is stochastic and unbiased, E[m] = m and E[v] = v (in v, not in its root), with two exceptions: a v above 0 never
becomes 0 but takes at least code 1, which makes steps smaller, never larger; and m is rounded toward 0 where v is 0. The
bits are those of `rounding.py`, stream 1: m takes the highest 12, v the lowest 20.

Neighbouring codes differ by (2c+1)/c^2 of the value. `steps` gives the largest such difference for numbers of a given
size relative to their group's largest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from adaxopt.counter_rng import MASK, WEYL, mix
from adaxopt.torch import rounding

GROUP = 32
"""Elements that share an exponent."""
FIRST, SECOND = torch.int8, torch.uint8
"""The codes of m, and those of v and of its running maximum."""
LOST = {FIRST: -128, SECOND: 255}
MOST = {FIRST: 127, SECOND: 254}
SHIFT = {FIRST: 13, SECOND: 15}
"""The exponent of MOST**2: what the largest number's own exponent is lowered by."""
LEAST = {FIRST: 1, SECOND: 64}
"""The smallest E: S is a normal number, and for v its square too."""
ROOM = 0x3FBFF
"""Added to the bits of a group's largest number: its exponent goes up where that number exceeds S * MOST**2."""
CODED = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")
STREAM = 1


def scale_name(name: str) -> str:
    return f"{name}_scale"


SCALES = tuple(map(scale_name, CODED))


def groups(count: int) -> int:
    """How many exponents so many elements have."""
    return -(-count // GROUP)


def is_coded(t: Any) -> bool:
    return isinstance(t, Tensor) and t.dtype in (FIRST, SECOND)


def create(like: Tensor, name: str) -> dict[str, Tensor]:
    """Codes and exponents of zeros, under their names."""
    codes = torch.zeros_like(like, dtype=FIRST if name == "exp_avg" else SECOND, requires_grad=False)
    scales = torch.zeros(groups(like.numel()), dtype=torch.uint8, device=like.device)
    return {name: codes, scale_name(name): scales}


def steps(share: float, kind: torch.dtype) -> float:
    """The largest relative difference of neighbouring codes, in m or sqrt(v), at `share` of a group's largest number.

    >>> [round(steps(share, SECOND), 3) for share in (1.0, 0.1, 0.01, 0.001)]
    [0.011, 0.036, 0.121, 0.44]
    >>> [round(steps(share, FIRST), 3) for share in (1.0, 0.1, 0.01)]
    [0.023, 0.073, 0.266]
    """
    smallest = MOST[kind] ** 2 / 2  # S times it is the smallest number that can be a group's largest
    code = int((smallest * share) ** 0.5)
    return (2 * code + 1) / code**2 if code else float("inf")


def decode(codes: Tensor, scales: Tensor) -> Tensor:
    """m or v in float32, in the shape and memory order of the codes."""
    flat, order = _memory(codes)
    step = _power(scales.to(torch.int32)).repeat_interleave(GROUP)[: flat.numel()]
    code = flat.to(torch.float32)
    lost = flat == LOST[codes.dtype]
    if codes.dtype == FIRST:
        value = torch.where(lost, torch.nan, code * code.abs() * step)
    else:
        root = code * code * step
        value = torch.where(lost, torch.inf, root * root)
    back = sorted(range(codes.dim()), key=order.__getitem__)
    return value.view([codes.shape[i] for i in order]).permute(back)


def draws(
    count: int,
    device: torch.device,
    *,
    seed: int,
    index: int,
    step: int | float | Tensor,
    first: int = 0,
) -> Tensor:
    """32 random bits for elements first ... first + count, as int64."""
    element = torch.arange(first, first + count, device=device, dtype=torch.int64)
    drawn: Tensor = mix(((element & MASK) * WEYL + rounding.key(seed, index, step, STREAM)) & MASK)
    return drawn


def encode_(
    codes: Tensor, scales: Tensor, values: Tensor, bits: Tensor | None = None, still: Tensor | None = None
) -> None:
    """Write m or v as codes, in place. Without `bits` to the nearest; where `still` is true, m toward 0.

    `bits` are 32 random bits an element, in the memory order of the codes.
    """
    flat, order = _memory(codes)
    straight = values.float().permute(order).reshape(-1)
    u: Any = 0.5
    if bits is not None:
        part = (bits >> 20, 2.0**-12) if codes.dtype == FIRST else (bits & 0xFFFFF, 2.0**-20)
        u = (part[0].to(torch.float32) + 0.5) * part[1]
    if still is not None:
        u = torch.where(still.permute(order).reshape(-1), 1.0, u)
    size = straight.abs() if codes.dtype == FIRST else straight.sqrt()
    finite = size < torch.inf
    size = torch.where(finite, size, 0.0)
    short = -size.numel() % GROUP
    grouped = torch.nn.functional.pad(size, (0, short)).view(-1, GROUP)
    largest = grouped.amax(1) if grouped.numel() else grouped.new_zeros(0)
    power = ((largest.view(torch.int32) + ROOM) >> 23) - SHIFT[codes.dtype]
    power = power.clamp(min=LEAST[codes.dtype])
    size = (grouped * _power(254 - power).unsqueeze(1)).view(-1)[: size.numel()]
    kind = codes.dtype
    least = 1 if kind == SECOND else 0
    code = size.sqrt().floor().clamp(least, MOST[kind] - 1)
    low = code * code
    if kind == FIRST:
        up = (size - low) > u * (2 * code + 1)
        made = torch.copysign(code + up, straight)
    else:
        up = (size - low) * (size + low) > u * ((2 * code + 1) * (2 * low + 2 * code + 1))
        made = torch.where(straight == 0, 0.0, code + up)
    flat.copy_(torch.where(finite, made, float(LOST[kind])))
    scales.copy_(power)


def store_(
    entry: Mapping[str, Tensor],
    values: Mapping[str, Tensor],
    *,
    seed: int,
    index: int,
    step: int | float | Tensor,
    first: int = 0,
) -> None:
    """Write a parameter's new moments as codes, stochastically: what every step of 8-bit state ends with."""
    some = next(iter(values.values()))
    bits = draws(some.numel(), some.device, seed=seed, index=index, step=step, first=first)
    still = values["exp_avg_sq"] == 0 if "exp_avg_sq" in values else None
    for name, value in values.items():
        encode_(entry[name], entry[scale_name(name)], value, bits, still if name == "exp_avg" else None)


def expanded(entry: Mapping[str, Any], name: str) -> Tensor:
    """A moment of a parameter's state in floating point, whatever it is stored in."""
    t: Tensor = entry[name]
    return decode(t, entry[scale_name(name)]) if is_coded(t) else t


def _power(exponent: Tensor) -> Tensor:
    """2^(exponent - 127), and 0 for 0."""
    return (exponent << 23).view(torch.float32)


def _memory(codes: Tensor) -> tuple[Tensor, list[int]]:
    """Codes as the line that they are in memory, and the order of dimensions that gives it."""
    order = sorted(range(codes.dim()), key=codes.stride, reverse=True)
    return codes.permute(order).view(-1), order
