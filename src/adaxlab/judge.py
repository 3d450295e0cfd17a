"""Judges claims: takes claims and run records, and returns rows with verdicts.

A rule is a statement about a mean over seeds. Runs of one seed share weights and data order, so two rows are compared
seed by seed, and the statement is tested by Student's paired t test (two-sided). The p values of the claims of one
study are adjusted together by Holm's method, and the adjusted p decides: if it is below 0.05 the claim is supported or
contradicted, depending on the side on which the mean lies; else it is inconclusive. Claims written before the runs are
adjusted among themselves, so that later claims do not weaken them; post hoc claims are adjusted among all claims of the
study. A claim that a retest has judged still counts among the claims of its first study, so that judging some claims
again does not make the others easier to decide. The interval shown is the plain 95% interval. If Welch's interval,
without pairing, would give another verdict, it is shown too.

Fewer than 3 seeds give no verdict, fewer than 5 a provisional one. A claim cannot hold if a run of its row `a`
diverged. Whether that also decides against the claim if fewer than 3 pairs are left is a property of the measure
(`lost_decide`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from adaxlab import environment, finding, stats
from adaxlab.claim import ENOUGH, LEAST, OURS, PAPER, VERDICTS, Claim, notes, row
from adaxlab.finding import Finding, by_seed, runs_of
from adaxlab.measures import MEASURES

if TYPE_CHECKING:
    from adaxlab.store import RunRecord

ALPHA = 0.05
"""An adjusted p below this decides."""
MOST = 1000
"""The largest number of seeds that a reason names."""


# -- one claim ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judged:
    """A claim with the results of its runs; `p` is not adjusted."""

    claim: Claim
    study: str
    text: str
    n: int
    holds: bool | None = None
    p: float | None = None
    run: bool = True
    findings: tuple[Finding, ...] = ()
    runs: tuple[RunRecord, ...] = field(default=(), repr=False)

    @property
    def post_hoc(self) -> bool:
        """Whether the rule was written after the runs that judge it."""
        return self.claim.post_hoc and self.study == self.claim.study

    def verdict(self, adjusted: float | None) -> bool | None:
        """The verdict by the adjusted p. A claim that is inconclusive by the plain interval stays inconclusive."""
        if adjusted is None or adjusted < ALPHA or (self.claim.rule == "equals_paper" and self.holds):
            return self.holds
        return None


def _examine(claim: Claim, records: Sequence[RunRecord], study: str) -> Judged:
    """The claim with the results of the runs of `study`."""
    a, b = (by_seed(runs_of(records, study, name)) if name else {} for name in (claim.a, claim.b))
    used = (*a.values(), *b.values())
    if not a or (claim.b and not b):
        return Judged(claim, study, f"study {study}", 0, run=False)
    if claim.rule == "paper_ratio":
        ratio = finding.paper_ratio(claim, study, records)
        used = tuple(run for name in (claim.a, claim.b) for run in runs_of(records, study, name, "tune"))
        return Judged(claim, study, ratio.text, ratio.n, ratio.holds, ratio.p, True, (ratio,), used)
    found = [
        finding.alone(claim, MEASURES[m], a) if not claim.b else finding.pair(claim, m, a, b)
        for m in claim.measures
    ]
    measure, n = MEASURES[claim.measures[0]], found[0].n
    lost = [sum(measure.of(run) is None for run in runs.values()) for runs in (a, b)]
    told = zip(lost, (a, b), (claim.a, claim.b), strict=True)
    gone = [f"{count} of {len(runs)} runs of {name} diverged" for count, runs, name in told if count]
    if n >= LEAST:
        decided = lost[0] > 0
    else:
        decided = measure.lost_decide is not None and lost[0] >= measure.lost_decide and len(a) >= LEAST
    holds, p = (False, None) if decided else _together(found)
    if decided and not n:
        n = len(a)  # what decides are the runs of a, all of which diverged
    text = "; ".join([each.text for each in found] + gone)
    return Judged(claim, study, text, n, holds, p, True, tuple(found), used)


def _together(found: Sequence[Finding]) -> tuple[bool | None, float | None]:
    """The combined result of all measures of a claim: it holds if every measure does (the largest p), and is
    contradicted if one is (the smallest p against it, times their number)."""
    verdicts = [each.holds for each in found]
    holds = False if False in verdicts else None if None in verdicts else True
    tests = [(each.p, each.side) for each in found if each.p is not None]
    if len(tests) < len(found):
        return holds, None
    against = [p for p, side in tests if not side]
    p = min(1.0, len(found) * min(against)) if against else max(p for p, _ in tests)
    return holds, p


# -- all claims -----------------------------------------------------------------------------------------------------


def judge(claims: Iterable[Claim], records: Iterable[RunRecord]) -> list[dict[str, Any]]:
    """The claims as rows of records/claims/*.json. The claims of one study must be passed together, because they share
    Holm's adjustment."""
    return [row for _, row in examined(claims, records)]


def examined(claims: Iterable[Claim], records: Iterable[RunRecord]) -> list[tuple[Judged, dict[str, Any]]]:
    """As `judge`, with the unadjusted result of each claim before its row."""
    claims, records = list(claims), list(records)
    ran = {run.spec["study"] for run in records if run.done}
    again = [claim for claim in claims if claim.retest in ran]
    found = [_examine(claim, records, claim.retest if claim in again else claim.study) for claim in claims]
    before = [_examine(claim, records, claim.study) for claim in again]
    studies: dict[str, list[Judged]] = {}
    for each in (*found, *before):
        if each.p is not None:
            studies.setdefault(each.study, []).append(each)
    adjusted: dict[int, tuple[float, int]] = {}
    for family in studies.values():
        for part in (family, [each for each in family if not each.post_hoc]):  # the planned ones last
            values = stats.holm([each.p for each in part if each.p is not None])
            adjusted |= {id(each): (p, len(part)) for each, p in zip(part, values, strict=True)}
    return [(each, _row(each, *adjusted.get(id(each), (None, 0)))) for each in found]


def _row(judged: Judged, p: float | None, family: int) -> dict[str, Any]:
    claim, holds = judged.claim, judged.verdict(p)
    measures = [MEASURES[name] for name in claim.measures]
    rule = "; ".join(dict.fromkeys(m.rules[claim.rule].format(margin=claim.margin) for m in measures))
    rule += f" (a: {claim.a}, b: {claim.b})" if claim.b else ""
    return row(
        claim.id,
        claim.where,
        claim.text,
        by=OURS if claim.ours else PAPER,
        paper=claim.says,
        ours=judged.text,
        estimate=_estimate(judged.findings, holds),
        rule=rule,
        holds=holds,
        n=judged.n,
        run=judged.run,
        note=notes(f"superseded by {claim.superseded_by}" if claim.superseded_by else "", claim.note),
        p=None if p is None else float(f"{p:.4g}"),
        family=family,
        provisional=holds is not None and judged.n < ENOUGH,
        post_hoc=judged.post_hoc,
        runs=provenance(judged.runs),
        **_open(judged, holds, family),
    )


def _estimate(findings: Sequence[Finding], holds: bool | None) -> dict[str, Any]:
    """The mean and interval of the first measure; the interval without pairing if it would give another verdict."""
    first = findings[0] if findings else None
    if first is None or first.seen is None or not first.shown:
        return {}
    numbers = {key: float(f"{getattr(first.seen, key):.6g}") for key in ("mean", "low", "high")}
    return numbers | {"text": first.shown, "unpaired": first.unpaired if first.other != holds else ""}


def provenance(runs: Iterable[RunRecord]) -> str:
    """A note on the recorded commits of the runs; empty without runs.

    >>> provenance([])
    ''
    """
    commits = [run.env.get("commit") or "" for run in runs]
    missing, dirty = commits.count(""), sum(name.endswith("+") for name in commits)
    clean = [name[:12] for name in commits if environment.is_clean(name)]  # some records have all 40 digits
    return notes(
        f"commit not recorded ({missing} runs)" if missing else "",
        f"uncommitted changes ({dirty} runs)" if dirty else "",
        f"commit {', '.join(sorted(set(clean)))} ({len(clean)} runs)" if clean else "",
    )


def _open(judged: Judged, holds: bool | None, family: int) -> dict[str, Any]:
    """Why a claim is not decided, and how many new seeds would decide it at the same mean and standard deviation.

    Holm's strictest level is used, because the p values of the study's other claims may change.
    """
    if holds is not None or not judged.run:
        return {}
    if judged.n < LEAST:
        few = f"n = {judged.n}: fewer than {LEAST} seeds decide nothing"
        return {"reason": few, "plan": {"needed": f"at least {LEAST}"}}
    tested = [each for each in judged.findings if each.p is not None]
    sizes = [stats.sample_size(each.gap, each.sd, 1 - ALPHA / max(family, 1), LEAST, MOST) for each in tested]
    if not sizes or None in sizes:
        text = f"at this mean and standard deviation more than {MOST:,} seeds would be needed"
        return {"reason": text, "plan": {"needed": f"more than {MOST:,}"}}
    n = max(size for size in sizes if size is not None)
    plain = "" if judged.holds is None else f"the plain interval alone would say {VERDICTS[judged.holds]}; "
    level = f"Holm's strictest level, {family} claims" if family > 1 else "the 5% level"
    text = f"{plain}n = {n} new seeds would decide it at this mean and standard deviation ({level})"
    return {"reason": text, "plan": {"needed": str(n)}}
