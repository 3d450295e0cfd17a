"""Where output goes: links, pipes and devices are written through, never replaced."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from adaxlab import cli, files, store
from adaxlab.errors import StoreError

TINY = str(Path(__file__).with_name("tiny.py"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("files") / "runs"
    words = ["compare", f"{TINY}:Tiny", "--optimizers", "sgdm", "--seeds", "1", "--epochs", "1"]
    assert cli.main([*words, "--tune", "0", "--out", str(root), "--study", "one", "--quiet"]) == 0
    return str(root)


COMMANDS = {
    "report": lambda runs, out: ["report", runs, "--out", out],
    "export": lambda runs, out: ["runs", "export", out, "--path", runs],
    "compare": lambda runs, out: ["compare", f"{TINY}:Tiny", "--optimizers", "sgdm", "--seeds", "1", "--epochs", "1",
                                  "--tune", "0", "--out", runs, "--study", "one", "--quiet", "--report", out],
}  # fmt: skip
each = pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)


@each
def test_a_link_stays_and_its_target_gets_the_data(words, runs, tmp_path):
    target = tmp_path / "elsewhere" / "target"
    target.parent.mkdir()
    target.write_text("old")
    for name, to in {
        "absolute": target,
        "relative": "elsewhere/target",
        "second": tmp_path / "relative",
    }.items():
        target.write_text("old")
        link = tmp_path / name
        link.symlink_to(to)
        assert cli.main(words(runs, str(link))) == 0
        assert link.is_symlink()
        assert not target.is_symlink()
        assert len(target.read_bytes()) > 100
    assert sorted(p.name for p in target.parent.iterdir()) == ["target"]


@each
def test_a_link_to_nothing_gets_its_target(words, runs, tmp_path):
    link = tmp_path / "link"
    link.symlink_to("not/yet/there")
    assert cli.main(words(runs, str(link))) == 0
    assert link.is_symlink()
    assert len((tmp_path / "not" / "yet" / "there").read_bytes()) > 100


@each
def test_a_pipe_stays_and_its_reader_gets_the_data(words, runs, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    assert cli.main(words(runs, str(pipe))) == 0
    reader.join()
    assert len(got[0]) > 100
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@each
def test_a_device_stays(words, runs, tmp_path):
    before = os.stat(os.devnull)
    assert cli.main(words(runs, os.devnull)) == 0
    link = tmp_path / "link"
    link.symlink_to(os.devnull)
    assert cli.main(words(runs, str(link))) == 0
    assert link.is_symlink()
    assert os.stat(os.devnull) == before


@pytest.mark.parametrize("how", ["pipe", "file"])
def test_standard_output_gets_the_data_alone(how, runs, tmp_path):
    expected = tmp_path / "all.jsonl"
    store.export(store.load_runs(runs), expected)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    words = [sys.executable, "-m", "adaxlab.cli", *COMMANDS["export"](runs, "/dev/stdout")]
    with open(tmp_path / "out", "w+b") as file:
        where = subprocess.PIPE if how == "pipe" else file
        done = subprocess.run(words, stdout=where, stderr=subprocess.PIPE, env=environment, check=True)
        file.seek(0)
        assert (done.stdout if how == "pipe" else file.read()) == expected.read_bytes()
    assert done.stderr == b"1 runs: /dev/stdout\n"


def test_a_file_keeps_its_mode_and_its_second_name(runs, tmp_path):
    out, second = tmp_path / "out", tmp_path / "second"
    out.write_text("old")
    out.chmod(0o600)
    files.write(out, b"new")
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    os.link(out, second)
    files.write(out, b"newer, and longer")
    files.write(out, b"short")
    assert second.read_bytes() == b"short"
    assert second.samefile(out)


@pytest.mark.parametrize("out", ["/", "", ".", "folder", "file/below", "loop", "x" * 300])
@each
def test_a_place_that_cannot_be_written_is_one_line(words, out, runs, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("file").touch()
    Path("loop").symlink_to("loop")
    given = words(runs, out)
    if out == "" and given[0] == "compare":
        return  # no report is asked for
    assert cli.main(given) == 1
    said, err = capsys.readouterr()
    assert said == "", "found before the work"
    assert err.startswith("adax: cannot write ")
    assert err.count("\n") == 1
    assert Path("loop").is_symlink()


def test_a_store_behind_a_link_to_nothing(tmp_path):
    link = tmp_path / "runs"
    link.symlink_to(tmp_path / "disk" / "runs")
    words = [
        "compare",
        f"{TINY}:Tiny",
        "--optimizers",
        "sgdm",
        "--seeds",
        "1",
        "--epochs",
        "1",
        "--tune",
        "0",
        "--quiet",
    ]
    assert cli.main([*words, "--out", str(link)]) == 0
    assert link.is_symlink()
    assert len(store.load_runs(tmp_path / "disk" / "runs")) == 1


def test_runs_are_read_from_a_pipe(runs, tmp_path, capsys):
    store.export(store.load_runs(runs), tmp_path / "all.jsonl")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    data = (tmp_path / "all.jsonl").read_bytes()
    writer = threading.Thread(target=lambda: pipe.write_bytes(data))
    writer.start()
    assert cli.main(["runs", "list", str(pipe)]) == 0
    writer.join()
    assert "finished" in capsys.readouterr().out


def test_an_error_while_writing_leaves_the_old_content(tmp_path, monkeypatch):
    out = tmp_path / "out"
    out.write_text("old")
    monkeypatch.setattr(
        os, "fsync", lambda handle: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    with pytest.raises(StoreError, match="No space left on device"):
        files.write(out, b"new")
    assert out.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_locked_file_is_free_when_its_holder_is_gone(tmp_path):
    with files.locked(tmp_path / ".lock"):
        pass
    with files.locked(tmp_path / ".lock"):
        pass
