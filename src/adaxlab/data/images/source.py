"""Read encoded images from folders, by split and range.

The digest of a set is the sum, modulo 2^256, of the SHA-256 of (split, class, file name, content) of its images. It
does not depend on order or layout, and it can be computed in parts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from adaxlab.data import imagefolder
from adaxlab.data.imagefolder import Listing
from adaxlab.errors import LabError

MODULUS = 2**256


@dataclass(frozen=True)
class Item:
    """One encoded image; `data` is None if its file could not be read, and `reason` says why."""

    path: str
    label: int
    data: bytes | None
    reason: str = ""


def digest_of(split: str, items: Iterable[Item], classes: tuple[str, ...]) -> int:
    """Return the contribution of these images to the digest of their set."""
    total = 0
    for item in items:
        if item.data is not None:
            content = hashlib.sha256(item.data).hexdigest()
            line = f"{split}\0{classes[item.label]}\0{PurePosixPath(item.path).name}\0{content}"
            total += int.from_bytes(hashlib.sha256(line.encode()).digest(), "big")
    return total % MODULUS


class Folder:
    """Images in files, listed by `imagefolder.read`; it is sent to the processes that decode.

    `key` identifies the images without reading them: paths, labels, sizes and modification times.
    """

    def __init__(self, listing: Listing) -> None:
        self.root, self.classes, self.skipped = listing.root, listing.classes, listing.skipped
        self.files, self.labels = listing.files, listing.labels
        self.counts = {split: len(paths) for split, paths in listing.files.items()}
        total = hashlib.sha256(repr(self.classes).encode())
        for split, paths in self.files.items():
            for path, label in zip(paths, self.labels[split], strict=True):
                try:
                    found = (self.root / path).stat()
                    size, changed = found.st_size, found.st_mtime_ns
                except OSError:
                    size, changed = 0, 0
                total.update(f"{path}\0{label}\0{size}\0{changed}\n".encode())
        self.key = "folder:" + total.hexdigest()

    def read(self, split: str, start: int, stop: int) -> list[Item]:
        """Return the images start..stop of a split; one that cannot be opened has no data."""
        out = []
        chosen = zip(self.files[split][start:stop], self.labels[split][start:stop], strict=True)
        for path, label in chosen:
            try:
                out.append(Item(path, label, (self.root / path).read_bytes()))
            except OSError as error:
                out.append(Item(path, label, None, f"cannot be read ({error.strerror})"))
        return out


def check_hash(path: Path, wanted: str) -> None:
    """Raise LabError if the SHA-256 of the file is not `wanted`."""
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != wanted:
        raise LabError(f"{path}: has sha256 {found}, must be {wanted}: damaged; create or copy it again")


def open_source(place: str | Path, on_error: str = "raise") -> Folder:
    """Return the source of the image folders in `place`."""
    root = Path(place)
    if not root.is_dir():
        raise LabError(f"{root}: no such folder; name one with train/ and val/, or a cache")
    return Folder(imagefolder.read(root, on_error))
