"""The report's table of exhibits follows from the judged claims."""

from __future__ import annotations

from pathlib import Path

import pytest

from adaxlab.paper import claims
from adaxlab.paper.tables import exhibits

ROOT = Path(__file__).parents[2]


def test_the_page_shows_every_exhibit():
    text = exhibits.section(ROOT)
    assert text in (ROOT / "docs" / "reproduction.md").read_text()
    assert all(text.count(f"| {each.compared} |") for each in exhibits.EXHIBITS)
    assert text.count("\n| claim |") == len({each.data for each in exhibits.EXHIBITS})


@pytest.mark.parametrize("each", exhibits.EXHIBITS, ids=lambda each: each.tuned or each.settings)
def test_a_stand_in_is_named_and_the_tuned_claim_is_another_study(each):
    asked = {claim.id: claim for family in claims.FAMILIES.values() for claim in family}
    assert ("stand-in" in each.data) == (not (each.tuned or each.settings).startswith("cifar10."))
    if each.settings and each.tuned:
        one, two = asked[each.settings], asked[each.tuned]
        assert one.rule == two.rule
        assert one.study != two.study


def test_the_page_begins_with_the_answers():
    text = exhibits.answers(ROOT)
    page = (ROOT / "docs" / "reproduction.md").read_text()
    assert text in page[: page.index("\n## ")]
    rows = {row["id"]: row for row in claims.committed(ROOT / "records")}
    theirs = [row for row in rows.values() if row["by"] == "paper"]
    open_ = [row for row in theirs if row["verdict"] in ("inconclusive", "not run")]
    assert f"{len(open_)} of the paper's {len(theirs)} claims" in text
    assert "Not judged yet" in exhibits.answers(ROOT / "docs")


def test_a_stand_in_says_how_its_runs_differ(tmp_path):
    text = exhibits.section(ROOT)
    assert "1/64 of the paper's steps, b2·T = 0.78 instead of 50" in text
    assert (
        "+0.42 [+0.32, +0.51] (without pairing by seed [-0.74, +1.58], which would be inconclusive)" in text
    )
    assert exhibits._facts(tmp_path, exhibits.STAND_INS["CamVid"]) == ""


def test_a_claim_without_runs_is_said_to_be_one():
    assert exhibits._cell({"verdict": "not run"}) == "not run"
