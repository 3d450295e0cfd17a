"""Moments in 8 bits: codes beside the parameter, element by element, and one shared exponent for 32 of them.

    m = S * q*|q|           q = -127 ... 127 (int8)
    sqrt(v) = S * c*c       c = 1 ... 254 (uint8);  0: exactly zero;  255: lost, read as infinite

S = 2^(E - 127) is stored as E (uint8), one for every 32 consecutive elements of the codes' memory (the last group may
be shorter): the smallest power of two with which the largest finite number of the group has a code. Together 2.0625
bytes a parameter. A power of two makes decoding exact in float32, so that a number that does not change keeps its code.
A coordinate whose m or v is not finite is lost, as in float32: its v reads infinite and its m 0, so that it receives
no further update. Its neighbours do not notice.

Rounding is stochastic and unbiased, E[m] = m and E[v] = v (in v, not in its root), with three exceptions: a v above
0 never becomes 0 but takes at least code 1, which makes steps smaller, never larger; m is rounded toward 0 where v is
0; and an m less than 2^-13 of a step below a code takes that code. The bits are those of `rounding.py`, stream 1: m
takes the highest 23, v the lowest 23.

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
from adaxopt.torch.layout import dense

GROUP = 32
"""Elements that share an exponent."""
FIRST, SECOND = torch.int8, torch.uint8
"""The codes of m, and those of v and of its running maximum."""
LOST = 255
"""The code of a v that is not finite."""
MOST = {FIRST: 127, SECOND: 254}
LEAST = {FIRST: 1, SECOND: 64}
"""The smallest E: S is a normal number, and for v its square too."""
ROOM = {FIRST: 0x3FBFF, SECOND: 0x7E81F}
"""Added to the bits of a group's largest number: its exponent goes up where it exceeds (S * MOST**2), for v squared."""
BACK = 0.5 - 2.0**-13
"""Taken off m's root before it is rounded, instead of rounding down: an exact code stays, whichever way it errs."""
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


def kind_of(name: str) -> torch.dtype:
    return FIRST if name == "exp_avg" else SECOND


def fits(name: str, codes: Tensor, scales: Any) -> bool:
    """Whether these can be a moment of this name, as `create` makes it."""
    if not isinstance(scales, Tensor) or codes.dtype != kind_of(name) or codes.layout != torch.strided:
        return False
    return scales.dtype == torch.uint8 and scales.numel() == groups(codes.numel()) and dense(codes)


def create(like: Tensor, name: str) -> dict[str, Tensor]:
    """Codes and exponents of zeros, under their names."""
    codes = torch.zeros_like(like, dtype=kind_of(name), requires_grad=False)
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
    step = _power(scales.reshape(-1).to(torch.int32)).repeat_interleave(GROUP)[: flat.numel()]
    code = flat.to(torch.float32)
    if codes.dtype == FIRST:
        value = code * code.abs() * step
    else:
        root = code * code * step
        value = torch.where(flat == LOST, torch.inf, root * root)
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
    An m that is not finite becomes 0: `lose` says what that means for v.

    `bits` are 32 random bits an element, in the memory order of the codes.
    """
    flat, order = _memory(codes)
    resting = None if still is None else _line(still, order)
    _encode(flat, scales.view(-1), _line(values, order), bits, resting)


def _encode(codes: Tensor, scales: Tensor, values: Tensor, bits: Tensor | None, still: Tensor | None) -> None:
    """`encode_` of lines."""
    kind, values = codes.dtype, values.float()
    size = values.abs() if kind == FIRST else values
    finite = (size >= 0) & (size < torch.inf)
    grouped = torch.nn.functional.pad(torch.where(finite, size, 0.0), (0, -len(size) % GROUP)).view(-1, GROUP)
    top = (grouped.amax(1).view(torch.int32) + ROOM[kind]) >> 23
    power = (top - 13 if kind == FIRST else (top + 97) >> 1).clamp(min=LEAST[kind])
    unit = _power(254 - power if kind == FIRST else 381 - 2 * power)  # 1/S, 1/S^2
    size = (grouped * unit.unsqueeze(1)).view(-1)[: len(size)]  # 0 where not finite
    u: Any = 0.5
    if bits is not None:
        part = bits >> 9 if kind == FIRST else bits & 0x7FFFFF
        u = part.to(torch.float32) * 2.0**-23 + 2.0**-24
    if kind == FIRST:
        u = u if still is None else torch.where(still, 1.0, u)
        code = (size.sqrt() - BACK).round()
        code = code + ((size - code * code) > u * (2 * code + 1))
        made = torch.copysign(code, values)
    else:
        near = size.sqrt().sqrt().round()
        low = near * near
        beyond = size - low * low  # its sign says between which codes the number is, however small it is
        code = torch.where(beyond < 0, near - 1, near)
        low, odd = code * code, 2 * code + 1
        gap = odd * (2 * low + odd)
        code = code + (torch.where(beyond < 0, beyond + gap, beyond) > u * gap)
        code = code.clamp(min=1)
        made = torch.where(finite, torch.where(values == 0, 0.0, code), float(LOST))
    codes.copy_(made)
    scales.copy_(power)


def store_(
    entry: Mapping[str, Tensor],
    values: Mapping[str, Tensor],
    *,
    seed: int,
    index: int,
    step: int | float | Tensor,
    offset: int = 0,
) -> None:
    """Write a parameter's new moments as codes, stochastically: what every step of 8-bit state ends with."""
    lines = []
    for name, value in lose(values).items():
        flat, order = _memory(entry[name])
        lines.append((name, flat, entry[scale_name(name)].view(-1), _line(value, order)))
    second = next((line for name, _, _, line in lines if name == "exp_avg_sq"), None)
    count, device = lines[0][1].numel(), lines[0][1].device
    for start in range(0, count, rounding.PIECE):
        here = slice(start, min(start + rounding.PIECE, count))
        there = slice(start // GROUP, groups(here.stop))
        bits = draws(here.stop - start, device, seed=seed, index=index, step=step, first=offset + start)
        for name, flat, scales, line in lines:
            still = second[here] == 0 if second is not None and name == "exp_avg" else None
            _encode(flat[here], scales[there], line[here], bits, still)


def lose(values: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The moments of a parameter with v infinite wherever m or v is not finite."""
    if "exp_avg" not in values or "exp_avg_sq" not in values:
        return values
    v = torch.where(values["exp_avg"].isfinite(), values["exp_avg_sq"], torch.inf)
    return {**values, "exp_avg_sq": v}


def expanded(entry: Mapping[str, Any], name: str) -> Tensor:
    """A moment of a parameter's state in floating point, whatever it is stored in."""
    t: Tensor = entry[name]
    return decode(t, entry[scale_name(name)]) if is_coded(t) else t


def _power(exponent: Tensor) -> Tensor:
    """2^(exponent - 127), and 0 for 0."""
    return (exponent << 23).view(torch.float32)


def _line(t: Tensor, order: list[int]) -> Tensor:
    return t.permute(order).reshape(-1)


def _memory(codes: Tensor) -> tuple[Tensor, list[int]]:
    """Codes as the line that they are in memory, and the order of dimensions that gives it."""
    order = sorted(range(codes.dim()), key=codes.stride, reverse=True)
    return codes.permute(order).view(-1), order
