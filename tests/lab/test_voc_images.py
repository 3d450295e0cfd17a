"""Images and masks from both layouts, what is wrong with them in one line, crops and measures against other code."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
import voc_sets
from PIL import Image
from torch.nn import functional as F

from adaxlab.data.segmentation import folders, images
from adaxlab.data.segmentation.crops import RandomCrops, crop
from adaxlab.data.segmentation.images import VOID
from adaxlab.errors import LabError
from adaxlab.tasks import voc as measure
from adaxlab.tasks.voc import Voc


def read(root, on_error="raise"):
    layout, place = folders.find(root)
    lists = folders.pairs(layout, place)
    return {
        split: images.read(pairs, layout.classes, layout.void, on_error) for split, pairs in lists.items()
    }


def one(found, i):
    start, height, width = found.places()[i]
    return found.pixels[start : start + height * width].view(height, width, 4).numpy()


# -- layouts --------------------------------------------------------------------------------------------------------


def test_camvid_gives_its_pixels_and_void(tmp_path):
    found = read(voc_sets.camvid(tmp_path))
    assert {split: len(part) for split, part in found.items()} == {"train": 6, "valid": 2, "test": 3}
    colours, mask = voc_sets.scene(202, 40, 48, 11, 11)
    got = one(found["test"], 2)
    np.testing.assert_array_equal(got[..., :3], colours)
    np.testing.assert_array_equal(got[..., 3], np.where(mask == 11, VOID, mask))
    assert (got[..., 3] == VOID).sum() == 40


@pytest.mark.parametrize("paths", [False, True])
def test_voc_gives_its_pixels_whatever_the_form_of_its_lists(paths, tmp_path):
    root = voc_sets.voc(tmp_path / "VOCdevkit" / "VOC2012", paths=paths)
    found = read(tmp_path)
    assert {split: len(part) for split, part in found.items()} == {"train": 6, "test": 3}
    for i in range(6):
        _, mask = voc_sets.scene(900 + i, 36 + 5 * (i % 2), 50 - 3 * (i % 3), 21, 255)
        with Image.open(root / "JPEGImages" / f"2007_0{i:05d}.jpg") as jpeg:
            np.testing.assert_array_equal(one(found["train"], i)[..., :3], np.asarray(jpeg))
        np.testing.assert_array_equal(one(found["train"], i)[..., 3], mask)  # palette numbers, not colours


def test_camvid_without_lists_and_with_images_stored_anew(tmp_path):
    root = voc_sets.camvid(tmp_path)
    before = read(root)
    for split in ("train", "val", "test"):
        (root / "CamVid" / f"{split}.txt").unlink()
    assert torch.equal(read(root)["train"].pixels, before["train"].pixels)
    voc_sets.camvid(tmp_path)
    for path in (root / "CamVid" / "train").glob("*.png"):
        with Image.open(path) as image:
            image.save(path.with_suffix(".webp"), lossless=True)
        path.unlink()
    assert torch.equal(read(root)["train"].pixels, before["train"].pixels)


def _cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _resize(path):
    with Image.open(path) as mask:
        smaller = mask.resize((47, 40))
    smaller.save(path)


def _label(path):
    with Image.open(path) as mask:
        array = np.array(mask)
    array[3, 4] = 17
    Image.fromarray(array).save(path)


def _colour(path):
    with Image.open(path) as mask:
        array = np.array(mask)
    Image.fromarray(np.stack([array] * 3, 2)).save(path)


BAD = {
    "a truncated image": ("train/s1.png", _cut, "cannot be decoded"),
    "a file that is not an image": (
        "train/s1.png",
        lambda p: p.write_bytes(b"no"),
        "cannot be decoded (cannot identify",
    ),
    "an empty file": ("train/s1.png", lambda p: p.write_bytes(b""), "cannot be decoded"),
    "a missing image": ("train/s1.png", lambda p: p.unlink(), "is missing"),
    "a missing mask": ("trainannot/s1.png", lambda p: p.unlink(), "is missing"),
    "a cut mask": ("trainannot/s1.png", _cut, "cannot be decoded"),
    "sizes that differ": ("trainannot/s1.png", _resize, "is 47 x 40 pixels, its image s1.png 48 x 40"),
    "a label out of range": (
        "trainannot/s1.png",
        _label,
        "label 17 at row 3, column 4; allowed are 0 to 10, and 11",
    ),
    "a colour mask": ("trainannot/s1.png", _colour, "is a colour image; a mask has a class index"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_image_is_named_or_skipped_and_counted(what, tmp_path, capsys):
    name, damage, message = BAD[what]
    root = voc_sets.camvid(tmp_path)
    whole = read(root)["train"]
    damage(root / "CamVid" / name)
    with pytest.raises(LabError) as caught:
        Voc(data=str(root), backbone="tiny").data()
    text = str(caught.value)
    assert text.startswith(str(root / "CamVid" / name))
    assert message in text
    assert "on_error=skip" in text
    assert "\n" not in text
    assert caught.value.__cause__ is None  # no trace of a worker
    task = Voc(data=str(root), backbone="tiny", on_error="skip")
    assert task.data()["train"].images == 5
    assert "skipped 1 images of train, the first: " + str(root / "CamVid" / name) in capsys.readouterr().err
    left = read(root, "skip")["train"]
    assert len(left.skipped) == 1
    np.testing.assert_array_equal(one(left, 1), one(whole, 2))


LISTS = {
    "an empty list": ("train.txt", "\n \n", "train.txt: is empty"),
    "a line of three words": (
        "val.txt",
        "a b c\n",
        "val.txt, line 1: has 3 words; a line is an image and a mask",
    ),
    "a list that is no text": ("test.txt", b"\xff\xfe\x00", "test.txt: cannot be read as text"),
}


@pytest.mark.parametrize("what", LISTS)
def test_a_bad_list_is_named(what, tmp_path):
    name, content, message = LISTS[what]
    root = voc_sets.camvid(tmp_path)
    (root / "CamVid" / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(LabError, match=r"CamVid") as caught:
        read(root)
    assert message in str(caught.value)


def test_what_is_not_there_is_said(tmp_path):
    with pytest.raises(LabError, match=r"no images with masks there .searched for JPEGImages/"):
        folders.find(tmp_path)
    root = voc_sets.voc(tmp_path)
    (root / "ImageSets" / "Segmentation" / "val.txt").unlink()
    with pytest.raises(LabError, match=r"Segmentation/val.txt: is missing; it lists"):
        read(root)
    with pytest.raises(LabError, match="unknown layout 'coco'; known are auto, voc, camvid"):
        folders.find(root, "coco")
    with pytest.raises(LabError, match="unknown on_error 'ignore'; known are raise, skip"):
        images.read([], 11, 11, "ignore")
    bad = voc_sets.camvid(tmp_path / "c")
    for path in (bad / "CamVid" / "train").glob("*.png"):
        path.write_bytes(b"")
    with pytest.raises(LabError, match=r"all 6 images are invalid, the first: .*s0\.png"):
        read(bad, "skip")


def test_no_more_than_the_image_it_belongs_to(tmp_path):
    """`part` shares pixels; every image keeps its own."""
    found = read(voc_sets.voc(tmp_path))["train"]
    some = images.part(found, torch.tensor([4, 1]))
    assert some.pixels.data_ptr() == found.pixels.data_ptr()
    np.testing.assert_array_equal(one(some, 0), one(found, 4))


# -- crops ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.5, 0.61, 0.97, 1.0, 1.23, 1.5])
@pytest.mark.parametrize("share", [0.0, 0.35, 0.999])
def test_a_crop_is_resize_pad_cut_and_flip(scale, share, tmp_path):
    """Against torch's own interpolation, image by image, sizes differing within the batch."""
    found = read(voc_sets.voc(tmp_path))["train"]
    rows, size, fill = torch.tensor([0, 3, 5]), 45, torch.tensor([11.0, 22.0, 33.0])
    flip = torch.tensor([False, True, False])
    n = len(rows)
    draws = (rows, torch.full((n,), scale), torch.full((n,), share), torch.full((n,), 1 - share), flip)
    colours, classes = crop(found, draws, size, fill)
    assert colours.shape == (3, 3, size, size)
    assert classes.dtype == torch.int64
    for k, row in enumerate(rows.tolist()):
        whole = torch.from_numpy(one(found, row)).permute(2, 0, 1).float()[None]
        h, w = (round(scale * side) for side in whole.shape[-2:])
        resized = F.interpolate(whole[:, :3], (h, w), mode="bilinear", align_corners=False)[0]
        labels = F.interpolate(whole[:, 3:], (h, w), mode="nearest-exact")[0, 0]
        canvas = fill.view(3, 1, 1).expand(3, max(h, size), max(w, size)).clone()
        canvas[:, :h, :w] = resized
        void = torch.full(canvas.shape[1:], float(VOID))
        void[:h, :w] = labels
        top, left = (
            min(int(u * (max(0, s - size) + 1)), max(0, s - size)) for u, s in ((share, h), (1 - share, w))
        )
        expected, expected_labels = (t[..., top : top + size, left : left + size] for t in (canvas, void))
        if flip[k]:
            expected, expected_labels = expected.flip(-1), expected_labels.flip(-1)
        torch.testing.assert_close(colours[k], expected, rtol=0, atol=5e-3)
        assert (classes[k] != expected_labels).float().mean() < 2e-3  # ties of rounding


def test_draws_use_every_image_before_any_comes_again():
    torch.manual_seed(3)
    crops = RandomCrops(images=7, steps=9, batch=4, scales=(0.5, 1.5))
    drawn = list(crops)
    assert len(drawn) == len(crops) == 9
    rows, scale, top, left, flip = (torch.cat(parts) for parts in zip(*drawn, strict=True))
    for begin in range(0, 35, 7):
        assert sorted(rows[begin : begin + 7].tolist()) == list(range(7))
    assert 0.5 <= scale.min() < 0.6
    assert 1.4 < scale.max() <= 1.5
    assert not torch.equal(top, left)
    assert 8 < flip.sum() < 28
    torch.manual_seed(3)
    assert all(
        torch.equal(a, b) for x, y in zip(drawn, crops, strict=True) for a, b in zip(x, y, strict=True)
    )


@pytest.mark.parametrize(
    "given", [{"steps": 0}, {"batch": 0}, {"scales": (0.0, 1.0)}, {"scales": (1.5, 0.5)}]
)
def test_draws_that_cannot_be(given):
    with pytest.raises(LabError, match=next(iter(given))):
        RandomCrops(**{"images": 3, "steps": 1, "batch": 1, **given})


# -- measures -------------------------------------------------------------------------------------------------------


def by_hand(pairs, count):
    """Mean IoU over (mask, prediction) pairs with sets of pixels, class by class."""
    found = []
    for c in range(count):
        both = either = 0
        for mask, called in pairs:
            for m, p in zip(mask.ravel().tolist(), called.ravel().tolist(), strict=True):
                if m != VOID:
                    both += m == c and p == c
                    either += m == c or p == c
        if either:
            found.append(both / either)
    return sum(found) / len(found)


def test_mean_iou_against_sets_of_pixels():
    draw = random.Random(5)
    parts = []
    for height, width in ((6, 9), (12, 5), (4, 4)):
        mask = np.array([[draw.choice([0, 1, 2, 4, VOID]) for _ in range(width)] for _ in range(height)])
        called = np.where(np.random.default_rng(height).random(mask.shape) < 0.6, mask % 5, 1)
        parts.append((mask, called))
    matrices = [measure.confusion(torch.from_numpy(m), torch.from_numpy(p), 6) for m, p in parts]
    whole = measure.mean_iou(sum(matrices)).item()
    assert whole == pytest.approx(by_hand(parts, 6), abs=1e-12)  # classes 3 and 5 do not occur
    assert sum(matrices).sum() == sum((m != VOID).sum() for m, _ in parts)
    mean_of_parts = sum(measure.mean_iou(m).item() for m in matrices) / 3
    assert abs(mean_of_parts - whole) > 1e-3  # a mean over images is another number


def test_nothing_but_void_is_no_error():
    void = torch.full((1, 3, 3), VOID)
    assert measure.mean_iou(measure.confusion(void, torch.zeros_like(void), 4)) == 0
    scores = torch.randn(1, 4, 3, 3, requires_grad=True)
    loss = measure.cross_entropy(scores, void)
    loss.backward()
    assert loss == 0
    assert scores.grad.abs().max() == 0


def test_cross_entropy_is_torchs():
    torch.manual_seed(0)
    scores = torch.randn(2, 5, 7, 6, dtype=torch.float64, requires_grad=True)
    classes = torch.randint(0, 5, (2, 7, 6))
    classes[torch.rand(classes.shape) < 0.3] = VOID
    (ours,) = torch.autograd.grad(measure.cross_entropy(scores, classes), scores)
    expected = F.cross_entropy(scores, classes, ignore_index=VOID)
    (theirs,) = torch.autograd.grad(expected, scores)
    torch.testing.assert_close(measure.cross_entropy(scores, classes), expected)
    torch.testing.assert_close(ours, theirs)
