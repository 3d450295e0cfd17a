"""The one judge: a claim and run records in, a row with a verdict out.

Runs of one seed share weights and data order, so two rows are compared seed by seed, and the rule is asked of
Student's paired 95% interval: wholly on the right side, supported; wholly on the wrong side, contradicted; else
inconclusive. Where Welch's interval, without pairs, would give another verdict, it is shown. Fewer than 3 seeds decide
nothing. A claim cannot hold if a run of its row `a` diverged; whether that also decides against it where fewer than 3
pairs are left is fixed with the measure (`lost_decide`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from adaxlab import stats
from adaxlab.claim import VERDICTS, Claim, resolve, row
from adaxlab.measures import MEASURES, Measure, Shared, ended, final_percent
from adaxlab.records import load
from adaxlab.store import RunRecord

LEAST = 3
"""Fewer seeds decide nothing."""
Runs = Mapping[int, RunRecord]


def runs_of(records: Iterable[RunRecord], study: str, name: str, purpose: str = "final") -> list[RunRecord]:
    """The runs of a study's row that have ended; `name` as in claims."""
    wanted = (*resolve(study, name), purpose)
    ended = [run for run in records if run.done]
    return [run for run in ended if tuple(run.spec[key] for key in ("study", "row", "purpose")) == wanted]


def by_seed(runs: Iterable[RunRecord]) -> dict[int, RunRecord]:
    return {run.spec["seed"]: run for run in runs}


def outcome(rule: str, margin: float, low: float, high: float) -> bool | None:
    """What a rule says of an interval: True where it holds, False where it does not, None where that is open.

    >>> outcome("better", 0, 0.1, 2.0), outcome("not_worse", 0.5, -0.6, 0.2), outcome("similar", 1, 1.5, 2.0)
    (True, None, False)
    """
    inside, outside = {
        "better": (low > margin, high < margin),
        "larger": (low > 1, high < 1),
        "below": (high < margin, low > margin),
        "not_worse": (low > -margin, high < -margin),
        "similar": (low > -margin and high < margin, low > margin or high < -margin),
        "ratio": (low > 1 - margin and high < 1 + margin, low > 1 + margin or high < 1 - margin),
    }[rule]
    return True if inside else False if outside else None


def judge(claim: Claim, records: Iterable[RunRecord]) -> dict[str, Any]:
    """The claim as a row of records/claims/*.json."""
    records = list(records)
    a, b = (by_seed(runs_of(records, claim.study, name)) if name else {} for name in (claim.a, claim.b))
    if not a or (claim.b and not b):
        return _row(claim, f"study {claim.study}", 0, None, run=False)
    if claim.rule == "paper_ratio":
        return _row(claim, *_paper_ratio(claim, records, a, b))
    found = [_alone(claim, MEASURES[m], a) if not claim.b else _pair(claim, m, a, b) for m in claim.measures]
    measure, n = MEASURES[claim.measures[0]], found[0][1]
    lost = [sum(measure.of(run) is None for run in runs.values()) for runs in (a, b)]
    told = zip(lost, (a, b), (claim.a, claim.b), strict=True)
    gone = [f"{count} of {len(runs)} runs of {name} diverged" for count, runs, name in told if count]
    verdicts = [holds for _, _, holds in found]
    holds = False if False in verdicts else None if None in verdicts else True
    if n >= LEAST:
        decided = lost[0] > 0
    else:
        decided = measure.lost_decide is not None and lost[0] >= measure.lost_decide and len(a) >= LEAST
    return _row(claim, "; ".join([text for text, _, _ in found] + gone), n, False if decided else holds)


def judge_files(claims: Iterable[Claim], root: Path) -> list[dict[str, Any]]:
    """The claims, judged from the committed records under `root`."""
    claims = list(claims)
    studies = dict.fromkeys(study for claim in claims for study in claim.studies)
    records = [run for study in studies for run in load(root, study)]
    return [judge(claim, records) for claim in claims]


def _row(claim: Claim, ours: str, n: int, holds: bool | None, run: bool = True) -> dict[str, Any]:
    measures = [MEASURES[name] for name in claim.measures]
    sentences = dict.fromkeys(m.rules[claim.rule].format(margin=claim.margin) for m in measures)
    rule = "; ".join(sentences)
    rule += f" (a: {claim.a}, b: {claim.b})" if claim.b else ""
    return row(
        claim.id,
        claim.where,
        claim.text,
        paper=claim.says,
        ours=ours,
        rule=rule,
        holds=holds,
        n=n,
        run=run,
        note=claim.note,
    )


Finding = tuple[str, int, bool | None]
"""What is shown, of how many seeds, and whether the rule holds."""


def _values(measure: Measure, runs: Runs) -> dict[int, float]:
    return {seed: value for seed, run in runs.items() if (value := measure.of(run)) is not None}


def _alone(claim: Claim, measure: Measure, runs: Runs) -> Finding:
    """One row: its value against the paper's or against the margin."""
    values = list(_values(measure, runs).values())
    if len(values) < LEAST:
        shown = ", ".join(f"{value:{measure.level}}" for value in values) or "no run that ended"
        return shown + measure.few, len(values), None
    seen = stats.t_interval(values)
    if claim.rule == "equals_paper":
        assert isinstance(claim.paper, tuple)
        mean, margin = claim.paper
        holds: bool | None = seen.low <= mean + margin and seen.high >= mean - margin
    else:
        holds = outcome(claim.rule, claim.margin, seen.low, seen.high)
    return _shown(seen, measure.level), seen.n, holds


def _pair(claim: Claim, name: str, a: Runs, b: Runs) -> Finding:
    """Two rows, seed by seed: the difference in the better direction, or the ratio."""
    measure, is_ratio = MEASURES[name], claim.rule in ("ratio", "larger")
    left, right = _values(measure, a), _values(measure, b)
    seeds = _counted(measure.shared, sorted(set(left) & set(right)), a, b)
    if not seeds:
        return "no seed whose runs both ended", 0, None
    sign = 1 if measure.higher_is_better else -1
    pairs = [left[s] / right[s] if is_ratio else sign * (left[s] - right[s]) for s in seeds]
    seen = stats.t_interval(pairs)
    means = [stats.mean([side[s] for s in seeds]) for side in (left, right)]
    style = measure.ratio if is_ratio else f"+{measure.level}"
    texts = [f"{mean:{measure.level}}" for mean in means]
    head = measure.head.format(a=texts[0], b=texts[1], rows=f"{claim.a}/{claim.b}")
    if seen.n < LEAST:
        return f"{head}{seen.mean:{style}}{measure.few}", seen.n, None
    holds = outcome(claim.rule, claim.margin, seen.low, seen.high)
    ours = head + _shown(seen, style) + measure.tail
    if measure.beside and claim.measure == name:
        ours += measure.beside(*means)
    if not is_ratio and len(left) == len(a):
        upper, lower = (list(side.values()) for side in (left, right)[::sign])
        ours += _unpaired(claim, holds, upper, lower, style)
    return ours, seen.n, holds


def _shown(seen: stats.Estimate, style: str) -> str:
    return f"{seen.mean:{style}} [{seen.low:{style}}, {seen.high:{style}}]"


def _unpaired(claim: Claim, holds: bool | None, a: Sequence[float], b: Sequence[float], style: str) -> str:
    """What to put beside a verdict on pairs where Welch's interval (`stats.unpaired`) would give another."""
    low, high = stats.unpaired(a, b)
    other = outcome(claim.rule, claim.margin, low, high)
    if other == holds:
        return ""
    return f"; without pairing by seed [{low:{style}}, {high:{style}}], which would be {VERDICTS[other]}"


def _counted(shared: Shared | None, seeds: Sequence[int], a: Runs, b: Runs) -> list[int]:
    """The seeds whose values are their own: of runs that share one value, the first counts."""
    if shared is None:
        return list(seeds)
    kept: list[int] = []
    seen: set[tuple[str, Hashable]] = set()
    for seed in seeds:
        keys = {(side, key) for side, run in (("a", a[seed]), ("b", b[seed])) if (key := shared(run))}
        if not keys & seen:
            kept.append(seed)
        seen |= keys
    return kept


def _paper_ratio(claim: Claim, records: Sequence[RunRecord], a: Runs, b: Runs) -> Finding:
    """A setting of a over that of b against the paper's; beside it how close another choice for b was."""
    measure = MEASURES[claim.measures[0]]
    x, y = (measure.of(next(iter(runs.values()))) for runs in (a, b))
    assert isinstance(claim.paper, tuple)
    assert x is not None
    assert y is not None
    paper = round(claim.paper[0] / claim.paper[1], 9)
    low, high = paper / claim.margin, paper * claim.margin
    ours = f"{x:g} against {y:g}, {x / y:.2g} times; supported from {low:g} to {high:g}"
    tried = runs_of(records, claim.study, claim.b, "tune")
    reached = ((ended(final_percent)(run), measure.of(run)) for run in tried)
    scores = sorted(((score, setting) for score, setting in reached if score is not None), reverse=True)
    if len(scores) > 1:
        (best, _), (second, setting) = scores[:2]
        ours += f"; the latter's second best, {setting:g}, was {best - second:.2f} points behind"
    return ours, 1, low <= x / y <= high
