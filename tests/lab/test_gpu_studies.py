"""tools/gpu_studies.py: processes in the background, and their records."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from made_records import run

from adaxlab import store

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the tool reads /proc")
SOURCE = Path(__file__).parents[2] / "tools" / "gpu_studies.py"


@pytest.fixture
def tool(tmp_path, monkeypatch):
    monkeypatch.setenv("GPU_STUDIES", str(tmp_path / "work"))
    monkeypatch.setenv("ADAXOPT_COMMIT", "0123456789ab")
    monkeypatch.setenv("PATH", "")  # no MPS server
    spec = importlib.util.spec_from_file_location("gpu_studies", SOURCE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_process_for_each_argument_and_its_log(tool, tmp_path, capsys):
    tool.start("60", "cifar10/non --jobs 2", "gpt-non")
    tool.wait("120", str(tmp_path / "out"))
    shown = capsys.readouterr().out
    assert "1.log: cifar10/non --jobs 2\n2.log: gpt-non" in shown
    assert "== 1.log (ended)\nadax reproduce: unknown study 'cifar10/non'" in shown
    assert "== 2.log (ended)\nadax reproduce: unknown study 'gpt-non'" in shown
    assert "0 new records" in shown
    assert (tmp_path / "work" / "checkout" / "src" / "adaxlab" / "reproduce.py").is_file()


def test_ended_runs_of_a_study_that_still_runs_are_collected(tool, tmp_path, capsys):
    work = tool.Work(tmp_path / "work")
    work.copy(tool.HERE)
    log = tmp_path / "work" / "1.log"
    pid = work.start(log, "-c", "print('at work'); import time; time.sleep(600)")
    work.start(log.with_name("2.log"), "-c", "input()")  # ends: it has no standard input
    clean, dirty = ({"commit": f"0123456789ab{mark}"} for mark in ("", "+"))
    runs = [replace(run("gpt-new", "adamw", 1.0 + seed, seed=seed), env=clean) for seed in range(2)]
    runs.append(replace(run("gpt-new", "adamw", 3.0, seed=2), env=dirty))
    runs.append(replace(run("gpt", "adamw", 4.0, seed=3), env=clean))  # this study has a record
    store.export(runs, tmp_path / "runs.jsonl")
    store.bring(tmp_path / "runs.jsonl", work.checkout / "runs")
    tool.wait("0", str(tmp_path / "out"))
    with pytest.raises(SystemExit, match="processes are still running"):
        tool.start("60", "gpt")
    os.kill(pid, signal.SIGKILL)
    shown = capsys.readouterr().out
    assert "== 1.log (running)" in shown
    assert "1 new records: records/unfinished/gpt-new.jsonl" in shown
    with tarfile.open(tmp_path / "out" / "records.tar.gz") as archive:
        archive.extractall(tmp_path / "there", filter="data")
    back = store.read_export(tmp_path / "there" / "records" / "unfinished" / "gpt-new.jsonl")
    assert sorted(each.done["metric"] for each in back) == [1.0, 2.0]


def test_a_record_that_a_complete_study_replaced_is_named(tool, tmp_path, monkeypatch, capsys):
    source = tmp_path / "source"
    for folder in ("src", "benchmarks", "records/unfinished"):
        (source / folder).mkdir(parents=True)
    for name in ("gpt-a", "gpt-b"):
        (source / "records" / "unfinished" / f"{name}.jsonl").write_text("{}\n")
    monkeypatch.setattr(tool, "HERE", source)
    work = tool.Work(tmp_path / "work")
    work.copy(source)
    (work.checkout / "records" / "unfinished" / "gpt-a.jsonl").unlink()
    tool.wait("0", str(tmp_path / "out"))
    assert capsys.readouterr().out.endswith("studies are complete: records/unfinished/gpt-a.jsonl\n")


def test_a_copy_needs_a_commit(tool, tmp_path, monkeypatch):
    monkeypatch.delenv("ADAXOPT_COMMIT")
    monkeypatch.setenv("PATH", os.defpath)
    with pytest.raises(SystemExit, match="is no checkout without changes"):
        tool.commit(tmp_path)


@pytest.mark.parametrize("words", [[], ["start", "60"], ["wait", "60"], ["stop", "1", "2"]], ids=" ".join)
def test_wrong_words_show_how_it_is_used(tool, words):
    with pytest.raises(SystemExit, match=r"gpu_studies\.py start 1500"):
        tool.main(words)
