"""Which tensors are flat memory, element by element beside each other: what a kernel that knows addresses can serve."""

from __future__ import annotations

import torch
from torch import Tensor

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def unfit(p: Tensor, g: Tensor) -> str | None:
    """Why a gradient cannot be read as flat memory beside its parameter, or None."""
    if g.layout != torch.strided:
        return f"its gradient is {g.layout}"
    if g.dtype not in FLOATS:
        return f"its gradient's dtype is {g.dtype}"
    if g.device != p.device:
        return f"its gradient is on {g.device}"
    return None if same_layout(p, g) else f"its gradient's strides are {tuple(g.stride())}, not its own"


def order(t: Tensor) -> list[int]:
    return sorted(range(t.dim()), key=t.stride, reverse=True)


def same_layout(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and all(
        n == 1 or s == t for n, s, t in zip(a.shape, a.stride(), b.stride(), strict=True)
    )
