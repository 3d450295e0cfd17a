"""The study of first learning rates, from its runs to the table of docs/migrating.md."""

from __future__ import annotations

import json

import pytest

from adaxlab import cli, store
from adaxlab.paper import first_lr, pages

STEPS = 22  # of an epoch of digits


@pytest.mark.filterwarnings("ignore:betas")  # b2*T = 2 in a run of one epoch
def test_from_nothing_to_the_table(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(first_lr, "TASKS", ("digits",))
    monkeypatch.setattr(first_lr, "RATES", (1e-3, 1e-2))
    words = ["--out", str(tmp_path / "runs"), "--seeds", "2", "--epochs", "1"]
    assert cli.main(["reproduce", "first-lr", *words]) == 0
    made = (tmp_path / "runs" / "first_lr.json").rename(tmp_path / "first_lr.json")
    rows = json.loads(made.read_text())["rows"]
    assert [(row["optimizer"], row["lr"], row["n"], row["diverged"]) for row in rows] == [
        (name, lr, 2, 0) for name in ("adamw", "adaxw") for lr in (1e-3, 1e-2)
    ]
    runs = store.load_runs(tmp_path / "runs")
    for run in runs:
        options = run.spec["options"]
        assert options["weight_decay"] * options["lr"] == pytest.approx(1e-4)
        assert options["betas"][1] == (pytest.approx(2 / STEPS, rel=1e-5) if run.row[3] == "x" else 0.999)
    ends = sorted(run.done["metric"] for run in runs)
    assert ends == sorted(value for row in rows for value in row["values"])
    (tmp_path / "records").mkdir()
    made.rename(tmp_path / "records" / made.name)
    assert "`digits`, final test accuracy, mean ± sd over n = 2 seeds" in pages.SECTIONS["lr"](tmp_path)


@pytest.mark.filterwarnings("ignore:betas")
def test_without_record_the_summary_is_next_to_the_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(first_lr, "TASKS", ("digits",))
    monkeypatch.setattr(first_lr, "RATES", (1e-3,))
    monkeypatch.chdir(tmp_path)
    assert cli.main(["reproduce", "first-lr", "--seeds", "1", "--epochs", "1", "--jobs", "1", "--quiet"]) == 0
    assert [p.name for p in tmp_path.iterdir()] == ["runs"]
    seen = capsys.readouterr()
    assert "record: runs/first_lr.json" in seen.out
    assert seen.err == ""


@pytest.mark.filterwarnings("ignore:betas")
def test_the_record_is_of_the_study_as_planned(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(first_lr, "TASKS", ("digits",))
    monkeypatch.setattr(first_lr, "RATES", (1e-3,))
    words = ["reproduce", "first-lr", "--out", str(tmp_path / "runs"), "--records", str(tmp_path / "records")]
    assert cli.main([*words, "--epochs", "1"]) == 2
    assert "first-lr has changed settings (epochs); records are written only" in capsys.readouterr().err
    assert cli.main([*words, "--jobs", "2", "--device", "cpu", "--quiet"]) == 0
    rows = json.loads((tmp_path / "records" / "first_lr.json").read_text())["rows"]
    assert [row["n"] for row in rows] == [first_lr.SEEDS] * 2
