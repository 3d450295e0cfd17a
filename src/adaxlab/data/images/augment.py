"""Random resized crop, flip and normalisation of a batch on its device, from one 64-bit key a image.

What is drawn is torchvision's RandomResizedCrop: a share of the area in [0.08, 1] and a logarithm of the ratio of the
sides in [log 3/4, log 4/3], both uniform; the first of ten draws that fits into the image; a place for it, uniform;
if none fits, the whole (square) image. Then a flip with probability 1/2. The crop is resized by Pillow's rule
(triangle filter, wider when it shrinks), written as two products with banded matrices; nothing is rounded to bytes.

Keys are functions of (seed, epoch, place in the order): nothing to save, the same on every device and for any number of
processes. `spans` turns them into crops, an epoch at once; `crop_batch` is what is left to every step.

A batch of 256 images of 64 pixels has 0.8 GFLOP of products, over 13 MB of pixels in float32 (read and written four
times) and 8 MB of weights (ten times): 0.05 ms at a GPU's 4 TB/s, so the number of kernels is what counts.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from adaxlab.data.order import mix

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
"""Of ImageNet's pixels; customary for Tiny-ImageNet too."""
AREA = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
TRIES = 10
CHUNK = 2**16
"""Keys that are turned into crops at once: each has 23 numbers of eight bytes on the way."""
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


def spans(keys: Tensor, side: int) -> Tensor:
    """[n, 2, 2] int32: where each key's crop begins, and its length, along rows and columns.

    A flip is a length below 0, counted from the crop's other edge.
    """
    found = torch.empty((len(keys), 2, 2), dtype=torch.int32, device=keys.device)
    for into, some in zip(found.split(CHUNK), keys.split(CHUNK), strict=True):
        box, flip = boxes(some, side)
        top, left, height, width = box.unbind(1)
        turned = torch.where(flip, left + width, left), torch.where(flip, -width, width)
        into.copy_(torch.stack((top, height, *turned), 1).view(-1, 2, 2))
    return found


def weights(span: Tensor, side: int, out: int) -> Tensor:
    """[..., out, side]: row o of a matrix averages the pixels of the span [..., 2] that fall on pixel o.

    w_j is max(0, 1 - |j + 1/2 - centre| / wide), within the crop, divided by its sum; wide = max(|scale|, 1), scale =
    length/out, centre = start + (o + 1/2) scale. A pixel beyond the crop is put infinitely far away.
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
    """[n, side, 3, side], the colours between rows and columns, and a crop of each to [n, 3, out, out].

    In this order of the axes both products are plain, with nothing to be moved between them.
    """
    n, side = planes.shape[:2]
    rows, columns = weights(span.to(planes.dtype), side, out).unbind(1)
    half = torch.bmm(planes.reshape(n, side * 3, side), columns.mT)
    return torch.bmm(rows, half.view(n, side, 3 * out)).view(n, out, 3, out).transpose(1, 2)


def normalise(pixels: Tensor) -> Tensor:
    """0..255 to ImageNet's zero mean and unit deviation, [n, 3, h, w]."""
    mean, std = _constants(pixels.dtype, pixels.device)
    return (pixels - mean) / std


@functools.cache
def _constants(dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Mean and deviation on the device; kept, because nothing may be copied to it while a graph is captured."""
    mean, std = (torch.tensor(v, dtype=dtype, device=device)[:, None, None] * 255 for v in (MEAN, STD))
    return mean, std


@functools.cache
def _halves(count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """1/2, 3/2, ...: the middles of pixels."""
    return torch.arange(count, dtype=dtype, device=device) + 0.5


def crop_batch(raw: Tensor, span: Tensor, out: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A training batch: normalise, crop, flip. Weights sum to 1, so the order of the two makes no difference.

    raw [n, side, side, 3] uint8, span from `spans`; [n, 3, out, out].
    """
    n, side = raw.shape[:2]
    mean, std = (value[:, 0] for value in _constants(dtype, raw.device))
    planes = torch.empty((n, side, 3, side), dtype=dtype, device=raw.device)
    torch.sub(raw.transpose(2, 3), mean, out=planes).div_(std)
    return resample(planes, span, out)


def middle_batch(raw: Tensor, out: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A test batch: the middle `out` pixels of each side, normalised."""
    edge = (raw.shape[1] - out) // 2
    middle = raw[:, edge : edge + out, edge : edge + out]
    return normalise(middle.permute(0, 3, 1, 2).to(dtype))
