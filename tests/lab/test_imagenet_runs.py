"""ImageNet's studies from folders to records: in one go, in pieces, killed and tuned; and the committed records."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from image_sets import OPTIONS, make, small, tiny
from tiny import failing

from adaxlab import (
    driver,
    environment,
    records,
    reproduce,
    search,
    signals,
    spec,
    store,
    study,
    variants,
    workers,
)
from adaxlab.errors import Interrupted, LabError, StoreError
from adaxlab.execute import torchrun
from adaxlab.paper import catalogue
from adaxlab.paper.imagenet import RATES, STEPS, STUDIES, TINY, TUNED, TUNING
from adaxlab.schedule import factor
from adaxlab.settings import Settings
from adaxlab.store import RunFolder
from adaxlab.study import Row
from adaxlab.tasks.imagenet import ImageNet

ROOT = Path(__file__).parents[2]
SIZES = (
    "--epochs 1 --seeds 1 --batch-size 6 --device cpu --quiet --set size=16 stored=16 width=4 precision=fp32"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small(tmp_path_factory.mktemp("images") / "set")


def curve(run):
    return [{key: value for key, value in line.items() if key != "seconds"} for line in run.metrics]


def bits(runs):
    return {(run.row, run.spec["seed"]): (run.done["model_sha256"], curve(run)) for run in runs}


def tinier(folder, rows=TINY.rows, **changes):
    options = {**TINY.task_options, **OPTIONS, "data": str(folder)}
    return replace(
        TINY,
        **{**dict(rows=rows, baseline="", seeds=1, epochs=2, batch_size=7, task_options=options), **changes},
    )


# -- the studies as data ----------------------------------------------------------------------------------------------


def test_the_recipe_is_the_papers():
    settings = {row.name: (row.options["lr"], row.options["weight_decay"]) for row in TINY.rows}
    assert settings == {
        "sgdm": (0.1, 1e-4),
        "adamw": (1e-3, 0.1),
        "amsgradw": (1e-3, 0.1),
        "adaxw": (5e-3, 5e-2),
        "adaxw-b2T50": (5e-3, 5e-2),
    }
    assert STEPS == 7820
    r18, r50 = (catalogue.study(f"imagenet/{name}") for name in ("resnet18", "resnet50"))
    total = 100 * -(-1_281_167 // 256)
    assert total == 500_500
    f = factor(r18.schedule, total)
    at = [f(round(share * total)) for share in (0.025, 0.05, 0.29, 0.31, 0.61, 0.91)]
    assert at == pytest.approx([0.5, 1, 1, 0.1, 0.01, 0.001], rel=1e-3)
    g = factor({**r50.schedule, "final": r50.end_lr / 0.1}, total)
    assert 0.1 * g(total - 1) == pytest.approx(1e-6, rel=1e-3)
    assert (r18.task_options["size"], r18.batch_size, r18.task_options["stem"]) == (224, 256, "imagenet")


@pytest.mark.filterwarnings("ignore:betas")  # b2*T = 50 in a tuning run of a third of the length
@pytest.mark.parametrize("given", STUDIES, ids=lambda s: s.name)
def test_every_study_is_complete_and_can_be_written(given):
    full = given.complete()
    assert study.Study.from_data(full.data()).data() == full.data()
    assert full.executor == "torchrun"


def test_tuning_has_the_memory_of_the_full_length():
    steps = 7 * -(-90_000 // 256)
    for name, b2_steps in {"adaxw": 1e-4 * STEPS, "adaxw-b2T50": 50.0}.items():
        assert TUNING.row(name).options["betas"][1] * steps == pytest.approx(b2_steps, rel=1e-5)
        assert TINY.row(name).options["betas"][1] * STEPS == pytest.approx(b2_steps, rel=1e-5)


def test_rates_enclose_the_papers_which_comes_first_where_two_are_equal():
    for name, rates in RATES.items():
        assert rates[0] == TINY.row(name).options["lr"]
        assert list(rates[1:]) == sorted(rates[1:])
        assert [round(lr / rates[0], 2) for lr in rates[1:]] == [0.1, 0.3, 3, 10, 30]
        assert search.best(rates, [(0.4, 0.0)] * 6) == rates[0]
        assert search.best(rates, [(0.3, 0.0), *[(0.4, 0.0)] * 5]) == rates[1]


def test_the_committed_runs_are_those_that_the_studies_ask_for(monkeypatch):
    """Every record has the name (and the labels) that the study gives to its run, so that nothing is run twice."""
    found = {s.name: records.load(ROOT / "records", s.name) for s in (TINY, TUNING, TUNED)}
    digest = found["imagenet/tiny"][0].spec["data"]
    monkeypatch.setattr(study, "_data_digest", lambda *given: digest)
    rates = driver.rates_of(TUNING, found["imagenet/tuning"])
    assert rates == {"sgdm": 1.0, "adamw": 0.01, "amsgradw": 0.01, "adaxw": 0.015, "adaxw-b2T50": 0.015}
    asked = {
        "imagenet/tiny": [s for row in TINY.rows for s in TINY.finals(row, row.lr())],
        "imagenet/tuning": [
            s for row in TUNING.rows for i, lr in enumerate(row.rates) for s in TUNING.trials(row, lr, i)
        ],
        "imagenet/tuned": [s for row in TUNED.rows for s in TUNED.finals(row, rates[row.name])],
    }
    for name, runs in found.items():
        assert {spec.digest(s) for s in asked[name]} == {run.name for run in runs}, name
        assert sorted(map(spec.canonical, asked[name])) == sorted(spec.canonical(r.spec) for r in runs), name


def test_no_seed_is_used_for_tuning_and_for_the_result(monkeypatch):
    monkeypatch.setattr(study, "_data_digest", lambda *given: "d")
    tuning = {s["seed"] for s in TUNING.trials(TUNING.rows[0], 0.1, 0)}
    assert not tuning & {s["seed"] for s in TUNED.finals(TUNED.rows[0], 0.1)}


# -- carried out ------------------------------------------------------------------------------------------------------


class Impatient(driver.Silent):
    """Asks to stop at every so many steps."""

    def __init__(self, stop, every):
        self.stop, self.left = stop, every

    def running(self, *given):
        self.left -= 1
        if not self.left:
            self.stop.signum = 15


def test_a_study_in_one_go_and_in_pieces(folder, tmp_path):
    small_study = tinier(folder, epochs=1)
    whole = driver.carry_out(small_study, tmp_path / "one")
    assert [run.row for run in whole] == ["sgdm", "adamw", "amsgradw", "adaxw", "adaxw-b2T50"]
    for run in whole:
        keys = ("images", "test_images", "classes", "steps", "processes", "graph", "layout")
        assert [run.done[key] for key in keys] == [18, 12, 3, 3, 1, False, "contiguous"]
        (line,) = run.metrics
        assert (line["step"], line["epoch"]) == (3, 1)
        assert {"train_loss", "train_metric", "metric", "seconds"} < set(line)
        assert run.env["data"] == run.spec["data"]
    calls = 0
    while True:
        stop = signals.Stop()
        try:
            pieces = driver.carry_out(small_study, tmp_path / "two", None, Impatient(stop, 2), stop)
            break
        except Interrupted:
            calls += 1
            assert list((tmp_path / "two").rglob("checkpoint.pt")) or calls > 1
    assert calls > 4
    assert bits(pieces) == bits(whole)
    assert not list((tmp_path / "two").rglob("checkpoint.pt"))


KILLED = """
import json, os, signal, sys
from adaxlab import driver
from adaxlab.settings import Settings
from adaxlab.study import Study

class Killer(driver.Silent):
    def running(self, spec, step, total, metric):
        if step == 4 and metric is not None:
            os.kill(os.getpid(), signal.SIGKILL)

study = Study.from_data(json.loads(sys.argv[1]))
driver.carry_out(study, sys.argv[2], Settings(checkpoint_seconds=0.0), Killer())
"""


@pytest.mark.other_process
def test_kill_9_in_the_middle_and_the_same_bits(folder, tmp_path):
    one = tinier(folder, TINY.rows[3:4], epochs=3, batch_size=9).complete()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    call = [sys.executable, "-c", KILLED, json.dumps(one.data()), str(tmp_path / "killed")]
    ended = subprocess.run(call, env=environment, capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    (left,) = (tmp_path / "killed").glob("*/*/checkpoint.pt")
    assert torch.load(left, weights_only=True)["at"] == [1, 1, 3]
    steps = []
    watcher = driver.Silent()
    watcher.running = lambda spec, step, total, metric: steps.append(step)
    resumed = driver.carry_out(one, tmp_path / "killed", watcher=watcher)
    assert min(steps) == 4  # what the killed process did was not done again
    assert bits(resumed) == bits(driver.carry_out(one, tmp_path / "whole"))


def test_runs_of_other_images_or_sizes_are_other_runs(folder, tmp_path):
    one = tinier(folder, TINY.rows[:1], epochs=1)
    (run,) = driver.carry_out(one, tmp_path / "runs")
    tiny(tmp_path / "others", make(seed=1))
    names = {run.name}
    for other in (
        tinier(tmp_path / "others", TINY.rows[:1], epochs=1),
        replace(one, batch_size=5),
        replace(one, task_options={**one.task_options, "precision": "fp64"}),
        replace(one, task_options={**one.task_options, "groups": 2}),
    ):
        names.add(spec.digest(other.finals(other.rows[0], 0.1)[0]))
    assert len(names) == 5
    tiny(tmp_path / "moved", make())  # the same images in another place are the same run
    moved = tinier(tmp_path / "moved", TINY.rows[:1], epochs=1)
    assert spec.digest(moved.finals(moved.rows[0], 0.1)[0]) == run.name


def test_a_run_that_another_process_holds_is_left_to_it(folder, tmp_path):
    one = tinier(folder, TINY.rows[:2], epochs=1)
    asked = [s for row in one.rows for s in one.finals(row, row.lr())]
    with RunFolder(tmp_path, asked[0]).lock():
        made = list(torchrun.execute(asked, tmp_path, Settings(), driver.Silent(), signals.Stop()))
    assert [run.row for run in made] == ["adamw"]


def test_a_run_that_fails_stops_no_other(folder, tmp_path):
    rows = (Row("bad", f"{failing(tmp_path / 'mine.py')}:Bad", {"lr": 0.1}), TINY.rows[0])
    bad, good = driver.carry_out(tinier(folder, rows, epochs=1), tmp_path / "runs")
    assert (bad.row, bad.status, good.status) == ("bad", "failed", "finished")
    assert "ArithmeticError: the third step (at mine.py:" in bad.error


def test_a_damaged_checkpoint_is_named(folder, tmp_path):
    one = tinier(folder, TINY.rows[:1], epochs=1)
    place = RunFolder(tmp_path, one.finals(one.rows[0], 0.1)[0])
    with place.lock():
        place.checkpoint.write_bytes(b"half")
        (place.path / "env.json").write_text("{}")
    with pytest.raises(StoreError, match=r"checkpoint.pt: cannot resume from it .*; left untouched"):
        driver.carry_out(one, tmp_path)
    assert place.checkpoint.read_bytes() == b"half"


def test_tuning_keeps_a_tenth_from_training(folder):
    train, held = ImageNet(data=str(folder), **OPTIONS).loaders("tune", torch.device("cpu"))
    assert (len(train), len(held)) == (16, 2)
    assert train.source is held.source


# -- by the command ---------------------------------------------------------------------------------------------------


def command(folder, out, *words):
    return reproduce.main([*words, "--data", str(folder), "--out", str(out), *SIZES.split()])


def test_from_folders_to_tables_in_one_command(tmp_path, capsys):
    """tuned takes its rates from tuning, changed as it is; the images are decoded on the way."""
    tiny(tmp_path / "set", make())
    out = tmp_path / "runs"
    assert command(tmp_path / "set", out, "imagenet/tuning", "imagenet/tuned") == 0
    shown = capsys.readouterr().out
    assert "| adaxw-b2T50 | 0.0005: " in shown
    runs = store.load_runs(out)
    tuning, tuned = (
        [r for r in runs if r.spec["study"].startswith(f"imagenet/{n}")] for n in ("tuning", "tuned")
    )
    assert (len(tuning), len(tuned)) == (30, 5)
    changed = variants.changed(TUNING, epochs=1, batch_size=6, seeds=1, **OPTIONS)
    assert changed.name == tuning[0].spec["study"]
    rates = driver.rates_of(changed, tuning)
    assert {run.row: run.spec["options"]["lr"] for run in tuned} == rates
    assert f"| sgdm | {rates['sgdm']:g} | " in shown


def test_stopped_by_the_clock_and_refused_as_a_record(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(environment, "commit", lambda: "0" * 12)  # whether or not this checkout has changes
    assert command(folder, tmp_path, "imagenet/tiny", "--seconds", "1e-9") == 3
    assert (
        "time ran out before imagenet/tiny was complete; the same command resumes" in capsys.readouterr().err
    )
    assert command(folder, tmp_path, "imagenet/tiny", "--records", str(tmp_path / "records")) == 2
    assert "has changed settings" in capsys.readouterr().err
    assert not (tmp_path / "records").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("imagenet/table2", "unknown study 'imagenet/table2'; known are"),
        ("imagenet/tiny --data /nowhere", "/nowhere: no such folder; name one with train/ and val/"),
        ("imagenet/tiny --device cuda:97", "CUDA devices; try --device cpu"),
        ("imagenet/tiny --set precision=fp8", "unknown precision 'fp8'"),
        ("imagenet/tiny --set graph=1", "its options are data, model"),
        ("imagenet/tiny --execution fast=true", "unknown execution option 'fast'"),
        (
            "gpt --execution graph=false",
            "study gpt: execution=graph=false: is for studies such as imagenet/tiny",
        ),
    ],
)
def test_wrong_input(words, message, folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("ADAX_DATA", str(tmp_path))
    given = words.split()
    place = [] if "--data" in given or given[0] == "gpt" else ["--data", str(folder)]
    device = [] if "--device" in given else ["--device", "cpu"]
    assert reproduce.main([*given, *place, *device, "--quiet", "--out", str(tmp_path / "runs")]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_no_data_says_how_to_get_them(tmp_path, monkeypatch):
    monkeypatch.setenv("ADAX_DATA", str(tmp_path))
    with pytest.raises(LabError, match=r"adax data get tiny-imagenet.*data=FOLDER"):
        ImageNet().digest()


def test_helpers_get_the_rates_of_a_study_that_follows(tmp_path, monkeypatch):
    sent = []

    class Process:
        stdin = type("", (), {"write": staticmethod(sent.append), "close": staticmethod(lambda: None)})

        def __init__(self, *given, **options): ...

        def poll(self):
            return 0

        def wait(self, timeout=None): ...

    monkeypatch.setattr(subprocess, "Popen", Process)
    with workers.helpers(TUNED, tmp_path, Settings(), 2, {"sgdm": 1.0}):
        pass
    assert json.loads(sent[0])["rates"] == {"sgdm": 1.0}
