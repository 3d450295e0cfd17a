"""List the image files of a data set and the class of each, and read them by split and range.

    layout          train                          val
    ImageFolder     train/<class>/*.JPEG           val/<class>/*.JPEG
    Tiny-ImageNet   train/<class>/images/*.JPEG    val/images/*.JPEG, named with their classes in val_annotations.txt

Classes are the sorted folders of `train`, as in torchvision. A problem (an empty class, an image of an unknown class, a
missing file) is an error that names the paths; with on_error="skip" it is left out and listed in `skipped`. Nothing is
decoded here.

The digest of a set is the sum, modulo 2^256, of the SHA-256 of (split, class, file name, content) of its images. It
does not depend on order or layout, and it can be computed in parts.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath

from adaxlab.errors import LabError, check_on_error

SPLITS = ("train", "val")
SUFFIXES = frozenset((".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".pgm", ".webp", ".tif", ".tiff"))
ANNOTATIONS = "val_annotations.txt"
MODULUS = 2**256
SHOWN = 3
"""Number of paths that an error names; the others are counted."""


@dataclass(frozen=True)
class Problem:
    """A file or class that cannot be used, and why."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True)
class Item:
    """One encoded image; `data` is None if its file could not be read, and `reason` says why."""

    path: str
    label: int
    data: bytes | None
    reason: str = ""


@dataclass
class Listing:
    """The images of a set by split: paths relative to `root` (with /), and the class index of each. It is sent to the
    processes that decode."""

    root: Path
    classes: tuple[str, ...]
    files: dict[str, list[str]]
    labels: dict[str, list[int]]
    skipped: list[Problem] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        return {split: len(paths) for split, paths in self.files.items()}

    @cached_property
    def key(self) -> str:
        """Identifies the images without reading them: paths, labels, sizes and modification times."""
        total = hashlib.sha256(repr(self.classes).encode())
        for split, paths in self.files.items():
            for path, label in zip(paths, self.labels[split], strict=True):
                try:
                    found = (self.root / path).stat()
                    size, changed = found.st_size, found.st_mtime_ns
                except OSError:
                    size, changed = 0, 0
                total.update(f"{path}\0{label}\0{size}\0{changed}\n".encode())
        return "folder:" + total.hexdigest()

    def read(self, split: str, start: int, stop: int) -> list[Item]:
        """Return the images start..stop of a split; one that cannot be opened has no data."""
        out = []
        for path, label in zip(self.files[split][start:stop], self.labels[split][start:stop], strict=True):
            try:
                out.append(Item(path, label, (self.root / path).read_bytes()))
            except OSError as error:
                out.append(Item(path, label, None, f"cannot be read ({error.strerror})"))
        return out

    def digest(self, split: str, items: Iterable[Item]) -> int:
        """Return the contribution of these images to the digest of the set."""
        total = 0
        for item in items:
            if item.data is not None:
                content = hashlib.sha256(item.data).hexdigest()
                line = f"{split}\0{self.classes[item.label]}\0{PurePosixPath(item.path).name}\0{content}"
                total += int.from_bytes(hashlib.sha256(line.encode()).digest(), "big")
        return total % MODULUS


def refuse(where: object, problems: Sequence[Problem], on_error: str) -> None:
    """Raise a LabError that names the first problems, unless `on_error` is "skip".

    >>> refuse("set", [Problem("a.png", "is empty")], "raise")
    Traceback (most recent call last):
    adaxlab.errors.LabError: set: 1 problem: a.png: is empty; fix it, or leave it out with on_error=skip
    """
    if check_on_error(on_error) == "skip" or not problems:
        return
    shown = "; ".join(str(p).replace("\n", " ") for p in problems[:SHOWN])
    more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
    count, them = ("1 problem", "it") if len(problems) == 1 else (f"{len(problems)} problems", "them")
    raise LabError(f"{where}: {count}: {shown}{more}; fix {them}, or leave {them} out with on_error=skip")


def read(folder: str | Path, on_error: str = "raise") -> Listing:
    """Return the listing of the set in `folder`."""
    check_on_error(on_error)
    root = Path(folder)
    if not root.is_dir():
        raise LabError(f"{root}: no such folder; name one with train/ and val/, or a cache")
    for split in SPLITS:
        if not (root / split).is_dir():
            raise LabError(
                f"{root}: has no folder {split}/; a set has train/<class>/ and val/<class>/ "
                f"(or val/images/ with val/{ANNOTATIONS})"
            )
    problems: list[Problem] = []
    found = {name: _images(root, f"train/{name}") for name in _folders(root / "train")}
    for name in _named(root) - found.keys():
        problems.append(Problem(f"train/{name}", "is listed in wnids.txt but has no folder"))
    for name, files in found.items():
        if not files:
            problems.append(Problem(f"train/{name}", "class folder without an image"))
    classes = tuple(name for name, files in sorted(found.items()) if files)
    number = {name: i for i, name in enumerate(classes)}
    train = [(path, number[name]) for name in classes for path in found[name]]
    annotated = (root / "val" / ANNOTATIONS).is_file()
    val = (_annotated if annotated else _by_folder)(root, number, problems)
    refuse(root, problems, on_error)
    for split, pairs in zip(SPLITS, (train, val), strict=True):
        if not pairs:
            raise LabError(f"{root / split}: no image there ({', '.join(sorted(SUFFIXES))})")
    splits = {"train": train, "val": val}
    paths = {split: [path for path, _ in pairs] for split, pairs in splits.items()}
    labels = {split: [label for _, label in pairs] for split, pairs in splits.items()}
    return Listing(root, classes, paths, labels, problems)


def _folders(place: Path) -> list[str]:
    with os.scandir(place) as entries:
        return sorted(e.name for e in entries if e.is_dir() and not e.name.startswith("."))


def _images(root: Path, under: str) -> list[str]:
    """Return the sorted paths of all images in a folder and its subfolders."""
    out = []
    for place, folders, names in os.walk(root / under):
        folders.sort()
        inside = Path(place).relative_to(root).as_posix()
        out += [f"{inside}/{n}" for n in names if _suffix(n) in SUFFIXES and not n.startswith(".")]
    return sorted(out)


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1].lower()


def _named(root: Path) -> set[str]:
    """Return the classes listed in Tiny-ImageNet's wnids.txt, if it exists."""
    path = root / "wnids.txt"
    return set(_text(path).split()) if path.is_file() else set()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(f"{path}: cannot be read as text ({error})") from error


def _by_folder(root: Path, number: dict[str, int], problems: list[Problem]) -> list[tuple[str, int]]:
    pairs: list[tuple[str, int]] = []
    names = _folders(root / "val")
    for name in names:
        files = _images(root, f"val/{name}")
        if name not in number:
            problems.append(Problem(f"val/{name}", f"no such class in train/ ({len(files)} images)"))
        elif not files:
            problems.append(Problem(f"val/{name}", "class folder without an image"))
        else:
            pairs += [(path, number[name]) for path in files]
    return pairs


def _annotated(root: Path, number: dict[str, int], problems: list[Problem]) -> list[tuple[str, int]]:
    """Read Tiny-ImageNet's val: each line has a file, its class and a bounding box, separated by tabs."""
    pairs: list[tuple[str, int]] = []
    there = {Path(path).name: path for path in _images(root, "val/images")}
    seen: set[str] = set()
    text = _text(root / "val" / ANNOTATIONS)
    for count, line in enumerate(text.splitlines(), 1):
        parts = line.split()
        if not parts:
            continue
        where = f"val/{ANNOTATIONS}:{count}"
        if len(parts) < 2:
            problems.append(Problem(where, f"{line.strip()!r} is not a file and its class"))
            continue
        name, label = parts[:2]
        if name in seen:
            problems.append(Problem(where, f"{name} is listed twice"))
            continue
        seen.add(name)
        if name not in there:
            problems.append(Problem(f"val/images/{name}", f"is missing, but listed in line {count}"))
        elif label not in number:
            problems.append(Problem(where, f"{name} has class {label}, which is not in train/"))
        else:
            pairs.append((there[name], number[label]))
    for name in sorted(there.keys() - seen):
        problems.append(Problem(there[name], f"has no class in {ANNOTATIONS}"))
    return sorted(pairs)
