"""Small sets in the two real layouts: rectangles whose colour tells their class, with a border of void."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

COLOURS = np.random.default_rng(7).integers(0, 256, (21, 3)).astype(np.uint8)
PALETTE = np.random.default_rng(8).integers(0, 256, (256, 3)).astype(np.uint8)


def scene(seed: int, height: int, width: int, classes: int, void: int) -> tuple[np.ndarray, np.ndarray]:
    """(colours [height, width, 3], mask [height, width]) of three rectangles on class 0."""
    draw = np.random.default_rng(seed)
    mask = np.zeros((height, width), dtype=np.uint8)
    for _ in range(3):
        top, left = draw.integers(0, height - 8), draw.integers(0, width - 8)
        mask[top : top + draw.integers(8, 24), left : left + draw.integers(8, 24)] = draw.integers(1, classes)
    noise = draw.integers(-8, 9, (height, width, 3))
    colours = np.clip(COLOURS[mask].astype(int) + noise, 0, 255).astype(np.uint8)
    mask[:, 0] = void
    return colours, mask


def camvid(root: Path, counts: tuple[int, int, int] = (6, 2, 3), classes: int = 11) -> Path:
    """CamVid/train, trainannot, ... with lists that were written on another machine."""
    for number, (split, count) in enumerate(zip(("train", "val", "test"), counts, strict=True)):
        lines = []
        for folder in (split, f"{split}annot"):
            (root / "CamVid" / folder).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            colours, mask = scene(100 * number + i, 40, 48, classes, 11)
            Image.fromarray(colours).save(root / "CamVid" / split / f"s{i}.png")
            Image.fromarray(mask).save(root / "CamVid" / f"{split}annot" / f"s{i}.png")
            lines.append(f"/SegNet/CamVid/{split}/s{i}.png /SegNet/CamVid/{split}annot/s{i}.png")
        (root / "CamVid" / f"{split}.txt").write_text("\n".join(lines) + "\n")
    return root


def voc(root: Path, counts: tuple[int, int] = (6, 3), paths: bool = False) -> Path:
    """VOC2012 with augmented masks: JPEGs of different sizes, masks with a palette, lists of ids or of paths."""
    for folder in ("JPEGImages", "SegmentationClassAug", "ImageSets/Segmentation"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for number, (split, count) in enumerate(zip(("trainaug", "val"), counts, strict=True)):
        lines = []
        for i in range(count):
            name = f"2007_{number}{i:05d}"
            colours, mask = scene(900 + 100 * number + i, 36 + 5 * (i % 2), 50 - 3 * (i % 3), 21, 255)
            Image.fromarray(colours).save(root / "JPEGImages" / f"{name}.jpg", quality=95)
            image = Image.fromarray(mask)
            image.putpalette(PALETTE.ravel().tolist())
            image.save(root / "SegmentationClassAug" / f"{name}.png")
            lines.append(f"/JPEGImages/{name}.jpg /SegmentationClassAug/{name}.png" if paths else name)
        (root / "ImageSets" / "Segmentation" / f"{split}.txt").write_text("\n".join(lines) + "\n")
    return root


SETS = {"camvid": camvid, "voc": voc}
