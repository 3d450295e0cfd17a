"""Every claim computed afresh on reduced sizes, the committed records, and the page that is made from them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adaxlab.theory import claims
from adaxlab.theory.cli import STUDIES

ROOT = Path(__file__).parents[2]
HELD, NOT = "held", "not held"
VERDICTS = {
    "reddi": {
        "S2.4": HELD, "S2.5": HELD, "S2.6": HELD, "S2.7": NOT, "S2.8": HELD, "S2.9": HELD, "S4.7": HELD, "S4.8": HELD,
    },
    "synthetic": {
        "S3.1": HELD, "S3.2": HELD, "S3.3": HELD, "T3.1": HELD, "T3.1m": HELD, "T3.1e": NOT, "S3.4": HELD, "S3.5": HELD,
        "T3.2": NOT, "T3.2c": HELD, "S3.6": HELD, "S3.7": HELD, "S3.8": NOT, "S4.9": HELD, "S4.10": HELD, "F5.1": NOT,
        "F5.2": HELD,
    },
    "theory": {
        "S2.1": HELD, "S2.2": NOT, "S2.3": NOT, "S4.1": HELD, "S4.2": HELD, "S4.3": HELD, "S4.4": HELD, "S4.5": HELD,
        "S4.6": NOT, "L4.1": HELD, "L4.1c": NOT, "L7.1": HELD, "T4.1": HELD, "C4.1": HELD, "C4.1v": HELD, "T4.1o": NOT,
        "T4.1r": HELD, "T4.1b": NOT, "T4.2": HELD, "T4.2s": HELD, "T4.2a": HELD, "T4.2c": NOT, "T4.2d": HELD,
        "D1": HELD, "D2": HELD, "D3": HELD, "D4": HELD, "D5": HELD, "D6": HELD, "E1": NOT, "E2": HELD, "E3": NOT,
        "E13": HELD,
    },
}  # fmt: skip


@pytest.fixture(scope="module", params=list(STUDIES))
def fresh(request):
    make, reduced = STUDIES[request.param]
    return make(**reduced)


def test_verdicts_computed_afresh(fresh):
    assert {row["id"]: row["verdict"] for row in fresh["claims"]} == VERDICTS[fresh["name"]]


def test_a_record_is_plain_data(fresh):
    assert json.loads(json.dumps(fresh, allow_nan=False)) == fresh
    assert fresh["schema"] == 1
    assert set(fresh["versions"]) == {"adaxopt", "numpy", "python"}


@pytest.mark.parametrize("name", VERDICTS)
def test_the_committed_records_say_the_same(name):
    record = json.loads((ROOT / f"records/theory/{name}.json").read_text())
    assert {row["id"]: row["verdict"] for row in record["claims"]} == VERDICTS[name]


def test_the_page_is_what_the_records_give():
    page = (ROOT / "docs/claims.md").read_text()
    assert page == claims.page(ROOT / "records"), "run `python -m adaxlab.theory.claims`"


def test_every_claim_is_complete_and_linked():
    theory, ours, others = claims.load(ROOT / "records")
    text = claims.page(ROOT / "records")
    for row in ours:
        assert row["rule"]
        assert row["ours"]
        assert text.count(f'id="{claims._anchor(row["id"])}"') == 1
    ids = {row["id"] for row in ours + others}
    shown = {id for record in theory for row in record.get("errata", []) for id in row["shown_by"]}
    assert shown <= ids


def test_the_order_of_the_page():
    _, ours, _ = claims.load(ROOT / "records")
    ids = [row["id"] for row in ours]
    wanted = [
        "S2.1",
        "S2.9",
        "T3.1",
        "T3.1e",
        "T3.2",
        "T3.2c",
        "S4.9",
        "S4.10",
        "L4.1",
        "L4.1c",
        "L7.1",
        "T4.1",
        "C4.1",
    ]
    wanted += ["F5.1", "D2", "E2", "E13"]
    assert [id for id in ids if id in wanted] == wanted


def write(folder: Path, rows: list[dict]) -> Path:
    (folder / "claims").mkdir(parents=True)
    (folder / "claims" / "cifar.json").write_text(json.dumps(rows))
    return folder


def a_claim(**changes) -> dict:
    row = claims.claim(
        "X1", "CIFAR-10", "AdaX | wins.", paper="92.3", ours="92.1 [91.9, 92.3]", rule="b2*T", held=None, n=5
    )
    return {**row, **changes}


def test_other_experiments_get_their_own_section(tmp_path):
    text = claims.page(write(tmp_path, [a_claim()]))
    assert "## CIFAR-10" in text
    assert "| [X1](#claim-x1) | AdaX \\| wins. | **undecided** |" in text
    assert "- Rule: b2\\*T" in text
    assert "- Computed (n = 5): 92.1 [91.9, 92.3]" in text
    assert "**1 claims of the paper: 1 undecided.**" in text


def test_what_was_not_run_is_not_called_undecided(tmp_path):
    text = claims.page(write(tmp_path, [a_claim(n=0), a_claim(id="X2", verdict="not held")]))
    assert "**2 claims of the paper: 1 not held, 1 not run yet.**" in text
    assert "### X1: not run yet" in text


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"id": "X1"}], "claim 'X1' lacks section, claim"),
        ([a_claim(verdict="maybe")], "verdict='maybe'; allowed are held, not held, undecided"),
        ([a_claim(), a_claim()], "the ids X1 occur twice"),
    ],
)
def test_bad_claims_are_refused(tmp_path, rows, message):
    with pytest.raises(ValueError, match=message):
        claims.page(write(tmp_path, rows))


def test_check_tells_a_stale_page(tmp_path):
    records = write(tmp_path / "records", [a_claim()])
    page = tmp_path / "docs" / "claims.md"
    where = ["--records", str(records), "--out", str(page)]
    assert claims.main([*where, "--check"]) == 1
    assert claims.main(where) == 0
    assert claims.main([*where, "--check"]) == 0
    page.write_text(page.read_text() + "edited")
    assert claims.main([*where, "--check"]) == 1
