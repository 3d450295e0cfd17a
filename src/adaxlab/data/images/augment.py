"""Random resized crop, flip and normalisation of a batch on its device, from one 64-bit key per image.

The distribution is that of torchvision's RandomResizedCrop: the fraction of the area is uniform in [0.08, 1], the log
of the aspect ratio uniform in [log 3/4, log 4/3]; the first of ten attempts that fits into the image is placed
uniformly; if none fits, the crop is the whole (square) image. Then a flip with probability 1/2. The crop is resized as
in Pillow (triangle filter, wider when downscaling), as two products with banded matrices without rounding to bytes.

Keys are functions of (seed, epoch, position in the order): they need no checkpoint and are the same on every device and
for any number of processes. `spans` computes the crops of a whole epoch; `crop_batch` runs at every step.

A batch of 256 images of 64 pixels needs 0.8 GFLOP, over 13 MB of pixels in float32 (read and written four times) and
8 MB of weights (ten times): 0.05 ms at 4 TB/s, so the number of kernel launches dominates.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from adaxlab.data.order import GOLDEN, mix

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
"""Mean and standard deviation of ImageNet's pixels; customary for Tiny-ImageNet too."""
AREA = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
ATTEMPTS = 10
CHUNK = 2**16
"""Number of keys processed at a time; each needs 23 float64 intermediates."""


def uniforms(keys: Tensor, count: int) -> Tensor:
    """Return [n, count] float64 in [0, 1), each a function of its key and column."""
    columns = torch.arange(1, count + 1, device=keys.device) * GOLDEN
    mixed = mix(keys[:, None] + columns)
    return ((mixed >> 11) & (2**53 - 1)).double() * 2.0**-53


def boxes(keys: Tensor, side: int) -> tuple[Tensor, Tensor]:
    """Return (top, left, height, width) of each key's crop, int64 [n, 4], and whether it is flipped, bool [n]."""
    draws = uniforms(keys, 2 * ATTEMPTS + 3)
    target = side * side * (AREA[0] + (AREA[1] - AREA[0]) * draws[:, :ATTEMPTS])
    low, high = (math.log(r) for r in RATIO)
    ratio = torch.exp(low + (high - low) * draws[:, ATTEMPTS : 2 * ATTEMPTS])
    width, height = torch.round(torch.sqrt(target * ratio)), torch.round(torch.sqrt(target / ratio))
    fits = (width >= 1) & (width <= side) & (height >= 1) & (height <= side)
    first = fits.to(torch.int8).argmax(1, keepdim=True)
    found = fits.any(1)
    width = torch.where(found, width.gather(1, first)[:, 0], side)
    height = torch.where(found, height.gather(1, first)[:, 0], side)
    top = torch.floor(draws[:, -3] * (side - height + 1))
    left = torch.floor(draws[:, -2] * (side - width + 1))
    return torch.stack((top, left, height, width), 1).long(), draws[:, -1] < 0.5


def spans(keys: Tensor, side: int) -> Tensor:
    """Return [n, 2, 2] int32: start and length of each key's crop along rows and columns.

    A flip has a negative length and starts at the opposite edge of the crop.
    """
    found = torch.empty((len(keys), 2, 2), dtype=torch.int32, device=keys.device)
    for into, some in zip(found.split(CHUNK), keys.split(CHUNK), strict=True):
        box, flip = boxes(some, side)
        top, left, height, width = box.unbind(1)
        turned = torch.where(flip, left + width, left), torch.where(flip, -width, width)
        into.copy_(torch.stack((top, height, *turned), 1).view(-1, 2, 2))
    return found


def weights(span: Tensor, side: int, out: int) -> Tensor:
    """Return [..., out, side]: row o holds the weights of the input pixels for output pixel o of the span [..., 2].

    w_j is max(0, 1 - |j + 1/2 - centre| / wide) within the crop, divided by its sum; wide = max(|scale|, 1), scale =
    length/out, centre = start + (o + 1/2) scale. Pixels outside the crop have weight 0.
    """
    start, length = span[..., :1], span[..., 1:]
    scale = length / out
    wide = scale.abs().clamp(min=1.0)
    centre = torch.addcmul(start, _halves(out, span.dtype, span.device), scale)
    place = _halves(side, span.dtype, span.device)
    beyond = (place - (start + length / 2)).abs() > length.abs() / 2
    place = (place / wide).masked_fill_(beyond, math.inf)
    found = place[..., None, :] - (centre / wide)[..., None]
    found = found.abs_().neg_().add_(1).clamp_(min=0)
    return found.div_(found.sum(-1, keepdim=True))


def resample(planes: Tensor, span: Tensor, out: int) -> Tensor:
    """Crop and resize [n, side, 3, side] (channels between rows and columns) to [n, 3, out, out].

    With this order of the axes both products need no transposed copy.
    """
    n, side = planes.shape[:2]
    rows, columns = weights(span.to(planes.dtype), side, out).unbind(1)
    half = torch.bmm(planes.reshape(n, side * 3, side), columns.mT)
    return torch.bmm(rows, half.view(n, side, 3 * out)).view(n, out, 3, out).transpose(1, 2)


def normalise(pixels: Tensor) -> Tensor:
    """Normalise pixels [n, 3, h, w] from 0..255 by ImageNet's mean and standard deviation."""
    mean, std = _constants(pixels.dtype, pixels.device)
    return (pixels - mean) / std


@functools.cache
def _constants(dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation on the device, cached because a CUDA graph capture allows no host-to-device copy."""
    mean, std = (torch.tensor(v, dtype=dtype, device=device)[:, None, None] * 255 for v in (MEAN, STD))
    return mean, std


@functools.cache
def _halves(count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return 1/2, 3/2, ...: the centres of pixels."""
    return torch.arange(count, dtype=dtype, device=device) + 0.5


def crop_batch(raw: Tensor, span: Tensor, out: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return a training batch [n, 3, out, out]: normalised, cropped and flipped.

    raw is [n, side, side, 3] uint8, span comes from `spans`. The resampling weights sum to 1, so normalising first
    gives the same result.
    """
    n, side = raw.shape[:2]
    mean, std = (value[:, 0] for value in _constants(dtype, raw.device))
    planes = torch.empty((n, side, 3, side), dtype=dtype, device=raw.device)
    torch.sub(raw.transpose(2, 3), mean, out=planes).div_(std)
    return resample(planes, span, out)


def center_crop_batch(raw: Tensor, out: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return a test batch [n, 3, out, out]: the centre crop, normalised."""
    edge = (raw.shape[1] - out) // 2
    middle = raw[:, edge : edge + out, edge : edge + out]
    return normalise(middle.permute(0, 3, 1, 2).to(dtype))
