"""Tuning on Tiny-ImageNet and the runs at what it chooses: rates, means, and lines at a rate of before."""

from __future__ import annotations

import itertools
import json
import types
from dataclasses import replace

import pytest
import torch
from picture_sets import SMALL, small

from adaxlab import catalogue
from adaxlab.errors import LabError
from adaxlab.imagenet import book, drive, studies
from adaxlab.imagenet.ranks import Ranks


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small(tmp_path_factory.mktemp("pictures") / "set")


def tinier(monkeypatch, **changes):
    """The studies at the full length with a recipe for pictures of 16 pixels."""
    for name in ("tiny", "tuned"):
        study = replace(book.STUDIES[name], recipe=replace(SMALL, **changes))
        monkeypatch.setitem(book.STUDIES, name, study)


def test_tuning_has_the_memory_of_the_full_length():
    steps = {"look": 7 * -(-90_000 // 256), "full": 20 * -(-100_000 // 256)}
    for row in book.TUNING.rows:
        if row.name.startswith("adaxw"):
            want = 50.0 if "b2T50" in row.name else 1e-4 * steps["full"]
            assert row.options["betas"][1] * steps["look"] == pytest.approx(want, rel=1e-5), row.name
    for rates in book.RATES.values():
        assert rates[0] / rates[3] == pytest.approx(30)
        assert rates[1] / rates[3] == pytest.approx(10)
        assert rates[3] / rates[5] == pytest.approx(10)
        assert len(rates) == 6
    assert book.TUNING.note.startswith("6 learning rates each")
    entries = {name: what for group in catalogue.GROUPS.values() for name, (_, what) in group.items()}
    assert entries["imagenet/tuning"] == "six learning rates for each method"


def tried(best):
    """Lines of tuning in which each method's `best` lr is the best."""
    return [
        {
            "row": f"{m} lr {lr:g}",
            "options": {"lr": lr},
            "test_accuracy": 40.0 + (lr == best.get(m)),
            "curve": {"train_loss": [1.0]},
        }
        for m, rates in book.RATES.items()
        for lr in rates
    ]


def test_tuned_rows_come_from_tuning_and_runs_are_not_made_twice(folder, tmp_path, monkeypatch):
    tinier(monkeypatch, epochs=1)
    monkeypatch.chdir(tmp_path)  # where there are no committed records to fall back on
    options = dict(data=str(folder), device="cpu", seeds=1, precision="fp32", workers=1)
    with pytest.raises(
        LabError, match=r"sgdm was not tuned at lr 3, 1, 0\.3, 0\.1, 0\.03, 0\.01; run imagenet/tuning first"
    ):
        studies.run("imagenet/tuned", tmp_path, **options)
    best = {
        "sgdm": 0.1,
        "adamw": 3e-3,
        "amsgradw": 1e-3,
        "adaxw": 5e-3,
        "adaxw-b2T50": 5e-3,
    }  # the paper's for all but AdamW
    (tmp_path / "tuning.jsonl").write_text("".join(json.dumps(line) + "\n" for line in tried(best)))
    said = []
    studies.run("imagenet/tiny", tmp_path, **options)
    studies.run("imagenet/tuned", tmp_path, **options, tell=said.append)
    lines = drive.records(tmp_path / "tuned.jsonl")
    assert {r["row"]: r["options"]["lr"] for r in lines} == best
    assert [r.get("copied_from") for r in lines] == ["tiny", None, "tiny", "tiny", "tiny"]
    assert "| AdamW | 0.003 |" in said[-1]


PAPERS = {"sgdm": 0.1, "adamw": 1e-3, "amsgradw": 1e-3, "adaxw": 5e-3, "adaxw-b2T50": 5e-3}


def test_runs_at_a_rate_that_tuning_no_longer_chooses_are_set_aside(folder, tmp_path, monkeypatch):
    tinier(monkeypatch, epochs=1)
    monkeypatch.chdir(tmp_path)
    options = dict(data=str(folder), device="cpu", precision="fp32", workers=1)
    lines, old = tmp_path / "tuned.jsonl", tmp_path / "tuned.jsonl.old"

    def tuned(best, said, **more):
        text = "".join(json.dumps(line) + "\n" for line in tried(best))
        (tmp_path / "tuning.jsonl").write_text(text)
        studies.run("tuned", tmp_path, **{**options, **more}, tell=said.append)
        return [said for said in said if "set aside" in said]

    assert tuned(PAPERS, [], seeds=2) == []
    before = lines.read_text().splitlines()
    assert not old.exists()
    said = tuned({**PAPERS, "adamw": 3e-3}, [], seeds=1)  # the second seed, not asked for now, goes as well
    assert said == [f"tuned: 2 runs at an lr that tuning does not choose were set aside in {old}"]
    assert old.read_text().splitlines() == [line for line in before if '"row": "adamw"' in line]
    found = drive.records(lines)
    assert [(r["row"], r["options"]["lr"]) for r in found if r["row"] == "adamw"] == [("adamw", 3e-3)]
    assert len(found) == 9
    tuned(PAPERS, [], seeds=1)
    assert len(old.read_text().splitlines()) == 3  # what was there is kept

    # another lr and something else besides is refused, as is the same of another study
    with pytest.raises(
        LabError, match=r"tuned.jsonl: sgdm seed 0 was run with options .*0\.1.* is asked for"
    ):
        tuned({**PAPERS, "sgdm": 0.3}, [], seeds=1, epochs=2)
    monkeypatch.setitem(book.STUDIES, "tiny", replace(book.STUDIES["tiny"], rows=book.TINY.rows[:1]))
    studies.run("tiny", tmp_path, **options, seeds=1)
    faster = replace(book.TINY.rows[0], options={**book.TINY.rows[0].options, "lr": 0.3})
    monkeypatch.setitem(book.STUDIES, "tiny", replace(book.STUDIES["tiny"], rows=(faster,)))
    with pytest.raises(LabError, match=r"tiny.jsonl: sgdm seed 0 was run with options"):
        studies.run("tiny", tmp_path, **options, seeds=1)
    assert len(old.read_text().splitlines()) == 3


def test_a_checkpoint_at_such_a_rate_is_not_gone_on_from(folder, tmp_path, monkeypatch):
    tinier(monkeypatch)
    monkeypatch.chdir(tmp_path)
    options = dict(data=str(folder), device="cpu", precision="fp32", workers=1, seeds=1)
    place, tuning = tmp_path / "tuned-sgdm-0.pt", tmp_path / "tuning.jsonl"

    def cut(best, **more):
        said = []
        tuning.write_text("".join(json.dumps(line) + "\n" for line in tried(best)))
        with monkeypatch.context() as patched:
            patched.setattr(drive, "time", types.SimpleNamespace(monotonic=itertools.count().__next__))
            assert (
                studies.run("tuned", tmp_path, **{**options, **more}, seconds=14, tell=said.append) is False
            )
        return said, torch.load(place, weights_only=True)["run"][2]["lr"]

    assert cut(PAPERS)[1] == 0.1
    said, lr = cut({**PAPERS, "sgdm": 0.3})
    assert f"{place}: a run at an lr that tuning does not choose; sgdm seed 0 begins anew" in said
    assert lr == 0.3
    assert "goes on from step" in " ".join(cut({**PAPERS, "sgdm": 0.3})[0])
    with pytest.raises(LabError, match=r"tuned-sgdm-0.pt: checkpoint of a run with other settings"):
        cut(PAPERS, epochs=3)


def test_no_seed_is_used_for_tuning_and_for_the_result():
    tuning, tuned = ({run.seed for run in book.STUDIES[name].runs()} for name in ("tuning", "tuned"))
    assert (len(tuning), len(tuned)) == (1, 3)
    assert not tuning & tuned


def test_rates_are_judged_by_the_mean_over_seeds():
    lines = [{**line, "test_accuracy": 40.0 + 2 * (line["options"]["lr"] == 0.01)} for line in tried({})]
    lines += tried({"sgdm": 0.3})
    assert book.best_rates(lines)["sgdm"] == 0.01  # 41 against 40.5; the last line alone would say 0.3


def test_tuning_keeps_a_tenth_from_training(folder):
    found = studies.load(
        replace(book.TUNING, recipe=SMALL), studies.Opened(str(folder)), Ranks(torch.device("cpu"))
    )
    assert (len(found.train), len(found.test)) == (16, 2)
    assert found.train.pictures is found.test.pictures


def test_of_equal_rates_the_papers_is_taken():
    assert book.best_rates(tried({})) == {
        "sgdm": 0.1,
        "adamw": 1e-3,
        "amsgradw": 1e-3,
        "adaxw": 5e-3,
        "adaxw-b2T50": 5e-3,
    }
