"""CIFAR-10's tables and page, from the committed records."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from adaxlab import store
from adaxlab.paper.cifar10_claims import CLAIMS
from adaxlab.paper.cifar10_runs import STUDIES, accuracy, label, labels, load, not_run
from adaxlab.paper.tables import cifar10 as tables
from adaxlab.paper.tables import cifar10_guide as guide

RECORDS = Path(__file__).parents[2] / "records"


def test_the_main_table_is_complete():
    found = load("table2", RECORDS)
    assert len(found) == 25
    rows = [row.name for row in STUDIES["table2"].rows]
    assert [(r.row, r.spec["seed"]) for r in found] == [(row, s) for row in rows for s in range(5)]
    for r in found:
        assert r.done["steps"] == 182 * 391
        assert len(r.metrics) == 182
        assert r.done["metric"] == r.metrics[-1]["metric"]


def test_table_from_records(tmp_path):
    text = tables.table("table2", RECORDS)
    values = [accuracy(r) for r in load("table2", RECORDS) if r.row == "adaxw"]
    assert f"| AdaX-W | 5 | {sum(values) / 5:.2f} |" in text
    assert "92.32 ± 0.04" in text
    assert tables.table("zoo", tmp_path) == "*CIFAR-10, zoo: not run yet (`adax reproduce cifar10/zoo`).*"
    assert set(not_run(tmp_path)) == set(STUDIES)
    assert "table2" not in not_run(RECORDS)


def test_the_documentation_shows_the_recorded_speed():
    page = (RECORDS.parent / "docs" / "cifar10.md").read_text()
    record = json.loads((RECORDS / "cifar10" / "throughput.json").read_text())
    for row in record["rows"]:
        cells = (
            str(row["models"]),
            row["precision"],
            f"{row['train_seconds']:.3f}",
            f"{row['test_seconds']:.3f}",
        )
        assert f"| {' | '.join(cells)} |\n" in page
    assert page.count("| bf16 |") + page.count("| tf32 |") + page.count("| fp32 |") == len(record["rows"])
    whole = record["whole"]
    assert f"The whole table took {whole['seconds']:.0f} s" in page
    seconds = {r.done["seconds"] for r in load("table2", RECORDS)}
    assert seconds == {whole["seconds"]}


def test_the_documentation_shows_every_study_that_was_run():
    """Its question, every row's mean as computed here, its claims by links that lead somewhere; the rest by name."""
    page = (RECORDS.parent / "docs" / "cifar10.md").read_text()
    linked = (RECORDS.parent / "docs" / "claims.md").read_text()
    for name, study in STUDIES.items():
        found = load(name, RECORDS)
        if not found:
            assert f"- `cifar10/{name}`: {study.title}\n" in page
            continue
        (part,) = (p for p in page.split("### ")[1:] if p.startswith(f"{name}\n"))
        assert study.title in part
        for row in labels(study):
            values = [accuracy(r) for r in found if label(r) == row]
            (shown,) = (text for text in part.splitlines() if text.startswith(f"| {tables.title(row)} "))
            cells = [cell.strip(" *") for cell in shown.split("|")]
            assert cells[2] == str(len(values))
            assert float(cells[3]) == pytest.approx(sum(values) / len(values), abs=0.00501)
            losses = [r.done["train_loss"] for r in found if label(r) == row]
            assert float(cells[-2 if study.share else -3]) == pytest.approx(
                sum(losses) / len(losses), abs=6e-5
            )
        for claim in (c for c in CLAIMS if c.study == f"cifar10/{name}"):
            anchor = "claim-" + claim.id.replace(".", "-")
            assert f"[{claim.id}](claims.md#{anchor})" in part
            assert f'<a id="{anchor}">' in linked


def test_the_best_of_each_method_stands_out():
    text = tables.show(STUDIES["tuning"], load("tuning", RECORDS))
    bold = [row.split("|")[1].strip() for row in text.splitlines() if "**" in row]
    assert bold == ["SGDM, lr 0.1", "AdamW, lr 0.003", "AMSGrad(W), lr 0.003", "AdaX-W, lr 0.005"]


def test_the_table_at_the_papers_rates_says_what_tuned_ones_give(tmp_path):
    assert tables.at_best(tmp_path) == ""
    text = tables.at_best(RECORDS)
    assert "With 5 learning rates tried per method" in text
    for row, lr in (("adamw", "0.003"), ("adaxw", "0.005")):
        lines = load("tuning", RECORDS)
        top = max(accuracy(r) for r in lines if r.row == row)
        assert f"{top:.2f} ({tables.TITLES[row]}, lr {lr})" in text
    assert text in (RECORDS.parent / "README.md").read_text()


def test_the_lead_at_tuned_rates_is_told_once_every_row_is_there(tmp_path):
    (tmp_path / "cifar10").mkdir()
    for name in ("tuning", "fresh", "table2"):
        text = (RECORDS / "cifar10" / f"{name}.jsonl").read_text()
        (tmp_path / "cifar10" / f"{name}.jsonl").write_text(text)
    assert tables.at_best(tmp_path) == tables.at_best(RECORDS)

    def mean(study, row):
        found = load(study, RECORDS)
        return np.mean([accuracy(r) for r in found if r.row == row])

    for row, name in (("adamw", "AdamW"), ("amsgradw", "AMSGrad(W)")):
        before, after = (mean(study, "adaxw") - mean(study, row) for study in ("table2", "fresh"))
        assert f"from {before:+.2f} to {after:+.2f} points over {name}" in tables.at_best(RECORDS)
    part = [r for r in load("fresh", tmp_path) if r.row != "amsgradw"]
    store.export(part, tmp_path / "cifar10" / "fresh.jsonl")
    assert tables.at_best(tmp_path).endswith("tests whether the ranking holds.")


def test_runs_that_were_trained_twice_are_compared():
    found = load("trace", RECORDS)
    main = {(r.row, r.spec["seed"]): r for r in load("table2", RECORDS)}
    moved = [accuracy(r) - accuracy(main["adaxw", r.spec["seed"]]) for r in found if r.row == "adaxw"]
    text = tables.again(STUDIES["trace"], found, RECORDS)
    assert "in points: AdamW none" in text
    assert "AdaX-W " + ", ".join(f"{m:+.2f}" for m in moved) in text
    for name in ("table2", "epsilon", "tuned"):
        assert tables.again(STUDIES[name], load(name, RECORDS), RECORDS) == ""


def timed(run, together, seconds):
    return replace(run, done={**run.done, "together": together, "seconds": seconds})


@pytest.mark.parametrize(
    ("stacks", "said"),
    [
        ([(25, 558.0)] * 25, "25 networks at once in 9.3 minutes. "),
        (
            [(5, 8.1)] * 5 + [(5, 8.0)] * 5,
            "5 networks at once in 8.1 seconds and 5 networks at once in 8.0 seconds. ",
        ),
        ([(1, 8.0)] * 10, "one network at a time, 1.3 minutes in all. "),
    ],
)
def test_the_caption_says_what_trained_together(stacks, said):
    found = load("runtime", RECORDS)[:1]
    found = [timed(found[0], n, seconds) for n, seconds in stacks]
    text = tables.caption(STUDIES["runtime"], found)
    assert said in text
    assert ("earlier version" in text) == (stacks[0][0] > 1)


def test_a_time_of_a_stack_counts_once():
    found = load("runtime", RECORDS)
    alone = [timed(r, 1, 8.0 + r.spec["seed"]) for r in found]
    apart = {True: alone, False: [timed(r, 5, 8.0) for r in found]}
    for single, shown in ((True, "10.0 (n = 5)"), (False, "8.0 (n = 1)")):
        rows = [
            row
            for row in tables.show(STUDIES["runtime"], apart[single]).splitlines()
            if row.startswith("| Ada")
        ]
        assert [row.split("|")[-2].strip() for row in rows] == [shown] * 2


def test_a_study_with_fewer_seeds_than_planned_says_so():
    found = load("epsilon", RECORDS)
    assert "seeds." not in tables.caption(STUDIES["epsilon"], found)
    less = [r for r in found if r.spec["seed"] < 2]
    assert tables.caption(STUDIES["epsilon"], less).endswith("2 of 3 seeds have been run so far.")


def test_a_study_cut_short_says_what_is_missing():
    found = [r for r in load("epsilon", RECORDS) if "eps 1e-5" not in r.row]
    found = [replace(r, done={**r.done, "metric": 0.1}) if r.row == "adaxw eps 1e-8" else r for r in found]
    text = tables.show(STUDIES["epsilon"], found)
    assert "| AdamW, eps 1e-5 | 0 | not run | | | |\n" in text
    assert "| AdaX-W, eps 1e-8 | 0 | all 3 failed | | | |\n" in text
    assert "| AdaX-W, eps 1e-12 (table2's runs) | 3 |" in text


def test_the_page_is_built_from_the_committed_records(tmp_path):
    pytest.importorskip("altair")
    from adaxlab.paper.cifar10_page import write

    text = write(RECORDS, tmp_path / "cifar10.html").read_text()
    assert "adaxw" in text
    assert "0.0005" in text
    assert "0.0001" in text
    assert "cifar10.adaxw-over-adamw" in text
    assert "http://" not in text.replace("http://www.w3.org", "")


def _refuse(value):
    raise ValueError(f"{value} is not JSON")


def test_records_are_plain_json():
    found = list((RECORDS / "cifar10").glob("*.jsonl"))
    assert found
    for path in found:
        for text in path.read_text().splitlines():
            json.loads(text, parse_constant=_refuse)


def test_the_guide_says_what_each_setting_gave(tmp_path):
    """Means and the pooled deviation of seeds, as computed here; studies that are not whole are left out."""
    text = guide.settings(RECORDS)
    assert text in (RECORDS.parent / "docs" / "hyperparameters.md").read_text()
    deviations, rows = [], 0
    for study in ("lr", "beta1", "beta2", "epsilon"):
        found = load(study, RECORDS)
        for row in {r.row for r in found if r.row.startswith("adaxw ")}:
            values = np.array([accuracy(r) for r in found if r.row == row])
            assert f"{values.mean():.2f} at {row.split()[-1]}" in text
            rows += 1
            if len(values) > 2:
                deviations += list(values - values.mean())
    assert rows == 9 + 4 + 3 + 4
    free = len(deviations) * 2 / 3  # three seeds each
    assert f"deviation between seeds is {np.sqrt(np.sum(np.square(deviations)) / free):.2f})" in text
    assert guide.settings(tmp_path).startswith("*Not run yet")
