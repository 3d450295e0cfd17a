"""Checks of memory layouts: whether tensors are dense and laid out alike, as kernels that use raw addresses require."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
LOWEST = 1 << 33
"""Tensors at lower addresses are checked again: the address of a tensor with freed storage is its offset in bytes."""


def flat(p: Tensor, layout: tuple[Any, ...], g: Tensor | None) -> bool:
    """Whether p still has the given layout, and g has the same layout and device and can be read by a kernel."""
    return (
        g is not None
        and (p.shape, p.stride()) == layout
        and g.layout == torch.strided
        and g.dtype in FLOATS
        and g.device == p.device
        and not g.is_neg()  # lazy negation
        and same_layout(p, g)
        and not freed(g)
    )


def freed(t: Tensor) -> bool:
    """Whether the storage is smaller than t, as after `storage.resize_(0)`. The address of t is invalid then."""
    return t.untyped_storage().nbytes() < (t.storage_offset() + t.numel()) * t.itemsize


def without_memory(t: Tensor) -> bool:
    """Whether t has elements, but its storage is empty."""
    return t.layout is torch.strided and t.numel() > 0 and t.untyped_storage().nbytes() == 0


def same_layout(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and all(
        n == 1 or s == t for n, s, t in zip(a.shape, a.stride(), b.stride(), strict=True)
    )


def beside(t: Tensor, v: Tensor) -> bool:
    """Whether both tensors are dense and have the same memory order."""
    return (t.is_contiguous() and v.is_contiguous()) or (t.stride() == v.stride() and dense(t))


def dense(t: Tensor) -> bool:
    """Whether t has no gaps or overlaps in memory, in any order of dimensions."""
    expected = 1
    for size, stride in sorted(zip(t.shape, t.stride(), strict=True), key=lambda s: s[1]):
        if size > 1:
            if stride != expected:
                return False
            expected *= size
    return True
