"""Moments in 8 bits: codes beside the parameter, element by element, and one shared exponent for 32 of them.

    m = S * x(c), with m's sign      c = 0 ... 127; the sign is the highest bit of an int8
    v = S * x(c)                     c = 1 ... 254 (uint8);  0: exactly zero;  255: lost, read as infinite

x is a float with 4 bits after the point, and equal steps near zero:

    x(c) = c/8  for c < 16,  2^(c // 16) * (1 + (c % 16) / 16)  from there on

S = 2^(E - 127) is stored as E (uint8), one for every 32 consecutive elements of the codes' memory (the last group may
be shorter): the smallest power of two with which the largest number of the group has a code. Together 2.0625 bytes a
parameter. Neighbours differ by S/8 or by a sixteenth of the number, whichever is more. Every number of a grid is on the
grid of half its S: one that does not change is stored exactly, whatever happens to E, while no neighbour grows.

With w = S*x + max(S*x, 2*S), the code is what the bits of w have above those of 2*S, rounded to 4 bits after the point:
adding random bits below them rounds stochastically. Back from there, S*x = w - max(w, 4*S)/2.

A coordinate whose |m| + v is not below 2^118 is lost, as in float32 one that is not finite: its v reads infinite and
its m 0, so that it receives no further update. Its neighbours do not notice.

Rounding is unbiased, E[m] = m and E[v] = v, with two exceptions: a v above 0 takes at least code 1, which makes steps
smaller, never larger; m is 0 where v is 0. The bits are stream 1 of `rounding.py`, by fours: m takes the highest 19, v
the 19 from bit 5 on. `steps` gives the largest difference of neighbours for numbers of a given size.
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
"""Elements that share an exponent."""
FIRST, SECOND = torch.int8, torch.uint8
"""The codes of m, and those of v and of its running maximum."""
LOST = 255
"""The code of a v that is not finite."""
MOST = {FIRST: 127, SECOND: 254}
TAIL = 19
"""Bits of a float32 that its code has not."""
HIGH = 2.0**118
"""From here on a number counts as not finite."""
LEAST = 4
"""The smallest E: S times code 1 is a normal number."""
SPAN = {FIRST: 7, SECOND: 15}
"""The exponent of x(MOST)."""
ROOM = {FIRST: 0x07FFFF, SECOND: 0x0FFFFF}
"""Added to the bits of a group's largest number: its exponent goes up where the number exceeds S * x(MOST)."""
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
    [0.031, 0.031, 0.031, 1.251]
    >>> [round(steps(share, FIRST), 3) for share in (1.0, 0.1, 0.01)]
    [0.062, 0.062, 0.101]
    """
    x = size(MOST[kind]) / 2  # S times it is the smallest number that can be a group's largest
    x *= share if kind == FIRST else share**2
    found = 0.0
    for low in range(MOST[kind]):  # neighbours around x ... 2x
        least, above = max(size(low), x), size(low + 1)
        if above > x and size(low) < 2 * x:
            apart = (above - size(low)) / least
            found = max(found, apart if kind == FIRST else (1 + apart) ** 0.5 - 1)
    return found


def size(code: int) -> float:
    """x(c)."""
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
    """32 random bits for elements first ... first + count, as int64."""
    element = torch.arange(first, first + count, device=device, dtype=torch.int64)
    drawn: Tensor = four(element & MASK, rounding.key(seed, index, step, STREAM))
    return drawn


def encode_(
    codes: Tensor, scales: Tensor, values: Tensor, bits: Tensor | None = None, still: Tensor | None = None
) -> None:
    """Write m or v as codes, in place. Without `bits` to the nearest; where `still` is true, m as 0.
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
    finite = (size >= 0) & (size < HIGH)
    kept = finite if still is None else finite & ~still
    grouped = torch.nn.functional.pad(torch.where(kept, size, 0.0), (0, -len(size) % GROUP)).view(-1, GROUP)
    top = (grouped.amax(1).view(torch.int32) + ROOM[kind]) >> 23
    exponent = (top - SPAN[kind]).clamp(min=LEAST)
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
            still = None
            if second is not None and name == "exp_avg":  # where v is 0, or lost
                still = ~((second[here] > 0) & (second[here] < HIGH))
            _encode(flat[here], scales[there], line[here], bits, still)


def lose(values: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The moments of a parameter with v infinite wherever |m| + v is not below HIGH."""
    if "exp_avg" not in values or "exp_avg_sq" not in values:
        return values
    v = values["exp_avg_sq"]
    v = torch.where(v + values["exp_avg"].abs() < HIGH, v, torch.inf)
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
