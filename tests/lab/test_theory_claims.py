"""Every claim computed afresh on reduced sizes, and the committed records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adaxlab.paper.theory.cli import STUDIES

ROOT = Path(__file__).parents[2]
YES, NOT = "supported", "contradicted"
VERDICTS = {
    "reddi": {
        "S2.4": YES, "S2.5": YES, "S2.6": YES, "S2.7": NOT, "S2.8": YES, "S2.9": YES, "S4.7": YES, "S4.8": YES,
    },
    "synthetic": {
        "S3.1": YES, "S3.2": YES, "S3.3": YES, "T3.1": YES, "T3.1m": YES, "T3.1e": NOT, "S3.4": YES, "S3.5": YES,
        "T3.2": NOT, "T3.2c": YES, "S3.6": YES, "S3.7": YES, "S3.8": NOT, "S4.9": YES, "S4.10": YES, "F5.1": NOT,
        "F5.2": YES,
    },
    "theory": {
        "S2.1": YES, "S2.2": NOT, "S2.3": NOT, "S4.1": YES, "S4.2": YES, "S4.3": YES, "S4.4": YES, "S4.5": YES,
        "S4.6": NOT, "L4.1": YES, "L4.1c": NOT, "L7.1": YES, "L7.2": YES, "L7.3": NOT, "L7.3c": YES,
        "T4.1": YES, "C4.1": YES, "C4.1v": YES,
        "T4.1o": NOT,
        "T4.1r": YES, "T4.1b": NOT, "T4.2": YES, "T4.2s": YES, "T4.2a": YES, "T4.2c": NOT, "T4.2d": YES,
        "D1": YES, "D2": YES, "D3": YES, "D4": YES, "D5": YES, "D6": YES, "E1": NOT, "E2": YES, "E3": NOT,
        "E13": YES,
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
