"""Random resized crop, flip and normalisation of a batch on its device, from one 64-bit key a picture.

What is drawn is torchvision's RandomResizedCrop: a share of the area in [0.08, 1] and a logarithm of the ratio of the
sides in [log 3/4, log 4/3], both uniform; the first of ten draws that fits into the picture; a place for it, uniform;
if none fits, the whole (square) picture. Then a flip with probability 1/2. The crop is resized by Pillow's rule
(triangle filter, wider when it shrinks), written as two products with banded matrices; nothing is rounded to bytes.

Keys are functions of (seed, epoch, place in the order): nothing to save, the same on every device and for any number of
processes.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from adaxopt.lab.cifar.order import mix

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
"""Of ImageNet's pixels; customary for Tiny-ImageNet too."""
AREA = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
TRIES = 10
_GOLDEN = 0x9E3779B97F4A7C15 - 2**64


def uniforms(keys: Tensor, count: int) -> Tensor:
    """[n, count] float64 in [0, 1), each a function of its key and column."""
    columns = torch.arange(1, count + 1, device=keys.device) * _GOLDEN
    mixed = mix(keys[:, None] + columns)
    return ((mixed >> 11) & (2**53 - 1)).double() * 2.0**-53


def boxes(keys: Tensor, side: int, area: tuple[float, float] = AREA) -> tuple[Tensor, Tensor]:
    """(top, left, height, width) of each key's crop, int64 [n, 4], and whether it is flipped, bool [n]."""
    draws = uniforms(keys, 2 * TRIES + 3)
    target = side * side * (area[0] + (area[1] - area[0]) * draws[:, :TRIES])
    low, high = (math.log(r) for r in RATIO)
    ratio = torch.exp(low + (high - low) * draws[:, TRIES : 2 * TRIES])
    width, height = torch.round(torch.sqrt(target * ratio)), torch.round(torch.sqrt(target / ratio))
    fits = (width >= 1) & (width <= side) & (height >= 1) & (height <= side)
    first = fits.to(torch.int8).argmax(1, keepdim=True)
    found = fits.any(1)
    width = torch.where(found, width.gather(1, first)[:, 0], side)
    height = torch.where(found, height.gather(1, first)[:, 0], side)
    top = torch.floor(draws[:, -3] * (side - height + 1))
    left = torch.floor(draws[:, -2] * (side - width + 1))
    return torch.stack((top, left, height, width), 1).long(), draws[:, -1] < 0.5


def weights(start: Tensor, length: Tensor, side: int, out: int, dtype: torch.dtype) -> Tensor:
    """[n, out, side]: row o of a picture's matrix averages the pixels start..start+length that fall on pixel o.

    w_j is max(0, 1 - |j + 1/2 - centre| / max(scale, 1)), within the crop, divided by its sum; scale = length/out,
    centre = start + (o + 1/2) scale.
    """
    device = start.device
    start_, length_ = start[:, None, None].to(dtype), length[:, None, None].to(dtype)
    scale = length_ / out
    centre = start_ + (torch.arange(out, device=device, dtype=dtype)[None, :, None] + 0.5) * scale
    place = torch.arange(side, device=device, dtype=dtype)[None, None, :] + 0.5
    found = (1 - (place - centre).abs() / scale.clamp(min=1.0)).clamp(min=0.0)
    found = found * ((place > start_) & (place < start_ + length_))
    return found / found.sum(2, keepdim=True)


def resample(raw: Tensor, box: Tensor, flip: Tensor, out: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """[n, side, side, 3] uint8 and a crop of each to [n, 3, out, out] in 0..255."""
    n, side = raw.shape[:2]
    rows = weights(box[:, 0], box[:, 2], side, out, dtype)
    columns = weights(box[:, 1], box[:, 3], side, out, dtype)
    columns = torch.where(flip[:, None, None], columns.flip(1), columns)
    half = torch.bmm(rows, raw.to(dtype).reshape(n, side, side * 3)).view(n, out, side, 3)
    turned = half.permute(0, 2, 1, 3).reshape(n, side, out * 3)
    return torch.bmm(columns, turned).view(n, out, out, 3).permute(0, 3, 2, 1)


def normalise(pixels: Tensor) -> Tensor:
    """0..255 to ImageNet's zero mean and unit deviation, [n, 3, h, w]."""
    mean, std = _constants(pixels.dtype, pixels.device)
    return (pixels - mean) / std


@functools.cache
def _constants(dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Mean and deviation on the device; kept, because nothing may be copied to it while a graph is captured."""
    mean, std = (torch.tensor(v, dtype=dtype, device=device)[:, None, None] * 255 for v in (MEAN, STD))
    return mean, std


def crop_batch(raw: Tensor, keys: Tensor, out: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A training batch: crop, flip, normalise."""
    return normalise(resample(raw, *boxes(keys, raw.shape[1]), out, dtype))


def middle_batch(raw: Tensor, out: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A test batch: the middle `out` pixels of each side, normalised."""
    edge = (raw.shape[1] - out) // 2
    middle = raw[:, edge : edge + out, edge : edge + out]
    return normalise(middle.permute(0, 3, 1, 2).to(dtype))
