"""docs/claims.md and docs/claims-*.md as text: their sections, order, links, and what they refuse."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from adaxlab.claim import OF_RUNS, anchor, family, row
from adaxlab.paper import claims_text
from adaxlab.paper.claims import FAMILIES, judged
from adaxlab.paper.claims_page import pages
from adaxlab.paper.theory.record import order

RECORDS = Path(__file__).parents[2] / "records"
THEORY = [json.loads(path.read_text()) for path in sorted((RECORDS / "theory").glob("*.json"))]
OURS = sorted((row for record in THEORY for row in record["claims"]), key=order)


def test_every_claim_is_complete_and_on_the_page_that_links_lead_to():
    others = [row for part in judged(RECORDS).values() for row in part]
    made = pages(RECORDS, others)
    assert len(made) == 7
    for one in OURS + others:
        assert one["rule"]
        assert one["ours"]
        there = [name for name, text in made.items() if f'id="{anchor(one["id"])}"' in text]
        assert there == [f"claims-{family(one['id'])}.md"]
        assert made[there[0]].count(f'id="{anchor(one["id"])}"') == 1
        assert f"| [{one['id']}]({there[0]}#{anchor(one['id'])}) |" in made["claims.md"]
    shown = {id for record in THEORY for one in record.get("errata", []) for id in one["shown_by"]}
    assert shown <= {one["id"] for one in OURS + others}
    assert {one["id"] for one in OURS if one["verdict"] == "contradicted"} <= shown


def test_every_family_of_claims_has_a_page():
    assert set(OF_RUNS) == set(FAMILIES)
    assert set(claims_text.FAMILIES) == {"theory", *OF_RUNS}


def test_every_part_is_linked_at_the_top():
    others = [row for part in judged(RECORDS).values() for row in part]
    for text in pages(RECORDS, others).values():
        head, _, body = text.partition("\n## ")
        links = re.findall(r"^- \[.*\]\(#([a-z0-9-]+)\)$", head, flags=re.M)
        headings = re.findall(r"^## (.*)", "## " + body, flags=re.M)
        assert len(links) == len(set(links)) == len(headings)
        there = {*re.findall(r'<a id="(part-[^"]*)"', text), *(h.lower().replace(" ", "-") for h in headings)}
        assert set(links) <= there


def test_a_test_that_holm_turns_says_so():
    entry = pages(RECORDS, [a_claim(p=0.0624, family=8)])["claims-theory.md"]
    assert "- Test: adjusted p = 0.062 (Holm's method, 8 claims of the study), not below 0.05" in entry


def test_the_order_of_the_page():
    wanted = "S2.1 S2.9 T3.1 T3.1e T3.2 T3.2c S4.9 S4.10 L4.1 L4.1c L7.1 T4.1 C4.1 F5.1 D2 E2 E13"
    assert [one["id"] for one in OURS if one["id"] in wanted.split()] == wanted.split()


def a_claim(**changes):
    made = row(
        "X1",
        "CIFAR-10",
        "AdaX | wins.",
        paper="92.3",
        ours="92.1 [91.9, 92.3]",
        rule="b2*T, c*x",
        holds=None,
        n=5,
    )
    return {**made, **changes}


def test_experiments_get_their_own_sections(tmp_path):
    made = pages(tmp_path, [a_claim()])
    assert "## CIFAR-10" in made["claims-theory.md"]
    assert "- Rule: b2·T, c\\*x" in made["claims-theory.md"]
    assert "- Computed (n = 5): 92.1 [91.9, 92.3]" in made["claims-theory.md"]
    text = made["claims.md"]
    assert "| [X1](claims-theory.md#claim-x1) | paper | AdaX \\| wins. | inconclusive |" in text
    assert "1 claims of the paper:" in text
    assert "| theory, computed | 0 | 0 | 1 | 0 | 0 | 1 |" in text


def test_what_was_not_run_is_not_called_inconclusive(tmp_path):
    made = pages(tmp_path, [a_claim(n=0, verdict="not run"), a_claim(id="X2", verdict="contradicted")])
    text = made["claims.md"]
    assert "2 claims of the paper:" in text
    assert "1 of the paper's 2 claims are contradicted.\n\n1 by computation:\n\n| id | claim |" in text
    assert "\n| [X2](claims-theory.md#claim-x2) | AdaX \\| wins. |\n" in text
    assert "| theory, computed | 0 | 1 | 0 | 1 | 0 | 2 |" in text
    assert "### X1: not run" in made["claims-theory.md"]


def test_contradicted_claims_on_runs_have_their_result_and_limits(tmp_path):
    runs = "uncommitted changes (6 runs); commit e758abc00f90 (4 runs)"
    row = a_claim(id="voc.x", verdict="contradicted", n=3, provisional=True, runs=runs)
    text = pages(tmp_path, [row])["claims.md"]
    assert (
        "| [voc.x](claims-voc.md#claim-voc-x) | AdaX \\| wins. | stand-ins | 92.1 [91.9, 92.3] | 3 | "
        "provisional, n = 3; uncommitted changes (6 runs) |" in text
    )


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"id": "X1"}], "claim 'X1' lacks section, claim"),
        (
            [a_claim(verdict="maybe")],
            "verdict='maybe'; allowed are supported, contradicted, inconclusive, not run",
        ),
        ([a_claim(), a_claim()], "the ids X1 occur twice"),
    ],
)
def test_bad_claims_are_refused(tmp_path, rows, message):
    with pytest.raises(ValueError, match=message):
        pages(tmp_path, rows)
