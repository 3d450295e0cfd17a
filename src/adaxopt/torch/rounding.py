"""Stochastic rounding to 16 bits.

A float32 x between two neighbours lo < x < hi of a 16-bit format becomes hi with probability
(x - lo)/(hi - lo), so that E[round(x)] = x and a thousand small updates move a parameter as far as their sum.
The random bits are a pure function of (seed, parameter index, element, step, stream), never torch's generator and
never a rank: replicas agree, resharding changes nothing, a resumed run repeats itself, and the CUDA kernel
draws the same bits.

    bits(e) = mix(e * weyl + key)
    key     = mix(mix(mix(t ^ a) ^ b) + stream * golden)        (a, b) from (seed, index), on the host

with `mix` a 32-bit finalizer of low bias (C. Wellons' hash-prospector). The key is made once per tensor and
step, so that an element costs three multiplications: the step is memory-bound and stays so. bfloat16 uses
the 16 highest bits, float16 the 13 highest (24 among its subnormals).

The element e is `offset` plus the position *in memory* of a dense tensor, whatever its strides
(channels_last, a transposed weight), because the kernel sees flat memory; a tensor with gaps is counted in
its logical order.
"""

from __future__ import annotations

import torch
from torch import Tensor

from adaxopt import counter_rng
from adaxopt.counter_rng import MASK, WEYL, mix, seeds

__all__ = ["PIECE", "key", "mix", "seeds", "stochastic_"]

PIECE = 1 << 22
"""Elements that an eager call works on at a time: two int64 temporaries of that size (64 MB), no more."""


def key(seed: int, index: int, step: int | float | Tensor, stream: int) -> int | Tensor:
    """The 32-bit key of a tensor, step and stream: an int, or a 0-d int64 tensor where `step` is a tensor."""
    t = step.to(torch.int64) if isinstance(step, Tensor) else int(step)
    made: int | Tensor = counter_rng.key(seed, index, t & MASK, t >> 32, stream)
    return made


def _flat(x: Tensor) -> tuple[Tensor | None, list[int]]:
    """A dense tensor's memory as one dimension, and the order of dimensions that gives it; None with gaps."""
    order = sorted(range(x.dim()), key=x.stride, reverse=True)
    straight = x.permute(order)
    return (straight.view(-1) if straight.is_contiguous() else None), order


def _bfloat16(source: Tensor, bits: Tensor) -> Tensor:
    raised = source.view(torch.int32) + (bits >> 16).to(torch.int32)
    return (raised & -0x10000).view(torch.float32)


def _float16(source: Tensor, bits: Tensor) -> Tensor:
    """Above 2^-14 as bfloat16 with 13 bits; below, where spacing is constant, by counting units of 2^-24."""
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
    """Write `source` into bfloat16 or float16 `dest`, up with probability equal to the distance.

    `source` is float32; a float64 one is first rounded to float32, whose spacing is 2^13 times finer at least.

    `step` is an int, or a 0-d tensor on any device (read there: no synchronisation, traceable). `stream`
    keeps the parameter (0), exp_avg (1) and exp_avg_sq (2) apart; `offset` is the global index of a shard's
    first element. inf and nan pass; a finite number above the format's largest may become inf, as with
    nearest.

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
    source = source.float()
    flat, order = _flat(dest)
    straight = source.permute(order).reshape(-1) if flat is not None else source.reshape(-1)
    out = flat if flat is not None else torch.empty_like(straight, dtype=dest.dtype)
    secret = key(seed, index, step, stream)
    count = straight.numel()
    piece = count if torch.compiler.is_compiling() else PIECE
    for start in range(0, count, max(piece, 1)):
        stop = min(start + piece, count)
        _piece(out[start:stop], straight[start:stop], secret, offset + start)
    if flat is None:
        dest.copy_(out.view(dest.shape))
    return dest


def _piece(out: Tensor, source: Tensor, secret: int | Tensor, first: int) -> None:
    element = torch.arange(first, first + out.numel(), device=out.device, dtype=torch.int64)
    element &= MASK
    rounded = _ROUND[out.dtype](source, mix((element * WEYL + secret) & MASK))
    out.copy_(torch.where(source.isfinite(), rounded, source))
