"""Random scale, crop and flip, drawn on the host and carried out on the device, for pictures of any size.

A batch is five short tensors (`Draws`); the pictures stay where they are. Scaled to h x w = round(s*height) x
round(s*width), pixel i of the result lies at (i + 1/2)*height/h - 1/2 of the picture: bilinear for colours, the nearest
for classes. What a crop has beyond the picture is the network's mean colour, and void.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from adaxopt.lab.errors import LabError
from adaxopt.lab.voc.pictures import VOID, Pictures

Draws = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
"""Rows of the pictures, scale, place of the crop from top and left as shares of what is free, and flip; each [n]."""


@dataclass(frozen=True)
class RandomCrops:
    """`steps` batches a pass. Every picture comes once before any comes again; everything is drawn when a pass begins,
    from torch's generator, so that a run that is resumed draws it again."""

    pictures: int
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
        passes = -(-count // self.pictures)
        rows = torch.cat([torch.randperm(self.pictures) for _ in range(passes)])[:count]
        scale = low + (high - low) * torch.rand(count)
        top, left = torch.rand(2, count)
        flip = torch.rand(count) < 0.5
        for i in range(0, count, self.batch):
            end = i + self.batch
            yield rows[i:end], scale[i:end], top[i:end], left[i:end], flip[i:end]


def crop(pictures: Pictures, draws: Draws, size: int, fill: Tensor) -> tuple[Tensor, Tensor]:
    """(colours [n, 3, size, size] from 0 to 255, classes [n, size, size]); `fill` is the colour beyond a picture."""
    rows, scale, top, left, flip = draws
    y, y_in = _places(pictures.height[rows], scale, top, size, None)
    x, x_in = _places(pictures.width[rows], scale, left, size, flip)
    start, width, height = (t[rows][:, None, None] for t in (pictures.start, pictures.width, pictures.height))
    y0, x0 = y.floor(), x.floor()
    dy, dx = (y - y0)[:, :, None, None], (x - x0)[:, None, :, None]

    def at(row: Tensor, column: Tensor) -> Tensor:
        row = torch.minimum(row.long()[:, :, None], height - 1)
        column = torch.minimum(column.long()[:, None, :], width - 1)
        return pictures.pixels[start + row * width + column]

    upper = torch.lerp(at(y0, x0)[..., :3].float(), at(y0, x0 + 1)[..., :3].float(), dx)
    lower = torch.lerp(at(y0 + 1, x0)[..., :3].float(), at(y0 + 1, x0 + 1)[..., :3].float(), dx)
    colours = torch.lerp(upper, lower, dy)
    inside = y_in[:, :, None] & x_in[:, None, :]
    colours = torch.where(inside[..., None], colours, fill.view(3))
    classes = at((y + 0.5).floor(), (x + 0.5).floor())[..., 3]
    classes = torch.where(inside, classes, torch.full_like(classes, VOID))
    return colours.permute(0, 3, 1, 2), classes.long()


def _places(
    length: Tensor, scale: Tensor, share: Tensor, size: int, flip: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Where each of `size` pixels of a crop lies along one side of its picture, [n, size], and whether it is within."""
    scaled = (length * scale).round().clamp(min=1)
    free = (scaled - size).clamp(min=0)
    begin = torch.minimum((share * (free + 1)).floor(), free)
    i = begin[:, None] + torch.arange(size, device=length.device)
    if flip is not None:
        i = torch.where(flip[:, None], i.flip(1), i)
    ratio = (length / scaled)[:, None]
    place = ((i + 0.5) * ratio - 0.5).clamp(min=0)
    last = (length - 1)[:, None].to(place.dtype)
    return torch.minimum(place, last), i < scaled[:, None]
