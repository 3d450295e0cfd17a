"""Carry a folder of runs or data between machines in small files, where only such can be carried.

    python tools/carry.py pack runs out      out/part-000, ... of at most 15 MB, and out/parts.json with their checksums
    python tools/carry.py pack data out 44   parts of at most 44 MB
    python tools/carry.py unpack out runs    back again; a part that is missing or damaged is an error

Unpacking writes over files of the same name and leaves the others.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile
import zlib
from pathlib import Path

import numpy as np

SIZE = 15 * 10**6
"""The largest file, in bytes."""


def pack(folder: Path, out: Path, size: int = SIZE) -> list[Path]:
    """Write the folder's content to `out`, which must not hold parts of another one."""
    if not folder.is_dir():
        raise SystemExit(f"{folder}: no such folder")
    if out.exists() and any(out.iterdir()):
        raise SystemExit(f"{out}: is not empty; name a new folder")
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        archive.add(folder, arcname=".", filter=lambda info: None if info.name.endswith(".lock") else info)
    packed = zlib.compress(_apart(plain.getvalue()), 6)
    parts = [packed[i : i + size] for i in range(0, len(packed), size)]
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / f"part-{i:03d}" for i in range(len(parts))]
    for path, part in zip(paths, parts, strict=True):
        path.write_bytes(part)
    sums = {path.name: hashlib.sha256(part).hexdigest() for path, part in zip(paths, parts, strict=True)}
    (out / "parts.json").write_text(json.dumps(sums, indent=1) + "\n")
    return paths


def unpack(packed: Path, folder: Path) -> None:
    """Put back what `pack` wrote; nothing is written unless every part is whole."""
    try:
        sums = json.loads((packed / "parts.json").read_text())
    except (OSError, ValueError) as error:
        raise SystemExit(f"{packed / 'parts.json'}: cannot be read ({error})") from error
    data = b""
    for name, wanted in sums.items():
        part = (packed / name).read_bytes() if (packed / name).is_file() else b""
        if hashlib.sha256(part).hexdigest() != wanted:
            raise SystemExit(f"{packed / name}: missing or damaged; carry it again")
        data += part
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(_together(zlib.decompress(data)))) as archive:
        archive.extractall(folder, filter="data")


def _apart(data: bytes) -> bytes:
    """Every fourth byte together: exponents of float32 numbers repeat, their last digits do not. A tar file's length is
    a multiple of 4."""
    return np.ascontiguousarray(np.frombuffer(data, np.uint8).reshape(-1, 4).T).tobytes()


def _together(data: bytes) -> bytes:
    return np.ascontiguousarray(np.frombuffer(data, np.uint8).reshape(4, -1).T).tobytes()


def main(arguments: list[str]) -> None:
    """`pack FOLDER OUT [MEGABYTES]` or `unpack OUT FOLDER`."""
    match arguments:
        case ["pack", folder, out]:
            pack(Path(folder), Path(out))
        case ["pack", folder, out, megabytes] if megabytes.isdecimal() and int(megabytes):
            pack(Path(folder), Path(out), int(megabytes) * 10**6)
        case ["unpack", packed, folder]:
            unpack(Path(packed), Path(folder))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
