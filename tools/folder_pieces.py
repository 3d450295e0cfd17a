"""Carry a large folder in small files, between machines that have no other way.

python tools/folder_pieces.py split FOLDER OUT     tar files of at most 50 MB, and pieces.json with their hashes
python tools/folder_pieces.py join OUT FOLDER      check the hashes and unpack
"""

from __future__ import annotations

import hashlib
import json
import sys
import tarfile
from pathlib import Path

LIMIT = 50_000_000
BLOCK = 1536
"""Bytes allowed for a file's header and padding in a tar file."""


def split(folder: Path, out: Path, limit: int = LIMIT) -> list[Path]:
    """The pieces of `folder`, files in the order of their paths."""
    out.mkdir(parents=True, exist_ok=True)
    groups: list[list[Path]] = [[]]
    size = 10_240
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        need = path.stat().st_size + BLOCK
        if size + need > limit and groups[-1]:
            groups.append([])
            size = 10_240
        groups[-1].append(path)
        size += need
    made = []
    for number, group in enumerate(groups):
        made.append(out / f"{number:04}.tar")
        with tarfile.open(made[-1], "w") as tar:
            for path in group:
                tar.add(path, str(path.relative_to(folder)))
    hashes = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in made}
    (out / "pieces.json").write_text(json.dumps(hashes, indent=1))
    return made


def join(pieces: Path, folder: Path) -> None:
    """What `split` took apart, in `folder`; a piece that is missing or damaged is named."""
    hashes = json.loads((pieces / "pieces.json").read_text())
    for name, wanted in hashes.items():
        path = pieces / name
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != wanted:
            raise SystemExit(f"{path}: missing or damaged; carry it again")
    folder.mkdir(parents=True, exist_ok=True)
    for name in hashes:
        with tarfile.open(pieces / name) as tar:
            tar.extractall(folder, filter="data")


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in ("split", "join"):
        raise SystemExit(__doc__)
    {"split": split, "join": join}[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))
