"""Which tensors are flat memory, element by element beside each other: what a kernel that knows addresses can serve."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
LOWEST = 1 << 33
"""Addresses below are looked at twice: a tensor whose storage was freed has its offset, in bytes, for an address."""


def flat(p: Tensor, layout: tuple[Any, ...], g: Tensor | None) -> bool:
    """Whether p still has the layout that its state was found to have, and g is flat memory of that layout."""
    return (
        g is not None
        and (p.shape, p.stride()) == layout
        and g.layout == torch.strided
        and g.dtype in FLOATS
        and g.device == p.device
        and not g.is_neg()  # its sign is still to be applied
        and same_layout(p, g)
        and not freed(g)
    )


def freed(t: Tensor) -> bool:
    """Whether flat memory of t's size is not there, as after `storage.resize_(0)`: its address then says nothing."""
    return t.untyped_storage().nbytes() < (t.storage_offset() + t.numel()) * t.itemsize


def without_memory(t: Tensor) -> bool:
    """Whether there is nothing at all where t should be."""
    return t.layout is torch.strided and t.numel() > 0 and t.untyped_storage().nbytes() == 0


def same_layout(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and all(
        n == 1 or s == t for n, s, t in zip(a.shape, a.stride(), b.stride(), strict=True)
    )


def beside(t: Tensor, v: Tensor) -> bool:
    """Whether both have the same memory order without gaps."""
    return (t.is_contiguous() and v.is_contiguous()) or (t.stride() == v.stride() and dense(t))


def dense(t: Tensor) -> bool:
    """Whether t fills its memory, in whatever order."""
    expected = 1
    for size, stride in sorted(zip(t.shape, t.stride(), strict=True), key=lambda s: s[1]):
        if size > 1:
            if stride != expected:
                return False
            expected *= size
    return True
