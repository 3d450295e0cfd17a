"""List the images and masks of a folder in one of two layouts.

    voc      JPEGImages/ID.jpg, SegmentationClassAug/ID.png, ImageSets/Segmentation/{trainaug,val}.txt; a line is an
             ID, or "/JPEGImages/ID.jpg /SegmentationClassAug/ID.png". 21 classes, 255 is void; `val` is the test set.
    camvid   train/, trainannot/, val/, valannot/, test/, testannot/ with files of the same name, and train.txt,
             val.txt, test.txt of lines "/anywhere/train/NAME.png /anywhere/trainannot/NAME.png". 11 classes, 11 is
             void.

Without a camvid list, all files of the folder are used. An image may have another suffix than its list says (.webp,
.jpg): the name before the suffix decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from adaxlab.errors import LabError, unknown

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
INSIDE = ("", "VOC2012", "VOCdevkit/VOC2012", "CamVid")
"""Subfolders of the given folder that may contain the set."""


@dataclass(frozen=True)
class Layout:
    """A layout: its number of classes, the mask value of void, and its lists by split."""

    name: str
    classes: int
    void: int
    lists: tuple[tuple[str, tuple[str, ...]], ...]
    marks: tuple[str, ...]
    """Subfolders that identify the layout."""


LAYOUTS = {
    "voc": Layout(
        "voc",
        21,
        255,
        (
            (
                "train",
                ("ImageSets/Segmentation/trainaug.txt", "ImageSets/Segmentation/train_aug.txt"),
            ),
            ("test", ("ImageSets/Segmentation/val.txt",)),
        ),
        ("JPEGImages", "ImageSets/Segmentation"),
    ),
    "camvid": Layout(
        "camvid",
        11,
        11,
        (("train", ("train.txt",)), ("valid", ("val.txt",)), ("test", ("test.txt",))),
        ("train", "trainannot"),
    ),
}
MASKS = "SegmentationClassAug"


@dataclass(frozen=True)
class Pair:
    """Paths of an image and its mask."""

    image: Path
    mask: Path


def find(folder: str | Path, layout: str = "auto") -> tuple[Layout, Path]:
    """Return the layout and the folder that has it; the error says what was searched for."""
    if layout != "auto" and layout not in LAYOUTS:
        raise unknown("layout", layout, ("auto", *LAYOUTS))
    root = Path(folder)
    chosen = [LAYOUTS[layout]] if layout != "auto" else list(LAYOUTS.values())
    for inside in INSIDE:
        for known in chosen:
            if all((root / inside / mark).is_dir() for mark in known.marks):
                return known, root / inside
    looked = " or ".join(" and ".join(f"{mark}/" for mark in known.marks) for known in chosen)
    raise LabError(
        f"{root}: no images with masks there (searched for {looked}, also in {', '.join(INSIDE[1:])}); "
        "name the folder (data=...), or run `adax data get camvid`"
    )


def pairs(layout: Layout, root: Path) -> dict[str, list[Pair]]:
    """Return the pairs of each split, in the order of its list. Missing files are reported when they are read."""
    return {split: _split(layout, root, names) for split, names in layout.lists}


def _split(layout: Layout, root: Path, names: tuple[str, ...]) -> list[Pair]:
    file = next((root / name for name in names if (root / name).is_file()), None)
    if file is None:
        folder = root / Path(names[0]).stem
        if layout.name == "camvid" and folder.is_dir():
            images = sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
            if not images:
                raise LabError(f"{folder}: contains no image; add images, or a list {names[0]}")
            return [
                Pair(image, folder.with_name(f"{folder.name}annot") / f"{image.stem}.png") for image in images
            ]
        raise LabError(f"{root / names[0]}: is missing; it lists the images, one per line")
    try:
        lines = [line.split() for line in file.read_text().splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(f"{file}: cannot be read as text ({error})") from error
    if not lines:
        raise LabError(f"{file}: is empty; it lists the images, one per line")
    return [_pair(layout, root, words, f"{file}, line {i}") for i, words in enumerate(lines, 1)]


def _pair(layout: Layout, root: Path, words: list[str], where: str) -> Pair:
    if len(words) == 1 and layout.name == "voc":
        return Pair(root / "JPEGImages" / f"{words[0]}.jpg", root / MASKS / f"{words[0]}.png")
    if len(words) != 2:
        forms = "an id, or an image and a mask" if layout.name == "voc" else "an image and a mask"
        raise LabError(f"{where}: has {len(words)} words; a line is {forms}")
    image, mask = (_inside(root, word) for word in words)
    if not image.is_file():
        others = (image.with_suffix(suffix) for suffix in SUFFIXES)
        image = next((other for other in others if other.is_file()), image)
    return Pair(image, mask)


def _inside(root: Path, word: str) -> Path:
    """Return the last two parts of a path, relative to the root: lists contain paths of other machines."""
    parts = Path(word).parts
    return root.joinpath(*parts[-2:])
