"""The results of a claim's runs: a number per run, seed by seed, and its test against the claim's rule."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from adaxlab import stats
from adaxlab.claim import LEAST, VERDICTS, Claim, resolve
from adaxlab.measures import MEASURES, Measure, Shared, ended, final, percent

if TYPE_CHECKING:
    from adaxlab.store import RunRecord

Runs = Mapping[int, "RunRecord"]


def runs_of(records: Iterable[RunRecord], study: str, name: str, purpose: str = "final") -> list[RunRecord]:
    """The runs of a study's row that have ended; `name` as in claims."""
    wanted = (*resolve(study, name), purpose)
    ended = [run for run in records if run.done]
    return [run for run in ended if tuple(run.spec[key] for key in ("study", "row", "purpose")) == wanted]


def by_seed(runs: Iterable[RunRecord]) -> dict[int, RunRecord]:
    return {run.spec["seed"]: run for run in runs}


# -- rules ----------------------------------------------------------------------------------------------------------


def edges(rule: str, margin: float) -> tuple[float, ...]:
    """The values of the mean at which a rule's statement changes between true and false."""
    return {
        "better": (margin,),
        "larger": (1.0,),
        "below": (margin,),
        "not_worse": (-margin,),
        "similar": (-margin, margin),
        "ratio": (1 - margin, 1 + margin),
    }[rule]


def outcome(rule: str, margin: float, low: float, high: float) -> bool | None:
    """The outcome of a rule for an interval: True if it holds, False if it does not, None if it is undecided.

    >>> outcome("better", 0, 0.1, 2.0), outcome("not_worse", 0.5, -0.6, 0.2), outcome("similar", 1, 1.5, 2.0)
    (True, None, False)
    """
    limits = edges(rule, margin)
    if len(limits) == 2:
        inside, outside = low > limits[0] and high < limits[1], low > limits[1] or high < limits[0]
    else:
        inside, outside = low > limits[0], high < limits[0]
        if rule == "below":
            inside, outside = outside, inside
    return True if inside else False if outside else None


@dataclass(frozen=True)
class Finding:
    """The result of one measure: a text, the number of seeds, the outcome by the plain interval, and the test."""

    text: str
    n: int
    holds: bool | None = None
    p: float | None = None
    """The p value of the test; None if nothing was tested."""
    side: bool = True
    """Whether the mean lies on the statement's side."""
    gap: float = math.nan
    """The distance from the mean to the nearest edge of the statement."""
    sd: float = math.nan
    seen: stats.Estimate | None = None
    """The mean with its plain 95% interval; None if nothing was tested."""
    shown: str = ""
    """`seen` as text; empty if it is in logarithms."""
    unpaired: str = ""
    """Welch's interval without pairing, if it has another outcome."""
    other: bool | None = None
    """The outcome without pairing."""


def _tested(
    text: str, seen: stats.Estimate, values: Sequence[float], limits: Sequence[float], above: bool
) -> Finding:
    """The two-sided test of a mean against a rule's edges; `above`: with one edge, the statement holds above it."""
    gaps = [abs(seen.mean - edge) for edge in limits]
    if len(limits) == 2:
        side = limits[0] < seen.mean < limits[1]
    else:
        side = (seen.mean > limits[0]) == above
    tests = [stats.p_value(values, edge) for edge in limits]
    p = max(tests) if side else tests[gaps.index(min(gaps))]
    return Finding(text, seen.n, None, p, side, min(gaps), seen.sd, seen)


# -- what is measured -----------------------------------------------------------------------------------------------


def _values(measure: Measure, runs: Runs) -> dict[int, float]:
    return {seed: value for seed, run in runs.items() if (value := measure.of(run)) is not None}


def alone(claim: Claim, measure: Measure, runs: Runs) -> Finding:
    """One row: its value against the paper's or against the margin."""
    values = list(_values(measure, runs).values())
    if len(values) < LEAST:
        shown = ", ".join(f"{value:{measure.level}}" for value in values) or "no run that ended"
        return Finding(shown + measure.few, len(values))
    seen = stats.t_interval(values)
    text = _shown(seen, measure.level)
    if claim.rule == "equals_paper":
        assert isinstance(claim.paper, tuple)
        mean, margin = claim.paper
        found = _tested(text, seen, values, (mean - margin, mean + margin), above=True)
        holds = seen.low <= mean + margin and seen.high >= mean - margin
        return replace(found, holds=holds, p=1.0 if found.side else found.p, shown=text)
    found = _tested(text, seen, values, edges(claim.rule, claim.margin), above=claim.rule != "below")
    return replace(found, holds=outcome(claim.rule, claim.margin, seen.low, seen.high), shown=text)


def pair(claim: Claim, name: str, a: Runs, b: Runs) -> Finding:
    """Two rows, seed by seed: the difference in the better direction, or the ratio."""
    measure, is_ratio = MEASURES[name], claim.rule in ("ratio", "larger")
    left, right = _values(measure, a), _values(measure, b)
    seeds = _counted(measure.shared, sorted(set(left) & set(right)), a, b)
    if not seeds:
        return Finding("no seed whose runs both ended", 0)
    sign = 1 if measure.higher_is_better else -1
    pairs = [left[s] / right[s] if is_ratio else sign * (left[s] - right[s]) for s in seeds]
    seen = stats.t_interval(pairs)
    means = [stats.mean([side[s] for s in seeds]) for side in (left, right)]
    style = measure.ratio if is_ratio else f"+{measure.level}"
    texts = [f"{mean:{measure.level}}" for mean in means]
    head = measure.head.format(a=texts[0], b=texts[1], rows=f"{claim.a}/{claim.b}")
    if seen.n < LEAST:
        return Finding(f"{head}{seen.mean:{style}}{measure.few}", seen.n)
    holds = outcome(claim.rule, claim.margin, seen.low, seen.high)
    shown, without, other = _shown(seen, style), "", holds
    if not is_ratio and len(left) == len(a):
        upper, lower = (list(side.values()) for side in (left, right)[::sign])
        low, high = stats.unpaired(upper, lower)
        other = outcome(claim.rule, claim.margin, low, high)
    if other != holds:
        adjusted = "" if other is None else " before Holm's adjustment"
        verdict = f"{VERDICTS[other]}{adjusted}"
        without = f"without pairing by seed [{low:{style}}, {high:{style}}], which would be {verdict}"
    beside = measure.beside(*means) if measure.beside and claim.measure == name else ""
    text = "; ".join(filter(None, (f"{head}{shown}{measure.tail}{beside}", without)))
    found = _tested(text, seen, pairs, edges(claim.rule, claim.margin), above=claim.rule != "below")
    return replace(found, holds=holds, shown=shown, unpaired=without, other=other)


def _shown(seen: stats.Estimate, style: str) -> str:
    return f"{seen.mean:{style}} [{seen.low:{style}}, {seen.high:{style}}]"


def _counted(shared: Shared | None, seeds: Sequence[int], a: Runs, b: Runs) -> list[int]:
    """The seeds with independent values: of runs that share one value, only the first counts."""
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


def paper_ratio(claim: Claim, study: str, records: Sequence[RunRecord]) -> Finding:
    """The ratio of tuned settings, each tuning seed's best of a over its best of b, against the paper's: in logarithms,
    with one step of the coarser grid (the margin) to either side."""
    measure = MEASURES[claim.measures[0]]
    best = [_best(measure, runs_of(records, study, name, "tune")) for name in (claim.a, claim.b)]
    seeds = sorted(set(best[0]) & set(best[1]))
    assert isinstance(claim.paper, tuple)
    paper = round(claim.paper[0] / claim.paper[1], 9)
    ratios = [best[0][s][0] / best[1][s][0] for s in seeds]
    if not seeds:
        return Finding("no tuning runs", 0)
    shown = ", ".join(
        f"{best[0][s][0]:g} against {best[1][s][0]:g}, {r:.2g} times"
        for s, r in zip(seeds, ratios, strict=True)
    )
    behind = [best[1][s][1] for s in seeds if best[1][s][1]]
    text = f"{shown}; supported from {paper / claim.margin:.3g} to {paper * claim.margin:.3g}"
    text += f"; the latter's second best, {behind[0]}" if behind else ""
    if len(seeds) < LEAST:
        return Finding(text + measure.few, len(seeds))
    logs = [math.log(r / paper) for r in ratios]
    seen, width = stats.t_interval(logs), math.log(claim.margin)
    found = _tested(text, seen, logs, (-width, width), above=True)
    return replace(found, holds=outcome("similar", width, seen.low, seen.high))


def _best(measure: Measure, runs: Sequence[RunRecord]) -> dict[int, tuple[float, str]]:
    """For each tuning seed, the best setting, and the gap to the second best."""
    found: dict[int, list[tuple[float, float]]] = {}
    percents = all(run.done and run.done["higher_is_better"] for run in runs)
    for run in runs:
        score, setting = ended(final)(run), measure.of(run)
        if score is not None and setting is not None:
            found.setdefault(run.spec["seed"], []).append((percent(score) if percents else -score, setting))
    best = {}
    for seed, scores in found.items():
        ranked = sorted(scores, reverse=True)
        gap = f"{ranked[0][0] - ranked[1][0]:.3g}{' points' * percents}" if len(ranked) > 1 else ""
        best[seed] = (ranked[0][1], f"{ranked[1][1]:g}, was {gap} behind" if gap else "")
    return best
