"""Every claim computed afresh on reduced sizes, and the committed records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adaxlab.paper.theory.cli import STUDIES

ROOT = Path(__file__).parents[2]
HELD, NOT = "supported", "contradicted"
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
