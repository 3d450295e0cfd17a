"""CIFAR-10's tables and page, from the committed records."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from adaxlab import store
from adaxlab.paper import pages
from adaxlab.paper.cifar10_added_claims import CLAIMS
from adaxlab.paper.cifar10_runs import STUDIES, accuracy, load, not_run
from adaxlab.paper.tables import cifar10 as tables
from adaxlab.paper.tables import guide
from adaxlab.paper.tables.study import caption, table

RECORDS = Path(__file__).parents[2] / "records"


def shown(name, runs=None):
    found = load(name, RECORDS) if runs is None else runs
    return table(STUDIES[name], found, tables.layout(STUDIES[name], found))


def said(name, runs):
    return caption(STUDIES[name], runs, tables.layout(STUDIES[name], runs))


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
    text = shown("table2")
    values = [accuracy(r) for r in load("table2", RECORDS) if r.row == "adaxw"]
    assert f"| AdaX-W | 0.005 | 0.0001 (7.12) | 5 | {sum(values) / 5:.2f} (" in text
    assert "92.32 ± 0.04" in text
    assert pages.study("cifar10/zoo")(tmp_path) == "*Not run yet (`adax reproduce cifar10/zoo`).*"
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
    linked = (RECORDS.parent / "docs" / "claims-cifar10.md").read_text()
    for name, asked in STUDIES.items():
        found = load(name, RECORDS)
        if not found:
            assert f"- `cifar10/{name}`: {asked.title}" in page
            continue
        (part,) = (p for p in page.split("### ")[1:] if p.startswith(f"{name}\n"))
        assert asked.title in part
        for row in asked.rows:
            mine = [r for r in found if r.row == row.name]
            (line,) = (text for text in part.splitlines() if text.startswith(f"| {tables.title(row.name)} |"))
            if asked.tuning:
                tried = {lr: [accuracy(r) for r in mine if r.spec["options"]["lr"] == lr] for lr in row.rates}
                assert all(f"{lr:g}: {np.mean(seeds):.2f}" in line for lr, seeds in tried.items())
                continue
            found_n, found_mean = re.search(r"\| (\d+) \| (\d\d\.\d\d)", line).groups()
            assert int(found_n) == len(mine)
            assert float(found_mean) == pytest.approx(sum(map(accuracy, mine)) / len(mine), abs=0.00501)
            found_loss = re.findall(r"\| (\d\.\d{4})(?= \|)", line)[-1]
            assert float(found_loss) == pytest.approx(np.mean([r.done["train_loss"] for r in mine]), abs=6e-5)
        for claim in (c for c in CLAIMS if c.study == f"cifar10/{name}"):
            anchor = "claim-" + claim.id.replace(".", "-")
            assert f"](claims-cifar10.md#{anchor})" in part
            assert f'<a id="{anchor}">' in linked


def test_the_best_of_each_method_stands_out():
    bold = [cell.strip(" *") for cell in shown("tuning").split("|") if "**" in cell]
    assert [cell.partition(":")[0] for cell in bold] == ["0.1", "0.003", "0.003", "0.005"]


def test_the_table_at_the_papers_rates_says_what_tuned_ones_give(tmp_path):
    assert tables.at_best(tmp_path) == ""
    text = tables.at_best(RECORDS)
    assert "With 5 learning rates tried per method" in text
    for row, lr in (("adamw", "0.003"), ("adaxw", "0.005")):
        lines = load("tuning", RECORDS)
        top = max(accuracy(r) for r in lines if r.row == row)
        assert f"{top:.2f} ({tables.TITLES[row]}, lr {lr})" in text
    assert text in (RECORDS.parent / "docs" / "reproduction.md").read_text()


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
    ("stacks", "words"),
    [
        ([(25, 558.0)] * 25, "25 networks at once in 9.3 minutes; "),
        (
            [(5, 8.1)] * 5 + [(5, 8.0)] * 5,
            "2 times 5 networks at once (16.1 seconds in all); ",
        ),
        ([(1, 8.0)] * 10, "one network at a time, 1.3 minutes in all; "),
    ],
)
def test_the_caption_says_what_trained_together(stacks, words):
    found = load("runtime", RECORDS)[:1]
    found = [timed(found[0], n, seconds) for n, seconds in stacks]
    text = said("runtime", found)
    assert words in text
    assert ("earlier version" in text) == (stacks[0][0] > 1)


def test_a_time_of_a_stack_counts_once():
    found = load("runtime", RECORDS)
    alone = [timed(r, 1, 8.0 + r.spec["seed"]) for r in found]
    apart = {True: alone, False: [timed(r, 5, 8.0) for r in found]}
    for single, seconds in ((True, "10.0 (n = 5)"), (False, "8.0 (n = 1)")):
        lines = [line for line in shown("runtime", apart[single]).splitlines() if line.startswith("| Ada")]
        assert [line.split("|")[-2].strip() for line in lines] == [seconds] * 2


def test_runs_of_another_study_say_whose_they_are():
    lines = {line.split("|")[1].strip(): line for line in shown("epsilon").splitlines()}
    assert lines["AdaX-W, eps 1e-12"].endswith("| table2 |")
    assert lines["AdaX-W, eps 1e-8"].endswith("|  |")


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
    text = guide.settings(RECORDS.parent)
    assert text in (RECORDS.parent / "docs" / "hyperparameters.md").read_text()
    squares, free, rows = 0.0, 0, 0
    for study in ("lr", "lr-new", "beta1", "beta1-new", "beta2-new", "epsilon", "epsilon-new"):
        found = load(study, RECORDS)
        for row in {r.row for r in found if r.row.startswith("adaxw ")}:
            values = np.array([accuracy(r) for r in found if r.row == row])
            assert f"{values.mean():.2f} at {row.split()[-1]}" in text
            rows += 1
            if len(values) > 2:
                squares, free = squares + np.square(values - values.mean()).sum(), free + len(values) - 1
    assert rows == 9 + 4 + 4 + 2 + 3 + 4 + 3
    assert f"deviation between seeds is {np.sqrt(squares / free):.2f})" in text
    assert guide.settings(tmp_path).startswith("*Not run yet")
