"""The language task from end to end: shards, resuming, words that come late, studies, the command line."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import text_sets
import torch

from adaxlab import driver, reach, records, spec, study, summary, task
from adaxlab.data import text
from adaxlab.errors import Interrupted, LabError
from adaxlab.execute import process
from adaxlab.paper import late_words, zero_state
from adaxlab.paper.language import ENWIK8, PTB, ROWS
from adaxlab.paper.tables import language as tables
from adaxlab.settings import Settings
from adaxlab.signals import Stop

SMALL = {"batch": 4, "bptt": 5, "embedding": 8, "hidden": 12, "projection": 6, "samples": 16}


# -- from end to end --------------------------------------------------------------------------------------------------


def asked(root, **more):
    options = {**SMALL, "text": "folder", "data": str(root), "dropout": 0.1}
    given = dict(
        study="s", task="language", task_options=options, optimizer="adax", options={"lr": 1e-2}, epochs=2
    )
    return spec.make(**given, batch_size=4, seed=3, schedule={"name": "linear", "final": 1e-6}, **more)


def test_the_benchmarks_shards_from_end_to_end(tmp_path):
    root = text_sets.benchmark(tmp_path / "set", lines=40)
    tuned = process.run(asked(root, purpose="tune"), tmp_path / "runs")
    final = process.run(asked(root), tmp_path / "runs")
    assert (tuned.done["split"], final.done["split"]) == ("valid", "test")
    corpus = text.encode(text.pieces(root))
    assert final.done["steps"] == 2 * -(-(len(corpus.train) // 4) // 5)
    first, last = final.metrics[0], final.metrics[-1]
    assert last["metric"] < first["metric"] < math.log(len(corpus.words))


@pytest.mark.parametrize("optimizer", ["adax", "torch:SGD"])
def test_a_watched_run_records_the_rms_of_its_update(optimizer, tmp_path):
    """By hand from the checkpointed moments of the last step; an optimizer that does not say has none."""
    root = text_sets.benchmark(tmp_path / "set", lines=40)
    made = {**asked(root), "optimizer": optimizer, "options": {"lr": 1e-2}}
    made["task_options"] = {**made["task_options"], "watch": True, "sparse": False}
    found = process.run(made, tmp_path / "runs")
    rms = [line["update_rms"] for line in found.metrics]
    if optimizer == "adax":
        assert all(0 < value < 10 for value in rms)
        assert len(set(rms)) == 2
    else:
        assert rms == [None, None]
    plain = process.run(asked(root), tmp_path / "runs")
    assert "update_rms" not in plain.metrics[-1]


def in_parts(root):
    """The text once, in two halves: as many steps as one epoch of the whole has, or one less."""
    made = asked(root)
    return {**made, "task_options": {**made["task_options"], "parts": 2}}


def carried(root):
    """In two halves, measured from the state that training is in."""
    made = in_parts(root)
    return {**made, "task_options": {**made["task_options"], "eval_state": "carried"}}


def test_a_text_in_parts_is_read_once(tmp_path):
    root = text_sets.benchmark(tmp_path / "set", lines=40)
    halves = process.run(in_parts(root), tmp_path / "runs")
    once = process.run({**asked(root), "epochs": 1}, tmp_path / "runs")
    assert halves.done["steps"] == once.done["steps"] // 2 * 2
    first, second = (line["train_loss"] for line in halves.metrics)
    assert 2 * once.metrics[0]["train_loss"] == pytest.approx(first + second, rel=0.02)  # the same windows


@pytest.mark.parametrize(("asked", "stop_at"), [(asked, 7), (asked, 50), (in_parts, 30), (carried, 30)])
def test_resumed_in_the_middle_of_a_text_it_ends_with_the_same_bits(asked, stop_at, tmp_path):
    root = text_sets.benchmark(tmp_path / "set", lines=40)
    whole = process.run(asked(root), tmp_path / "a")
    stop, seen = Stop(), []

    def progress(step, total, metric):
        seen.append(step)
        if step >= stop_at:
            stop.signum = 15

    with pytest.raises(Interrupted):
        process.run(asked(root), tmp_path / "b", Settings(checkpoint_seconds=0), progress, stop)
    assert stop_at <= seen[-1] < whole.done["steps"]
    again = process.run(asked(root), tmp_path / "b")
    assert again.done["sessions"] == 2
    assert again.done["model_sha256"] == whole.done["model_sha256"]
    assert again.done["metric"] == whole.done["metric"]


# -- words that come late ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "sparse"),
    [
        ("adax", {"betas": (0.9, 8e-3), "wake": False}, False),
        ("adax", {"betas": (0.9, 8e-3), "wake": True}, False),
        ("adax", {"betas": (0.9, 8e-3)}, True),
        ("adam", {}, False),
    ],
)
def test_the_first_update_of_a_late_word_is_as_large_as_the_gain_says(name, options, sparse, tmp_path):
    root = text_sets.benchmark(tmp_path, lines=120)
    steps = 60
    chosen = {**SMALL, "bptt": 3, "text": "folder", "data": str(root), "sparse": sparse}
    lines = late_words.measure(name, {"lr": 1e-3, **options}, chosen, steps)
    assert max(line["step"] for line in lines) > steps / 3
    for line in lines:
        t = line["step"]
        if name == "adam":
            expected = 0.1 / (1 - 0.9**t) / math.sqrt(0.001 / (1 - 0.999**t))
        elif options.get("wake", True):
            expected = 0.1
        else:
            expected = 0.1 * math.sqrt((1.008**t - 1) / 8e-3)
        assert line["median"] == pytest.approx(expected, rel=2e-2), t


def test_late_words_are_recorded_and_drawn(tmp_path):
    pytest.importorskip("altair")
    from adaxlab.paper import doc_charts

    new = [f"the u{i} of a" for i in range(3000)]  # a new word in every sentence
    for split, lines in (("train", new), ("valid", new[:5]), ("test", new[:5])):
        (tmp_path / f"{split}.txt").write_text("\n".join(lines))
    path = late_words.run(out=tmp_path, steps=40, data=str(tmp_path), text="folder")
    record = json.loads(path.read_text())
    assert str(tmp_path) not in path.read_text()
    rows = {row["row"]: row["points"] for row in record["rows"]}
    assert rows["adax, dense, no guard"][-1]["median"] > 100 * rows["adax, dense, guarded"][-1]["median"]
    assert rows["adax, dense, guarded"][-1]["median"] == pytest.approx(0.1, rel=1e-2)
    drawn = doc_charts.late_activation(record).to_dict()
    assert max(map(len, drawn["datasets"].values())) == 3 * len(rows["adam, dense"])
    last = f"{rows['adax, dense, no guard'][-1]['median']:.3g}"
    assert last in tables.late(record).splitlines()[3]


# -- where a measure begins -------------------------------------------------------------------------------------------


def by_hand(model, windows, i, state):
    """Loss and memory of row i, read alone."""
    kept = windows.targets[i] >= 0
    h, c = (x[:, [i % x.shape[1]]] * (state == "carried") for x in (model.h, model.c))
    with torch.no_grad():
        out, (_, c) = model.lstm(model.embedding(windows.tokens[[i]]), (h, c))
        losses = model.softmax.full(model.projection(out)[0][kept], windows.targets[i][kept])
    return float(losses.mean()), float(c[-1].abs().mean()), int(kept.sum())


@pytest.mark.parametrize("eval_words", [0, 33])
def test_rows_of_a_text_are_read_one_by_one_from_each_state(eval_words, tmp_path):
    """Against a loop over the rows; 33 words in 32 rows of 2 leave 15 rows empty."""
    options = {
        **SMALL,
        "text": "folder",
        "data": str(text_sets.benchmark(tmp_path)),
        "eval_words": eval_words,
    }
    made = task.load("language", options)
    torch.manual_seed(0)
    model = made.model()
    for _, tokens, _, fresh in made.data()["train"]:
        model.encode(tokens, fresh)
    windows = made.data()["test"]
    model.eval()
    read = {state: zero_state.read_rows(model, windows, state) for state in ("zero", "carried")}
    assert model.eval_state == "zero"
    assert not model.training
    filled = [i for i in range(len(windows.targets)) if (windows.targets[i] >= 0).any()]
    assert len(filled) == (17 if eval_words else len(windows.targets))
    for state, rows in read.items():
        expected = [by_hand(model, windows, i, state) for i in filled]
        got = [(row["loss"], row["memory"], row["words"]) for row in rows]
        assert got == [pytest.approx(x, rel=1e-5) for x in expected]
        total = sum(loss * words for loss, _, words in expected)
        assert zero_state.mean(rows) == pytest.approx(total / windows.words, rel=1e-5)
    assert read["zero"] != read["carried"]
    model.train()
    zero_state.read_rows(model, windows, "zero")
    assert model.training


def test_the_two_measures_are_the_labs_own(tmp_path):
    """A run of the lab that is measured after its first part, from each state: the same net, the same two numbers."""
    root = text_sets.benchmark(tmp_path / "set", lines=60)
    options = {**SMALL, "text": "folder", "data": str(root), "parts": 5}
    end = {"name": "linear", "final": float(f"{1e-8 / 3e-2:.6g}")}
    found = zero_state.measure(task.load("language", options), 3e-2, 7, torch.device("cpu"), epochs=5)
    first = {}
    for state in ("zero", "carried"):
        asked = spec.make(
            study="s", task="language", task_options={**options, "eval_state": state}, optimizer="adam",
            options={"lr": 3e-2}, epochs=5, batch_size=4, seed=7, schedule=end,
        )  # fmt: skip
        first[state] = process.run(asked, tmp_path / "runs").metrics[0]
        assert zero_state.mean(found["rows"][state]) == pytest.approx(first[state]["metric"], rel=1e-5)
        assert found["steps"] == first[state]["step"]
    assert first["zero"]["train_loss"] == first["carried"]["train_loss"]
    assert first["zero"]["metric"] != pytest.approx(first["carried"]["metric"], rel=1e-5)


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([6.0, 6.5, 7.0, 11.4], 0),  # the middle is 6.75; a row 5 nats above it has failed
        ([6.0, 6.5, 7.0, 11.8], 1),
        ([6.0, None, 6.5, 30.0, 7.0], 2),
        ([None, None], 2),
    ],
)
def test_failed_rows(losses, expected):
    rows = [{"words": 2, "loss": loss} for loss in losses]
    assert zero_state.failed_rows(rows) == expected
    assert (zero_state.mean(rows) is None) == (None in losses)


def test_both_states_are_recorded_and_shown(tmp_path):
    root = text_sets.benchmark(tmp_path / "set", lines=300)
    given = {"data": str(root), "text": "folder", "hidden": 8, "device": "cpu"}
    path = zero_state.run(out=tmp_path, seeds=2, **given)
    record = json.loads(path.read_text())
    assert str(tmp_path) not in path.read_text()
    assert record["data"] == task.load("language", {"text": "folder", "data": str(root)}).digest()
    assert record["task_options"] == {"text": "folder", "hidden": 8}
    nets = record["nets"]
    assert [net["seed"] for net in nets] == [0, 1]
    assert nets[0]["rows"] != nets[1]["rows"]
    for state, far in (("zero", 50.0), ("carried", 0.0)):
        rows = nets[1]["rows"][state]
        rows[3]["loss"] += far
        worst = max(row["loss"] for row in rows)
        cells = f"| {zero_state.mean(rows):.3f} | {worst:.1f} | {int(far > 0)} |"
        shown = tables.zero_state(record).splitlines()
        assert cells in shown[3]
        assert (shown[3].index(cells) < 5) == (state == "zero") == (shown[0].index(state) < 40)
    assert shown[2].count("| 0 |") == 3  # the seed, and no failed row from either state
    with pytest.raises(LabError, match="seeds=0"):
        zero_state.run(seeds=0)
    lost = json.loads(
        zero_state.run(records=str(tmp_path / "records"), seeds=1, lr=1e30, **given).read_text()
    )
    assert (tmp_path / "records" / "language" / "zero_state.json").is_file()
    assert f"| 0 | NaN | NaN | {len(lost['nets'][0]['rows']['zero'])} |" in tables.zero_state(lost)


# -- studies ----------------------------------------------------------------------------------------------------------


def test_the_studies_are_fair_and_can_be_made(monkeypatch):
    monkeypatch.setattr(study, "_data_digest", lambda *given: "a1b2")
    monkeypatch.setattr(study, "_epoch_steps", lambda *given: 200)
    for given in (PTB, ENWIK8):
        assert (given.seeds, given.rule.least, given.epochs) == (3, 3, 5)
        for row in given.rows:
            made = given.spec(row, row.options["lr"], seed=0, purpose="tune")
            assert made["schedule"]["final"] * made["options"]["lr"] == pytest.approx(1e-8)
            if row.b2_steps:
                assert made["options"]["betas"][1] * 1000 == pytest.approx(row.b2_steps)
    assert {row.task_options["sparse"] for row in ROWS} == {True, False}


@pytest.mark.parametrize(("given", "steps"), [(PTB, 364), (ENWIK8, 215)])
def test_the_committed_runs_are_those_that_the_study_asks_for(given, steps, monkeypatch):
    runs = records.load(Path(__file__).parents[2] / "records", given.name)
    monkeypatch.setattr(study, "_data_digest", lambda *asked: runs[0].spec["data"])
    monkeypatch.setattr(study, "_epoch_steps", lambda *asked: steps)
    rates = driver.rates_of(given, runs)
    finals = {spec.digest(s) for row in given.rows for s in given.finals(row, rates[row.name])}
    assert finals == {r.name for r in runs if r.spec["purpose"] == "final"}


def test_the_largest_lr_that_does_not_break():
    assert summary.largest_lr({1e-3: 1.1, 2e-3: 1.0, 4e-3: 1.24, 8e-3: 1.26}, 0.25) == 4e-3
    assert summary.largest_lr({1e-3: 1.1, 2e-3: None}, 0.25) == 1e-3
    assert summary.largest_lr({1e-3: None}, 0.25) is None


@pytest.mark.parametrize(
    ("losses", "target", "expected"),
    [
        ([3.0, 2.0, 1.0], 1.5, 250.0),
        ([3.0, 2.0, 1.0], 2.0, 200.0),
        ([1.0], 2.0, 100.0),
        ([3.0, 2.5], 2.0, None),
    ],
)
def test_steps_to_a_loss(losses, target, expected):
    lines = [{"step": 100 * (i + 1), "metric": loss} for i, loss in enumerate(losses)]
    assert reach.reached(lines, target) == expected


def test_enwik8_is_measured_as_its_page_says():
    given = ENWIK8
    measure = {key: given.task_options[key] for key in ("eval_state", "eval_words", "parts", "limit")}
    assert measure == {"eval_state": "carried", "eval_words": 200_000, "parts": 5, "limit": 2_750_000}
    for row in given.rows:
        assert len(row.rates) == given.tuning.trials == 5
        assert row.options["lr"] in row.rates  # the paper's own
        steps = [math.log10(b / a) for a, b in itertools.pairwise(row.rates)]
        assert steps == pytest.approx([0.5] * 4, abs=2e-3)
    assert "eval_state" not in PTB.task_options


def test_from_the_command_line(tmp_path):
    pytest.importorskip("tyro")
    root = text_sets.benchmark(tmp_path / "set", lines=30)
    sizes = [f"{key}={value}" for key, value in SMALL.items()]
    command = [
        "compare",
        "language",
        "--optimizers",
        "adam",
        "adax",
        "--seeds",
        "2",
        "--epochs",
        "1",
        "--quiet",
    ]
    command += [
        "--out",
        str(tmp_path / "runs"),
        "--task-option",
        "text=folder",
        f"data={root}",
        "sparse=false",
        *sizes,
    ]
    done = subprocess.run(
        [sys.executable, "-m", "adaxlab.cli", *command, "--device", "cpu"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "adax" in done.stdout
    assert "nats per word" in done.stdout
