"""Tiny-ImageNet-200: 100,000 training and 10,000 validation images of 64x64 pixels in 200 classes of ImageNet.

The given folder may contain `tiny-imagenet-200/` (its own layout) or the archive `tiny-imagenet-200.zip`, which is
unpacked; otherwise the set is downloaded with git from a public repository. The digest is of the encoded files
(decoders may differ in the last bit) with their classes; it is the same for every layout.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from adaxlab.data.fetch import git, move
from adaxlab.errors import LabError

FOLDER = "tiny-imagenet-200"
ARCHIVE = f"{FOLDER}.zip"
REPOSITORY = "https://github.com/seshuad/IMagenet"
DIGEST = "5f08235d8ac5c4c740426e04f741d024bd9c4612030dd85e469a6e0ecbb3dc61"
"""Sum over the images of SHA-256 of (split, class, file name, SHA-256 of the file), modulo 2^256."""
LICENCE = (
    "Tiny-ImageNet-200: made for Stanford's CS231n from ImageNet; the images are their owners', for non-commercial "
    "research and education under ImageNet's terms of access."
)
CHUNK = 5000
Say = Callable[[str], None]


def find(base: Path) -> Path | None:
    """Return the folder with train/ and val/: `base` or one of its usual subfolders; None if there is none."""
    for place in (base, base / FOLDER, base / "tiny-imagenet", base / "tiny-imagenet" / FOLDER):
        if (place / "train").is_dir() and (place / "val").is_dir():
            return place
    return None


def digest(folder: Path, tell: Say = lambda text: None) -> str:
    """Return the digest of the images in `folder`."""
    from adaxlab.data import imagefolder

    source = imagefolder.read(folder)
    total = 0
    for split, count in source.counts.items():
        for first in range(0, count, CHUNK):
            items = source.read(split, first, first + CHUNK)
            lost = next((item for item in items if item.data is None), None)
            if lost:
                raise LabError(f"{folder / lost.path}: {lost.reason}")
            total += source.digest(split, items)
        tell(f"  {count:,} images of {split}")
    return f"{total % imagefolder.MODULUS:064x}"


def fetch(target: Path, tell: Say, repository: str = REPOSITORY) -> Path:
    """Clone the repository and return `target`/tiny-imagenet-200, which appears only when it is complete."""
    return git(repository, FOLDER, target, "240 MB", f"put {ARCHIVE} into {target}", tell)


def unpack(archive: Path, target: Path, tell: Say) -> Path:
    """Unpack the archive and return `target`/tiny-imagenet-200, which appears only when it is complete."""
    tell(f"unpacking {archive}")
    with tempfile.TemporaryDirectory(dir=target) as scratch:
        try:
            with zipfile.ZipFile(archive) as packed:
                packed.extractall(scratch)
        except (zipfile.BadZipFile, OSError) as error:
            raise LabError(f"{archive}: cannot be unpacked ({error}); download it again") from error
        if not (Path(scratch) / FOLDER).is_dir():
            raise LabError(f"{archive}: contains no folder {FOLDER}/")
        return move(Path(scratch) / FOLDER, target / FOLDER)


def obtain(base: Path, tell: Say) -> tuple[Path, str]:
    """Return (folder, digest) of the set in `base`, unpacking or downloading it if needed."""
    place = find(base)
    if place is None:
        archive = next((p for p in (base / ARCHIVE, base / "tiny-imagenet" / ARCHIVE) if p.is_file()), None)
        place = unpack(archive, archive.parent, tell) if archive else fetch(base / "tiny-imagenet", tell)
    tell(f"checking {place}")
    found = digest(place, tell)
    if found != DIGEST:
        raise LabError(
            f"{place}: has digest {found}, the published set {DIGEST}; move it away to download it again"
        )
    return place, found
