"""8-bit moments: one code per element, and one shared exponent per group of 32 elements.

    m = S * x(c), with m's sign      c = 0 ... 127; the sign is the highest bit of an int8
    v = S * x(c)                     c = 1 ... 254 (uint8);  0: exactly zero;  255: lost, read as infinite

x is a floating-point format with 4 mantissa bits, and equal spacing near zero:

    x(c) = c/8  for c < 16,  2^(c // 16) * (1 + (c % 16) / 16)  from there on

S = 2^(E - 127) is stored as E (uint8), one per 32 consecutive elements in memory (the last group may be shorter). It is
the smallest power of two for which the largest value of the group has a code. Together these are 2.0625 bytes per
parameter. Neighbouring representable values differ by S/8 or by a sixteenth of the value, whichever is larger. Values
that are representable with S are also representable with S/2: a value that does not change is stored exactly, whatever
E becomes, as long as no other value of its group grows.

With w = S*x + max(S*x, 2*S), the code is the difference of the bits of w and of 2*S, rounded to 4 mantissa bits. Adding
random bits below them rounds stochastically. The inverse is S*x = w - max(w, 4*S)/2.

A coordinate with |m| + v >= 2^118 is lost, like a non-finite coordinate in float32: its v is read as infinite and its m
as 0, so it receives no further update. Other elements of its group are not affected.

Rounding is unbiased, E[m] = m and E[v] = v, with two exceptions: a v > 0 gets at least code 1, which makes steps
smaller, never larger; m is 0 where v is 0. The random bits are stream 1 of `rounding.py`, drawn by fours: m uses the
highest 19, v the 19 from bit 5 on. `steps` returns the largest relative difference of neighbouring values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from adaxopt.counter_rng import MASK, four
from adaxopt.torch import rounding
from adaxopt.torch.layout import dense

GROUP = 32
"""Number of elements that share an exponent."""
FIRST, SECOND = torch.int8, torch.uint8
"""The dtypes of the codes of m, and of v and its running maximum."""
LOST = 255
"""The code of a v that is not finite."""
MOST = {FIRST: 127, SECOND: 254}
TAIL = 19
"""The number of low mantissa bits of a float32 that are not part of its code."""
HIGH = 2.0**118
"""Values of this size or larger count as not finite."""
LEAST = 4
"""The smallest E. With it, the value of code 1 is still a normal number."""
SPAN = {FIRST: 7, SECOND: 15}
"""The exponent of x(MOST)."""
ROOM = {FIRST: 0x07FFFF, SECOND: 0x0FFFFF}
"""Added to the bits of a group's largest value, so that its exponent increases if the value exceeds S * x(MOST)."""
CODED = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")
STREAM = 1


def scale_name(name: str) -> str:
    return f"{name}_scale"


SCALES = tuple(map(scale_name, CODED))


def groups(count: int) -> int:
    """The number of exponents for `count` elements."""
    return -(-count // GROUP)


def is_coded(t: Any) -> bool:
    return isinstance(t, Tensor) and t.dtype in (FIRST, SECOND)


def kind_of(name: str) -> torch.dtype:
    return FIRST if name == "exp_avg" else SECOND


def fits(name: str, codes: Tensor, scales: Any) -> bool:
    """Whether codes and scales have the dtypes, sizes and layout that `create` gives a moment of this name."""
    if not isinstance(scales, Tensor) or codes.dtype != kind_of(name) or codes.layout != torch.strided:
        return False
    return scales.dtype == torch.uint8 and scales.numel() == groups(codes.numel()) and dense(codes)


def create(like: Tensor, name: str) -> dict[str, Tensor]:
    """Codes and exponents of zeros, as state entries."""
    codes = torch.zeros_like(like, dtype=kind_of(name), requires_grad=False)
    scales = torch.zeros(groups(like.numel()), dtype=torch.uint8, device=like.device)
    return {name: codes, scale_name(name): scales}


def steps(share: float, kind: torch.dtype) -> float:
    """The largest relative difference of neighbouring values, in m or sqrt(v), at `share` of a group's largest value.

    >>> [round(steps(share, SECOND), 3) for share in (1.0, 0.1, 0.01, 0.001)]
    [0.031, 0.031, 0.031, 1.251]
    >>> [round(steps(share, FIRST), 3) for share in (1.0, 0.1, 0.01)]
    [0.062, 0.062, 0.101]
    """
    x = size(MOST[kind]) / 2  # S*x is the smallest value that can be the largest of a group
    x *= share if kind == FIRST else share**2
    found = 0.0
    for low in range(MOST[kind]):  # neighbours around x ... 2x
        least, above = max(size(low), x), size(low + 1)
        if above > x and size(low) < 2 * x:
            apart = (above - size(low)) / least
            found = max(found, apart if kind == FIRST else (1 + apart) ** 0.5 - 1)
    return found


def size(code: int) -> float:
    """x(c), the value of a code for S = 1."""
    return code / 8 if code < 16 else float(2 ** (code // 16) * (1 + code % 16 / 16))


def decode(codes: Tensor, scales: Tensor) -> Tensor:
    """m or v in float32, in the shape and memory order of the codes."""
    flat, order = _memory(codes)
    exponent = scales.reshape(-1).to(torch.int32).repeat_interleave(GROUP)[: flat.numel()]
    code = flat.to(torch.int32)
    kept = code & 127 if codes.dtype == FIRST else code
    w = (((exponent + 1) << 23) + (kept << TAIL)).view(torch.float32)
    value = w - 0.5 * torch.maximum(w, _power(exponent + 2))
    if codes.dtype == FIRST:
        value = torch.where(code < 0, -value, value)
    else:
        value = torch.where(code == LOST, torch.inf, value)
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
    """32 random bits per element for elements first ... first + count, as int64."""
    element = torch.arange(first, first + count, device=device, dtype=torch.int64)
    drawn: Tensor = four(element & MASK, rounding.key(seed, index, step, STREAM))
    return drawn


def encode_(
    codes: Tensor, scales: Tensor, values: Tensor, bits: Tensor | None = None, still: Tensor | None = None
) -> None:
    """Encode m or v, in place.

    `bits` are 32 random bits per element, in the memory order of the codes; without them, values are rounded to the
    nearest code. Where `still` is True, m is stored as 0. An m that is not finite is stored as 0; see `lose` for its v.
    """
    flat, order = _memory(codes)
    resting = None if still is None else _line(still, order)
    _encode(flat, scales.view(-1), _line(values, order), bits, resting)


def _encode(codes: Tensor, scales: Tensor, values: Tensor, bits: Tensor | None, still: Tensor | None) -> None:
    """`encode_` for 1-D tensors."""
    kind, values = codes.dtype, values.float()
    size = values.abs() if kind == FIRST else values
    finite = (size >= 0) & (size < HIGH)
    kept = finite if still is None else finite & ~still
    grouped = torch.nn.functional.pad(torch.where(kept, size, 0.0), (0, -len(size) % GROUP)).view(-1, GROUP)
    high = (grouped.amax(1).view(torch.int32) + ROOM[kind]) >> 23
    exponent = (high - SPAN[kind]).clamp(min=LEAST)
    two = (exponent + 1) << 23  # the bits of 2*S
    w = (grouped + torch.maximum(grouped, two.view(torch.float32).unsqueeze(1))).view(torch.int32)
    above = (w - two.unsqueeze(1)).view(-1)[: len(size)]
    tail: Any = 1 << (TAIL - 1)
    if bits is not None:
        tail = (bits >> 13 if kind == FIRST else bits >> 5 & 0x7FFFF).to(torch.int32)
    code = (above + tail) >> TAIL
    if kind == FIRST:
        code = torch.where(values.signbit(), code - 128, code)
    else:
        code = torch.where(finite, torch.maximum(code, (size > 0).to(torch.int32)), LOST)
    codes.copy_(code)
    scales.copy_(exponent)


def store_(
    entry: Mapping[str, Tensor],
    values: Mapping[str, Tensor],
    *,
    seed: int,
    index: int,
    step: int | float | Tensor,
    offset: int = 0,
) -> None:
    """Encode a parameter's new moments with stochastic rounding, at the end of a step."""
    lines = []
    for name, value in lose(values).items():
        flat, order = _memory(entry[name])
        line = _line(value, order).float()
        lines.append((name, flat, entry[scale_name(name)].view(-1), line))
    second = next((line for name, _, _, line in lines if name == "exp_avg_sq"), None)
    count, device = lines[0][1].numel(), lines[0][1].device
    for start in range(0, count, rounding.PIECE):
        here = slice(start, min(start + rounding.PIECE, count))
        there = slice(start // GROUP, groups(here.stop))
        bits = draws(here.stop - start, device, seed=seed, index=index, step=step, first=offset + start)
        for name, flat, scales, line in lines:
            still = zero_or_lost(second[here]) if second is not None and name == "exp_avg" else None
            _encode(flat[here], scales[there], line[here], bits, still)


def zero_or_lost(v: Tensor) -> Tensor:
    """Where v is stored as 0 or as lost, and m as 0. A float64 v may be 0 in float32."""
    v = v.float()
    return ~((v > 0) & (v < HIGH))


def lose(values: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The moments of a parameter, with v set to infinity where |m| + v >= HIGH or is NaN."""
    if "exp_avg" not in values or "exp_avg_sq" not in values:
        return values
    v = values["exp_avg_sq"]
    v = torch.where(v + values["exp_avg"].abs() < HIGH, v, torch.inf)
    return {**values, "exp_avg_sq": v}


def expanded(entry: Mapping[str, Any], name: str) -> Tensor:
    """A moment of a parameter's state in floating point, decoded if it is 8-bit state."""
    t: Tensor = entry[name]
    return decode(t, entry[scale_name(name)]) if is_coded(t) else t


def _power(exponent: Tensor) -> Tensor:
    """2^(exponent - 127), and 0 for 0."""
    return (exponent << 23).view(torch.float32)


def _line(t: Tensor, order: list[int]) -> Tensor:
    return t.permute(order).reshape(-1)


def _memory(codes: Tensor) -> tuple[Tensor, list[int]]:
    """Codes as a 1-D view in memory order, and the permutation of dimensions that gives it."""
    order = sorted(range(codes.dim()), key=codes.stride, reverse=True)
    return codes.permute(order).view(-1), order
