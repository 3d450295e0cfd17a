"""The store: whole or absent, ours or untouched."""

from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from adaxlab import files, spec, store
from adaxlab.errors import StoreError
from adaxlab.execute import process

TINY = str(Path(__file__).with_name("tiny.py"))


def spec_of(**changes):
    given = dict(
        study="s", task=f"{TINY}:Tiny", optimizer="adaxw", options={}, epochs=2, batch_size=16, seed=0
    )
    return spec.make(**{**given, **changes})


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    root = tmp_path_factory.mktemp("filled")
    for seed in range(3):
        process.run(spec_of(seed=seed), root)
    return root


@pytest.fixture
def root(filled, tmp_path):
    shutil.copytree(filled, tmp_path / "runs")
    return tmp_path / "runs"


def test_a_run_folder_as_designed(root):
    path = root / "s" / spec.digest(spec_of())
    asked = json.loads((path / "spec.json").read_text())
    assert asked == spec_of()
    assert list(asked)[:5] == ["batch_size", "epochs", "optimizer", "options", "purpose"]
    assert {
        "schema", "study", "task", "task_options", "optimizer", "options", "schedule", "epochs", "batch_size",
        "seed", "purpose", "trial",
    } <= set(asked)  # fmt: skip
    lines = (path / "metrics.jsonl").read_text().splitlines()
    assert [set(json.loads(line)) for line in lines] == 2 * [
        {"step", "epoch", "train_loss", "train_metric", "valid_loss", "metric", "lr", "seconds"}
    ]
    done = json.loads((path / "done.json").read_text())
    assert {
        "status", "metric", "best", "train_loss", "seconds", "step_seconds", "loop_seconds", "metric_name",
        "higher_is_better",
    } <= set(done)  # fmt: skip


def test_load_from_anywhere(root, tmp_path):
    records = store.load_runs(root)
    assert [r.spec["seed"] for r in sorted(records, key=lambda r: r.spec["seed"])] == [0, 1, 2]
    assert store.load_runs(root / "s") == records
    assert store.load_runs(records[0].path) == [records[0]]
    exported = store.export(records, tmp_path / "records" / "s.jsonl")
    assert store.load_runs(exported) == sorted(records, key=lambda r: r.name)
    assert store.load_runs(exported.parent) == store.load_runs(exported)
    again = store.export(reversed(store.load_runs(exported)), tmp_path / "again.jsonl")
    assert again.read_bytes() == exported.read_bytes()


def test_the_hash_tells_every_field_apart():
    base = spec.digest(spec_of())
    changes = [
        {"seed": 1}, {"epochs": 3}, {"batch_size": 8}, {"optimizer": "adamw"}, {"options": {"lr": 0.1}},
        {"schedule": "cosine"}, {"purpose": "tune", "trial": 0}, {"task_options": {"rows": 50}}, {"data": "a1b2"},
    ]  # fmt: skip
    names = [spec.digest(spec_of(**change)) for change in changes]
    assert len({base, *names}) == len(changes) + 1
    assert spec.digest(spec_of()) == base
    assert spec.digest(spec_of(options={"lr": 5e-3})) == base  # the default, written out


def test_the_hash_leaves_out_what_does_not_change_a_run():
    base = spec.digest(spec_of())
    assert spec.digest(spec_of(study="t")) == spec.digest(spec_of(row="mine")) == base
    assert spec.digest(spec_of(optimizer="adaxw@again")) == base
    here, there = ({"data": "a1b2", "task_options": {"data": place}} for place in ("/here", "/there"))
    assert spec.digest(spec_of(**here)) == spec.digest(spec_of(**there))
    unknown = [spec.digest(spec_of(task_options={"data": place})) for place in ("/here", "/there")]
    assert len(set(unknown)) == 2  # without a digest of the data their place is all that is known of them


def damage(path, how):
    if how == "spec is not JSON":
        (path / "spec.json").write_text('{"schema": 1,')
    elif how == "another version":
        given = json.loads((path / "spec.json").read_text())
        (path / "spec.json").write_text(json.dumps({**given, "schema": 99}))
    elif how == "spec changed":
        given = json.loads((path / "spec.json").read_text())
        (path / "spec.json").write_text(json.dumps({**given, "seed": 77}))
    elif how == "no spec":
        (path / "spec.json").unlink()
    elif how == "done is not JSON":
        (path / "done.json").write_text("")
    elif how == "done is something else":
        (path / "done.json").write_text("[]")
    elif how == "metrics are cut":
        text = (path / "metrics.jsonl").read_text()
        (path / "metrics.jsonl").write_text(text[:-5])
    elif how == "metrics are not JSON":
        (path / "metrics.jsonl").write_text("step,loss\n1,2\n")


DAMAGE = [
    ("spec is not JSON", "is not JSON"),
    ("another version", "run folder of schema 99, this version reads 2"),
    ("spec changed", "spec.json was changed"),
    ("no spec", "not a run folder"),
    ("done is not JSON", "is not JSON"),
    ("done is something else", "has no status"),
    ("metrics are cut", "last line is cut off"),
    ("metrics are not JSON", "not JSON"),
]


def snapshot(path):
    return {p.name: p.read_bytes() for p in path.iterdir()}


@pytest.mark.parametrize(("how", "words"), DAMAGE, ids=[row[0] for row in DAMAGE])
def test_a_damaged_folder_is_reported_by_path_and_left(how, words, root):
    path = root / "s" / spec.digest(spec_of())
    damage(path, how)
    before = snapshot(path)
    problems = []
    records = store.load_runs(root, problems.append)
    assert len(records) == 2  # the others are not lost
    assert len(problems) == 1
    assert str(path) in str(problems[0])
    assert words in str(problems[0])
    with pytest.warns(store.StoreWarning, match=str(path)):
        store.load_runs(root)
    if how not in ("done is not JSON", "metrics are cut", "metrics are not JSON", "done is something else"):
        (path / "done.json").unlink()  # as if it were unfinished: a run must not write into it
        before = snapshot(path)
    with pytest.raises(StoreError, match=str(path)):
        process.run(spec_of(), root)
    assert snapshot(path) == before


def test_exported_files_that_overlap(root, tmp_path):
    every = store.load_runs(root)
    unfinished = replace(every[0], done=None)
    store.export([unfinished, every[1]], tmp_path / "out" / "a.jsonl")
    store.export(every, tmp_path / "out" / "b.jsonl")
    found = store.load_runs(tmp_path / "out")
    assert sorted(found, key=lambda r: r.name) == sorted(every, key=lambda r: r.name)


def test_foreign_folders_are_reported(root):
    (root / "synthetic").mkdir()
    (root / "synthetic" / "synthetic.json").write_text("{}")  # a record of `adax reproduce`: no stranger
    (root / "photos").mkdir()
    (root / "photos" / "cat.jpg").write_bytes(b"cat")
    (root / "s" / "notes").mkdir()
    (root / "s" / "notes" / "a.txt").write_text("a")
    problems = []
    assert len(store.load_runs(root, problems.append)) == 3
    assert sorted(str(p).split(":")[0] for p in problems) == [str(root / "photos"), str(root / "s" / "notes")]


def test_an_unfinished_run_may_have_half_a_line(root):
    path = root / "s" / spec.digest(spec_of())
    (path / "done.json").unlink()
    with open(path / "metrics.jsonl", "a") as file:
        file.write('{"step": 99')
    record = store.read_run(path)
    assert record.status == "unfinished"
    assert [line["epoch"] for line in record.metrics] == [1, 2]


def test_nothing_there():
    with pytest.raises(StoreError, match="no such file or folder"):
        store.load_runs("no/such/place")


@pytest.mark.parametrize(
    "text",
    ["", "hello\n", '{"kind": "other", "schema": 1, "runs": 0}\n', '{"kind": "adaxopt-runs", "schema": 1, "runs": 3}\n',
     '{"kind": "adaxopt-runs", "schema": 1, "runs": 0}\n'],
)  # fmt: skip
def test_a_file_that_is_no_export(text, tmp_path):
    (tmp_path / "x.jsonl").write_text(text)
    with pytest.raises(StoreError, match=str(tmp_path / "x.jsonl")):
        store.read_export(tmp_path / "x.jsonl")


class TestWrites:
    def test_atomic(self, tmp_path, monkeypatch):
        path = tmp_path / "a.json"
        files.write_json(path, {"a": 1})
        for name in ("fsync", "replace"):
            with monkeypatch.context() as patch:

                def fail(*arguments):
                    raise OSError(errno.ENOSPC, "No space left on device")

                patch.setattr(os, name, fail)
                with pytest.raises(StoreError, match="No space left on device; free some space"):
                    files.write_json(path, {"a": 2})
            assert json.loads(path.read_text()) == {"a": 1}
            assert [p.name for p in tmp_path.iterdir()] == ["a.json"]

    def test_a_line_that_does_not_fit_is_cut_off_again(self, tmp_path, monkeypatch):
        lines = files.Appender(tmp_path / "m.jsonl", 0)
        lines.add({"a": 1})
        real = os.write

        def half(handle, data):
            if len(data) > 5:
                return real(handle, data[:5])
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", half)
            with pytest.raises(StoreError, match="nothing is lost"):
                lines.add({"b": 2})
        lines.add({"c": 3})
        lines.close()
        assert (tmp_path / "m.jsonl").read_text() == '{"a": 1}\n{"c": 3}\n'

    def test_what_a_killed_write_left_is_cleared(self, tmp_path):
        folder = store.RunFolder(tmp_path, spec_of())
        folder.path.mkdir(parents=True)
        (folder.path / "spec.json.123.tmp").write_text('{"sch')
        assert process.run(spec_of(), tmp_path).done["status"] == "finished"
        assert not list(folder.path.glob("*.tmp"))

    def test_metrics_shorter_than_the_checkpoint_says(self, tmp_path):
        (tmp_path / "m.jsonl").write_text("{}\n")
        with pytest.raises(StoreError, match="shorter than its checkpoint says"):
            files.Appender(tmp_path / "m.jsonl", 10)
        assert (tmp_path / "m.jsonl").read_text() == "{}\n"

    def test_nan_is_refused(self, tmp_path):
        with pytest.raises(ValueError, match="JSON compliant"):
            files.write_json(tmp_path / "a.json", float("nan"))


def test_rows_that_share_a_run(tmp_path):
    """adaxw and adaxw@slow may choose the same lr: the run is made once, and belongs to both."""
    root, names = tmp_path / "runs", ["adaxw", "adaxw@slow"]
    made = [process.run(spec_of(row=name, purpose="tune", trial=i), root) for i, name in enumerate(names)]
    assert made[0].path == made[1].path
    assert len(list(root.glob("s/*/done.json"))) == 1

    def labels(place):
        return [(run.row, run.spec["trial"]) for run in store.load_runs(place)]

    both = list(zip(names, (0, 1), strict=True))
    assert labels(root) == labels(made[0].path) == both
    file = store.export(store.load_runs(root), tmp_path / "out.jsonl")
    assert labels(file) == both
    other = tmp_path / "other"
    assert store.bring(file, other) == 1
    assert labels(other) == both
    assert store.bring(file, other) == 0
