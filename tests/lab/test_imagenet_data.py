"""Images from folders to a cache: every layout, every kind of damage, and what a second call does."""

from __future__ import annotations

import hashlib
import io
import re
import shutil
import subprocess
import zipfile

import numpy as np
import pytest
from image_sets import CLASSES, LAYOUTS, encoded, image_folder, make, put, tiny
from PIL import Image

from adaxlab import data as data_sets
from adaxlab.data import imagefolder, tiny_imagenet
from adaxlab.data.images import cache, decode
from adaxlab.errors import LabError

SET = make()
SIZE = 16


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "set"
    tiny(place, SET)
    return place


def by_hand(split):
    """Pixels and labels in the order of sorted paths, decoded by Pillow alone."""
    rows = sorted(SET[split], key=lambda r: (r[0], r[1]) if split == "train" else ("", r[1]))
    pixels = [np.asarray(Image.open(io.BytesIO(data)).convert("RGB")) for _, _, data in rows]
    return np.stack(pixels), np.array([CLASSES.index(name) for name, _, _ in rows])


def digest_by_hand():
    total = 0
    for split, rows in SET.items():
        for name, file, content in rows:
            line = f"{split}\0{name}\0{file}\0{hashlib.sha256(content).hexdigest()}"
            total += int(hashlib.sha256(line.encode()).hexdigest(), 16)
    return f"{total % 2**256:064x}"


# -- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_images(layout, tmp_path):
    LAYOUTS[layout](tmp_path / "set", SET)
    found = cache.obtain(tmp_path / "set", SIZE, workers=1)
    assert found.classes == CLASSES
    assert found.digest == digest_by_hand()
    for split, part in found.parts.items():
        pixels, labels = by_hand(split)
        order = np.argsort(part.labels, kind="stable"), np.argsort(labels, kind="stable")
        np.testing.assert_array_equal(np.concatenate(part.pieces)[order[0]], pixels[order[1]])
        np.testing.assert_array_equal(part.labels[order[0]], labels[order[1]])
    grey = found.parts["train"].pieces[0][0]
    assert (grey[..., 0] == grey[..., 1]).all()
    assert (grey[..., 0] == grey[..., 2]).all()


def _annotate(place, text):
    path = place / "val" / "val_annotations.txt"
    path.write_text(path.read_text() + text)


def _missing_class(place):
    shutil.rmtree(place / "train" / CLASSES[2])


DAMAGE = {
    "an empty class folder": (
        lambda p: shutil.rmtree(p / "train" / CLASSES[1] / "images"),
        f"train/{CLASSES[1]}: class folder without an image",
        1 + 4,  # the class, and its validation images
    ),
    "a class without a folder": (
        _missing_class,
        f"train/{CLASSES[2]}: is listed in wnids.txt but has no folder",
        5,
    ),
    "an unknown class": (
        lambda p: (
            _annotate(p, "val_9.JPEG\tn99\t0\t0\t1\t1\n"),
            shutil.copy(p / "val/images/val_0.JPEG", p / "val/images/val_99.JPEG"),
        ),
        r"val_annotations.txt:13: val_9.JPEG is listed twice; val/images/val_99.JPEG: has no class",
        2,
    ),
    "a label out of range": (
        lambda p: (
            _annotate(p, "val_77.JPEG\tn99\t0\t0\t1\t1\n"),
            shutil.copy(p / "val/images/val_0.JPEG", p / "val/images/val_77.JPEG"),
        ),
        r"val/val_annotations.txt:13: val_77.JPEG has class n99, which is not in train/",
        1,
    ),
    "a missing file": (
        lambda p: (p / "val/images/val_3.JPEG").unlink(),
        "val/images/val_3.JPEG: is missing, but listed in line 4",
        1,
    ),
    "a broken line": (
        lambda p: _annotate(p, "val_0.JPEG\n"),
        "val_annotations.txt:13: 'val_0.JPEG' is not a file",
        1,
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_to_a_set_is_named_or_skipped_and_counted(damage, folder):
    break_it, message, count = DAMAGE[damage]
    break_it(folder)
    with pytest.raises(LabError, match=message) as error:
        imagefolder.read(folder)
    assert "\n" not in str(error.value)
    assert "on_error=skip" in str(error.value)
    listing = imagefolder.read(folder, on_error="skip")
    assert len(listing.skipped) == count
    named = {split: len(rows) for split, rows in listing.files.items()}
    classes = len(listing.classes)
    assert named["train"] == 6 * classes
    assert max(max(labels) for labels in listing.labels.values()) < classes


@pytest.mark.parametrize("part", ["train", "val"])
def test_a_missing_split_is_an_error_whatever_is_chosen(part, folder):
    shutil.rmtree(folder / part)
    with pytest.raises(LabError, match=f"has no folder {part}/"):
        imagefolder.read(folder, on_error="skip")


def test_a_class_of_val_that_train_has_not(tmp_path):
    image_folder(tmp_path, SET)
    put(tmp_path / "val" / "n99" / "a.png", encoded(Image.new("RGB", (4, 4)), "PNG"))
    with pytest.raises(LabError, match=r"val/n99: no such class in train/ \(1 images\)"):
        imagefolder.read(tmp_path)
    assert [p.path for p in imagefolder.read(tmp_path, on_error="skip").skipped] == ["val/n99"]


@pytest.mark.parametrize("name", ["val/val_annotations.txt", "wnids.txt"])
def test_a_list_that_is_no_text_is_named(name, folder):
    (folder / name).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(LabError, match=f"{name}: cannot be read as text"):
        imagefolder.read(folder, on_error="skip")


def test_what_decoding_needs(folder, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(LabError, match=r"cannot write .*file/cache: Not a directory; check the folder"):
        cache.obtain(folder, SIZE, cache=tmp_path / "file" / "cache", workers=1)
    monkeypatch.setattr(cache, "find_spec", lambda name: None)
    with pytest.raises(LabError, match=r"decoding images needs Pillow; pip install .adaxopt\[lab\]"):
        cache.obtain(folder, SIZE, workers=1)


def test_unknown_ways_to_deal_with_errors(folder):
    with pytest.raises(LabError, match="unknown on_error 'ignore'; known are raise, skip"):
        imagefolder.read(folder, on_error="ignore")


# -- decoding ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "kind"),
    [("L", "PNG"), ("LA", "PNG"), ("RGBA", "PNG"), ("P", "PNG"), ("CMYK", "JPEG"), ("1", "PNG")],
)
def test_every_kind_of_image_becomes_rgb(mode, kind):
    assert decode.pixels(encoded(Image.new(mode, (8, 8)), kind), 8).shape == (8, 8, 3)


def test_the_shorter_side_is_resized_and_the_middle_kept():
    """As torchvision's Resize and CenterCrop: the whole image is resized, then cut."""
    rng = np.random.default_rng(0)
    for height, width, side in ((40, 100, 20), (100, 60, 30), (10, 20, 20), (64, 64, 32)):
        image = Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
        scale = side / min(height, width)
        whole = image.resize((round(width * scale), round(height * scale)), Image.Resampling.BILINEAR)
        top, left = ((n - side) // 2 for n in (whole.height, whole.width))
        expected = np.asarray(whole)[top : top + side, left : left + side].astype(int)
        assert np.abs(decode.pixels(encoded(image, "PNG"), side) - expected).max() <= 1


BAD = {
    "cut": (lambda data: data[: len(data) // 2], "cannot be decoded"),
    "empty": (lambda data: b"", "the file is empty"),
    "text": (lambda data: b"<html>no image</html>", "is not an image of a known format"),
}


@pytest.mark.parametrize("damage", BAD)
def test_a_corrupt_image_is_named_or_skipped_and_counted(damage, folder, tmp_path):
    change, reason = BAD[damage]
    path = folder / "train" / CLASSES[1] / "images" / f"{CLASSES[1]}_2.JPEG"
    path.write_bytes(change(path.read_bytes()))
    name = f"train/{CLASSES[1]}/images/{CLASSES[1]}_2.JPEG"
    with pytest.raises(LabError, match=f"{name}: {reason}") as error:
        cache.obtain(folder, SIZE, workers=1)
    assert "\n" not in str(error.value)
    found = cache.obtain(folder, SIZE, on_error="skip", workers=1)
    assert len(found.parts["train"]) == 17
    assert np.bincount(found.parts["train"].labels).tolist() == [6, 5, 6]
    assert len(found.skipped) == 1
    assert found.skipped[0].startswith(name)
    for again in (folder, found.root):  # not in silence, the next time
        with pytest.raises(LabError, match=f"1 images were skipped when it was made, first {name}"):
            cache.obtain(again, SIZE)
        assert len(cache.obtain(again, SIZE, on_error="skip").parts["train"]) == 17


def test_a_file_that_vanishes_after_it_was_listed(folder, monkeypatch):
    listed = imagefolder.read(folder)
    monkeypatch.setattr(imagefolder, "read", lambda *_: listed)
    (folder / "val" / "images" / "val_3.JPEG").unlink()
    with pytest.raises(
        LabError, match=r"val/images/val_3.JPEG: cannot be read \(No such file or directory\)"
    ):
        cache.obtain(folder, SIZE, workers=1)
    assert len(cache.obtain(folder, SIZE, workers=1, on_error="skip").parts["val"]) == 11


def test_a_corrupt_image_in_a_worker_process_is_one_line(folder, tmp_path, capsys):
    (folder / "val" / "images" / "val_5.JPEG").write_bytes(b"\xff\xd8\xff\xe0 nothing more")
    words = [str(folder), str(tmp_path / "out"), "--size", "16", "--workers", "2"]
    assert cache.main(words) == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert "val/images/val_5.JPEG: " in said.err
    assert cache.main([*words, "--on-error", "skip"]) == 0
    assert "skipped 1, listed in" in capsys.readouterr().out
    assert len(cache.load(tmp_path / "out").parts["val"]) == 11


# -- pieces -----------------------------------------------------------------------------------------------------------

LIMIT = 4 * SIZE * SIZE * 3 + 128


def test_pieces_are_small_and_whole(folder, tmp_path):
    found = cache.make(imagefolder.read(folder), tmp_path / "cache", SIZE, limit=LIMIT, workers=1)
    assert [len(p) for p in found.parts["train"].pieces] == [4, 4, 4, 4, 2]
    assert all(p.stat().st_size <= LIMIT for p in (tmp_path / "cache").glob("*.npy"))
    assert all(isinstance(p, np.memmap) for p in found.parts["train"].pieces)
    found.verify()
    for path in (tmp_path / "cache").glob("*.json"):  # lists hold no place of this machine
        assert str(tmp_path) not in path.read_text()


def test_what_was_cut_off_resumes(folder, tmp_path):
    def times():
        return {p.name: p.stat().st_mtime_ns for p in out.glob("*.npy")}

    out, images = tmp_path / "cache", imagefolder.read(folder)
    cache.make(images, out, SIZE, limit=LIMIT, workers=1)
    before = times()
    (out / "cache.json").unlink()
    (out / "train-002.npy").unlink()
    (out / "val-000.npy").write_bytes((out / "val-000.npy").read_bytes()[:-1] + b"\0")
    again = cache.make(images, out, SIZE, limit=LIMIT, workers=1)
    assert {name for name, t in times().items() if before[name] != t} == {"train-002.npy", "val-000.npy"}
    assert again.digest == digest_by_hand()
    again.verify()


def test_a_cache_of_something_else_is_refused(folder, tmp_path):
    other = tmp_path / "other"
    tiny(other, make(seed=1))
    first, second = (imagefolder.read(p) for p in (folder, other))
    cache.make(first, tmp_path / "cache", SIZE, workers=1)
    with pytest.raises(LabError, match="a cache of other images"):
        cache.make(second, tmp_path / "cache", SIZE, workers=1)
    with pytest.raises(LabError, match="a cache of 16 pixels, 8 are needed"):
        cache.make(first, tmp_path / "cache", 8, workers=1)
    with pytest.raises(LabError, match="a cache of 16 pixels, 8 are needed"):
        cache.obtain(tmp_path / "cache", 8)


def _cut(path):
    path.write_bytes(path.read_bytes()[:-10])


def _flip(path):
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda p: (p / "val-000.npy").unlink(), "val-000.npy: this piece of the cache cannot be read"),
        (lambda p: _cut(p / "train-000.npy"), "train-000.npy: this piece of the cache cannot be read"),
        (lambda p: _flip(p / "train-000.npy"), "train-000.npy: has sha256"),
        (lambda p: (p / "cache.json").write_text("{}"), "cache.json: is not a manifest of kind"),
    ],
)
def test_damaged_pieces_are_named(damage, message, folder, tmp_path, capsys):
    out = tmp_path / "cache"
    assert cache.main([str(folder), str(out), "--size", str(SIZE), "--workers", "1"]) == 0
    assert cache.main([str(out), "--verify"]) == 0
    damage(out)
    capsys.readouterr()
    assert cache.main([str(out), "--verify"]) in (1, 2)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert re.search(message, said), said


# -- getting Tiny-ImageNet --------------------------------------------------------------------------------------------


@pytest.fixture
def published(monkeypatch):
    """Our small set in the place of the published one."""
    monkeypatch.setattr(tiny_imagenet, "DIGEST", digest_by_hand())
    return []


def test_a_folder_that_is_there(published, tmp_path):
    tiny(tmp_path / "tiny-imagenet-200", SET)
    found = data_sets.get("tiny-imagenet", tmp_path, published.append)
    assert found.folder == tmp_path / "tiny-imagenet-200"
    assert found.digest == digest_by_hand()
    assert "ImageNet's terms" in str(found)


def test_an_archive_is_unpacked(published, tmp_path):
    tiny(tmp_path / "a" / "tiny-imagenet-200", SET)
    with zipfile.ZipFile(tmp_path / "tiny-imagenet-200.zip", "w") as packed:
        for path in sorted((tmp_path / "a").rglob("*")):
            packed.write(path, path.relative_to(tmp_path / "a"))
    shutil.rmtree(tmp_path / "a")
    found = data_sets.get("tiny-imagenet", tmp_path, published.append)
    assert found.folder == tmp_path / "tiny-imagenet-200"
    assert not list(tmp_path.glob("*.partial"))
    shutil.rmtree(found.folder)
    (tmp_path / "tiny-imagenet-200.zip").write_bytes(b"PK half")
    with pytest.raises(LabError, match=r"tiny-imagenet-200.zip: cannot be unpacked"):
        data_sets.get("tiny-imagenet", tmp_path, published.append)


def test_it_is_fetched_with_git(published, tmp_path, monkeypatch):
    home = tmp_path / "repository"
    tiny(home / "tiny-imagenet-200", SET)
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "a set"]):
        subprocess.run(["git", "-C", str(home), *words], check=True)
    place = tiny_imagenet.fetch(tmp_path / "data" / "tiny-imagenet", published.append, f"file://{home}")
    assert (place, tiny_imagenet.digest(place)) == (
        tmp_path / "data" / "tiny-imagenet" / "tiny-imagenet-200",
        digest_by_hand(),
    )
    assert [p.name for p in place.parent.iterdir()] == ["tiny-imagenet-200"]
    with pytest.raises(
        LabError, match=r"git could not fetch .*; repeat the command .* put tiny-imagenet-200.zip"
    ):
        tiny_imagenet.fetch(tmp_path / "none", published.append, f"file://{tmp_path / 'nowhere'}")


def test_another_set_is_not_taken_for_it(published, tmp_path):
    tiny(tmp_path, make(seed=3))
    with pytest.raises(LabError, match=r"has digest \w+, the published set \w+; move it away"):
        data_sets.get("tiny-imagenet", tmp_path, published.append)
