"""A study carried out: in one go, in pieces, by several processes, on another machine, after another study."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import text_sets

from adaxlab import driver, environment, loop, reproduce, store, summary, variants
from adaxlab.errors import Interrupted, LabError, StoreError
from adaxlab.paper import catalogue
from adaxlab.paper.language import ROWS
from adaxlab.records import not_complete
from adaxlab.settings import Settings
from adaxlab.study import Row, Study, Tuning

TINY = str(Path(__file__).with_name("tiny.py"))
SMALL = {
    "text": "folder",
    "batch": 4,
    "bptt": 5,
    "embedding": 8,
    "hidden": 12,
    "projection": 6,
    "samples": 16,
}
WHOLE = 2 * (2 + 2)


def words(data, **changes):
    """Two rows of the language study, two rates each, two seeds."""
    given = Study(
        "language", ROWS[:2], "language/moved", seeds=2, tuning=Tuning(2), epochs=1, batch_size=4, baseline="adam",
        task_options={**SMALL, "data": str(data)}, schedule={"name": "linear"}, end_lr=1e-8,
    )  # fmt: skip
    return dataclasses.replace(given, **changes)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(text, store, records) of the whole study."""
    root = tmp_path_factory.mktemp("made")
    text = text_sets.benchmark(root / "text", lines=40)
    return text, root / "runs", driver.carry_out(words(text), root / "runs")


def told(records):
    """What runs came to, without times."""
    return {r.name: (r.done["metric"], r.done["model_sha256"], len(r.metrics)) for r in records}


def test_the_first_runs_of_every_row_come_before_the_second_ones(tmp_path):
    order = []

    class Watch(driver.Silent):
        def finished(self, record):
            order.append((record.spec["seed"], record.spec["optimizer"]))

    given = Study(f"{TINY}:Tiny", (Row("sgdm"), Row("adam")), "small", seeds=3, epochs=1).complete()
    driver.carry_out(given, tmp_path, watcher=Watch())
    assert order == [(seed, name) for seed in range(3) for name in ("sgdm", "adam")]


def test_a_study_resumes_on_another_machine_and_makes_no_run_again(made, tmp_path):
    """Runs are named by what they are: the text lies elsewhere there."""
    text, _, runs = made
    assert len(runs) == WHOLE
    some = store.export(runs[:5], tmp_path / "some.jsonl")
    assert str(text) not in some.read_text()
    there = tmp_path / "there"
    there.symlink_to(text)
    assert store.bring(some, tmp_path / "b") == 5
    assert store.bring(some, tmp_path / "b") == 0
    again = driver.carry_out(words(there), tmp_path / "b")
    assert told(again) == told(runs)
    brought = {r.name: r.done["seconds"] for r in runs[:5]}
    assert {r.name: r.done["seconds"] for r in again if r.name in brought} == brought


def test_other_data_are_other_runs(made, tmp_path):
    runs = made[2]
    store.bring(store.export(runs, tmp_path / "all.jsonl"), tmp_path / "b")
    other = driver.carry_out(words(text_sets.benchmark(tmp_path / "other", lines=80)), tmp_path / "b")
    assert not {r.name for r in other} & {r.name for r in runs}


def test_cut_by_the_clock_again_and_again_it_ends_with_the_same_bits(made, tmp_path):
    text, _, runs = made
    pieces = 0
    while (
        found := driver.carry_out(words(text), tmp_path, Settings(checkpoint_seconds=0), seconds=0.05)
    ) is None:
        pieces += 1
    assert pieces > 3
    assert told(found) == told(runs)


def test_a_signal_is_not_the_end_of_the_time(made, tmp_path, monkeypatch):
    def stopped(*given):
        raise Interrupted("stopped", 15)
        yield

    with pytest.raises(Interrupted):
        driver.carry_out(words(made[0]), tmp_path, execute=stopped, seconds=60)


def test_a_run_that_another_study_made_is_taken_from_there(tmp_path):
    first = Study(f"{TINY}:Tiny", (Row("adaxw"),), "first", epochs=1, seeds=2).complete()
    second = dataclasses.replace(
        first, name="second", seeds=3, rows=(Row("adaxw@same", options={"lr": 5e-3}),), baseline=""
    )
    a = driver.carry_out(first, tmp_path)
    b = driver.carry_out(second.complete(), tmp_path)
    assert [r.name for r in b[:2]] == [r.name for r in a]
    assert [r.done["seconds"] for r in b[:2]] == [r.done["seconds"] for r in a]
    assert [r.env.get("made_for") for r in b] == ["first", "first", None]
    assert {r.spec["optimizer"] for r in b} == {"adaxw@same"}


def test_a_study_that_follows_takes_the_best_rates(tmp_path, monkeypatch, capsys):
    before = Study(
        f"{TINY}:Tiny", (Row("sgdm", rates=(1e-6, 0.1)),), "fam/tuning", epochs=2, seeds=0, tuning=Tuning(2)
    ).complete()
    runs = driver.carry_out(before, tmp_path)
    assert [r.spec["purpose"] for r in runs] == ["tune"] * 2
    after = dataclasses.replace(
        before, name="fam/tuned", seeds=2, tuning=None, follows="fam/tuning", rows=(Row("sgdm"),)
    )
    monkeypatch.setattr(catalogue, "studies", lambda: {"fam/tuning": before, "fam/tuned": after})
    found = reproduce.run("fam/tuned", reproduce.Request(out=str(tmp_path), device="cpu", quiet=True), {})
    scores = {
        r.spec["options"]["lr"]: r.done["metric"] for r in runs
    }  # accuracies: which is best depends on the machine
    (lr,) = {r.spec["options"]["lr"] for r in found.records}
    assert scores[lr] == max(scores.values())
    said = f"fam/tuned: sgdm is best at lr {lr:g}, an end of the rates that fam/tuning tried ("
    assert said in capsys.readouterr().err
    with pytest.raises(
        LabError, match=r"sgdm was not tuned at lr 0\.1; run `adax reproduce fam/tuning` first"
    ):
        driver.rates_of(before, runs[:1])


def test_a_study_that_follows_takes_the_best_of_a_rows_variants(tmp_path):
    """`before` varied the momentum in rows `sgdm x` beside lr; the row `sgdm` takes both from the best."""
    variants = tuple(
        Row(f"sgdm {name}", "sgdm", {"betas": [b1, 0.0]}, rates=(1e-7, 0.1))
        for name, b1 in (("x", 0.0), ("y", 0.9))
    )
    before = Study(f"{TINY}:Tiny", variants, "fam/grid", epochs=2, seeds=0, tuning=Tuning(2)).complete()
    runs = driver.carry_out(before, tmp_path)
    scores = {(r.row, r.spec["options"]["lr"]): r.done["metric"] for r in runs}
    sign = 1 if runs[0].done["higher_is_better"] else -1
    best = max(sign * score for score in scores.values())
    after = Study(f"{TINY}:Tiny", (Row("sgdm"),), "fam/eight", epochs=2, seeds=2, follows="fam/grid")
    made, rates = driver.follow(after, before, runs)
    (name,) = (row.name for row in variants if row.options == made.row("sgdm").options)
    assert sign * scores[name, rates["sgdm"]] == best
    with pytest.raises(LabError, match="adamw"):
        driver.follow(dataclasses.replace(after, rows=(Row("adamw"),)), before, runs)


def test_a_seed_that_chose_the_settings_does_not_judge_them():
    rows = (Row("sgdm", rates=(0.1,)),)
    with pytest.raises(LabError, match=r"seed 0, 1 is used for tuning \(study fam/x\) and for final runs"):
        Study(f"{TINY}:Tiny", rows, "fam/x", seeds=2, tuning=Tuning(1, seeds=3, first_seed=0))
    before = Study(f"{TINY}:Tiny", rows, "fam/tuning", seeds=0, tuning=Tuning(1, first_seed=5))
    after = Study(f"{TINY}:Tiny", (Row("sgdm"),), "fam/tuned", seeds=6, follows="fam/tuning")
    with pytest.raises(LabError, match="seed 5 is used for tuning"):
        driver.follow(after, before, [])
    dataclasses.replace(after, seeds=5).check_apart(before)


@pytest.mark.parametrize(
    ("commit", "said"),
    [(None, "not a checkout of git"), ("12ab+", "changed since commit 12ab;"), ("12ab", "")],
)
def test_records_are_written_by_committed_code_alone(monkeypatch, commit, said):
    monkeypatch.setattr(environment, "commit", lambda: commit)
    if said:
        with pytest.raises(LabError, match=said):
            environment.check_clean()
    else:
        environment.check_clean()


def test_reproduce_writes_the_records_of_the_study_as_planned_alone(tmp_path, monkeypatch, capsys):
    small = Study(f"{TINY}:Tiny", (Row("sgdm"), Row("adaxw")), "fam/small", epochs=1, seeds=3)
    monkeypatch.setattr(environment, "commit", lambda: "12ab")
    monkeypatch.setattr(catalogue, "studies", lambda: {"fam/small": small})
    out, kept = str(tmp_path / "runs"), str(tmp_path / "records")
    words = ["fam/small", "--out", out, "--records", kept, "--device", "cpu", "--quiet"]
    assert reproduce.main(words) == 0
    assert len(store.read_export(tmp_path / "records" / "fam" / "small.jsonl")) == 6
    assert reproduce.main([*words, "--seeds", "1"]) == 2
    assert "fam/small-seeds1 has changed settings" in capsys.readouterr().err
    assert not (tmp_path / "runs" / "fam-small-seeds1").exists()  # refused before the first run
    assert reproduce.main([*words[:1], "fam/other", "--out", str(tmp_path / "new"), "--quiet"]) == 2
    assert "unknown study 'fam/other'" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
    monkeypatch.setattr(environment, "commit", lambda: "12ab+")
    older = [*words[:2], str(tmp_path / "older"), *words[3:]]
    assert (
        reproduce.main([*older[:3], "--device", "cpu", "--quiet"]) == 0
    )  # without records: any code will do
    monkeypatch.setattr(environment, "commit", lambda: "12ab")
    assert reproduce.main(older) == 2
    assert "6 of 6 runs in" in capsys.readouterr().err
    assert reproduce.main(["fam/large", "--out", out]) == 2
    assert "unknown study 'fam/large'" in capsys.readouterr().err
    assert reproduce.main(["fam/small", "--out", str(tmp_path / "new"), "--seconds", "1e-9", "--quiet"]) == 3
    assert "the same command resumes" in capsys.readouterr().err


def test_an_incomplete_study_is_kept_beside_the_records(tmp_path, monkeypatch):
    """Stopped in the third run; another machine, which has the records and no runs, makes this one and the others."""
    small = Study(f"{TINY}:Tiny", (Row("sgdm"), Row("adaxw")), "fam/small", epochs=1, seeds=3)
    monkeypatch.setattr(environment, "commit", lambda: "12ab")
    monkeypatch.setattr(catalogue, "studies", lambda: {"fam/small": small})
    made, limit, plain = [], 2, loop.Loop.run

    def run(self):
        if len(made) == limit:
            raise Interrupted("stopped", 15)
        made.append((self.spec["row"], self.spec["seed"]))
        return plain(self)

    monkeypatch.setattr(loop.Loop, "run", run)
    kept = tmp_path / "records" / "unfinished" / "fam-small.jsonl"
    words = ["--records", str(tmp_path / "records"), "--device", "cpu", "--quiet"]
    assert reproduce.main(["fam/small", "--out", str(tmp_path / "here"), *words]) != 0
    assert len(store.read_export(kept)) == len(made) == 2
    limit = 6
    assert reproduce.main(["fam/small", "--out", str(tmp_path / "there"), *words]) == 0
    assert len(made) == len(set(made)) == 6
    assert len(store.read_export(tmp_path / "records" / "fam" / "small.jsonl")) == 6
    assert not kept.exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, f"{WHOLE} of {WHOLE}"),
        ({"epochs": 2, "tuning": Tuning(2, epochs=1)}, f"4 of {WHOLE}"),
        ({"seeds": 1}, "6 of 6"),
        ({"task_options": {**SMALL, "hidden": 13}}, f"0 of {WHOLE}"),
        ({"rows": ROWS[:1]}, "4 of 4"),
    ],
)
def test_a_page_counts_the_runs_that_the_study_asks_for(made, tmp_path, change, said):
    text, _, runs = made
    given = words(text, **change)
    assert "Not run yet" in not_complete(given, tmp_path)
    store.export(runs, tmp_path / "records" / "unfinished" / "language-moved.jsonl")
    assert f"{said} runs have ended" in not_complete(given, tmp_path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda line: line["spec"].pop("task_options"),
        lambda line: line.update(spec=None),
        lambda line: line["spec"].update(schema=0),
        lambda line: line["spec"].update(seed=77),
        lambda line: line.update(done="x"),
        lambda line: line["done"].pop("status"),
        lambda line: line["done"].pop("metric"),
        lambda line: line["done"].update(status="well"),
        lambda line: line.update(done=["status"]),
        lambda line: line.update(metrics="ab"),
        lambda line: line.update(metrics=None),
        lambda line: line.update(env=None),
    ],
)
def test_a_line_that_was_changed_is_said_and_nothing_is_written(damage, made, tmp_path):
    path = store.export(made[2], tmp_path / "some.jsonl")
    head, *rest = path.read_text().splitlines()
    last = json.loads(rest[-1])
    damage(last)
    path.write_text("\n".join([head, *rest[:-1], json.dumps(last)]) + "\n")
    with pytest.raises(StoreError, match=r"some\.jsonl"):
        store.bring(path, tmp_path / "b")
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (dict(rows=(Row("sgdm", rates=(0.1, 1.0)),), tuning=Tuning(3)), "sgdm has 2 rates, each must have 3"),
        (dict(rows=()), "no optimizer given"),
        (dict(rows=(Row("sgdm"), Row("sgdm"))), "sgdm: named twice"),
        (dict(rows=(Row("sgdm"),), baseline="adam"), "unknown baseline 'adam'"),
        (dict(rows=(Row("sgdm"),), seeds=0), "seeds=0: must be >= 1"),
    ],
)
def test_a_study_that_is_not_fair_or_not_whole_is_refused(given, message):
    with pytest.raises(LabError, match=message):
        Study("digits", **given)


def test_a_changed_study_has_another_name():
    given = catalogue.study("language/enwik8")
    assert variants.changed(given, seeds=0, epochs=0, tune=0) == given
    assert variants.changed(given, data="x").name == given.name  # a place is no change
    made = variants.changed(given, seeds=1, hidden=8)
    assert (made.name, made.seeds, made.task_options["hidden"]) == ("language/enwik8-hidden8-seeds1", 1, 8)
    with pytest.raises(LabError, match="has 5 fixed learning rates a row"):
        variants.changed(given, tune=3)


def test_the_catalogue_is_what_the_modules_say():
    names = [entry.name for _, family in catalogue.groups() for entry in family]
    assert len(names) == len(set(names))
    assert set(names) == set(catalogue.studies())
    for entry in catalogue.studies().values():
        assert entry.where
        assert entry.asks
    with pytest.raises(LabError, match="unknown study 'language/ptx'"):
        catalogue.find("language/ptx")


def test_results_by_hand(made):
    found = summary.summarise(words(made[0]), made[2])
    adam, dense = found.rows
    final = {
        name: {r.spec["seed"]: r.done["metric"] for r in made[2]
               if r.spec["optimizer"] == name and r.spec["purpose"] == "final"}
        for name in ("adam", "adam@dense")
    }  # fmt: skip
    assert dict(dense.values) == final["adam@dense"]
    differences = [final["adam"][s] - final["adam@dense"][s] for s in (0, 1)]
    assert dense.verdict.difference.mean == pytest.approx(sum(differences) / 2)
    assert adam.verdict is None
    assert dense.lr == min(dense.trials, key=lambda lr: dense.trials[lr])
    assert (dense.n, dense.diverged) == (2, 0)
