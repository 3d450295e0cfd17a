"""Data order and augmentation as pure functions of (seed, epoch), so that checkpoints need no generator state.

A 64-bit mixing function (SplitMix64) in integer arithmetic gives the same numbers on every device, so a run that is
stopped on one machine and resumed on another sees the same images as an uninterrupted run.
"""

from __future__ import annotations

import torch
from torch import Tensor

from adaxlab.errors import LabError

HOLDOUT_SEED = 20200421
CROPS = 9 * 9 * 2
"""Number of codes dy + 9*dx + 81*flip: a 32x32 window of the image padded by 4, with or without a flip."""


def _signed(x: int) -> int:
    x &= 2**64 - 1
    return x - 2**64 if x >= 2**63 else x


GOLDEN = _signed(0x9E3779B97F4A7C15)
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
    """Return [len(seeds), n] int64: a hash of (seed, epoch, stream, position)."""
    seed = torch.tensor(seeds, dtype=torch.int64, device=device)
    root = mix(mix(seed * GOLDEN + 1) + _signed((epoch * 4 + stream) * GOLDEN))
    return mix(root[:, None] + torch.arange(1, n + 1, device=device) * GOLDEN)


def permutations(seeds: list[int], epoch: int, n: int, device: torch.device) -> Tensor:
    """Return [len(seeds), n] int32: for each seed, the order of the images in this epoch."""
    return torch.argsort(keys(seeds, epoch, n, 0, device), dim=1).to(torch.int32)


def crops(seeds: list[int], epoch: int, n: int, device: torch.device) -> Tensor:
    """Return [len(seeds), n] int32: the crop and flip code of each position in the order."""
    return (_shift(keys(seeds, epoch, n, 1, device), 20) % CROPS).to(torch.int32)


def held_out(n: int, count: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the indices of `n` training images to train on and of the `count` held-out ones, the same in every run."""
    if not 0 < count < n:
        raise LabError(f"holdout={count}: must be between 1 and {n - 1}")
    mixed = permutations([HOLDOUT_SEED], 0, n, device)[0].long()
    return mixed[count:].sort().values, mixed[:count].sort().values
