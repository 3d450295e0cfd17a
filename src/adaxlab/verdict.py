"""The verdict of a comparison: which optimizers are better or worse than the baseline, by a rule fixed before the runs.

Runs of one seed share weights and data order, so an optimizer is compared with the baseline seed by seed: Student's
paired t test, two-sided. Its p values are corrected for the number of optimizers compared (Holm); the corrected one
decides, the plain interval is shown. A run that diverged counts as infinitely bad: the test is then its own limit for
differences without bound, and the interval is that of the seeds on which both runs finished.

Pure functions of numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from adaxlab import stats
from adaxlab.claim import ENOUGH
from adaxlab.stats import DecisionRule, Estimate

EQUAL = 1e-9
"""A spread below this share of the mean is that of rounding."""
Values = Mapping[int, float | None]
"""Seed -> final metric; None where the run diverged."""


@dataclass(frozen=True)
class Verdict:
    """`outcome` is better, worse, inconclusive, or none: there is nothing to judge by, `why` says what is missing."""

    outcome: str
    n: int
    """Seeds on which both ran to an end, diverged runs included."""
    difference: Estimate | None
    """How much better than the baseline, over the seeds on which both finished."""
    p: float = math.nan
    """Corrected for the number of comparisons."""
    needed: int | None = None
    """The number of seeds at which an inconclusive comparison would be decided, were mean and sd to stay."""
    better: bool = False
    """Whether the mean difference is in the baseline's disfavour."""
    diverged: int = 0
    """Runs that diverged, on these seeds."""
    why: str = ""

    @property
    def provisional(self) -> bool:
        return self.outcome != "none" and self.n < ENOUGH

    @property
    def word(self) -> str:
        """For a table.

        >>> Verdict("better", 3, None).word, Verdict("none", 2, None).word
        ('better (provisional)', 'no verdict')
        """
        if self.outcome == "none":
            return "no verdict"
        return f"{self.outcome} (provisional)" if self.provisional else self.outcome


def verdicts(
    values: Mapping[str, Values],
    baseline: str,
    rule: DecisionRule | None = None,
    higher_is_better: bool = True,
    without: Mapping[str, str] | None = None,
) -> dict[str, Verdict]:
    """The verdict on each row but the baseline; `without` names rows that get none, and why.

    >>> seen = {"adamw": {0: 0.5, 1: 0.6, 2: 0.4}, "adaxw": {0: 0.7, 1: 0.8, 2: 0.61}, "sgdm": {0: 0.5, 1: 0.3, 2: 0.5}}
    >>> {name: (found.outcome, round(found.p, 4)) for name, found in verdicts(seen, "adamw").items()}
    {'adaxw': ('better', 0.0005), 'sgdm': ('inconclusive', 0.6349)}
    """
    rule, without = rule or DecisionRule(), without or {}
    others = [name for name in values if name != baseline]
    seen = {name: _seen(values[name], values[baseline], higher_is_better, rule) for name in others}
    for name, found in seen.items():
        if name in without or baseline in without:
            seen[name] = replace(found, outcome="none", why=without.get(name) or without[baseline])
    judged = [name for name in others if seen[name].outcome != "none"]
    own = [seen[name].p for name in judged]
    shared = rule.correction == "holm"
    ranks = sorted(judged, key=lambda name: seen[name].p)
    for name, p in zip(judged, stats.holm(own) if shared else own, strict=True):
        seen[name] = _decided(seen[name], p, len(judged) - ranks.index(name) if shared else 1, rule)
    return seen


def _seen(a: Values, b: Values, higher_is_better: bool, rule: DecisionRule) -> Verdict:
    """The comparison of two rows before the correction: `p` is its own, `outcome` is open or none."""
    seeds = sorted(set(a) & set(b))
    pairs = list(stats.paired(a, b, higher_is_better).values())
    seen = stats.t_interval(pairs, rule.confidence) if len(pairs) > 1 else None
    lost = [(a[seed] is None, b[seed] is None) for seed in seeds]
    found = Verdict("", len(seeds), seen, diverged=sum(x + y for x, y in lost))
    if len(seeds) < rule.least:
        few = f"n = {len(seeds)}: a verdict needs {rule.least} seeds or more, {ENOUGH} for one that is not provisional"
        return replace(found, outcome="none", why=few)
    signs = [float(theirs) - float(ours) for ours, theirs in lost]
    if any(signs):
        return replace(found, p=_p_diverged(signs), better=math.fsum(signs) > 0)
    equal = seen is not None and 0 < EQUAL * abs(seen.mean) >= seen.sd
    why = "all differences are equal" if equal else ""
    better = seen is not None and seen.mean > 0
    return replace(found, p=_p(pairs, rule.margin), better=better, why=why)


def _p(values: Sequence[float], margin: float) -> float:
    """The two-sided p of a t test of "the mean is within the margin"; 1 where there is no spread to judge by."""
    if len(values) < 2:
        return 1.0
    mean = stats.mean(values)
    if abs(mean) <= margin or stats.sd(values) <= EQUAL * abs(mean):
        return 1.0
    return stats.p_value(values, math.copysign(margin, mean))


def _p_diverged(signs: Sequence[float]) -> float:
    """The p of the t test in the limit: -1 where only our run diverged, 1 where only the baseline's did, else 0.

    All the same: were both to diverge with the same probability q, this has probability (q(1-q))^n, at most 4^-n.

    >>> _p_diverged([-1.0, -1.0, -1.0]), round(_p_diverged([-1.0, -1.0, -1.0, -1.0, 0.0]), 3)
    (0.03125, 0.016)
    """
    if len(set(signs)) == 1:
        return 2 * 0.25 ** len(signs)
    return _p(signs, 0.0)


def _decided(found: Verdict, p: float, comparisons: int, rule: DecisionRule) -> Verdict:
    """The outcome by the corrected p; `comparisons` is Holm's factor for this row."""
    if p <= 1 - rule.confidence:
        return replace(found, outcome="better" if found.better else "worse", p=p)
    more = None
    if found.difference and not found.diverged and not found.why:
        more = needed(found.difference, rule, 1 - (1 - rule.confidence) / comparisons)
    return replace(found, outcome="inconclusive", p=p, needed=more)


def needed(seen: Estimate, rule: DecisionRule, level: float) -> int | None:
    """The number of seeds above the present one that would decide, were mean and sd to stay; None where none would."""
    n = stats.sample_size(abs(seen.mean) - rule.margin, seen.sd, level, rule.least)
    return None if n is None else max(n, seen.n + 1)
