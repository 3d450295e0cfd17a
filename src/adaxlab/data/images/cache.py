"""A cache of decoded and resized images: memory-mapped uint8 arrays in pieces of at most 50 MB.

    python -m adaxlab.data.images.cache FOLDER CACHE --size 64      decode; repeat the command to resume
    python -m adaxlab.data.images.cache CACHE --verify              compare every piece with its hash

A study creates the cache of its data folder when needed; the command is for creating it on a machine with more cores.

    cache.json                    size, classes, source of the images, list of the pieces; written last
    train-000.npy, ...            uint8 [n, size, size, 3]
    train-000.json, ...           labels, hash and source of a piece, written after it

Pieces are written atomically, so an interrupted call resumes when it is repeated. A cache of other images, or of
another size, is an error.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from adaxlab import files
from adaxlab.data import imagefolder
from adaxlab.data.imagefolder import MODULUS, Listing, Problem
from adaxlab.data.images import decode
from adaxlab.errors import LabError, check_on_error
from adaxlab.messages import Say
from adaxopt.extras import LAB

MANIFEST = "cache.json"
KIND = "adaxopt-image-cache"
VERSION = 1
LIMIT = 50_000_000
"""Largest piece, in bytes."""


def check_hash(path: Path, wanted: str) -> None:
    """Raise LabError if the SHA-256 of the file is not `wanted`."""
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != wanted:
        raise LabError(f"{path}: has sha256 {found}, must be {wanted}: damaged; create or copy it again")


def images_per_piece(size: int, limit: int = LIMIT) -> int:
    """Return the number of images in a piece.

    >>> images_per_piece(64), images_per_piece(256)
    (4069, 254)
    """
    return max(1, (limit - 128) // (size * size * 3))


@dataclass(frozen=True)
class Part:
    """One split: memory-mapped pieces and all labels."""

    pieces: tuple[np.ndarray, ...]
    labels: np.ndarray
    paths: tuple[Path, ...]
    hashes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Cache:
    """An open cache."""

    root: Path
    size: int
    classes: tuple[str, ...]
    digest: str
    parts: dict[str, Part]
    skipped: tuple[str, ...]

    def verify(self) -> None:
        """Compare every piece with its hash."""
        for part in self.parts.values():
            for path, wanted in zip(part.paths, part.hashes, strict=True):
                check_hash(path, wanted)


def make(
    source: Listing,
    out: str | Path,
    size: int,
    *,
    on_error: str = "raise",
    workers: int = 0,
    limit: int = LIMIT,
    tell: Say = lambda text: None,
) -> Cache:
    """Decode `source` into `out`, reusing finished pieces, and return the cache. `workers=0` uses all cores."""
    check_on_error(on_error)
    if size < 1:
        raise LabError(f"size={size}: must be >= 1")
    target, key = Path(out), source.key  # computed once, before it is sent to the workers
    if (target / MANIFEST).is_file():
        _check(_manifest(target / MANIFEST), target, key, size)
        return _whole(load(target, size=size), on_error)
    if find_spec("PIL") is None:
        raise LabError(f"decoding images needs Pillow; {LAB}")
    files.make_folder(target)
    each = images_per_piece(size, limit)
    tasks = [
        (split, number, first, min(first + each, count))
        for split, count in source.counts.items()
        for number, first in enumerate(range(0, count, each))
    ]
    began = reported = time.monotonic()
    rows: list[dict[str, Any]] = []
    total = sum(source.counts.values())
    done = 0
    for row in decode.map_unordered(_piece, (source, str(target), size), tasks, workers or decode.cores()):
        imagefolder.refuse("decoding", [Problem(*p) for p in row["skipped"]], on_error)
        rows.append(row)
        done += row["last"] - row["first"]
        now = time.monotonic()
        if now - reported > 2 or done == total:
            reported = now
            tell(f"decoded {done:,} of {total:,} images, {done / max(now - began, 1e-9):,.0f} a second")
    rows.sort(key=lambda row: (imagefolder.SPLITS.index(row["split"]), row["number"]))
    skipped = [str(p) for p in source.skipped] + [str(Problem(*p)) for row in rows for p in row["skipped"]]
    for split in source.counts:
        if not sum(row["count"] for row in rows if row["split"] == split):
            raise LabError(f"{split}: none of its images can be decoded; first: {skipped[0]}")
    digest = sum(int(row["digest"], 16) for row in rows) % MODULUS
    manifest = {
        "kind": KIND,
        "version": VERSION,
        "size": size,
        "classes": list(source.classes),
        "source": key,
        "digest": f"{digest:064x}",
        "pieces": [{k: row[k] for k in ("name", "split", "count", "sha256")} for row in rows],
        "skipped": skipped,
    }
    files.write_json(target / MANIFEST, manifest)
    if skipped:
        tell(f"skipped {len(skipped)}, listed in {target / MANIFEST}; first: {skipped[0]}")
    return load(target, size=size)


def _piece(
    source: Listing, target: str, size: int, split: str, number: int, first: int, last: int
) -> dict[str, Any]:
    """Decode one piece, unless an earlier call did, and return its description. Runs in a worker process."""
    path = Path(target) / f"{split}-{number:03}.npy"
    asked = {
        "source": source.key,
        "size": size,
        "split": split,
        "number": number,
        "first": first,
        "last": last,
    }
    beside = path.with_suffix(".json")
    if path.is_file() and beside.is_file():
        found = files.read_json(beside)
        if all(found.get(key) == value for key, value in asked.items()):
            with open(path, "rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() == found["sha256"]:
                    return found
    items = source.read(split, first, last)
    images, labels, good, skipped = [], [], [], []
    for item in items:
        try:
            if item.data is None:
                raise ValueError(item.reason)
            images.append(decode.pixels(item.data, size))
        except ValueError as error:
            skipped.append([item.path, str(error)])
        else:
            labels.append(item.label)
            good.append(item)
    array = np.stack(images) if images else np.zeros((0, size, size, 3), np.uint8)
    plain = io.BytesIO()
    np.save(plain, array)
    files.write(path, plain.getvalue())
    row = {
        **asked,
        "name": path.name,
        "count": len(labels),
        "labels": labels,
        "sha256": hashlib.sha256(plain.getvalue()).hexdigest(),
        "digest": f"{source.digest(split, good):064x}",
        "skipped": skipped,
    }
    files.write_json(beside, row)
    return row


def _manifest(path: Path) -> dict[str, Any]:
    found = files.read_json(path)
    if not isinstance(found, dict) or found.get("kind") != KIND:
        raise LabError(f"{path}: is not a manifest of kind {KIND}")
    if found.get("version") != VERSION:
        raise LabError(
            f"{path}: version {found.get('version')!r}, this program reads {VERSION}; create it again"
        )
    return found


def _check(manifest: dict[str, Any], root: Path, key: str, size: int) -> None:
    way_out = "choose another folder, or remove it"
    if manifest["size"] != size:
        raise LabError(f"{root}: a cache of {manifest['size']} pixels, {size} are needed; {way_out}")
    if key and manifest["source"] != key:
        raise LabError(f"{root}: a cache of other images than the given ones; {way_out}")


def load(folder: str | Path, *, size: int = 0, key: str = "") -> Cache:
    """Open a memory-mapped cache; if `size` or `key` is given, the cache must have the same."""
    root = Path(folder)
    manifest = _manifest(root / MANIFEST)
    _check(manifest, root, key, size or manifest["size"])
    side = manifest["size"]
    parts = {}
    for split in imagefolder.SPLITS:
        rows = [row for row in manifest["pieces"] if row["split"] == split and row["count"]]
        arrays, labels, paths = [], [], []
        for row in rows:
            path = root / row["name"]
            arrays.append(_map(path, (row["count"], side, side, 3)))
            labels += files.read_json(path.with_suffix(".json"))["labels"]
            paths.append(path)
        if len(labels) != sum(row["count"] for row in rows):
            raise LabError(
                f"{root}: the number of labels of {split}, {len(labels)}, differs from that of images; create it again"
            )
        hashes = tuple(row["sha256"] for row in rows)
        parts[split] = Part(tuple(arrays), np.asarray(labels, np.int64), tuple(paths), hashes)
    return Cache(
        root, side, tuple(manifest["classes"]), manifest["digest"], parts, tuple(manifest["skipped"])
    )


def _whole(cache: Cache, on_error: str) -> Cache:
    """Return the cache; raise LabError if images were skipped when it was made and `on_error` is "raise"."""
    if check_on_error(on_error) == "raise" and cache.skipped:
        raise LabError(
            f"{cache.root}: {len(cache.skipped)} images were skipped when it was made, first {cache.skipped[0]}; "
            "continue without them (on_error=skip), or fix them and remove the cache"
        )
    return cache


def _map(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise LabError(f"{path}: this piece of the cache cannot be read; create or copy it again") from error
    if found.shape != shape or found.dtype != np.uint8:
        raise LabError(f"{path}: {found.dtype} {found.shape}, the manifest says uint8 {shape}: damaged")
    return found


def folder_of(place: str | Path, size: int, cache: str | Path = "") -> Path:
    """Return the folder in which `obtain` keeps the cache of the images in `place`.

    >>> folder_of("/sets/tiny", 64).as_posix()
    '/sets/tiny-64px'
    """
    root = Path(place)
    if (root / MANIFEST).is_file():
        return root
    return Path(cache) if cache else root.resolve().with_name(f"{root.resolve().name}-{size}px")


def obtain(
    place: str | Path,
    size: int,
    *,
    cache: str | Path = "",
    on_error: str = "raise",
    workers: int = 0,
    tell: Say = lambda text: None,
) -> Cache:
    """Return the cache of the images in `place`, which is a cache itself or has image folders; decode them if needed.

    The cache of `sets/tiny` at 64 pixels is `sets/tiny-64px`, unless `cache` names another folder.
    """
    root = Path(place)
    if (root / MANIFEST).is_file():
        return _whole(load(root, size=size), on_error)
    return make(
        imagefolder.read(root, on_error),
        folder_of(root, size, cache),
        size,
        on_error=on_error,
        workers=workers,
        tell=tell,
    )


def main(arguments: list[str] | None = None) -> int:
    """Create a cache of image folders, or verify a cache."""
    parser = argparse.ArgumentParser(prog="python -m adaxlab.data.images.cache", description=main.__doc__)
    parser.add_argument("folder", help="with train/ and val/; to verify: a cache")
    parser.add_argument("cache", nargs="?", default="", help="where to put the cache (beside the folder)")
    parser.add_argument("--size", type=int, default=64, help="shorter side in pixels")
    parser.add_argument("--workers", type=int, default=0, help="processes that decode (0: all processors)")
    parser.add_argument("--on-error", choices=("raise", "skip"), default="raise")
    parser.add_argument("--verify", action="store_true")
    given = parser.parse_args(arguments)

    def say(text: str) -> None:
        print(text, flush=True)

    try:
        if given.verify:
            load(given.folder).verify()
            say(f"{given.folder}: every piece matches its hash")
            return 0
        how = {"on_error": given.on_error, "workers": given.workers, "tell": say}
        found = obtain(given.folder, given.size, cache=given.cache, **how)
        count = sum(len(part) for part in found.parts.values())
        say(f"{found.root}: {count:,} images of {found.size} pixels, digest {found.digest}")
    except LabError as error:
        print(f"adaxlab.data.images.cache: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
