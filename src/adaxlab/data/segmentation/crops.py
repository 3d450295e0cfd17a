"""Random scale, crop and flip for images of any size: drawn on the host, computed on the device.

A batch is five short tensors (`Draws`); the images stay on their device. After scaling to h x w = round(s*height) x
round(s*width), pixel i of the result is at (i + 1/2)*height/h - 1/2 of the image: bilinear interpolation for colours,
nearest neighbour for classes. Pixels of a crop outside the image have the network's mean colour and the class void.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from adaxlab.data.segmentation.images import VOID, SegmentationImages
from adaxlab.errors import LabError

Draws = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
"""Image indices, scales, offsets from top and left as fractions of the free space, and flips; each [n]."""


@dataclass(frozen=True)
class RandomCrops:
    """An iterable of `steps` batches of draws.

    Every image is used once before any is used again. All draws are made from torch's generator when an iteration
    starts, so that a resumed run repeats them.
    """

    images: int
    steps: int
    batch: int
    scales: tuple[float, float] = (0.5, 1.5)

    def __post_init__(self) -> None:
        low, high = self.scales
        if not 0 < low <= high:
            raise LabError(f"scales={self.scales}: must be two numbers, 0 < low <= high")
        for key in ("steps", "batch"):
            if getattr(self, key) < 1:
                raise LabError(f"{key}={getattr(self, key)}: must be >= 1")

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Draws]:
        count, (low, high) = self.steps * self.batch, self.scales
        passes = -(-count // self.images)
        rows = torch.cat([torch.randperm(self.images) for _ in range(passes)])[:count]
        scale = low + (high - low) * torch.rand(count)
        top, left = torch.rand(2, count)
        flip = torch.rand(count) < 0.5
        for i in range(0, count, self.batch):
            end = i + self.batch
            yield rows[i:end], scale[i:end], top[i:end], left[i:end], flip[i:end]


def crop(images: SegmentationImages, draws: Draws, size: int, fill: Tensor) -> tuple[Tensor, Tensor]:
    """Return (colours [n, 3, size, size] from 0 to 255, classes [n, size, size]); `fill` is the colour outside images.

    Rows and columns are computed together, and one gather reads the four neighbours: the time of a step is dominated by
    kernel launches, not by memory traffic.
    """
    rows, scale, top, left, flip = draws
    length = torch.stack((images.height[rows], images.width[rows]))
    place, beyond = _places(length, scale, torch.stack((top, left)), flip, size)
    low = place.floor()
    share = place - low
    near = torch.stack((low, low + 1, (place + 0.5).floor()))
    near = torch.minimum(
        near, (length - 1)[..., None]
    ).long()  # [lower, upper, nearest; rows, columns; n; size]
    lines = (images.start[rows][:, None] + near[:, 0] * length[1][:, None])[..., None]
    columns = near[:, 1, :, None, :]
    around = images.pixels[lines[:2, None] + columns[:2]][..., :3].float()
    across = torch.lerp(around[:, 0], around[:, 1], share[1, :, None, :, None])
    colours = torch.lerp(across[0], across[1], share[0, :, :, None, None])
    outside = beyond[0, :, :, None] | beyond[1, :, None, :]
    colours = torch.where(outside[..., None], fill.view(3), colours)
    classes = images.pixels[:, 3][lines[2] + columns[2]].masked_fill_(outside, VOID)
    return colours.permute(0, 3, 1, 2), classes.long()


def _places(length: Tensor, scale: Tensor, share: Tensor, flip: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return the position of each of `size` pixels of a crop along rows and columns of its image, [2, n, size], and
    whether it is outside; with `flip` the columns are counted from the right."""
    scaled = (length * scale).round().clamp(min=1)
    free = (scaled - size).clamp(min=0)
    begin = torch.minimum((share * (free + 1)).floor(), free)
    k = torch.arange(size, device=length.device)
    i = begin[..., None] + k
    i[1] += flip[:, None] * (size - 1 - 2 * k)
    place = ((i + 0.5) * (length / scaled)[..., None] - 0.5).clamp(min=0)
    return torch.minimum(place, (length - 1)[..., None]), i >= scaled[..., None]
