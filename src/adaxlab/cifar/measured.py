"""Verdicts on quantities other than accuracy: traces of the second moment, and time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from adaxlab import stats
from adaxlab.cifar.claim import Claim
from adaxlab.claims import LEAST, outcome

MEASURED = ("below", "larger", "as-fast")
AT = 1000
"""The iteration of the paper's sentence."""
Lines = Sequence[Mapping[str, Any]]


def trace_at(record: Mapping[str, Any], iteration: int) -> float:
    """The trace at the recorded iteration nearest to the one asked for; -1 is the last."""
    steps, values = record["trace"]["iteration"], record["trace"]["value"]
    if iteration < 0:
        return values[-1]
    return values[min(range(len(steps)), key=lambda i: abs(steps[i] - iteration))]


def measured(claim: Claim, lines: Lines) -> dict[str, Any]:
    """`ours`, `n` and `verdict`, or nothing where the study was not run."""
    a, b = ({r["seed"]: r for r in lines if r["row"] == row} for row in (claim.a, claim.b))
    if not a or (claim.b and not b):
        return {}
    if claim.rule == "below":
        values = [trace_at(r, AT) for r in a.values()]
        if len(values) < LEAST:
            return {"ours": ", ".join(f"{v:.2e}" for v in values), "n": len(values)}
        seen = stats.t_interval(values)
        verdict = outcome("below", claim.margin, seen.low, seen.high)
        return {"ours": f"{seen.mean:.2e} [{seen.low:.2e}, {seen.high:.2e}]", "n": seen.n, "verdict": verdict}
    seeds = sorted(set(a) & set(b))
    if claim.rule == "larger":
        parts = [[trace_at(a[s], t) / trace_at(b[s], t) for s in seeds] for t in (AT, -1)]
        names: tuple[str, ...] = (f"iteration {AT}", "the last")
    else:
        seeds = _own_times(seeds, a, b)
        parts, names = [[_epoch(a[s]) / _epoch(b[s]) for s in seeds]], ("seconds",)
    shown = zip(names, map(_show, parts), strict=True)
    ours = "; ".join(f"{name}: {claim.a}/{claim.b} = {ratio}" for name, ratio in shown)
    if len(seeds) < LEAST:
        return {"ours": ours, "n": len(seeds)}
    kind, margin = ("above", 1.0) if claim.rule == "larger" else ("ratio", claim.margin)
    found = {outcome(kind, margin, e.low, e.high) for e in map(stats.t_interval, parts)}
    verdict = "held" if found == {"held"} else "not held" if "not held" in found else "undecided"
    return {"ours": ours, "n": len(seeds), "verdict": verdict}


Runs = Mapping[int, Mapping[str, Any]]


def _own_times(seeds: Sequence[int], a: Runs, b: Runs) -> list[int]:
    """The seeds whose times are their own: runs that trained together have one time, which counts once."""
    kept: list[int] = []
    seen: set[tuple[str, int, float]] = set()
    for s in seeds:
        stacks = {
            (name, r["together"], r["seconds"]) for name, r in (("a", a[s]), ("b", b[s])) if r["together"] > 1
        }
        if not stacks & seen:
            kept.append(s)
        seen |= stacks
    return kept


def _epoch(record: Mapping[str, Any]) -> float:
    """Seconds an epoch: the median without the first, or, in records that have none, the mean with it."""
    return record.get("epoch_seconds") or record["seconds"] / record["recipe"]["epochs"]


def _show(ratios: list[float]) -> str:
    if len(ratios) < 2:
        return f"{ratios[0]:.3g}"
    seen = stats.t_interval(ratios)
    return f"{seen.mean:.3g} [{seen.low:.3g}, {seen.high:.3g}]"
