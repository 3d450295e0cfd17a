"""Files of runs, studies and exports that were damaged or edited: one line says which, and nothing is written over."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tiny import TINY, one_line

from adaxlab import cli, files, spec, store, study_file
from adaxlab.errors import LabError


@pytest.fixture(autouse=True)
def _place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    root = tmp_path_factory.mktemp("filled") / "runs"
    words = ["compare", f"{TINY}:Tiny", "--optimizers", "sgdm", "adaxw", "--seeds", "2", "--epochs", "2"]
    words += ["--tune", "0"]
    assert cli.main([*words, "--out", str(root), "--study", "one", "--quiet"]) == 0
    return root


def done(**changes):
    def edit(folder):
        old = json.loads((folder / "done.json").read_text())
        new = {k: v for k, v in {**old, **changes}.items() if v is not ...}
        (folder / "done.json").write_text(json.dumps(new))

    return edit


def text(name, content):
    return lambda folder: (folder / name).write_text(content)


DAMAGE = {
    "a number": text("metrics.jsonl", "3\n"),
    "null": text("metrics.jsonl", "null\n"),
    "a list": text("metrics.jsonl", '[{"step": 1}]\n'),
    "an empty object": text("metrics.jsonl", "{}\n"),
    "a line without a metric": text("metrics.jsonl", '{"step": 1, "epoch": 1}\n'),
    "a metric that is a text": text("metrics.jsonl", '{"step": 1, "metric": "x"}\n'),
    "a NaN in a line": text("metrics.jsonl", '{"step": 1, "epoch": 1, "metric": NaN}\n'),
    "an empty line": text("metrics.jsonl", "\n"),
    "an empty file": text("metrics.jsonl", ""),
    "no JSON": text("metrics.jsonl", "{]\n"),
    "done without a metric": done(metric=...),
    "done with a metric of null": done(metric=None),
    "done with NaN": done(metric=float("nan")),
    "done with infinity": done(metric=float("inf")),
    "done with a text": done(metric="0.9"),
    "done with true": done(metric=True),
    "done without a status": done(status=...),
    "done with another status": done(status="great"),
    "done without a name": done(metric_name=...),
    "done without seconds": done(seconds=...),
    "done without steps": done(steps=None),
    "done that is a list": text("done.json", "[]"),
    "done that is empty": text("done.json", ""),
    "done that is null": text("done.json", "null"),
    "an environment that is a list": text("env.json", "[]"),
    "a specification that is a list": text("spec.json", "[]"),
    "a specification without its parts": text("spec.json", '{"schema": 2}'),
    "a folder in place of the metrics": lambda folder: ((folder / "metrics.jsonl").unlink(),
                                                        (folder / "metrics.jsonl").mkdir()),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_run_folder_is_one_line(damage, filled, capsys):
    shutil.copytree(filled, "runs")
    victim = min(path.parent for path in Path("runs").rglob("done.json"))
    damage(victim)
    for words in (
        ["runs", "list", "runs"],
        ["runs", "export", "all.jsonl"],
        ["report", "runs", "--out", "page.html"],
    ):
        assert cli.main(words) == 0, words
        assert str(victim) in one_line(capsys)
    assert len(store.read_export("all.jsonl")) == 3
    words = ["compare", f"{TINY}:Tiny", "--optimizers", "sgdm", "adaxw", "--seeds", "2", "--epochs", "2"]
    assert cli.main([*words, "--tune", "0", "--study", "one", "--quiet"]) == 1
    assert str(victim) in one_line(capsys)


def test_a_damaged_export_is_one_line(filled, capsys):
    store.export(store.load_runs(filled), "all.jsonl")
    lines = Path("all.jsonl").read_text().splitlines()
    for name, (old, new) in {
        "no metric": ('"metric": ', '"metrik": '),
        "NaN": ('"status": "finished", "metric": ', '"status": "finished", "metric": NaN, "was": '),
    }.items():
        changed = [lines[0], *(line.replace(old, new) for line in lines[1:])]
        assert changed != lines
        Path("bad.jsonl").write_text("\n".join(changed) + "\n")
        assert cli.main(["runs", "list", "bad.jsonl"]) == 1, name
        assert "bad.jsonl" in one_line(capsys)


def test_a_stored_study_that_is_not_valid_is_named(filled):
    content = json.loads((filled / "one" / "study.json").read_text())
    Path("study.json").write_text(json.dumps({**content, "baseline": "adam"}))
    with pytest.raises(LabError, match=r"study\.json: study of another version"):
        study_file.read(Path("study.json"))


@pytest.mark.parametrize("content", ["[]", '{"schema": 2}', '{"schema": 2, "rows": 3}', "null", ""])
def test_a_damaged_study_is_one_line(content, filled, capsys):
    shutil.copytree(filled, "runs")
    Path("runs/one/study.json").write_text(content)
    words = ["compare", f"{TINY}:Tiny", "--optimizers", "sgdm", "adaxw", "--seeds", "2", "--epochs", "2"]
    assert cli.main([*words, "--tune", "0", "--study", "one", "--quiet"]) == 1
    assert "runs/one/study.json" in one_line(capsys)
    assert cli.main([*words, "--tune", "0", "--study", "one", "--quiet", "--budget", "1h"]) == 1
    assert "runs/one/study.json" in one_line(capsys)
    assert cli.main(["report", "runs", "--out", "page.html"]) == 0


@pytest.mark.parametrize("sources", [None, [], 5])
def test_digests_that_are_no_dict_are_ignored(sources, filled):
    shutil.copytree(filled, "runs")
    content = json.loads(Path("runs/one/study.json").read_text())
    Path("runs/one/study.json").write_text(json.dumps({**content, "sources": sources}))
    words = ["compare", f"{TINY}:Tiny", "--optimizers", "sgdm", "adaxw", "--seeds", "2", "--epochs", "2"]
    assert cli.main([*words, "--tune", "0", "--study", "one", "--quiet"]) == 0
    assert cli.main(["report", "runs", "--out", "page.html"]) == 0


def test_a_study_of_a_task_that_was_named_with_a_dot_goes_on(filled, capsys):
    shutil.copytree(filled, "runs")
    shutil.copy(TINY, "tiny_task.py")
    words = ["compare", "tiny_task.py:Tiny", "--optimizers", "sgdm", "adaxw", "--epochs", "2", "--tune", "0"]
    assert cli.main([*words, "--seeds", "2", "--study", "two", "--quiet"]) == 0
    content = json.loads(Path("runs/two/study.json").read_text())
    assert content["task"] == "tiny_task.py:Tiny"
    Path("runs/two/study.json").write_text(json.dumps({**content, "task": "./tiny_task.py:Tiny"}))
    capsys.readouterr()
    assert cli.main([*words, "--seeds", "2", "--study", "two", "--quiet"]) == 0
    assert cli.main([*words, "--seeds", "2", "--study", "three", "--quiet"]) == 0
    assert "two had results" in " ".join(capsys.readouterr().out.split())
    assert cli.main([*words, "./tiny_task.py:Tiny", "--quiet"]) == 2
    assert "name each task once" in capsys.readouterr().err


def test_what_json_cannot_hold_is_wrong_input():
    for value in (float("nan"), float("inf"), {1, 2}, b"x", 1j):
        with pytest.raises(LabError, match="width="):
            spec.canonical({"task_options": {"width": value}})


def test_a_file_of_ours_never_holds_nan(tmp_path):
    with pytest.raises(ValueError):
        files.write_json(tmp_path / "x.json", {"metric": float("nan")})
