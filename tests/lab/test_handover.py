"""A study over several bookings: what has ended goes along, is taken up again, and nothing else is."""

from __future__ import annotations

import dataclasses
import json

import pytest
import text_sets
import torch
import voc_sets

from adaxlab import grid, handover, store
from adaxlab.errors import Interrupted, LabError, StoreError
from adaxlab.language import studies
from adaxlab.models.deeplab import deeplab
from adaxlab.settings import Settings
from adaxlab.tasks.voc import digest
from adaxlab.voc import studies as voc

SMALL = {
    "text": "folder",
    "batch": 4,
    "bptt": 5,
    "embedding": 8,
    "hidden": 12,
    "projection": 6,
    "samples": 16,
}
STUDY = grid.Grid(
    name="language-moved", task="language", rows=studies.ROWS[:2], baseline="adam", epochs=1, tune=2, seeds=2,
    task_options=SMALL, schedule={"name": "linear"}, end_lr=1e-8,
)  # fmt: skip
SMALL_VOC = {"steps": 1, "batch": 2, "crop": 33, "backbone": "resnet50"}
WHOLE = 2 * (2 + 2)
run = grid.runner({"small": STUDY})


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(text, folder of the runs, runs, record) of the whole study."""
    root = tmp_path_factory.mktemp("made")
    text = text_sets.benchmark(root / "text", lines=40)
    record = json.loads(run("small", root / "runs", data=str(text), device="cpu").read_text())
    lines = root / "runs" / "language-moved.jsonl"
    assert str(root) not in lines.read_text()
    return text, root / "runs", store.read_export(lines), record


def test_it_goes_on_where_the_text_lies_elsewhere_and_makes_no_run_again(made, tmp_path, capsys):
    text, _, runs, record = made
    assert len(runs) == WHOLE
    some = store.export(runs[:5], tmp_path / "some.jsonl")
    there = tmp_path / "there"
    there.symlink_to(text)
    path = tmp_path / "r" / "moved.json"
    again = run("small", tmp_path / "b", data=str(there), device="cpu", reuse=str(some), record=str(path))
    assert again == path
    assert "language-moved: 5 runs taken over from" in capsys.readouterr().err
    written = json.loads(path.read_text())
    assert written["rows"] == record["rows"]
    assert sum(where["runs"] for where in written["runs_made_at"]) == WHOLE
    moved = {r.name: r for r in store.read_export(tmp_path / "b" / "language-moved.jsonl")}
    assert len(moved) == WHOLE
    for r in runs[:5]:  # seconds to the microsecond are among them
        assert (moved[r.name].done, moved[r.name].metrics) == (r.done, r.metrics)
    assert path.with_suffix(".jsonl").read_bytes() == (tmp_path / "b" / "language-moved.jsonl").read_bytes()
    assert len(store.load_runs(tmp_path / "b")) == WHOLE  # not once more from the file beside the folder


def test_a_file_that_was_brought_is_taken_up_by_itself(made, tmp_path):
    text, _, runs, _ = made
    brought = store.export(runs, tmp_path / "language-moved.jsonl")
    before = brought.read_bytes()
    run("small", tmp_path, data=str(text), device="cpu", seconds=1e-3)
    assert brought.read_bytes() == before


@pytest.mark.parametrize("kind", ["file", "no digest", "folder"])
def test_runs_on_another_text_are_refused(kind, made, tmp_path):
    """By the digest of the data that every run has, in a file and in a store."""
    _, folder, runs, _ = made
    if kind == "no digest":
        runs = [dataclasses.replace(r, env={k: v for k, v in r.env.items() if k != "data"}) for r in runs]
    some = store.export(runs, tmp_path / "some.jsonl")
    other = text_sets.benchmark(tmp_path / "other", lines=80)
    given = folder if kind == "folder" else some
    with pytest.raises(LabError, match=r"^reuse=.*other data"):
        run("small", tmp_path / "b", data=str(other), device="cpu", reuse=str(given))
    assert not list((tmp_path / "b").rglob("done.json"))
    store.export(runs, tmp_path / "c" / "language-moved.jsonl")
    with pytest.raises(LabError, match=r"moved\.jsonl: holds runs on other data .*; take another --out"):
        run("small", tmp_path / "c", data=str(other), device="cpu")


def test_what_the_study_does_not_ask_for_is_left_out(made, tmp_path, capsys):
    """Another recipe, a further seed, another row: neither taken up nor handed on."""
    text, folder, runs, _ = made
    some = store.export(runs, tmp_path / "some.jsonl")
    placed = dataclasses.replace(STUDY, task_options={**SMALL, "data": str(text)})
    wider = dataclasses.replace(STUDY, task_options={**SMALL, "hidden": 13, "data": str(text)})
    with pytest.raises(LabError, match=r"some\.jsonl: holds no ended run that the study language-moved asks"):
        handover.take_over(wider, tmp_path / "b", some)
    for less, count in (
        (dataclasses.replace(placed, seeds=1), 2 * (2 + 1)),
        (dataclasses.replace(placed, rows=STUDY.rows[:1]), 2 + 2),
        (dataclasses.replace(placed, epochs=2), 0),
        (dataclasses.replace(placed, epochs=2, tune_epochs=1), 2 * 2),
        (placed, WHOLE),
    ):
        assert handover.hand_over(less, folder, tmp_path / "out.jsonl") == count
    brought = store.export(runs, tmp_path / "d" / "language-moved.jsonl")
    before = brought.read_bytes()
    capsys.readouterr()
    assert handover.Clerk(dataclasses.replace(placed, seeds=1), tmp_path / "d").write() == 2 * (2 + 1)
    assert "; 2 that the study does not ask for were left out" in capsys.readouterr().err
    assert brought.with_suffix(".jsonl.old").read_bytes() == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, f"{WHOLE} of {WHOLE}"),
        ({"epochs": 2, "tune_epochs": 1}, f"4 of {WHOLE}"),
        ({"seeds": 1}, "6 of 6"),
        ({"task_options": {**SMALL, "hidden": 13}}, f"0 of {WHOLE}"),
        ({"rows": STUDY.rows[:1]}, "4 of 4"),
    ],
)
def test_a_page_counts_the_runs_that_the_study_asks_for(made, tmp_path, change, said):
    _, _, runs, _ = made
    assert "Not run yet" in handover.not_complete(STUDY, tmp_path, "small")
    store.export(runs, tmp_path / "records" / "unfinished" / "language-moved.jsonl")
    text = handover.not_complete(dataclasses.replace(STUDY, **change), tmp_path, "small")
    assert f"{said} runs have ended" in text


def test_what_is_named_wrongly_is_said_before_any_run(made, tmp_path):
    text, _, runs, _ = made
    placed = dataclasses.replace(STUDY, task_options={**SMALL, "data": str(text)})
    other = store.export(runs[:1], tmp_path / "folder" / "x.jsonl").parent
    assert handover.take_over(dataclasses.replace(placed, name="other"), tmp_path / "c", other) == 0
    with pytest.raises(LabError, match=r"nothing: no such file or folder; OUT/language-moved\.jsonl"):
        handover.take_over(placed, tmp_path / "c", tmp_path / "nothing")
    with pytest.raises(LabError, match=r"record=x\.jsonl: must end in \.json"):
        run("small", tmp_path / "c", data=str(text), record="x.jsonl")


def test_runs_that_the_store_has_or_another_is_at_stay_as_they_are(made, tmp_path):
    text, _, runs, _ = made
    placed = dataclasses.replace(STUDY, task_options={**SMALL, "data": str(text)})
    changed = [dataclasses.replace(r, done={**r.done, "metric": 0.0}) for r in runs]
    first, second = (store.export(part, tmp_path / f"{i}.jsonl") for i, part in enumerate((runs, changed)))
    handover.take_over(placed, tmp_path / "b", store.export(runs[:1], tmp_path / "one.jsonl"))
    options = {**runs[1].spec["task_options"], "data": str(text)}
    held = store.RunFolder(tmp_path / "b", {**runs[1].spec, "task_options": options})
    with held.lock():
        handover.take_over(placed, tmp_path / "b", first)
        assert not held.finished()
    handover.take_over(placed, tmp_path / "b", second)
    ended = handover.bare(store.load_runs(tmp_path / "b" / "language-moved"))
    assert {r.name: r.done["metric"] for r in ended} == {
        r.name: 0.0 if r.name == runs[1].name else r.done["metric"] for r in runs
    }


def test_a_study_that_is_interrupted_leaves_its_file(made, tmp_path, monkeypatch):
    text, _, runs, _ = made
    some = store.export(runs[:3], tmp_path / "some.jsonl")

    def stopped(*given):
        raise Interrupted("stopped", 15)

    monkeypatch.setattr(grid, "carry_out", stopped)
    with pytest.raises(Interrupted):
        run("small", tmp_path / "b", data=str(text), device="cpu", reuse=str(some))
    assert len(store.read_export(tmp_path / "b" / "language-moved.jsonl")) == 3


def test_the_file_is_written_while_the_study_runs(made, tmp_path, monkeypatch):
    text = made[0]
    placed = dataclasses.replace(STUDY, task_options={**SMALL, "data": str(text)})
    monkeypatch.setattr(handover, "PAUSE", -1.0)
    clerk = handover.Clerk(placed, tmp_path)
    assert grid.carry_out(placed, tmp_path, Settings(), 0.0, grid.Lines(clerk)) is not None
    assert len(store.read_export(clerk.path)) == WHOLE


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
    text, _, runs, _ = made
    path = store.export(runs, tmp_path / "some.jsonl")
    head, *rest = path.read_text().splitlines()
    last = json.loads(rest[-1])
    damage(last)
    path.write_text("\n".join([head, *rest[:-1], json.dumps(last)]) + "\n")
    with pytest.raises(StoreError, match=r"some\.jsonl"):
        run("small", tmp_path / "b", data=str(text), device="cpu", reuse=str(path))
    assert not (tmp_path / "b").exists()


def test_segmentation_on_other_pictures_or_from_other_weights_is_refused(tmp_path):
    root = voc_sets.camvid(tmp_path / "set", counts=(3, 1, 1))
    call = dict(data=str(root), weights="scratch", device="cpu", seeds=1, **SMALL_VOC)
    assert voc.run("camvid", tmp_path / "a", **call)
    (path,) = (tmp_path / "a").glob("*.jsonl")
    runs = store.read_export(path)
    store.export(runs[:4], tmp_path / "records" / "camvid.jsonl")
    assert voc.run("camvid", tmp_path / "b", reuse=str(tmp_path / "records"), **call)
    again = {r.name: r.done["seconds"] for r in store.read_export(tmp_path / "b" / path.name)}
    assert [again[r.name] == r.done["seconds"] for r in runs] == [True] * 4 + [False]
    others = voc_sets.camvid(tmp_path / "other", counts=(3, 1, 2))
    with pytest.raises(LabError, match="other data or from other weights"):
        voc.run("camvid", tmp_path / "c", reuse=str(path), **{**call, "data": str(others)})
    with pytest.raises(LabError, match=r"is of one study, 2 are named; give a folder"):
        voc.run(["camvid", "tuning"], tmp_path / "c", reuse=str(path), **call)
    digests = set()
    for seed in (0, 1):
        torch.manual_seed(seed)
        net = tmp_path / f"{seed}" / "net.pth"
        net.parent.mkdir()
        torch.save(deeplab("resnet50", 11, "torch").state_dict(), net)
        with pytest.raises(LabError, match="other data or from other weights"):
            voc.run("camvid", tmp_path / "c", reuse=str(path), **{**call, "weights": str(net)})
        digests.add(digest(str(root), "camvid", "raise", str(net)))
    assert len(digests | {runs[0].env["data"]}) == 3
