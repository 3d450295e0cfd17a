"""tools/gpu_studies.py: processes in the background on a copy of the code, and their records."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
import tarfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from made_records import run

from adaxlab import environment, records, store
from adaxlab.errors import LabError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="locks and sessions of Linux")
SOURCE = Path(__file__).parents[2] / "tools" / "gpu_studies.py"
COMMIT = "0123456789ab"


@pytest.fixture
def tool(tmp_path, monkeypatch):
    monkeypatch.setenv("GPU_STUDIES", str(tmp_path / "a folder"))
    monkeypatch.setenv("PATH", "")  # no MPS server
    monkeypatch.setattr(environment, "commit", lambda: COMMIT)
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec = importlib.util.spec_from_file_location("gpu_studies", SOURCE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def small(tool, tmp_path, monkeypatch):
    """A checkout of a few files, in which processes run what a test gives."""
    source = tmp_path / "source"
    for folder in ("src", "records/unfinished"):
        (source / folder).mkdir(parents=True)
    (source / "src" / "the_code.py").write_text("old = True\n")
    (source / "records" / "gpt.jsonl").write_text("{}\n")
    monkeypatch.setattr(tool, "HERE", source)
    return source


def ended(work, log):
    while log.name in work.running():
        time.sleep(0.01)
    return log.read_text()


def test_a_study_from_the_start_to_the_record(tool, tmp_path, monkeypatch, capsys):
    old = tool.HERE / "records" / "theory" / "synthetic.json"
    changed = tmp_path / "changed"
    for name in tool.COPIED:
        tool.shutil.copytree(tool.HERE / name, changed / name)
    (changed / "records" / "theory" / "synthetic.json").write_text("{}")
    monkeypatch.setattr(tool, "HERE", changed)
    tool.main(["start", "120", "synthetic", "synthetic --epochs 0 --colour red"])
    tool.main(["wait", "300", str(tmp_path / "out")])
    shown = capsys.readouterr().out
    assert shown.startswith("1.log: synthetic\n2.log: synthetic --epochs 0 --colour red\n== 1.log (ended)\n")
    assert "unrecognized arguments: --colour red" in shown
    assert shown.endswith("1 new records: records/theory/synthetic.json\n")
    tool.main(["unpack", str(tmp_path / "out" / "records.tar.gz")])
    found, wanted = (
        json.loads(path.read_text())["claims"] for path in (changed / "records/theory/synthetic.json", old)
    )
    assert [row["id"] for row in found] == [row["id"] for row in wanted]


def test_a_process_runs_the_copied_code_in_its_own_session_and_with_the_commit(tool, small):
    work, log = tool.Work(), tool.Work().folder / "1.log"
    work.copy(small)
    (small / "src" / "the_code.py").write_text("old = False\n")
    work.copy(small)  # the same commit: the copy is kept, with its runs
    program = (
        "import os, the_code; "
        f"print(the_code.old, os.environ['ADAXOPT_COMMIT'], os.getsid(0) != {os.getsid(0)}, os.getcwd())"
    )
    work.start(log, "-c", program)
    assert ended(work, log) == f"True {COMMIT} True {work.checkout}\n"


def test_how_a_study_is_run(tool, small, monkeypatch, capsys):
    ran = []
    monkeypatch.setattr(
        tool.Work, "start", lambda self, log, *words: (ran.append(words), log.write_text(""), None)[2]
    )
    work = tool.Work()
    work.folder.mkdir(parents=True)
    for name in ("1", "3"):
        (work.folder / f"{name}.log").write_text("of an earlier start")
        (work.folder / f"{name}.lock").touch()
    tool.main(["start", "1500", "gpt-memory-best gpt-memory-wide --jobs 4", "cifar10/memory-best"])
    rest = ("--records", "records", "--seconds", "1500")
    both = ("gpt-memory-best", "gpt-memory-wide", "--jobs", "4")
    assert ran == [
        ("-m", "adaxlab.reproduce", *both, *rest),
        ("-m", "adaxlab.reproduce", "cifar10/memory-best", *rest),
    ]
    assert [log.read_text() for log in work.logs()] == ["", ""]


def a_run(study, seed, mark=""):
    return replace(
        run(study, "adamw", 1.0 + seed, seed=seed, higher=False), env={"commit": f"{COMMIT}{mark}"}
    )


def put(work, *runs):
    """Write runs into the store of the copy."""
    path = work.folder / "made.jsonl"
    store.export(runs, path)
    store.bring(path, work.checkout / "runs")


def test_ended_runs_are_collected_while_a_process_runs_and_after_it_was_killed(tool, small, tmp_path, capsys):
    work = tool.Work()
    work.copy(small)
    log = work.folder / "1.log"
    work.start(log, "-c", "import os; print(os.getpid()); import time; time.sleep(600)")
    while not log.read_text().strip():
        time.sleep(0.01)
    put(work, a_run("gpt-a", 0), a_run("gpt-a", 1), a_run("gpt-a", 2, "+"), a_run("gpt", 3))
    (work.checkout / "runs" / "stray.jsonl").write_text("not a run")
    tool.main(["wait", "0", str(tmp_path / "out")])
    shown = capsys.readouterr().out
    assert shown.startswith("== 1.log (running)\n")
    assert shown.endswith("1 new records: records/unfinished/gpt-a.jsonl\n")
    with pytest.raises(SystemExit, match=r"the processes of 1\.log are still running"):
        tool.main(["start", "60", "gpt"])
    os.kill(int(log.read_text()), signal.SIGKILL)
    ended(work, log)
    put(work, a_run("gpt-a", 4))
    tool.main(["wait", "60", str(tmp_path / "out")])
    assert "== 1.log (ended)\n" in capsys.readouterr().out
    with tarfile.open(tmp_path / "out" / "records.tar.gz") as archive:
        assert archive.getnames() == ["records/unfinished/gpt-a.jsonl"]
        archive.extractall(tmp_path / "there", filter="data")
    back = store.read_export(tmp_path / "there" / "records" / "unfinished" / "gpt-a.jsonl")
    assert sorted(each.done["metric"] for each in back) == [1.0, 2.0, 5.0]


def test_a_complete_study_takes_the_place_of_its_unfinished_record(tool, small, tmp_path, capsys):
    work = tool.Work()
    work.copy(small)
    put(work, a_run("gpt-a", 0), a_run("gpt-b", 0))
    tool.main(["wait", "0", str(tmp_path / "first")])
    store.export([a_run("gpt-a", 0), a_run("gpt-a", 1)], work.checkout / "records" / "gpt-a.jsonl")
    store.export([a_run("gpt-c", 0)], small / "records" / "gpt-c.jsonl")  # a later upload
    tool.main(["wait", "0", str(tmp_path / "second")])
    kept = "records/gpt-a.jsonl records/unfinished/gpt-b.jsonl"
    assert capsys.readouterr().out.endswith(f"2 new records: {kept}\n")
    for name in ("first", "second"):
        tool.main(["unpack", str(tmp_path / name / "records.tar.gz")])
    assert capsys.readouterr().out.endswith("complete: records/unfinished/gpt-a.jsonl\n")
    found = sorted(str(path.relative_to(small)) for path in (small / "records").rglob("*.jsonl"))
    assert found == [
        "records/gpt-a.jsonl",
        "records/gpt-c.jsonl",
        "records/gpt.jsonl",
        "records/unfinished/gpt-b.jsonl",
    ]


def test_no_committed_record_of_an_unfinished_study_is_superseded():
    assert records.superseded(SOURCE.parents[1] / "records") == []


def test_a_copy_of_another_commit_is_not_used(tool, small, monkeypatch):
    work = tool.Work()
    work.copy(small)
    monkeypatch.setattr(environment, "commit", lambda: "ba9876543210")
    with pytest.raises(
        LabError, match="holds a copy of commit 0123456789ab, and the checkout is ba9876543210"
    ):
        work.copy(small)


def test_a_copy_that_was_interrupted_is_made_again(tool, small, monkeypatch):
    work = tool.Work()
    (work.checkout / "src").mkdir(parents=True)
    (work.checkout / "src" / "removed_since.py").touch()
    monkeypatch.setattr(environment, "commit", lambda: f"{COMMIT}+")
    with pytest.raises(LabError, match="the code is changed since commit 0123456789ab"):
        work.copy(small)
    monkeypatch.setattr(environment, "commit", lambda: COMMIT)
    work.copy(small)
    assert [path.name for path in (work.checkout / "src").iterdir()] == ["the_code.py"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], r"gpu_studies\.py start 1500"),
        (["start", "60"], r"gpu_studies\.py start 1500"),
        (["stop", "1", "2"], r"gpu_studies\.py start 1500"),
        (["start", "gpt", "gpt-bf16"], "gpu_studies: seconds=gpt: must be a number >= 0"),
        (["wait", "-1", "out"], "seconds=-1: must be a number >= 0"),
        (["start", "60", "gpt", "cifar10/non --jobs 2"], "unknown study 'cifar10/non'"),
        (["wait", "60", "out"], "a folder: no studies were started there"),
    ],
)
def test_wrong_words(tool, words, message):
    with pytest.raises(SystemExit, match=message):
        tool.main(words)
    assert not tool.Work().folder.exists()
