"""The verdict of a comparison: which optimizers are better or worse than the baseline, by a rule fixed before the runs.

Runs of one seed share weights and data order, so an optimizer is compared with the baseline seed by seed: Student's
paired t test, two-sided. The p values are corrected for the number of optimizers compared (Holm). The corrected p value
decides; the interval shown is not corrected. A diverged run counts as worse than any that finished (`_p_diverged`); the
interval is then that of the seeds on which both runs finished.

All functions are pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from adaxlab import stats
from adaxlab.claim import ENOUGH, LEAST
from adaxlab.stats import DecisionRule, Estimate

EQUAL = 1e-9
"""A spread below this fraction of the mean is attributed to rounding."""
SAME = 1e-7
"""Results that differ by less than this fraction are the same up to rounding in float32."""
POWER = 0.8
Values = Mapping[int, float | None]
"""Seed -> final metric; None if the run diverged."""


@dataclass(frozen=True)
class Verdict:
    """`outcome` is better, worse, inconclusive or none. For none, `why` says what is missing for a verdict."""

    outcome: str
    n: int
    """The number of seeds on which both runs ended and at least one finished."""
    difference: Estimate | None
    """The improvement over the baseline, over the seeds on which both runs finished."""
    p: float = math.nan
    """Corrected for the number of comparisons."""
    own: float = math.nan
    """The p before the correction."""
    needed: int | None = None
    """The number of fresh seeds that would decide an inconclusive comparison, made alone, with the probability `POWER`,
    if the true mean and sd were those seen."""
    better: bool = False
    """Whether the mean difference favours this row over the baseline."""
    diverged: int = 0
    """The number of diverged runs on these seeds."""
    why: str = ""

    @property
    def provisional(self) -> bool:
        return self.outcome != "none" and self.n < ENOUGH

    @property
    def word(self) -> str:
        """The verdict as shown in a table.

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
    """The verdict on each row except the baseline; `without` maps rows without a verdict to the reason.

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
    own = [seen[name].own for name in judged]
    shared = rule.correction == "holm"
    for name, p in zip(judged, stats.holm(own) if shared else own, strict=True):
        seen[name] = _decided(seen[name], p, rule)
    return seen


def _seen(a: Values, b: Values, higher_is_better: bool, rule: DecisionRule) -> Verdict:
    """The comparison of two rows before the correction; `outcome` is open or none."""
    both = sorted(set(a) & set(b))
    seeds = [seed for seed in both if a[seed] is not None or b[seed] is not None]  # the others decide nothing
    pairs = list(stats.paired(a, b, higher_is_better).values())
    seen = stats.t_interval(pairs, rule.confidence) if len(pairs) > 1 else None
    lost = sum(run[seed] is None for run in (a, b) for seed in both)
    found = Verdict("", len(seeds), seen, diverged=lost)
    if len(seeds) < rule.least:
        nothing = f" (both diverged on {len(both) - len(seeds)} others)" if len(both) > len(seeds) else ""
        few = f"a verdict needs {rule.least} seeds or more, {ENOUGH} for one that is not provisional"
        return replace(found, outcome="none", why=f"n = {len(seeds)}{nothing}: {few}")
    if len(pairs) < len(seeds):
        signs = [float(b[seed] is None) - float(a[seed] is None) for seed in both]
        own, better = _p_diverged(signs, pairs, rule.margin)
        return replace(found, own=own, better=better)
    size = max(abs(value) for run in (a, b) for seed in seeds if (value := run[seed]) is not None)
    if max(map(abs, pairs)) <= SAME * size:
        return replace(found, own=1.0, why="all results are the same up to rounding")
    equal = seen is not None and 0 < EQUAL * abs(seen.mean) >= seen.sd
    why = "all differences are equal" if equal else ""
    better = seen is not None and seen.mean > 0
    return replace(found, own=_p(pairs, rule.margin), better=better, why=why)


def _p(values: Sequence[float], margin: float) -> float:
    """The two-sided p of a t test of "the mean is within the margin"; 1 if there is no spread to judge by."""
    if len(values) < 2:
        return 1.0
    mean = stats.mean(values)
    if abs(mean) <= margin or stats.sd(values) <= EQUAL * abs(mean):
        return 1.0
    return stats.p_value(values, math.copysign(margin, mean))


def _p_diverged(signs: Sequence[float], pairs: Sequence[float], margin: float) -> tuple[float, bool]:
    """The p where runs diverged, and whether the result favours our row. There is a sign for every seed: -1 if only our
    run diverged, 1 if only the baseline's did, else 0; `pairs` are the differences of the seeds on which both finished.

    Two tests, each at half the level: one of how often the rows diverge, and one of the differences, in which a
    diverged run counts as worse by twice the largest difference seen. The second needs `LEAST` pairs, else
    the values filled in would decide it, and counts only if it favours the row that the first one favours, so a row
    that diverges more often is not better for its other runs.

    >>> [round(_p_diverged([-1.0, 0, 0, 0, 0], [-0.1 - x, -0.12, -0.1, -0.11], 0)[0], 4) for x in (0.0, -0.3)]
    [0.0149, 0.6536]
    """
    p, lean = _p_lost(signs), math.fsum(signs)
    if len(pairs) < LEAST:
        return p, lean > 0
    bound = 2 * max(map(abs, pairs))
    filled = [*pairs, *(sign * bound for sign in signs if sign)]
    towards = stats.mean(filled)
    if towards * lean < 0:
        return p, lean > 0
    return min(1.0, 2 * min(p, _p(filled, margin))), (lean or towards) > 0


def _p_lost(signs: Sequence[float]) -> float:
    """The two-sided p of the sum of the signs, if on every seed both runs diverge independently with one probability q.

    It is exact for q = 1/2, where sum + N has the binomial distribution of 2N fair coins, and an upper bound for every
    other q, also one for each seed: a sign is then 0 more often, and as the signs are symmetric and unimodal, this
    makes every tail of their sum lighter. (Barnard's test at the least favourable q.)

    >>> _p_lost([-1.0, -1.0, -1.0]), round(_p_lost([-1.0, -1.0, -1.0, -1.0, 0.0]), 3), _p_lost([1.0, -1.0, 0.0])
    (0.03125, 0.021, 1.0)
    """
    n, gap = len(signs), abs(round(math.fsum(signs)))
    return min(1.0, 2 * sum(math.comb(2 * n, k) for k in range(n - gap + 1)) / 4**n)


def _decided(found: Verdict, p: float, rule: DecisionRule) -> Verdict:
    """The outcome according to the corrected p."""
    if p <= 1 - rule.confidence:
        return replace(found, outcome="better" if found.better else "worse", p=p)
    more = None
    if found.difference and not found.diverged and not found.why:
        more = needed(found.difference, rule)
    return replace(found, outcome="inconclusive", p=p, needed=more)


def needed(seen: Estimate, rule: DecisionRule) -> int | None:
    """The number of fresh seeds that would decide with the probability `POWER`; None if no number would."""
    return stats.sample_size(abs(seen.mean) - rule.margin, seen.sd, rule.confidence, ENOUGH, power=POWER)
