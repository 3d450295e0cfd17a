"""Where encoded pictures come from: folders of files, or a pack. Both are read by (split, from, to).

The digest of a set is the sum, modulo 2^256, of the SHA-256 of (split, class, file name, content) of its pictures: it
does not depend on order, layout or pieces, and parts of it can be added up.
"""

from __future__ import annotations

import functools
import hashlib
import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from adaxlab import files
from adaxlab.data import imagefolder
from adaxlab.data.imagefolder import Listing, Problem
from adaxlab.errors import LabError

MANIFEST = "pack.json"
KIND = "adaxopt-image-pack"
VERSION = 1
MAGIC = b"adaxopt pack 1\n"
MODULUS = 2**256


@dataclass(frozen=True)
class Item:
    """One encoded picture; `data` is None where its file could not be read, and `reason` says why."""

    path: str
    label: int
    data: bytes | None
    reason: str = ""


class Source(Protocol):
    """What decoding asks of a source. It is sent to worker processes, so it can be pickled."""

    classes: tuple[str, ...]
    counts: dict[str, int]
    skipped: list[Problem]
    key: str
    """Tells whether the same pictures are meant; cheap to get."""

    def read(self, split: str, start: int, stop: int) -> list[Item]: ...


def digest_of(split: str, items: Iterable[Item], classes: tuple[str, ...]) -> int:
    """The part of a set's digest that these pictures contribute."""
    total = 0
    for item in items:
        if item.data is not None:
            content = hashlib.sha256(item.data).hexdigest()
            line = f"{split}\0{classes[item.label]}\0{PurePosixPath(item.path).name}\0{content}"
            total += int.from_bytes(hashlib.sha256(line.encode()).digest(), "big")
    return total % MODULUS


class Folder:
    """Pictures as files, listed by `imagefolder.read`."""

    def __init__(self, listing: Listing) -> None:
        self.root, self.classes, self.skipped = listing.root, listing.classes, listing.skipped
        self.files, self.labels = listing.files, listing.labels
        self.counts = {split: len(paths) for split, paths in listing.files.items()}
        self.sizes: dict[str, list[int]] = {}
        total = hashlib.sha256(repr(self.classes).encode())
        for split, paths in self.files.items():
            sizes = []
            for path, label in zip(paths, self.labels[split], strict=True):
                try:
                    found = (self.root / path).stat()
                    size, changed = found.st_size, found.st_mtime_ns
                except OSError:
                    size, changed = 0, 0
                sizes.append(size)
                total.update(f"{path}\0{label}\0{size}\0{changed}\n".encode())
            self.sizes[split] = sizes
        self.key = "folder:" + total.hexdigest()

    def read(self, split: str, start: int, stop: int) -> list[Item]:
        """The pictures start..stop of a split; one that cannot be opened has no data."""
        out = []
        chosen = zip(self.files[split][start:stop], self.labels[split][start:stop], strict=True)
        for path, label in chosen:
            try:
                out.append(Item(path, label, (self.root / path).read_bytes()))
            except OSError as error:
                out.append(Item(path, label, None, f"cannot be read ({error.strerror})"))
        return out


class Pack:
    """Pieces that `pack.make` wrote."""

    def __init__(self, folder: str | Path) -> None:
        self.root = Path(folder)
        self.manifest = read_manifest(self.root / MANIFEST, KIND, VERSION)
        self.classes = tuple(self.manifest["classes"])
        self.skipped: list[Problem] = []
        self.pieces: dict[str, list[dict[str, Any]]] = {s: [] for s in imagefolder.SPLITS}
        for piece in self.manifest["pieces"]:
            path = self.root / piece["name"]
            if not path.is_file():
                raise LabError(f"{path}: this piece of the pack is missing; carry or make it again")
            if path.stat().st_size != piece["bytes"]:
                raise LabError(
                    f"{path}: {path.stat().st_size} bytes, the pack's list says {piece['bytes']}; carry it again"
                )
            self.pieces[piece["split"]].append(piece)
        self.counts = {split: sum(p["count"] for p in pieces) for split, pieces in self.pieces.items()}
        self.key = "pack:" + self.manifest["digest"]

    def read(self, split: str, start: int, stop: int) -> list[Item]:
        """The pictures start..stop of a split."""
        out: list[Item] = []
        first = 0
        for piece in self.pieces[split]:
            last = first + piece["count"]
            if first < stop and start < last:
                out += _slice(self.root / piece["name"], max(start, first) - first, min(stop, last) - first)
            first = last
        return out

    def verify(self) -> None:
        """Compare every piece with its hash."""
        for pieces in self.pieces.values():
            for piece in pieces:
                check_hash(self.root / piece["name"], piece["sha256"])


def check_hash(path: Path, wanted: str) -> None:
    """An error when the file's SHA-256 is another."""
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != wanted:
        raise LabError(f"{path}: has sha256 {found}, {wanted} is on record: damaged; make or carry it again")


def read_manifest(path: Path, kind: str, version: int) -> dict[str, Any]:
    """A list of pieces, checked to be one of this kind and version."""
    found = files.read_json(path)
    if not isinstance(found, dict) or found.get("kind") != kind:
        raise LabError(f"{path}: is not a list of kind {kind}")
    if found.get("version") != version:
        raise LabError(
            f"{path}: version {found.get('version')!r}, this program reads {version}; make it again"
        )
    return found


@functools.lru_cache(maxsize=4)
def header(path: Path) -> tuple[dict[str, Any], int, list[int]]:
    """(names, labels, lengths and what was packed; where the pictures begin; the offset of each)."""
    with open(path, "rb") as file:
        start = file.read(len(MAGIC) + 8)
        if not start.startswith(MAGIC):
            raise LabError(f"{path}: is no piece of a pack (or of another version); make or carry it again")
        size = int.from_bytes(start[len(MAGIC) :], "little")
        try:
            found = json.loads(zlib.decompress(file.read(size)))
        except (zlib.error, ValueError) as error:
            raise LabError(f"{path}: its index cannot be read: damaged; make or carry it again") from error
    offsets = [0]
    for length in found["lengths"]:
        offsets.append(offsets[-1] + length)
    return found, len(start) + size, offsets


def _slice(path: Path, start: int, stop: int) -> list[Item]:
    index, begin, offsets = header(path)
    with open(path, "rb") as file:
        file.seek(begin + offsets[start])
        data = file.read(offsets[stop] - offsets[start])
    if len(data) != offsets[stop] - offsets[start]:
        raise LabError(f"{path}: ends too early; carry it again")
    base = offsets[start]
    return [
        Item(index["paths"][i], index["labels"][i], data[offsets[i] - base : offsets[i + 1] - base])
        for i in range(start, stop)
    ]


def open_source(place: str | Path, on_error: str = "raise") -> Folder | Pack:
    """The pack or the picture folders in `place`."""
    root = Path(place)
    if (root / MANIFEST).is_file():
        return Pack(root)
    if not root.is_dir():
        raise LabError(f"{root}: no such folder; name one with train/ and val/, a pack, or a cache")
    return Folder(imagefolder.read(root, on_error))
