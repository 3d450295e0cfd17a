"""tools/carry.py: a folder of runs in small files, and back."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "tools" / "carry.py"


@pytest.fixture
def carry():
    spec = importlib.util.spec_from_file_location("carry", SOURCE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def runs(tmp_path):
    folder = tmp_path / "runs" / "study" / "0123"
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text("{}\n")
    (folder / ".lock").touch()
    (tmp_path / "runs" / "study" / "stack-1.pt").write_bytes(bytes(i * i % 251 for i in range(5000)))
    return tmp_path / "runs"


def files(folder):
    return {
        p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != ".lock"
    }


def test_there_and_back_in_parts(carry, runs, tmp_path):
    parts = carry.pack(runs, tmp_path / "out", size=300)
    assert len(parts) > 1
    assert all(part.stat().st_size <= 300 for part in parts)
    carry.main(["unpack", str(tmp_path / "out"), str(tmp_path / "there")])
    assert files(tmp_path / "there") == files(runs)
    assert not list((tmp_path / "there").rglob(".lock"))


def test_what_is_damaged_or_missing_is_named_and_nothing_is_written(carry, runs, tmp_path):
    first, *_ = carry.pack(runs, tmp_path / "out", size=300)
    with pytest.raises(SystemExit, match="is not empty"):
        carry.pack(runs, tmp_path / "out")
    first.write_bytes(b"x")
    with pytest.raises(SystemExit, match="part-000: missing or damaged"):
        carry.unpack(tmp_path / "out", tmp_path / "there")
    first.unlink()
    with pytest.raises(SystemExit, match="part-000: missing or damaged"):
        carry.unpack(tmp_path / "out", tmp_path / "there")
    assert not (tmp_path / "there").exists()
    with pytest.raises(SystemExit, match="no such folder"):
        carry.pack(tmp_path / "none", tmp_path / "new")


def test_the_size_of_the_parts_is_given_in_megabytes(carry, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "bytes").write_bytes(random.Random(0).randbytes(2_500_000))
    carry.main(["pack", str(data), str(tmp_path / "out"), "1"])
    sizes = [path.stat().st_size for path in sorted((tmp_path / "out").glob("part-*"))]
    assert len(sizes) == 3
    assert sizes[:2] == [10**6, 10**6]
    for words in (["pack", str(data), "out", "0"], ["pack", str(data), "out", "x"], ["unpack", "out"]):
        with pytest.raises(SystemExit, match=r"carry\.py pack runs out"):
            carry.main(words)
