"""Data order and augmentation as pure functions of (seed, epoch): nothing to save, nothing to resume.

A 64-bit mixing function (SplitMix64) in integer arithmetic gives the same numbers on every device, so a run that is
cut on one machine and taken up on another sees exactly the images that it would have seen.
"""

from __future__ import annotations

import torch
from torch import Tensor

CROPS = 9 * 9 * 2
"""dy + 9*dx + 81*flip: a 32x32 window in the image padded by 4, flipped or not, all equally likely."""


def _signed(x: int) -> int:
    x &= 2**64 - 1
    return x - 2**64 if x >= 2**63 else x


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_MIX1 = _signed(0xBF58476D1CE4E5B9)
_MIX2 = _signed(0x94D049BB133111EB)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift of a signed tensor."""
    return (x >> bits) & (2 ** (64 - bits) - 1)


def mix(x: Tensor) -> Tensor:
    """SplitMix64's finaliser on int64, wrapping."""
    x = (x ^ _shift(x, 30)) * _MIX1
    x = (x ^ _shift(x, 27)) * _MIX2
    return x ^ _shift(x, 31)


def keys(seeds: list[int], epoch: int, n: int, stream: int, device: torch.device) -> Tensor:
    """[len(seeds), n] well-mixed int64 numbers of (seed, epoch, stream, position)."""
    seed = torch.tensor(seeds, dtype=torch.int64, device=device)
    root = mix(mix(seed * _GOLDEN + 1) + _signed((epoch * 4 + stream) * _GOLDEN))
    return mix(root[:, None] + torch.arange(1, n + 1, device=device) * _GOLDEN)


def permutations(seeds: list[int], epoch: int, n: int, device: torch.device) -> Tensor:
    """[len(seeds), n] int32: each seed's own order of the images in this epoch."""
    return torch.argsort(keys(seeds, epoch, n, 0, device), dim=1).to(torch.int32)


def crops(seeds: list[int], epoch: int, n: int, device: torch.device) -> Tensor:
    """[len(seeds), n] int32 codes of the crop and flip of each position in the order."""
    return (_shift(keys(seeds, epoch, n, 1, device), 20) % CROPS).to(torch.int32)
