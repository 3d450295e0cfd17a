"""Checkpoints of a stack in files small enough to be carried: bytes of like significance together, then compressed.

A float32's exponents repeat and its mantissas do not; apart from each other, zlib saves about a fifth of them. A new
writing goes beside the old one, which is removed when the new one is whole: there is no moment without a checkpoint.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from adaxlab import files
from adaxlab.errors import StoreError

PIECE = 15 * 2**20
"""Largest file, in bytes."""


def save(name: Path, state: dict[str, Any]) -> None:
    """Write `name`.<writing>.0.part, .1.part, ...: each whole or absent, and all of one writing, as their sum tells."""
    plain = io.BytesIO()
    torch.save(state, plain)
    data = np.frombuffer(plain.getvalue() + b"\0" * (-plain.tell() % 4), dtype=np.uint8).reshape(-1, 4)
    packed = plain.tell().to_bytes(8, "little") + zlib.compress(np.ascontiguousarray(data.T).tobytes(), 1)
    packed = zlib.crc32(packed).to_bytes(4, "little") + packed
    old = _writings(name)
    number = max(old, default=-1) + 1
    for i in range(0, len(packed), PIECE):
        files.write(Path(f"{name}.{number}.{i // PIECE}.part"), packed[i : i + PIECE])
    _remove(part for parts in old.values() for part in parts)


def load(name: Path) -> dict[str, Any] | None:
    """The last whole writing of `save`, or None if there is nothing."""
    found = _writings(name)
    for number in sorted(found, reverse=True):
        packed = b"".join(part.read_bytes() for part in found[number])
        if zlib.crc32(packed[4:]).to_bytes(4, "little") == packed[:4]:
            size = int.from_bytes(packed[4:12], "little")
            data = np.frombuffer(zlib.decompress(packed[12:]), dtype=np.uint8).reshape(4, -1)
            plain = io.BytesIO(np.ascontiguousarray(data.T).tobytes()[:size])
            return torch.load(plain, weights_only=True)
    if found:
        raise StoreError(
            f"{name}.*.part: damaged, or one of them is missing; bring them again, or remove them to start these "
            "runs anew"
        )
    return None


def drop(name: Path) -> None:
    """Remove the files of `name`."""
    _remove(part for parts in _writings(name).values() for part in parts)


def names(folder: Path) -> list[str]:
    """The checkpoints in `folder`."""
    return sorted({path.name.rsplit(".", 3)[0] for path in folder.glob("*.*.*.part")})


def _remove(parts: Iterable[Path]) -> None:
    for part in parts:
        part.unlink()


def _writings(name: Path) -> dict[int, list[Path]]:
    """The files of each writing, in their order."""
    found: dict[int, dict[int, Path]] = {}
    for path in name.parent.glob(f"{name.name}.*.*.part"):
        writing, piece = path.name.split(".")[-3:-1]
        found.setdefault(int(writing), {})[int(piece)] = path
    return {number: [pieces[i] for i in sorted(pieces)] for number, pieces in found.items()}
