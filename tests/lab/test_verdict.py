"""The rule of a comparison: paired t test, Holm over the optimizers, diverged runs last, few seeds decide nothing."""

from __future__ import annotations

import math
import random

import pytest

from adaxlab import stats, verdict
from adaxlab.errors import LabError
from adaxlab.stats import DecisionRule
from adaxlab.verdict import verdicts


def by_seed(values):
    return dict(enumerate(values))


def judged(differences, rule=None, **others):
    """The verdict on a row with these differences to a baseline of zeros; None is a run that diverged."""
    base = by_seed([0.0] * len(differences))
    rows = {name: by_seed(values) for name, values in others.items()}
    return verdicts({"base": base, "row": by_seed(differences), **rows}, "base", rule)["row"]


@pytest.mark.parametrize(
    ("differences", "outcome", "word"),
    [
        ([0.5, 0.6, 0.4, 0.5, 0.6], "better", "better"),
        ([-0.5, -0.6, -0.4, -0.5, -0.6], "worse", "worse"),
        ([0.5, -0.6, 0.4, 0.1, -0.2], "inconclusive", "inconclusive"),
        ([0.5, 0.6, 0.4], "better", "better (provisional)"),
        ([0.5, -0.6, 0.4, 0.1], "inconclusive", "inconclusive (provisional)"),
        ([0.5, 0.6], "none", "no verdict"),
        ([0.5], "none", "no verdict"),
        ([], "none", "no verdict"),
    ],
)
def test_outcomes_and_their_words(differences, outcome, word):
    found = judged(differences)
    assert (found.outcome, found.word, found.n) == (outcome, word, len(differences))
    assert ("needs 3 seeds" in found.why) == (outcome == "none")


def test_lower_may_be_better():
    values = {"base": by_seed([1.0, 1.1, 0.9]), "row": by_seed([0.5, 0.61, 0.4])}
    assert verdicts(values, "base", higher_is_better=False)["row"].outcome == "better"
    assert verdicts(values, "base", higher_is_better=True)["row"].outcome == "worse"


def test_margin_and_confidence_move_the_verdict():
    values = [0.5, 0.6, 0.4, 0.5]
    assert judged(values, DecisionRule(margin=0.3)).outcome == "better"
    assert judged(values, DecisionRule(margin=0.45)).outcome == "inconclusive"
    assert (
        judged(values, DecisionRule(margin=0.8)).outcome == "inconclusive"
    )  # within the margin is not worse
    assert judged([-v for v in values], DecisionRule(margin=0.3)).outcome == "worse"
    assert judged(values, DecisionRule(margin=0.3, confidence=0.9999)).outcome == "inconclusive"


def test_one_comparison_is_decided_by_its_interval():
    source = random.Random(3)
    for _ in range(200):
        values = [source.gauss(0.5, 1.0) for _ in range(5)]
        seen = stats.t_interval(values)
        expected = "better" if seen.low > 0 else "worse" if seen.high < 0 else "inconclusive"
        assert judged(values).outcome == expected


def test_several_comparisons_share_the_error_rate():
    close = [0.5, 0.6, 0.1, 0.3, 0.4]  # p = 0.012 alone
    noise = [0.1, -0.1, 0.2, -0.2, 0.05]
    assert judged(close).p == pytest.approx(0.01153, abs=1e-5)
    four = dict.fromkeys("abcd", noise)
    assert judged(close, **four).p == pytest.approx(5 * judged(close).p)
    assert (judged(close).outcome, judged(close, **four).outcome) == ("better", "inconclusive")
    assert judged(close, DecisionRule(correction="none"), **four).outcome == "better"
    assert (
        judged(close, **four).difference == judged(close).difference
    )  # the interval that is shown is the plain one


def test_false_verdicts_over_three_rows_are_as_rare_as_the_rule_says():
    source = random.Random(9)
    wrong = 0
    for _ in range(700):
        values = {name: by_seed(source.gauss(0, 1) for _ in range(5)) for name in ("base", "a", "b", "c")}
        wrong += any(found.outcome != "inconclusive" for found in verdicts(values, "base").values())
    assert 0.01 < wrong / 700 < 0.075  # 0.05 at most and three standard errors; without the correction 0.12


@pytest.mark.parametrize(
    ("ours", "base", "outcome"),
    [
        ([None] * 5, [0.0] * 5, "worse"),
        ([None] * 3, [0.0] * 3, "worse"),
        ([None, None, None, None, 9.0], [0.0] * 5, "worse"),
        ([None, None, None, 9.0, 9.1], [0.0] * 5, "inconclusive"),
        (
            [None, 1.0, 1.1, 0.9, 1.0],
            [0.0] * 5,
            "inconclusive",
        ),  # better where it ended, and it did not always end
        ([1.0] * 5, [None] * 5, "better"),
        ([None] * 5, [None] * 5, "none"),
        ([None, 1.0, 1.1, 0.9, 1.0], [None, 0.0, 0.0, 0.0, 0.0], "better"),
        ([None, None, None, 0.9, 0.91], [None, None, None, 0.5, 0.505], "none"),  # two pairs are too few
    ],
)
def test_a_diverged_run_ranks_below_every_finished_one(ours, base, outcome):
    found = verdicts({"base": by_seed(base), "row": by_seed(ours)}, "base")["row"]
    assert found.outcome == outcome
    both = sum(a is None and b is None for a, b in zip(ours, base, strict=True))
    assert (found.n, found.diverged) == (len(ours) - both, ours.count(None) + base.count(None))


def test_the_limit_for_diverged_runs_is_that_of_the_t_test():
    for signs in ([-1, -1, -1, -1, 0], [-1, 0, 0, 0, 0], [-1, -1, 1, 0, 0, -1]):
        far = [1e9 * s + x for s, x in zip(signs, (0.1, -0.3, 0.2, 0.4, -0.1, 0.3), strict=False)]
        assert verdict._p_diverged([float(s) for s in signs]) == pytest.approx(stats.p_value(far), rel=1e-6)


@pytest.mark.parametrize("values", [[1e-12, 2e-12, 1.5e-12], [0.0, 0.0, 0.0], [4e-8, 3e-8, 5e-8]])
def test_differences_of_rounding_decide_nothing(values):
    base = {"base": by_seed([0.5] * 3), "row": by_seed(0.5 + x for x in values)}
    found = verdicts(base, "base")["row"]
    assert (found.outcome, found.why, found.needed) == (
        "inconclusive",
        "all results are the same up to rounding",
        None,
    )


def test_equal_differences_decide_nothing():
    found = judged([0.97 - 0.95, 0.96 - 0.94, 0.02])
    assert (found.outcome, found.why, found.needed) == ("inconclusive", "all differences are equal", None)


@pytest.mark.parametrize("values", [[1.0, 2.0, 3.0], [0.1, -0.4, 0.9, 0.3, -0.2], [1.0, -1.0, 0.2]])
@pytest.mark.parametrize("rows", [1, 3])
def test_needed_is_the_first_n_that_decides(values, rows):
    others = {
        f"row{i}": [9.0, 9.1, 8.9, 9.0, 9.05][: len(values)] for i in range(rows - 1)
    }  # these are decided
    found = judged(values, **others)
    assert found.outcome == "inconclusive"
    gap, s = abs(stats.mean(values)), stats.sd(values)

    def half(n):
        return stats.t_quantile(0.975, n - 1) * s / math.sqrt(n)

    assert half(found.needed) < gap <= half(found.needed - 1)


def test_needed_when_nothing_would_decide():
    assert judged([1.0, -1.0, 0.5, -0.5]).needed is None


def test_rows_without_a_verdict_are_no_part_of_the_correction():
    values = {"base": by_seed([0.0] * 5), "a": by_seed([0.5, 0.6, 0.1, 0.3, 0.4]), "b": by_seed([0.1] * 5)}
    found = verdicts(values, "base", without={"b": "it crashed"})
    assert (found["b"].outcome, found["b"].why) == ("none", "it crashed")
    assert found["a"].p == pytest.approx(0.01153, abs=1e-5)
    assert {v.outcome for v in verdicts(values, "base", without={"base": "it crashed"}).values()} == {"none"}


@pytest.mark.parametrize(
    "bad",
    [
        {"confidence": 1.0},
        {"confidence": 0},
        {"least": 2},
        {"margin": -1},
        {"margin": math.nan},
        {"correction": "bh"},
    ],
)
def test_rule_refuses(bad):
    with pytest.raises(LabError, match="must be"):
        DecisionRule(**bad)
