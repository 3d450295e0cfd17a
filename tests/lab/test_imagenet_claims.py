"""The claims on ImageNet: verdicts from records made by hand, tables, and the committed files."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from adaxlab.imagenet import book, claims, page, studies, tables
from adaxlab.imagenet.recipe import Recipe
from adaxlab.imagenet.rules import CLAIMS, PAPER_LR, Claim, failed
from adaxlab.study import TUNE_SEED

ROOT = Path(__file__).parents[2]


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


def about(measure, rule, margin=0.0, b="b"):
    return Claim("x", "here", "a is so", "tiny", measure, rule, "a", b, margin)


@pytest.mark.parametrize(
    ("claim", "a", "b", "verdict", "ours"),
    [
        (about("final", "above"), runs("a", *HIGH), runs("b", *LOW), "held", "60.03 - 57.03 = +3.00 [+2.75, +3.25]"),
        (about("final", "above"), runs("a", *LOW), runs("b", *HIGH), "not held", "-3.00"),
        (about("final", "above", 3.0), runs("a", *HIGH), runs("b", *LOW), "undecided", "+3.00"),
        (about("final", "no-loss", 0.5), runs("a", *HIGH), runs("b", *HIGH), "held", "+0.00"),
        (about("final", "no-loss", 0.5), runs("a", *LOW), runs("b", *HIGH), "not held", "-3.00"),
        (about("final", "within", 1.0), runs("a", *HIGH), runs("b", *LOW), "not held", "+3.00"),
        (about("early", "above"), runs("a", *LOW, early=50.0), runs("b", *HIGH), "held", "50.00 - 40.00 = +10.00"),
        (about("trained", "above", 1.0), runs("a", *LOW, trained=80.5), runs("b", *HIGH), "not held", "+0.50"),
        (about("late", "below", 0.5, b=""), runs("a", *LOW), [], "not held", "+2.00 [+2.00, +2.00]"),
        (about("final", "above"), runs("a", *HIGH[:2]), runs("b", *LOW), "undecided", "2 usable seeds"),
        (about("final", "above"), runs("a", 0.5, *HIGH), runs("b", *LOW, 57.0), "not held", "1 of 4 runs of a failed"),
        (about("final", "above"), runs("a", *HIGH), runs("b", 0.5, *LOW[1:]), "undecided", "2 usable seeds; 1 of 3"),
        (about("final", "above"), runs("a", *HIGH, loss=None), runs("b", *LOW), "not held", "3 of 3 runs of a failed"),
        (about("final", "above"), [], runs("b", *LOW), "undecided", "not run (study imagenet/tiny)"),
    ],
)  # fmt: skip
def test_verdicts(claim, a, b, verdict, ours):
    judged = claims.judge(claim, [*a, *b])
    assert judged["verdict"] == verdict
    assert ours in judged["ours"]
    assert judged["n"] == (
        0 if not a else len({r["seed"] for r in a} & {r["seed"] for r in b or a}) - _lost(a, b)
    )


@pytest.mark.parametrize(
    ("a", "b", "verdict", "ours"),
    [
        (
            [3.09] * 3,
            [3.0] * 3,
            "held",
            "mean 3.09 ms / 3.00 ms; a/b of a round 1.030 [1.030, 1.030], rounds",
        ),
        ([3.6, 7.2, 3.6], [3.0, 6.0, 3.0], "not held", "a round 1.200 [1.200, 1.200]"),
        ([3.0, 3.3, 3.0, 3.3], [3.0] * 4, "undecided", "a round 1.050 ["),
        ([3.09, 3.09, 3.09, 9.0], [3.0, 3.0, 3.0], "held", "mean 3.09 ms / 3.00 ms"),
        ([3.0, 3.0], [3.0, 3.0], "undecided", "2 rounds, fewer than 3 decide nothing"),
        ([3.0] * 9, [3.0], "undecided", "1 rounds, fewer than 3 decide nothing"),
        ([3.0] * 9, [], "undecided", "not run (python -m adaxlab.imagenet speed)"),
    ],
)
def test_time_is_judged_by_rounds_in_turn(tmp_path, a, b, verdict, ours):
    (tmp_path / "imagenet").mkdir()
    (tmp_path / "imagenet" / "speed.json").write_text(
        json.dumps({"in_turn": {"study": "tiny", "ms": {"a": a, "b": b}}})
    )
    judged = claims.judge(about("step", "ratio", 0.05), [], claims.rounds(tmp_path))
    assert judged["verdict"] == verdict
    assert ours in judged["ours"]
    assert judged["n"] == min(len(a), len(b))


def test_a_measure_that_is_no_runs_is_refused():
    with pytest.raises(
        ValueError, match="measure='step': not a run's; known are final, trained, early, late"
    ):
        claims.measured("step", line("a", 0, 60.0))


def test_where_pairs_alone_decide_the_other_interval_stands_beside():
    """Seeds far apart, methods close on each; Welch's interval by hand from variances of 100 and 99.6016."""
    a, b = runs("a", 50.0, 60.0, 70.0), runs("b", 49.0, 59.04, 68.96)
    judged = claims.judge(about("final", "above"), [*a, *b])
    assert judged["verdict"] == "held"
    half = 2.776445 * ((100 + 99.6016) / 3) ** 0.5
    wanted = f"; without pairing by seed [{1 - half:+.2f}, {1 + half:+.2f}], which would be undecided"
    assert judged["ours"] == "60.00 - 59.00 = +1.00 [+0.90, +1.10]" + wanted
    far = claims.judge(about("final", "above"), [*runs("a", *HIGH), *runs("b", *LOW)])
    assert "without pairing" not in far["ours"]


def _lost(a, b):
    """Seeds that are not counted: those of failed runs, as long as enough are left to judge by."""
    bad = {r["seed"] for r in [*a, *b] if failed(r)}
    seeds = {r["seed"] for r in a} & {r["seed"] for r in b or a}
    return len(bad & seeds) if len(seeds - bad) >= 3 else 0


def test_claims_speak_of_rows_that_exist():
    assert len({c.id for c in CLAIMS}) == len(CLAIMS)
    for claim in CLAIMS:
        names = {row.name for row in book.STUDIES[claim.study].rows}
        assert claim.a in names, claim.id
        assert not claim.b or claim.b in names, claim.id
        assert claim.paper, claim.id
        assert (claim.b == "") == (claim.rule == "below")


def test_comparisons_of_ours_are_not_counted_as_the_papers_and_notes_say_which_lr():
    for claim in CLAIMS:
        ours = claim.id.startswith(("imagenet.tuned.", "imagenet.b2T50."))
        assert (claim.paper == "(ours)") == ours, claim.id
        assert claim.where.startswith("Beyond the paper") == ours, claim.id
        assert (PAPER_LR in claim.note) == (claim.study == "tiny" and claim.measure != "step"), claim.id
        assert claim.note.count("; ;") == 0
        assert not claim.note.startswith(";")


def test_the_papers_differences_are_those_of_its_tables():
    """Recomputed from the tables' means, in hundredths; of our own comparisons, the one in the note."""
    values = {"tiny": dict(sgdm=69.90, adamw=66.92, amsgradw=66.64, adaxw=69.87)}
    values["tiny-resnet50"] = dict(sgdm=77.12, adamw=68.27, amsgradw=68.76, adaxw=75.58)
    checked = 0
    for claim in CLAIMS:
        own = f"; {claim.note}; ".partition("; paper, at its own settings: ")[2].partition("; ")[0]
        said = own if claim.paper == "(ours)" else claim.paper
        if said.endswith("on ImageNet"):
            table = values["tiny" if claim.study == "tuned" else claim.study]
            difference = table[claim.a.removesuffix("-b2T50")] - table[claim.b]
            assert said == f"{difference:+.2f} on ImageNet", claim.id
            checked += 1
    assert checked == 15


def test_the_committed_claims_are_what_the_records_give():
    committed = json.loads((ROOT / "records" / "claims" / "imagenet.json").read_text())
    assert committed == claims.all_claims(ROOT / "records")


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
