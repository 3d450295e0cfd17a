"""Tables and page of ImageNet, from records made by hand."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from adaxlab.imagenet import book, page, studies, tables
from adaxlab.imagenet.recipe import Recipe
from adaxlab.study import TUNE_SEED


def line(row, seed, test, trained=80.0, early=40.0, seconds=100.0, loss=1.0):
    """A run of ten epochs: three early ones, then training at `trained`; the test accuracy ends at `test`."""
    return {
        "study": "tiny",
        "row": row,
        "seed": seed,
        "optimizer": "adaxw" if row.startswith("adax") else "torch:AdamW",
        "options": {"lr": 0.005},
        "recipe": asdict(Recipe(epochs=10)),
        "images": 100_000,
        "test_images": 10_000,
        "classes": 200,
        "steps": 3910,
        "precision": "bf16",
        "b2_steps": 0.391 if row.startswith("adax") else None,
        "test_accuracy": test,
        "train_accuracy": trained,
        "train_loss": loss,
        "curve": {
            "test_accuracy": [10.0] * 6 + [test - 2] * 3 + [test],
            "train_accuracy": [early] * 3 + [trained] * 7,
            "train_loss": [1.0] * 9 + [loss],
        },
        "seconds": seconds,
        "images_per_second": 10_000.0,
        "environment": {"hardware": {"device": "a device"}},
    }


def runs(row, *tests, **rest):
    return [line(row, seed, test, **rest) for seed, test in enumerate(tests)]


HIGH, LOW = (60.0, 60.2, 59.9), (57.0, 57.3, 56.8)


def test_a_table_from_records(tmp_path):
    assert "Not run yet (`adax reproduce imagenet/tiny`)" in tables.table("tiny", tmp_path)
    found = [*runs("adaxw", *HIGH), *runs("adamw", 0.5, *LOW[1:]), *runs("sgdm", 0.5)]
    place = tmp_path / "records" / "imagenet"
    place.mkdir(parents=True)
    (place / "tiny.jsonl").write_text("".join(json.dumps(r) + "\n" for r in found))
    text = tables.table("tiny", tmp_path)
    assert "| AdaX-W | 0.005 | 0.391 | 3 | 60.03 | 59.65 to 60.41 | 80.00 | 69.87 ± 0.05 |" in text
    assert "| AdamW | 0.001 |  | 2 (1 failed) | 57.05 |" in text
    assert "| SGDM | 0.1 |  | 0 | all 1 failed |  |  | 69.90 ± 0.04 |" in text
    assert "| AMSGrad(W) | 0.001 |  | 0 | not run |  |  | 66.64 ± 0.03 |" in text
    assert "200 classes, 100,000 pictures" in text
    assert "validation pictures; a device." in text


def tuning(best, seed=TUNE_SEED):
    """Lines of tuning in which each method's `best` lr is the best."""
    return [
        {**line(f"{method} lr {lr:g}", seed, 40.0 + (lr == best.get(method))), "options": {"lr": lr}}
        for method, rates in book.RATES.items()
        for lr in rates
    ]


def of(lines, **tests):
    """The lines with other accuracies for SGDM, by lr."""
    return [
        {**r, "test_accuracy": tests.get(r["row"].replace("sgdm lr ", "lr_"), r["test_accuracy"])}
        for r in lines
    ]


def sgdm_row(text):
    return next(one for one in text.splitlines() if one.startswith("| SGDM |"))


def test_of_failed_runs_and_several_seeds_the_mean_of_the_others_is_shown():
    two = replace(book.TUNING, seeds=2)
    lines = [*tuning({"sgdm": 0.1}), *tuning({"sgdm": 0.3}, TUNE_SEED + 1)]
    # lr 3 failed on both seeds, lr 1 on one of them
    lines = [*of(lines[:30], lr_3=0.5, lr_1=0.5), *of(lines[30:], lr_3=1.0, lr_1=43.0)]
    text = tables.tried(two, lines)
    assert sgdm_row(text) == (
        "| SGDM |  | 3: failed | 1: **43.00** | 0.3: 40.50 | 0.1: 40.50 | 0.03: 40.00 | 0.01: 40.00 |"
    )
    assert text.endswith(" 3 runs failed; a mean is of the others.")
    assert book.best_rates(lines)["sgdm"] == 1.0
    # none is the best before all have ended; runs are counted, not lines
    twice = [*lines[:59], lines[0]]
    assert "**" not in tables.tried(two, twice)
    assert tables.tried(two, twice).endswith(" 1 of 60 runs are still to be made.")
    alone = tables.tried(book.TUNING, lines[30:])  # another seed than the one asked for
    assert "**" not in alone
    assert alone.endswith(" 30 of 30 runs are still to be made.")
    lost = [{**r, "test_accuracy": 0.5} for r in lines]
    assert "**" not in tables.tried(two, lost)
    assert book.best_rates(lost)["adamw"] == 1e-3


def test_a_best_rate_at_the_edge_is_said(tmp_path):
    tried = tuning({"sgdm": 0.1, "adamw": 1e-4, "amsgradw": 1e-3, "adaxw": 1.5e-1, "adaxw-b2T50": 5e-3})
    place = tmp_path / "records" / "imagenet"
    place.mkdir(parents=True)
    for name, lines in (("tuning", tried), ("tuned", runs("adaxw", *HIGH)), ("tiny", runs("adaxw", *HIGH))):
        (place / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in lines))
    assert tables.table("tuned", tmp_path).endswith(
        "Best at the edge of the rates that were tried: AdamW, AdaX-W."
    )
    assert "edge" not in tables.table("tiny", tmp_path)
    shown = tables.table("tuning", tmp_path)
    assert "| 0.1: **41.00** |" in shown
    assert "still to be made" not in shown
    (place / "tuning.jsonl").write_text("".join(json.dumps(r) + "\n" for r in tried[1:]))
    assert " | 3: – | 1: 40.00 | 0.3: 40.00 | 0.1: 41.00 |" in tables.table("tuning", tmp_path)
    assert tables.table("tuning", tmp_path).endswith(" 1 of 30 runs are still to be made.")


def test_runs_that_wait_for_the_others_are_counted(tmp_path):
    place = tmp_path / "records" / "unfinished"
    place.mkdir(parents=True)
    (place / "imagenet-tuned.jsonl").write_text(json.dumps(line("sgdm", 0, 40.0)) + "\n")
    (place / "imagenet-tiny-resnet50.jsonl").write_text(json.dumps(line("sgdm", 0, 40.0)) + "\n")
    assert "1 of 15 runs have ended" in tables.table("tuned", tmp_path)
    assert "--out` those at the lr that tuning chooses count as made.*" in tables.table("tuned", tmp_path)
    assert "--out` they count as made.*" in tables.table("tiny-resnet50", tmp_path)
    assert "Not run yet" in tables.table("tiny", tmp_path)


@pytest.mark.parametrize(("epochs", "said"), [(0, False), (1, True)])
def test_a_shortened_study_says_so_under_its_table(epochs, said):
    study = studies.changed(studies.find("tiny"), epochs=epochs)
    assert ("Changed from the study's own length" in tables.show(study, [])) is said


def test_a_page_from_records(tmp_path, capsys):
    assert page.main(["--records", str(tmp_path), "--out", str(tmp_path / "page.html")]) == 2
    assert "no ImageNet records" in capsys.readouterr().err
    place = tmp_path / "imagenet"
    place.mkdir()
    found = [*runs("adaxw", *HIGH), *runs("adaxw-b2T50", *HIGH), *runs("adamw", 0.5, *LOW[1:])]
    tuned = {**line("adaxw-b2T50 lr 0.05", TUNE_SEED, 41.0), "study": "tuning", "options": {"lr": 0.05}}
    assert [r.spec["optimizer"] for r in page.as_runs([tuned])] == ["adaxw@b2T=50"]
    (place / "tiny.jsonl").write_text("".join(json.dumps(r) + "\n" for r in found))
    made = page.load(place)
    assert [r.spec["optimizer"] for r in made[::3]] == ["adaxw", "adaxw@b2T=50", "adamw"]
    assert [r.status for r in made[6:]] == ["diverged", "finished", "finished"]
    last = made[0].metrics[-1]
    assert (last["step"], last["epoch"], last["metric"]) == (3910, 10, 0.6)
    assert last["lr"] == pytest.approx(0.005 * 1e-3)
    assert page.main(["--records", str(tmp_path), "--out", str(tmp_path / "page.html")]) == 0
    text = (tmp_path / "page.html").read_text()
    assert "a stand-in for ImageNet" in text
    assert "Not run yet: tuning, tuned, tiny-resnet50." in text
    assert "imagenet.adaxw-over-adamw" in text
