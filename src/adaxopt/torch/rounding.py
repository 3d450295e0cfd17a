"""Stochastic rounding to 16 bits.

A float32 x between two neighbours lo < x < hi of a 16-bit format becomes hi with probability
(x - lo)/(hi - lo), so that E[round(x)] = x and a thousand small updates move a parameter as far as their sum.
The random bits are a pure function of (seed, parameter index, element, step, stream). They do not depend on torch's
generator or on the rank: replicas agree, resharding does not change results, a resumed run gives the same results, and
the CUDA kernel draws the same bits.

    bits(e) = mix(e * weyl + key)
    key     = mix(mix(mix(t ^ a) ^ b) + stream * golden)        (a, b) from (seed, index), on the host

where `mix` is a 32-bit finalizer of low bias (C. Wellons' hash-prospector). The key is computed once per tensor and
step, so an element costs three multiplications, and the step stays memory-bound. bfloat16 uses the 16 highest bits,
float16 the 13 highest (24 for subnormal results). 8-bit state and 24-bit weights draw by fours:
bits(e) = mix((e // 4) * weyl + key) * odd[e % 4].

A 24-bit weight is a bfloat16 number and 8 correction bits: the highest 24 bits of a float32. The bfloat16 number is the
nearest one, so the model can use it directly. The correction is the third byte, read as a signed integer.

    bits of x = (bfloat16's << 16) + (correction << 8)

The element index e is `offset` plus the position *in memory* of a dense tensor, whatever its strides (channels_last, a
transposed weight), because the kernel works on flat memory. For a tensor with gaps, e counts in logical order.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from adaxopt import counter_rng
from adaxopt.counter_rng import MASK, WEYL, four, mix

PIECE = 1 << 22
"""Number of elements that an eager call processes at a time, with two int64 temporaries of that size (64 MB)."""


def key(seed: int, index: int, step: int | float | Tensor, stream: int) -> int | Tensor:
    """The 32-bit key of a tensor, step and stream: an int, or a 0-d int64 tensor where `step` is a tensor."""
    t = step.to(torch.int64) if isinstance(step, Tensor) else int(step)
    made: int | Tensor = counter_rng.key(seed, index, t & MASK, t >> 32, stream)
    return made


def _flat(x: Tensor) -> tuple[Tensor | None, list[int]]:
    """A 1-D view of a dense tensor in memory order (None if it has gaps), and the permutation that gives it."""
    order = sorted(range(x.dim()), key=x.stride, reverse=True)
    straight = x.permute(order)
    return (straight.view(-1) if straight.is_contiguous() else None), order


def _bfloat16(source: Tensor, bits: Tensor) -> Tensor:
    raised = source.view(torch.int32) + (bits >> 16).to(torch.int32)
    return (raised & -0x10000).view(torch.float32)


def _float16(source: Tensor, bits: Tensor) -> Tensor:
    """Above 2^-14 as for bfloat16, with 13 bits. Below, where the spacing is constant, round in units of 2^-24."""
    raised = source.view(torch.int32) + (bits >> 19).to(torch.int32)
    normal = (raised & -0x2000).view(torch.float32)
    count = source.abs() * 2.0**24
    whole = count.floor()
    up = ((bits >> 8).to(torch.float32) * 2.0**-24) < (count - whole)
    subnormal = torch.copysign((whole + up) * 2.0**-24, source)
    return torch.where(source.abs() < 2.0**-14, subnormal, normal)


_ROUND = {torch.bfloat16: _bfloat16, torch.float16: _float16}


def stochastic_(
    dest: Tensor,
    source: Tensor,
    *,
    seed: int,
    index: int,
    step: int | float | Tensor,
    stream: int,
    offset: int = 0,
) -> Tensor:
    """Round `source` stochastically into bfloat16 or float16 `dest`.

    `source` is float32. A float64 source is first rounded to float32, whose spacing is at least 2^13 times finer.

    `step` is an int or a 0-d tensor on any device, which is not read on the host (no synchronisation; traceable).
    `stream` gives the parameter (0), exp_avg (1) and exp_avg_sq (2) different bits. `offset` is the global index of a
    shard's first element. inf and nan are unchanged. A finite number above the format's maximum may become inf, as with
    rounding to nearest.

    >>> x = torch.full((10_000,), 1 + 2**-9)                      # a quarter of the way from 1 to 1 + 2^-7
    >>> y = torch.empty(10_000, dtype=torch.bfloat16)
    >>> up = (stochastic_(y, x, seed=0, index=0, step=1, stream=0).float() > 1).float().mean()
    >>> abs(up.item() - 0.25) < 0.02
    True
    """
    if dest.dtype not in _ROUND:
        raise TypeError(f"dest is {dest.dtype}: stochastic rounding is for torch.bfloat16 and torch.float16")
    if source.dtype not in (torch.float32, torch.float64) or source.shape != dest.shape:
        raise TypeError(
            f"source is {source.dtype} of shape {tuple(source.shape)}: must be torch.float32 or torch.float64 of "
            f"dest's shape {tuple(dest.shape)}"
        )

    def piece(at: slice, bits: Tensor, out: Tensor, source: Tensor) -> None:
        rounded = _ROUND[dest.dtype](source[at], bits)
        out[at].copy_(torch.where(source[at].isfinite(), rounded, source[at]))

    secret = key(seed, index, step, stream)
    _in_memory_order(piece, (dest,), source, lambda element: mix((element * WEYL + secret) & MASK), offset)
    return dest


def joined(x: Tensor, rest: Tensor) -> Tensor:
    """The float32 values of bfloat16 numbers and their correction bits.

    >>> joined(torch.tensor([1.0], dtype=torch.bfloat16), torch.tensor([1], dtype=torch.int8)) == 1 + 2**-15
    tensor([True])
    """
    return ((x.view(torch.int16).to(torch.int32) << 16) + (rest.to(torch.int32) << 8)).view(torch.float32)


def split_(
    x: Tensor,
    rest: Tensor,
    source: Tensor,
    *,
    seed: int,
    index: int,
    step: int | float | Tensor,
    offset: int = 0,
) -> None:
    """Round float32 values stochastically to 24 bits, stored as bfloat16 `x` and int8 `rest`.

    The random bits are the third byte of stream 1, drawn by fours. Other roundings of that stream hardly depend on it.
    """

    def piece(at: slice, bits: Tensor, high: Tensor, low: Tensor, source: Tensor) -> None:
        raw = (source[at].view(torch.int32).to(torch.int64) & MASK) + ((bits >> 8) & 0xFF)
        raw = torch.where(source[at].isnan(), 0x7FC00000, raw)
        high.view(torch.int16)[at].copy_((((raw + 0x8000) >> 16) & 0xFFFF).to(torch.int16))
        low[at].copy_(((raw >> 8) & 0xFF).to(torch.int8))

    secret = key(seed, index, step, 1)
    _in_memory_order(piece, (x, rest), source, lambda element: four(element, secret), offset)


def _in_memory_order(
    piece: Callable[..., None],
    dests: tuple[Tensor, ...],
    source: Tensor,
    draw: Callable[[Tensor], Tensor],
    offset: int,
) -> None:
    """Call `piece` with slices, their random bits, and 1-D tensors in the memory order of the first of `dests`."""
    flat, order = _flat(dests[0])
    source = source.float()
    straight = source.permute(order).reshape(-1) if flat is not None else source.reshape(-1)
    lines = [t.permute(order) for t in dests]
    outs = [
        t.view(-1) if flat is not None and t.is_contiguous() else torch.empty_like(straight, dtype=t.dtype)
        for t in lines
    ]
    count = straight.numel()
    size = count if torch.compiler.is_compiling() else PIECE
    for start in range(0, count, max(size, 1)):
        at = slice(start, min(start + size, count))
        element = torch.arange(offset + start, offset + at.stop, device=straight.device, dtype=torch.int64)
        element &= MASK
        piece(at, draw(element), *outs, straight)
    for t, line, out in zip(dests, lines, outs, strict=True):
        if flat is None:
            t.copy_(out.view(t.shape))
        elif not line.is_contiguous():
            line.copy_(out.view(line.shape))
