"""A set as a few files that can be carried: encoded pictures one after the other, at most 50 MB a piece.

    pack.json                  classes, digest, and each piece's name, count, bytes and SHA-256; written last
    train-000.pack, ...        a line of magic, the index's length, the index (compressed JSON), then the pictures

Pieces are written whole or not at all, so a call that was cut off is repeated and goes on; a piece of other files
(their names, sizes and times are part of it) is written again.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from adaxlab import files
from adaxlab.data import imagefolder
from adaxlab.data.imagefolder import Problem
from adaxlab.errors import LabError
from adaxlab.imagenet.source import (
    KIND,
    MAGIC,
    MANIFEST,
    MODULUS,
    VERSION,
    Folder,
    Pack,
    digest_of,
    header,
)

LIMIT = 50_000_000
"""Largest piece, in bytes, index included."""
INDEX = 48
"""Bytes allowed for one picture's entry in the index."""
Say = Callable[[str], None]


def plan(sizes: list[int], limit: int) -> list[tuple[int, int]]:
    """Cut pictures of these sizes into runs of at most `limit` bytes.

    >>> plan([10, 10, 30, 5], 2 * (30 + INDEX))
    [(0, 2), (2, 4)]
    """
    cuts, total, first = [], 0, 0
    for i, size in enumerate(sizes):
        need = size + INDEX
        if need > limit:
            raise LabError(f"picture {i} has {size} bytes; a piece may have {limit}")
        if total + need > limit:
            cuts.append((first, i))
            first, total = i, 0
        total += need
    return [*cuts, (first, len(sizes))] if first < len(sizes) else cuts


def make(
    folder: str | Path,
    out: str | Path,
    *,
    on_error: str = "raise",
    limit: int = LIMIT,
    tell: Say = lambda text: None,
) -> Pack:
    """Pack the pictures of `folder` into `out`, or what is left to do of it."""
    source = Folder(imagefolder.read(folder, on_error))
    target = Path(out)
    _refuse_another(target, source)
    target.mkdir(parents=True, exist_ok=True)
    pieces: list[dict[str, Any]] = []
    problems = list(source.skipped)
    total = 0
    for split in imagefolder.SPLITS:
        cuts = plan(source.sizes[split], limit)
        for number, (first, last) in enumerate(cuts):
            path = target / f"{split}-{number:03}.pack"
            row = _kept(path, source, split, first, last) or _write(
                path, source, split, first, last, on_error
            )
            problems += [Problem(*p) for p in row.pop("skipped")]
            total = (total + int(row.pop("digest"), 16)) % MODULUS
            pieces.append(row)
            tell(
                f"packed {split} {number + 1} of {len(cuts)}: {row['count']:,} pictures, {row['bytes'] / 1e6:.1f} MB"
            )
    manifest = {
        "kind": KIND,
        "version": VERSION,
        "classes": list(source.classes),
        "digest": f"{total:064x}",
        "source": source.key,
        "pieces": pieces,
        "skipped": [str(p) for p in problems],
    }
    files.write_json(target / MANIFEST, manifest)
    for p in problems[: imagefolder.SHOWN]:
        tell(f"skipped {p}")
    if problems:
        tell(f"skipped {len(problems)} in all; pack.json lists them")
    return Pack(target)


def _refuse_another(target: Path, source: Folder) -> None:
    if (target / MANIFEST).is_file():
        found = files.read_json(target / MANIFEST).get("source")
        if found != source.key:
            raise LabError(f"{target}: holds a pack of other files; choose another folder, or remove it")


def _source_key(source: Folder, split: str, first: int, last: int) -> str:
    chosen = (
        source.files[split][first:last],
        source.labels[split][first:last],
        source.sizes[split][first:last],
    )
    return hashlib.sha256(repr((source.key, split, chosen)).encode()).hexdigest()


def _write(path: Path, source: Folder, split: str, first: int, last: int, on_error: str) -> dict[str, Any]:
    items = source.read(split, first, last)
    lost = [Problem(i.path, i.reason) for i in items if i.data is None]
    imagefolder.refuse(source.root, lost, on_error)
    good = [i for i in items if i.data is not None]
    index = {
        "split": split,
        "paths": [i.path for i in good],
        "labels": [i.label for i in good],
        "lengths": [len(i.data or b"") for i in good],
        "digest": f"{digest_of(split, good, source.classes):064x}",
        "source": _source_key(source, split, first, last),
        "skipped": [[p.path, p.reason] for p in lost],
    }
    packed = zlib.compress(json.dumps(index).encode(), 9)
    data = b"".join([MAGIC, len(packed).to_bytes(8, "little"), packed, *(i.data or b"" for i in good)])
    files.write(path, data)
    header.cache_clear()
    return _row(path, index, data)


def _row(path: Path, index: dict[str, Any], data: bytes) -> dict[str, Any]:
    return {
        "name": path.name,
        "split": index["split"],
        "count": len(index["paths"]),
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "digest": index["digest"],
        "skipped": index["skipped"],
    }


def _kept(path: Path, source: Folder, split: str, first: int, last: int) -> dict[str, Any] | None:
    """The row of a piece that an earlier call wrote of the same files; None if there is none."""
    if not path.is_file():
        return None
    header.cache_clear()
    try:
        index, _, _ = header(path)
    except LabError:
        return None
    if index["source"] != _source_key(source, split, first, last):
        return None
    return _row(path, index, path.read_bytes())
