"""Decoded images and masks in one tensor: four bytes per pixel, red, green, blue and the class.

The pixels of all images of a split are concatenated in a tensor [pixels, 4], so that sizes may differ and a batch is
one gather on the device. Pixels of the class VOID are ignored in the loss and in the metric.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor

from adaxlab.data.segmentation.folders import Pair
from adaxlab.errors import LabError, check_on_error
from adaxopt.extras import LAB

VOID = 255


@dataclass
class SegmentationImages:
    """The images of a split. `start` is the index of each image's first pixel; `skipped` lists errors of others."""

    pixels: Tensor
    start: Tensor
    height: Tensor
    width: Tensor
    skipped: tuple[str, ...] = ()
    _there: dict[torch.device, Tensor] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.start)

    def on(self, device: torch.device) -> SegmentationImages:
        """Return the same images on a device; the copy of the pixels is cached and shared with every `part`."""
        if device == self.pixels.device:
            return self
        if device not in self._there:
            self._there[device] = self.pixels.to(device)
        start, height, width = (numbers.to(device) for numbers in (self.start, self.height, self.width))
        return SegmentationImages(self._there[device], start, height, width, self.skipped)

    def places(self) -> list[tuple[int, int, int]]:
        """Return (start, height, width) of every image."""
        return list(zip(self.start.tolist(), self.height.tolist(), self.width.tolist(), strict=True))


def decode(pair: Pair, classes: int, void: int) -> np.ndarray:
    """Return [height, width, 4] uint8; raise LabError with the file and the problem."""
    image = _open(pair.image, "RGB")
    mask = _open(pair.mask, "")
    if mask.ndim != 2:
        raise LabError(
            f"{pair.mask}: is a colour image; a mask has a class index per pixel (palette or grey PNG)"
        )
    if image.shape[:2] != mask.shape:
        raise LabError(
            f"{pair.mask}: is {mask.shape[1]} x {mask.shape[0]} pixels, its image {pair.image.name} "
            f"{image.shape[1]} x {image.shape[0]}"
        )
    wrong = (mask >= classes) & (mask != void)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise LabError(
            f"{pair.mask}: label {mask[row, column]} at row {row}, column {column}; allowed are 0 to {classes - 1}, "
            f"and {void} for void"
        )
    labels = np.where(mask == void, VOID, mask).astype(np.uint8)
    return np.concatenate([image, labels[..., None]], axis=2)


def _open(path: object, mode: str) -> np.ndarray:
    from PIL import Image

    try:
        with Image.open(path) as file:  # type: ignore[arg-type]
            return np.asarray(file.convert(mode) if mode else file)
    except FileNotFoundError:
        raise LabError(f"{path}: is missing") from None
    except Exception as error:  # Pillow raises many types for a damaged file
        line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise LabError(f"{path}: cannot be decoded ({line})") from None


def read(pairs: Sequence[Pair], classes: int, void: int, on_error: str = "raise") -> SegmentationImages:
    """Decode all images of a list in parallel threads.

    An invalid image is an error that names it; with `on_error="skip"` it is left out and listed in `skipped`.
    """
    check_on_error(on_error)
    if find_spec("PIL") is None:
        raise LabError(f"images need Pillow; {LAB}")

    def attempt(pair: Pair) -> np.ndarray | LabError:
        try:
            return decode(pair, classes, void)
        except LabError as error:
            return error

    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        found = list(pool.map(attempt, pairs))
    bad = [str(one) for one in found if isinstance(one, LabError)]
    if bad and on_error == "raise":
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        raise LabError(f"{bad[0]}{more}; repair it, or skip such images with on_error=skip")
    good = [one for one in found if not isinstance(one, LabError)]
    if not good:
        raise LabError(
            f"all {len(pairs)} images are invalid, the first: {bad[0] if bad else 'there is none'}"
        )
    del found
    return _together(good, tuple(bad))


def _together(arrays: list[np.ndarray], skipped: tuple[str, ...]) -> SegmentationImages:
    height, width = (torch.tensor([array.shape[axis] for array in arrays]) for axis in (0, 1))
    sizes = height * width
    start = torch.cumsum(sizes, 0) - sizes
    pixels = torch.empty(int(sizes.sum()), 4, dtype=torch.uint8)
    for i, begin in reversed(list(enumerate(start.tolist()))):
        array = arrays.pop()
        pixels[begin : begin + int(sizes[i])] = torch.from_numpy(array).reshape(-1, 4)
    return SegmentationImages(pixels, start, height, width, skipped)


def part(images: SegmentationImages, rows: Tensor) -> SegmentationImages:
    """Return the images with indices `rows`; their pixels are shared, not copied."""
    start, height, width = (n[rows] for n in (images.start, images.height, images.width))
    return SegmentationImages(images.pixels, start, height, width, images.skipped, images._there)
