"""Checkpoints of a stack in files small enough to be carried: bytes of like significance together, then compressed.

A float32's exponents repeat and its mantissas do not; apart from each other, zlib saves about a fifth of them.
"""

from __future__ import annotations

import io
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

from adaxopt.lab import files
from adaxopt.lab.errors import StoreError

PIECE = 15 * 2**20
"""Largest file, in bytes."""


def save(name: Path, state: dict[str, Any]) -> None:
    """Write `name`.0.part, `name`.1.part, ...: each whole or absent, and all of one writing, as their sum tells."""
    plain = io.BytesIO()
    torch.save(state, plain)
    data = np.frombuffer(plain.getvalue() + b"\0" * (-plain.tell() % 4), dtype=np.uint8).reshape(-1, 4)
    packed = plain.tell().to_bytes(8, "little") + zlib.compress(np.ascontiguousarray(data.T).tobytes(), 1)
    packed = zlib.crc32(packed).to_bytes(4, "little") + packed
    pieces = [packed[i : i + PIECE] for i in range(0, len(packed), PIECE)]
    for i, piece in enumerate(pieces):
        files.write(Path(f"{name}.{i}.part"), piece)
    for part in _parts(name)[len(pieces) :]:
        part.unlink()


def load(name: Path) -> dict[str, Any] | None:
    """What `save` wrote, or None if there is nothing."""
    packed = b"".join(part.read_bytes() for part in _parts(name))
    if not packed:
        return None
    if zlib.crc32(packed[4:]).to_bytes(4, "little") != packed[:4]:
        raise StoreError(
            f"{name}.*.part: damaged, or one of them is missing; bring them again, or remove them to start these "
            "runs anew"
        )
    packed = packed[4:]
    size = int.from_bytes(packed[:8], "little")
    data = np.frombuffer(zlib.decompress(packed[8:]), dtype=np.uint8).reshape(4, -1)
    plain = io.BytesIO(np.ascontiguousarray(data.T).tobytes()[:size])
    return torch.load(plain, weights_only=True)


def drop(name: Path) -> None:
    """Remove the files of `name`."""
    for part in _parts(name):
        part.unlink()


def _parts(name: Path) -> list[Path]:
    found = name.parent.glob(f"{name.name}.*.part")
    return sorted(found, key=lambda path: int(path.name.split(".")[-2]))
