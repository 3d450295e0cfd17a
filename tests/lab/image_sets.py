"""Small sets of images in the layouts of Tiny-ImageNet and of an ImageFolder."""

from __future__ import annotations

import io
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image

from adaxlab.data.images import cache
from adaxlab.data.images.loader import Loader, Resident
from adaxlab.imagenet.recipe import ImageNetRecipe

CLASSES = ("n01443537", "n01629819", "n02002724")


def make(train=6, val=4, size=16, seed=0, classes=CLASSES):
    """{split: [(class, file name, bytes)]}: a class shows in its colour under noise; the first image is grey."""
    rng = np.random.default_rng(seed)
    colours = rng.integers(30, 226, (len(classes), 1, 1, 3))
    out = {}
    for split, count in (("train", train), ("val", val)):
        rows = []
        for i, name in enumerate(classes):
            for k in range(count):
                pixels = np.clip(colours[i] + rng.normal(0, 20, (size, size, 3)), 0, 255).astype(np.uint8)
                image = Image.fromarray(pixels)
                if (i, k) == (0, 0):
                    image = image.convert("L")
                number = i * count + k
                file = f"{name}_{k}.JPEG" if split == "train" else f"val_{number}.JPEG"
                rows.append((name, file, encoded(image)))
        out[split] = rows
    return out


def encoded(image, kind="JPEG"):
    data = io.BytesIO()
    image.save(data, kind, **({"quality": 95} if kind == "JPEG" else {}))
    return data.getvalue()


def put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def tiny(folder, data):
    """Tiny-ImageNet's own layout."""
    for name, file, content in data["train"]:
        put(folder / "train" / name / "images" / file, content)
        put(folder / "train" / name / f"{name}_boxes.txt", b"0\t0\t1\t1\n")
    lines = []
    for name, file, content in data["val"]:
        put(folder / "val" / "images" / file, content)
        lines.append(f"{file}\t{name}\t0\t32\t44\t62")
    put(folder / "val" / "val_annotations.txt", ("\n".join(lines) + "\n").encode())
    names = sorted({name for name, _, _ in data["train"]}, reverse=True)
    put(folder / "wnids.txt", "\n".join(names).encode())
    put(folder / "test" / "images" / "test_0.JPEG", b"not read")


def image_folder(folder, data):
    """torchvision's layout."""
    for split, rows in data.items():
        for name, file, content in rows:
            put(folder / split / name / file, content)


LAYOUTS = {"tiny": tiny, "image_folder": image_folder}


SMALL = ImageNetRecipe(size=16, stored=16, width=4, precision="fp32")
OPTIONS = {"size": 16, "stored": 16, "width": 4, "precision": "fp32"}
"""The options of the task that SMALL is made of."""


class Data(NamedTuple):
    train: Loader
    test: Loader
    classes: int


def small(place):
    """18 training and 12 validation images of 16x16 in Tiny-ImageNet's layout, with their cache beside them."""
    tiny(place, make())
    cache.obtain(place, 16, workers=1)
    return place


def resident(place):
    """The cache of `small`, on the CPU."""
    found, cpu = cache.load(f"{place}-16px"), torch.device("cpu")
    return Data(
        *(Loader(Resident.of(found.parts[split], cpu)) for split in ("train", "val")), len(found.classes)
    )
