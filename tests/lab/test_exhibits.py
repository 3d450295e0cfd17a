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
    assert len(text.splitlines()) == 2 + len(exhibits.EXHIBITS)


@pytest.mark.parametrize("each", exhibits.EXHIBITS, ids=lambda each: each.tuned)
def test_a_stand_in_is_named_and_the_tuned_claim_is_another_study(each):
    asked = {claim.id: claim for family in claims.FAMILIES.values() for claim in family}
    assert ("stand-in" in each.data) == (not each.tuned.startswith("cifar10."))
    if each.settings:
        one, two = asked[each.settings], asked[each.tuned]
        assert one.rule == two.rule
        assert one.study != two.study


def test_a_claim_without_runs_is_said_to_be_one():
    assert exhibits._cell({"verdict": "not run"}) == "not run"
