"""tools/folder_pieces.py: a folder in small files and back."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

PLACE = Path(__file__).parents[2] / "tools" / "folder_pieces.py"


def test_a_folder_in_pieces_and_back(tmp_path):
    given = importlib.util.spec_from_file_location("folder_pieces", PLACE)
    tool = importlib.util.module_from_spec(given)
    given.loader.exec_module(tool)
    content = {f"train/{i}/a.bin": bytes([i]) * 9000 for i in range(5)}
    for name, data in content.items():
        (tmp_path / "set" / name).parent.mkdir(parents=True)
        (tmp_path / "set" / name).write_bytes(data)
    pieces = tool.split(tmp_path / "set", tmp_path / "out", limit=36_000)
    assert [piece.stat().st_size <= 36_000 for piece in pieces] == [True] * 3
    tool.join(tmp_path / "out", tmp_path / "back")
    back = {p.relative_to(tmp_path / "back").as_posix(): p for p in (tmp_path / "back").rglob("*.bin")}
    assert {name: path.read_bytes() for name, path in back.items()} == content
    pieces[1].write_bytes(pieces[1].read_bytes()[:-1])
    with pytest.raises(SystemExit, match=r"0001.tar: missing or damaged"):
        tool.join(tmp_path / "out", tmp_path / "again")
