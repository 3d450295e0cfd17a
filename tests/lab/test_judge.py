"""The judge on runs made by hand: measures, rules, the adjustment over a study, what is open."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from adaxlab import records, stats
from adaxlab.claim import KEYS, Claim, words
from adaxlab.finding import outcome
from adaxlab.judge import judge
from adaxlab.measures import MEASURES, failed, percent
from adaxlab.store import RunRecord


def run(row, seed, value=50.0, *, study="s/x", purpose="final", lr=1.0, curve=None, **done):
    """A run that ends at `value` percent (None: it diverged); `curve` has (training metric, training loss, metric)."""
    end = None if value is None else value / 100
    lines = [
        {"train_metric": t / 100, "train_loss": loss, "metric": m / 100}
        for t, loss, m in curve or [(50, 1, 50)] * 10
    ]
    spec = {
        "study": study,
        "row": row,
        "seed": seed,
        "purpose": purpose,
        "epochs": len(lines),
        "options": {"lr": lr},
    }
    done = {
        "status": "diverged" if value is None else "finished",
        "metric": end,
        "seconds": 100.0,
        "higher_is_better": True,
        **done,
    }
    return RunRecord(spec, {}, lines, done, Path("s"))


def rows(**values):
    return [run(row, seed, value) for row, each in values.items() for seed, value in enumerate(each)]


def claim(rule="better", measure="accuracy", margin=0.0, b="b", **more):
    return Claim("x", "a is so", "Section 5", "s/x", rule, measure, "a", b, margin, **more)


YES, NO, OPEN = "supported", "contradicted", "inconclusive"
A, LOW, SAME = [92.5, 92.4, 92.6], [91.5, 91.6, 91.55], [92.45, 92.45, 92.6]
PAPER = {"b": "", "paper": (92.5, 0.1)}
CASES = {
    "better": (claim(), rows(a=A, b=LOW), YES, 3, "92.50 - 91.55 = +0.95 ["),
    "worse": (claim(), rows(a=LOW, b=A), NO, 3, "-0.95"),
    "open": (claim(), rows(a=A, b=SAME), OPEN, 3, ""),
    "by a margin": (claim(margin=0.9), rows(a=A, b=LOW), OPEN, 3, "+0.95"),
    "two seeds decide nothing": (
        claim(), rows(a=A[:2], b=LOW[:2]), OPEN, 2, "92.45 - 91.55 = +0.90; fewer than 3 seeds decide nothing",
    ),
    "one seed": (claim(), rows(a=A[:1], b=LOW[:1]), OPEN, 1, "+1.00; fewer than 3"),
    "b was not run": (claim(), rows(a=A), "not run", 0, "study s/x"),
    "a was not run": (claim(), rows(b=A), "not run", 0, "study s/x"),
    "no common seed": (
        claim(), rows(a=A)[:1] + rows(b=LOW)[1:], OPEN, 0, "no seed whose runs both ended",
    ),
    "a diverged": (claim(), rows(a=[*A, None], b=[*LOW, 91]), NO, 3, "; 1 of 4 runs of a diverged"),
    "a diverged, too few pairs": (claim(), rows(a=[92.5, 92.4, None], b=LOW), NO, 2, "1 of 3 runs of a"),
    "a diverged always": (claim(), rows(a=[None] * 3, b=LOW), NO, 3, "no seed whose runs both ended; 3 of 3"),
    "of ImageNet one is not enough": (claim(measure="top-1"), rows(a=[*A[:2], None], b=LOW), OPEN, 2, "1 of 3"),
    "of ImageNet three are": (claim(measure="top-1"), rows(a=[None] * 3, b=LOW), NO, 3, "3 of 3"),
    "of CamVid they decide nothing": (claim(measure="IoU"), rows(a=[None] * 3, b=LOW), OPEN, 0, "3 of 3"),
    "of CamVid one of four": (claim(measure="IoU"), rows(a=[*A, None], b=[*LOW, 91]), NO, 3, "1 of 4"),
    "a diverged, of two": (claim(), rows(a=[None, 92.5], b=LOW[:2]), OPEN, 1, "1 of 2"),
    "b diverged": (claim(), rows(a=[*A, 92], b=[*LOW, None]), YES, 3, "; 1 of 4 runs of b diverged"),
    "b diverged always": (claim(), rows(a=A, b=[None] * 3), OPEN, 0, "3 of 3 runs of b diverged"),
    "similar": (claim("similar", margin=0.3), rows(a=A, b=SAME), YES, 3, ""),
    "not similar": (claim("similar", margin=0.3), rows(a=A, b=LOW), NO, 3, ""),
    "similar, open": (claim("similar", margin=0.05), rows(a=A, b=SAME), OPEN, 3, ""),
    "not worse": (claim("not_worse", margin=0.3), rows(a=SAME, b=A), YES, 3, ""),
    "not worse, for it is better": (claim("not_worse", margin=0.3), rows(a=A, b=LOW), YES, 3, ""),
    "worse by more": (claim("not_worse", margin=0.3), rows(a=LOW, b=A), NO, 3, ""),
    "not worse, open": (claim("not_worse", margin=0.05), rows(a=SAME, b=A), OPEN, 3, ""),
    "the paper's value": (claim("equals_paper", **PAPER), rows(a=A), YES, 3, "92.50 [92.25, 92.75]"),
    "another value": (claim("equals_paper", **PAPER), rows(a=LOW), NO, 3, ""),
    "a value, diverged": (claim("equals_paper", **PAPER), rows(a=[*A, None]), NO, 3, "1 of 4"),
    "a value, diverged always": (
        claim("equals_paper", **PAPER), rows(a=[None] * 3), NO, 3, "no run that ended",
    ),
    "a value of two": (claim("equals_paper", **PAPER), rows(a=A[:2]), OPEN, 2, "92.50, 92.40; fewer"),
    "a loss is better when lower": (
        claim(measure="early loss"),
        [run(r, s, curve=[(0, x + s / 10, 0)] * 4) for r, x in (("a", 0.301), ("b", 0.305)) for s in range(3)],
        YES, 3, "0.401 and 0.405; better by +0.004 [+0.004, +0.004]; without pairing by seed [-0.22",
    ),
    "nats": (
        claim(measure="test loss"), rows(a=[450, 451, 452], b=[460, 461.1, 461.9]),
        YES, 3, "test +0.1000 [+0.0975, +0.1025] (perplexities 90.9 and 100.5)",
    ),
    "an unknown seed does not count": (claim(), [*rows(a=A, b=LOW), run("a", 9, 10.0)], YES, 3, ""),
    "tuning runs do not count": (claim(), [*rows(a=A, b=LOW), run("a", 0, 1.0, purpose="tune")], YES, 3, "92.50 -"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_verdicts(case):
    asked, found, verdict, n, ours = CASES[case]
    (row,) = judge([asked], found)
    assert (row["verdict"], row["n"]) == (verdict, n), row["ours"]
    assert ours in row["ours"]
    assert not row["ours"].startswith(";")
    assert tuple(row) == KEYS
    assert row["rule"].endswith(" (a: a, b: b)") == bool(asked.b)


@pytest.mark.parametrize(
    ("rule", "margin", "interval", "want"),
    [
        ("better", 0.0, (0.1, 0.2), True),
        ("better", 0.0, (-0.2, -0.1), False),
        ("better", 0.5, (0.1, 0.6), None),
        ("below", 1.0, (0.1, 0.6), True),
        ("below", 1.0, (1.1, 1.6), False),
        ("not_worse", 0.5, (-0.4, 0.1), True),
        ("not_worse", 0.5, (-0.9, -0.6), False),
        ("similar", 0.3, (-0.2, 0.2), True),
        ("similar", 0.3, (0.4, 0.5), False),
        ("similar", 0.3, (-0.5, 0.2), None),
        ("ratio", 0.05, (0.97, 1.02), True),
        ("ratio", 0.05, (1.06, 1.2), False),
        ("ratio", 0.05, (1.01, 1.2), None),
        ("larger", 0.0, (1.01, 1.2), True),
        ("larger", 0.0, (0.5, 0.9), False),
    ],
)
def test_outcomes(rule, margin, interval, want):
    assert outcome(rule, margin, *interval) is want


EARLY = "which would be supported before Holm's adjustment"


@pytest.mark.parametrize(
    ("rule", "margin", "a", "b", "said"),
    [
        # seeds far apart, a always a little above b: held by pairs, open without them
        ("better", 0.0, [90.2, 92.2, 94.2], [90.0, 92.01, 94.01], "which would be inconclusive"),
        ("better", 0.0, A, LOW, ""),
        # two rows alike whose seeds do not go together: the other way round
        ("similar", 0.3, [92.0, 92.1, 92.2, 92.3], [92.3, 92.2, 92.1, 92.0], EARLY),
    ],
)
def test_where_pairs_alone_decide_the_other_interval_stands_beside(rule, margin, a, b, said):
    (row,) = judge([claim(rule, margin=margin)], rows(a=a, b=b))
    assert ("without pairing by seed" in row["ours"]) == bool(said)
    seen = row["estimate"]
    assert seen["mean"] == pytest.approx(np.mean(a) - np.mean(b), abs=1e-4)
    assert f"= {seen['text']}" in row["ours"]
    assert seen["unpaired"] in row["ours"]
    assert seen["text"] == "{mean:+.2f} [{low:+.2f}, {high:+.2f}]".format(**seen)
    assert seen["unpaired"].endswith(said)
    assert bool(seen["unpaired"]) == bool(said)
    if said:  # Welch's interval: the degrees of freedom are n_a + n_b - 2 where variances are equal
        n, t = len(a), {3: 2.7764451, 4: 2.4469119}[len(a)]
        va, vb = np.var(a, ddof=1), np.var(b, ddof=1)
        assert va == pytest.approx(vb, rel=0.02)
        half, middle = t * ((va + vb) / n) ** 0.5, np.mean(a) - np.mean(b)
        assert row["ours"].endswith(f"[{middle - half:+.2f}, {middle + half:+.2f}], {said}")


def test_the_other_interval_is_not_noted_if_the_correction_gives_its_verdict_too():
    b = [90.0, 92.0, 94.0, 96.0]
    runs = rows(a=[90.05, 92.2, 94.3, 96.25], b=b)  # p = 0.034
    (alone,) = judge([claim("better")], runs)
    both = judge([claim("better"), replace(claim("better"), id="again")], runs)
    assert (alone["verdict"], bool(alone["estimate"]["unpaired"])) == ("supported", True)
    assert [(row["verdict"], row["estimate"]["unpaired"]) for row in both] == [("inconclusive", "")] * 2


def test_a_claim_may_name_a_row_of_another_study():
    found = [run("adamw", s, v, study=f"s/{x}") for x, vs in (("y", LOW), ("x", A)) for s, v in enumerate(vs)]
    (row,) = judge([Claim("x", "", "", "s/x", "better", "accuracy", "y: adamw", "adamw")], found)
    assert (row["verdict"], row["n"]) == (NO, 3)
    assert row["ours"].startswith("91.55 - 92.50 = -0.95")


CURVE = [(10 + i, 5.0 - i / 10, 20 + 2 * i) for i in range(10)]
ONE = run(
    "a", 0, 38.0, curve=CURVE, trace={"iteration": [1, 990, 5000], "value": [1.0, 0.5, 0.25]}, step_ms=3.5
)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("accuracy", 38.0),
        ("early accuracy", np.mean([t for t, _, _ in CURVE])),
        ("early training", 11.0),
        ("last training", 19.0),
        ("late gain", 38 - 32),
        ("early loss", np.mean([loss for _, loss, _ in CURVE[:7]])),
        ("test loss", 0.38),
        ("last loss", 4.1),
        ("slow start", 5.0),
        ("trace", 0.5),
        ("last trace", 0.25),
        ("epoch seconds", 10.0),
        ("training step", 3.5),
        ("tuned lr", 1.0),
    ],
)
def test_measures(name, value):
    assert MEASURES[name].of(ONE) == pytest.approx(value, rel=1e-12)
    if name not in ("epoch seconds", "training step", "tuned lr"):
        assert MEASURES[name].of(run("a", 0, None)) is None


def ratios(a, b, n=3):
    """Runs whose extra fields are given by functions of the seed."""
    return [run(row, s, **special(s)) for row, special in (("a", a), ("b", b)) for s in range(n)]


def seconds(value, **more):
    return lambda s: {"seconds": value + s, **more}


def traced(early, late):
    return lambda s: {
        "trace": {"iteration": [1, 1000, 70000], "value": [1, early * (1 + s / 50), late * (1 + s / 60)]}
    }


BOTH = claim("larger", ("trace", "last trace"))
AS_FAST = claim("ratio", "epoch seconds", 0.05)
RATIOS = {
    "as fast": (AS_FAST, ratios(seconds(100), seconds(101)), YES, 3, "seconds: a/b = 0.99"),
    "slower": (AS_FAST, ratios(seconds(120), seconds(100)), NO, 3, ""),
    "by the epoch": (
        AS_FAST, ratios(seconds(130, epoch_seconds=1.0), lambda s: {"epoch_seconds": 1 + s / 99}), YES, 3, "",
    ),
    "runs that trained together have one time": (
        AS_FAST, ratios(*[lambda s: {"seconds": 100.0, "together": 3}] * 2), OPEN, 1, "seconds: a/b = 1",
    ),
    "two stacks of three seeds": (
        AS_FAST, ratios(*[lambda s: {"seconds": 100.0 + s // 3, "together": 3}] * 2, n=6), OPEN, 2, "",
    ),
    "larger at both times": (
        BOTH, ratios(traced(9e-4, 5e-4), traced(2e-4, 2e-4)), YES, 3, "iteration 1000: a/b = 4.5 [4.5, 4.5]; ",
    ),
    "smaller at the last": (BOTH, ratios(traced(9e-4, 1e-4), traced(2e-4, 2e-4)), NO, 3, ""),
    "below": (
        claim("below", "trace", 4e-4, b=""), ratios(traced(2e-4, 1), traced(1, 1)), YES, 3, "2.04e-04 [",
    ),
    "not below": (claim("below", "trace", 4e-4, b=""), ratios(traced(5e-4, 1), traced(1, 1)), NO, 3, ""),
}  # fmt: skip


@pytest.mark.parametrize("case", RATIOS)
def test_verdicts_on_ratios_and_times(case):
    asked, found, verdict, n, ours = RATIOS[case]
    (row,) = judge([asked], found)
    assert (row["verdict"], row["n"]) == (verdict, n), row["ours"]
    assert ours in row["ours"]


@pytest.mark.parametrize(
    ("a", "b", "verdict", "n", "ours"),
    [
        ([3.09] * 3, [3.0] * 3, YES, 3, "mean 3.09 ms / 3.00 ms; a/b of a round 1.030 [1.030, 1.030], rounds"),
        ([3.6, 7.2, 3.6], [3.0, 6.0, 3.0], NO, 3, "a round 1.200 [1.200, 1.200]"),
        ([3.0, 3.3, 3.0, 3.3], [3.0] * 4, OPEN, 4, "a round 1.050 ["),
        ([3.09, 3.09, 3.09, 9.0], [3.0, 3.0, 3.0], YES, 3, "mean 3.09 ms / 3.00 ms"),
        ([3.0, 3.0], [3.0, 3.0], OPEN, 2, "fewer than 3"),
        ([3.0] * 9, [], "not run", 0, "study voc/speed"),
    ],
)  # fmt: skip
def test_time_is_judged_by_rounds_in_turn(tmp_path, a, b, verdict, n, ours):
    (tmp_path / "voc").mkdir()
    (tmp_path / "voc" / "speed.json").write_text(json.dumps({"ms": {"a": a, "b": b}}))
    asked = Claim("x", "", "", "voc/speed", "ratio", "step", "a", "b", 0.05)
    (row,) = judge([asked], records.load(tmp_path, "voc/speed"))
    assert (row["verdict"], row["n"]) == (verdict, n)
    assert ours in row["ours"]


def tuned(row, seed, best, rates=(0.1, 1.0, 10.0, 100.0)):
    """Tuning runs of one seed, of which `best` is the best lr and the next larger one is 0.25 points behind."""
    distance = {lr: abs(rates.index(lr) - rates.index(best) - 0.25) for lr in rates}
    return [run(row, seed, 50 - distance[lr] / 2, purpose="tune", lr=lr) for lr in rates]


RATIO = claim("paper_ratio", "tuned lr", 10.0, paper=(1e-5, 1e-6))


@pytest.mark.parametrize(
    ("a", "b", "verdict", "ours"),
    [
        ([10.0] * 3, [1.0] * 3, YES, "10 against 1, 10 times, 10 against 1"),
        ([0.1] * 4, [10.0] * 4, NO, "0.1 against 10, 0.01 times"),
        ([10.0, 1.0, 100.0], [1.0, 1.0, 10.0], OPEN, "1 against 1, 1 times"),
        (
            [10.0] * 2,
            [1.0] * 2,
            OPEN,
            "supported from 1 to 100; the latter's second best, 10, was 0.25 points behind",
        ),
        ([10.0], [1.0], OPEN, "fewer than 3 seeds decide nothing"),
    ],
)
def test_a_ratio_of_settings_against_the_papers_is_judged_over_tuning_seeds(a, b, verdict, ours):
    found = [run("a", 0), run("b", 0)]
    for row, bests in (("a", a), ("b", b)):
        found += [each for seed, best in enumerate(bests) for each in tuned(row, seed, best)]
    (row,) = judge([RATIO], found)
    assert row["runs"] == f"commit not recorded ({8 * len(a)} runs)", "those that were tuned"
    assert (row["verdict"], row["n"], row["paper"]) == (verdict, len(a), "1e-5 against 1e-6"), row["ours"]
    assert ours in row["ours"]


def test_the_claims_of_a_study_are_adjusted_together():
    """A p between 0.01 and 0.05 decides alone; among five alike it does not, unless the others are clearer."""
    near = [92.5, 92.9, 92.7, 92.45, 92.6]
    found = rows(a=near, b=[92.2, 92.4, 92.6, 92.4, 92.3], d=[91.0, 91.4, 91.2, 90.9, 91.1])
    (alone,) = judge([claim()], found)
    assert alone["verdict"] == YES
    assert 0.01 < alone["p"] < 0.05
    assert (alone["family"], alone["provisional"]) == (1, False)
    same = judge([claim()] * 5, found)
    assert {row["verdict"] for row in same} == {OPEN}
    assert same[0]["p"] == pytest.approx(5 * alone["p"], rel=1e-3)
    assert same[0]["reason"].startswith("the plain interval alone would say supported; n = ")
    clear = Claim("x", "", "", "s/x", "better", "accuracy", "a", "d")
    assert [row["verdict"] for row in judge([claim(), *[clear] * 4], found)] == [YES] * 5
    other = [replace(run, spec={**run.spec, "study": "s/y"}) for run in found]
    apart = judge([claim(), replace(claim(), study="s/y")], found + other)
    assert [row["p"] for row in apart] == [alone["p"]] * 2


def test_a_post_hoc_claim_weakens_no_planned_one():
    near = [92.5, 92.9, 92.7, 92.45, 92.6]
    found = rows(a=near, b=[92.2, 92.4, 92.6, 92.4, 92.3])
    (alone,) = judge([claim()], found)
    planned, *later = judge([claim(), *[claim(post_hoc=True)] * 4], found)
    assert (planned["p"], planned["family"]) == (alone["p"], 1)
    assert {(row["family"], row["verdict"]) for row in later} == {(5, OPEN)}


def test_a_value_of_the_paper_is_not_supported_by_the_adjustment():
    """The plain interval misses the paper's value and the adjusted p does not decide: inconclusive, not supported."""
    found = rows(a=[92.50, 92.44, 92.56, 92.47, 92.53])
    missed = claim("equals_paper", b="", paper=(92.40, 0.03))
    assert judge([missed], found)[0]["verdict"] == NO
    assert {row["verdict"] for row in judge([missed] * 20, found)} == {OPEN}


def test_fewer_than_five_seeds_give_a_provisional_verdict_and_say_so():
    (three,) = judge([claim(post_hoc=True)], rows(a=A, b=LOW))
    assert words(three) == "supported (provisional, n = 3; post hoc)"
    (five,) = judge([claim()], rows(a=[*A, 92.45, 92.55], b=[*LOW, 91.5, 91.6]))
    assert words(five) == "supported"
    assert words(judge([claim(post_hoc=True)], rows(a=A, b=SAME))[0]) == "inconclusive (post hoc)"
    assert words(judge([claim(post_hoc=True)], [])[0]) == "not run"


def test_a_retest_alone_decides_once_it_has_run():
    asked, old = claim(post_hoc=True, retest="s/new"), rows(a=A, b=LOW)
    assert judge([asked], old)[0]["verdict"] == YES
    new = [replace(each, spec={**each.spec, "study": "s/new"}) for each in rows(a=LOW, b=A)]
    (row,) = judge([asked], old + new)
    assert (row["verdict"], row["n"], row["post_hoc"]) == (NO, 3, False)


def test_a_claim_that_a_retest_has_judged_still_counts_in_its_first_study():
    """Otherwise a study's other claims would become easier to decide, only because some were judged again."""
    first, second = claim(), replace(claim(), id="y", b="c", retest="s/new")
    old = rows(a=A, b=LOW, c=SAME)
    new = [replace(r, spec={**r.spec, "study": "s/new"}) for r in rows(a=A, c=LOW)]
    (before, _), (after, judged) = judge([first, second], old), judge([first, second], old + new)
    assert [before[key] for key in ("p", "family")] == [after[key] for key in ("p", "family")]
    assert after["family"] == 2
    assert (judged["verdict"], judged["family"]) == (YES, 1)


def test_commits_that_were_not_recorded_are_counted():
    whole = "1a" * 20
    commits = (None, whole, whole[:12], "2b+", "", "3c")
    found = [replace(run, env={"commit": c}) for run, c in zip(rows(a=A, b=LOW), commits, strict=True)]
    assert judge([claim()], found)[0]["runs"] == (
        "commit not recorded (2 runs); uncommitted changes (1 runs); commit 1a1a1a1a1a1a, 3c (3 runs)"
    )


def test_what_is_open_says_what_would_decide_it():
    """The n of the reason is the first at which an interval of this standard deviation lies within the margin."""
    b = [92.2, 92.6, 92.5]
    (row,) = judge([claim("similar", margin=0.3)], rows(a=A, b=b))
    n = int(row["reason"].partition("n = ")[2].partition(" ")[0])
    gap, sd = 0.3 - abs(np.mean(A) - np.mean(b)), np.std(np.array(A) - b, ddof=1)
    half = [stats.t_quantile(0.975, k - 1) * sd / k**0.5 for k in (n, n - 1)]
    assert half[0] < gap <= half[1]
    assert row["plan"] == {"needed": str(n)}


@pytest.mark.parametrize(
    ("losses", "verdict"),
    [((6.1, 4.0, 450), "supported"), ((5.9, 4.0, 450), "contradicted"), ((6.1, 4.0, 470), "contradicted")],
)
def test_of_several_measures_all_must_hold(losses, verdict):
    def loss(row, first, last, test):
        return [
            run(row, s, test + s / 9, curve=[(0, first + s / 900, 0), (0, last + s / 800, 0)])
            for s in range(3)
        ]

    asked = claim(measure=("slow start", "last loss", "test loss"))
    (row,) = judge([asked], [*loss("a", *losses), *loss("b", 6.0, 4.1, 460)])
    assert (row["verdict"], row["n"]) == (verdict, 3)
    assert "perplexities" not in row["ours"]
    assert row["ours"].count("; ") == 2


@pytest.mark.parametrize(
    ("family", "accuracy", "loss", "want"),
    [
        ("cifar10", 15.0, 1.0, True),
        ("cifar10", 15.1, 1.0, False),
        ("cifar10", 15.1, None, True),
        ("imagenet", 2.0, 1.0, True),
        ("imagenet", 2.1, 1.0, False),
    ],
)
def test_a_failed_run_diverged(family, accuracy, loss, want):
    assert failed(run("a", 0, None if loss is None else accuracy, study=f"{family}/x")) is want


def test_percents_come_back_as_they_were():
    for value in (0.9238, 0.48451, 0.0612, 1.0, 0.0):
        assert percent(value) == round(100 * value, 6)
    assert percent(0.9238) == 92.38  # and not 92.38000000000001


@pytest.mark.parametrize(("count", "provisional"), [(4, True), (5, False)])
def test_runs_that_all_diverged_count_as_seeds(count, provisional):
    (row,) = judge([claim()], rows(a=[None] * count, b=[91.0] * count))
    assert (row["verdict"], row["n"], row["provisional"]) == ("contradicted", count, provisional)
