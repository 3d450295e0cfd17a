"""The whole of `adax compare` against itself: tuning, final runs and verdict of one method on independent seeds."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from adaxlab.paper.tables import example
from adaxlab.study import Tuning

HERE = Path(__file__).parents[2] / "benchmarks" / "fairness.py"
TINY = str(Path(__file__).with_name("tiny.py"))


@pytest.fixture(scope="module")
def fairness():
    spec = importlib.util.spec_from_file_location("fairness", HERE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_method_is_not_better_than_itself(fairness, tmp_path):
    made = list(fairness.against_itself(f"{TINY}:Tiny", 6, tmp_path, trials=2, epochs=1))
    for result in made:
        assert [row.name for row in result.rows] == list(fairness.NAMES)
        assert {(row.n, len(row.scores)) for row in result.rows} == {(5, 2)}
        runs = [run.path.name for row in result.rows for run in row.runs]
        assert len(set(runs)) == len(runs), "no run is on two sides"
    found = [fairness.outcomes(result) for result in made]
    for each in found:
        assert [one["outcome"] is None for one in each] == [True, False, False, False]
        assert all(len(one["results"]) == 5 and one["lr"] in one["trials"] for one in each)
    same = [
        [one for one in each[1:] if one["lr"] == each[0]["lr"]] for each in found
    ]  # else the rates may differ
    assert any(same)
    wrong = sum(any(one["outcome"] in ("better", "worse") for one in each) for each in same)
    assert wrong <= 3  # at most 0.3 expected; 4 or more have a chance of 1 in 10,000 on a machine


def test_tuning_is_part_of_what_is_repeated(fairness, tmp_path):
    [one] = fairness.against_itself(f"{TINY}:Tiny", 1, tmp_path, trials=2, epochs=1)
    assert one.study.tuning == Tuning(2, first_seed=10_003_000)


def test_the_share_of_verdicts_has_its_interval():
    """Wilson's, by hand: 2 of 40 is 5%, from 1.4% to 16.5%."""
    copy = {"outcome": "inconclusive"}
    one, two = [{"outcome": None}, copy, copy], [{"outcome": None}, copy, {"outcome": "worse"}]
    text = example.wrong({"task": "digits", "comparisons": 38 * [one] + 2 * [two]})
    assert text.startswith(
        "In 40 comparisons of AdamW with two copies of itself on other seeds, 2 (5%, 95% interval 1% to 17%) called at "
        "least one copy better or worse."
    )
