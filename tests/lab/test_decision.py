"""The decision page's table follows from the judged claims."""

from __future__ import annotations

from pathlib import Path

import pytest

from adaxlab import store
from adaxlab.paper.tables import decision, example

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("verdict", "n", "use"),
    [
        ("supported", 5, "AdaX"),
        ("supported", 4, "AdaX, provisional"),
        ("contradicted", 3, "Adam, provisional"),
        ("inconclusive", 3, "either; keep Adam"),
        ("not run", 0, "not measured"),
    ],
)
def test_the_advice_follows_the_verdict(verdict, n, use):
    row = {
        "verdict": verdict,
        "n": n,
        "provisional": "provisional" in use,
        "estimate": {"text": "+0.1 [-0.1, +0.3]"},
    }
    line = decision._line(decision.TaskClaim("a task", "data", "ImageNet", "a.claim", "nats", "Adam"), row)
    seen = ("+0.1 [-0.1, +0.3] nats ([rule](claims-theory.md#claim-a-claim))", n) if n else ("", "")
    assert line == ("a task", "data, a stand-in for ImageNet", use, *seen)


def test_adaxw_is_advised_where_it_was_compared_with_adamw():
    row = {"verdict": "supported", "n": 5, "provisional": False, "estimate": {"text": "+0.1 [-0.1, +0.3]"}}
    assert decision._line(decision.TaskClaim("a task", "data", "", "a.claim"), row)[2] == "AdaX-W"


def test_the_caveats_of_a_comparison_stand_beside_its_verdict():
    for text in (decision.section(ROOT), decision.headline(ROOT)):
        lines = [line for line in text.splitlines() if line.startswith("|") and "Penn Treebank" in line]
        assert len(lines) == 2
        assert all("lr grids of different spacing" in line for line in lines)
    assert "| better (provisional, inconclusive without pairing by seed) | 3 |" in decision.headline(ROOT)


def test_a_later_claim_replaces_the_first_once_it_has_been_judged():
    task = decision.TaskClaim("a task", "data", "", "first", caveat="a caveat", later="second")
    for verdict, claim, caveat in (("not run", "first", "a caveat"), ("inconclusive", "second", "")):
        shown = decision.current(task, {"second": {"verdict": verdict}})
        assert (shown.claim, shown.caveat) == (claim, caveat)
    assert decision.current(task, {}) == task


def test_every_task_has_a_judged_claim_and_the_page_shows_it():
    text = decision.section(ROOT)
    assert text in (ROOT / "docs" / "should-i-use-adax.md").read_text()
    assert len(text.splitlines()) == 2 + len(decision.TASKS) + 1


def test_the_first_lines_of_the_readme_follow_from_the_records(tmp_path):
    text = decision.headline(ROOT)
    assert text in (ROOT / "README.md").read_text()
    empty = decision.headline(tmp_path)
    assert "not measured yet" in empty
    assert "not run yet" in empty
    assert "|" not in empty


@pytest.mark.parametrize(
    ("provisional", "text"),
    [
        ((), "significantly better in 2, worse in 1 and not significantly different in 1"),
        ((0,), "significantly better in 2 (1 of them provisional), worse in 1"),
        ((0, 1), "significantly better in 2 (provisional), worse in 1"),
    ],
)
def test_the_headline_counts_verdicts_and_the_table_shows_each(provisional, text):
    verdicts = ("supported", "supported", "contradicted", "inconclusive")
    found = [
        decision.TaskResult(f"data {i}", "AdamW", verdict, i in provisional, 3, ("a caveat",) * (i == 1))
        for i, verdict in enumerate(verdicts)
    ]
    terms = (
        "Of 4 comparisons with AdamW or Adam (table below), with the same number of settings tried for each"
    )
    assert f"{terms}, AdaX was {text}" in decision._tuned(found)
    shown = "\n".join(decision._shown(found))
    marks = "provisional, a caveat" if 1 in provisional else "a caveat"
    assert f"| data 1 | AdamW | better ({marks}) | 3 |" in shown
    assert "| data 3 | AdamW | no significant difference | 3 |" in shown


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 130


def test_the_readmes_example_is_the_answer_of_its_record(tmp_path):
    """The record holds every run that the default command asks for, made by committed code."""
    runs = store.read_export(ROOT / "records" / example.RECORD)
    assert len(runs) == example.STUDY.runs()
    assert len({run.env["commit"] for run in runs}) == 1
    assert {run.row for run in runs} == {row.name for row in example.STUDY.rows}
    assert example.section(ROOT) in (ROOT / "README.md").read_text()
    assert "Not run yet" in example.section(tmp_path)
