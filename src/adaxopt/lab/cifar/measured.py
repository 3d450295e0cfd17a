"""Verdicts on quantities other than accuracy: traces of the second moment, and time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from adaxopt.lab import stats
from adaxopt.lab.cifar.claim import Claim
from adaxopt.lab.claims import LEAST

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
        verdict = (
            "held" if seen.high < claim.margin else "not held" if seen.low > claim.margin else "undecided"
        )
        return {"ours": f"{seen.mean:.2e} [{seen.low:.2e}, {seen.high:.2e}]", "n": seen.n, "verdict": verdict}
    seeds = sorted(set(a) & set(b))
    if claim.rule == "larger":
        parts = [[trace_at(a[s], t) / trace_at(b[s], t) for s in seeds] for t in (AT, -1)]
        names: tuple[str, ...] = (f"at {AT}", "at the end")
    else:
        seeds = [s for i, s in enumerate(seeds) if i % max(a[s]["together"], b[s]["together"]) == 0]
        parts, names = [[_epoch(a[s]) / _epoch(b[s]) for s in seeds]], ("seconds",)
    ours = "; ".join(f"{name}: a/b = {_show(ratios)}" for name, ratios in zip(names, parts, strict=True))
    if len(seeds) < LEAST:
        return {"ours": ours, "n": len(seeds)}
    seen_all = [stats.t_interval(ratios) for ratios in parts]
    if claim.rule == "larger":
        held, lost = all(e.low > 1 for e in seen_all), any(e.high < 1 for e in seen_all)
    else:
        low, high = 1 - claim.margin, 1 + claim.margin
        held = all(low < e.low and e.high < high for e in seen_all)
        lost = any(e.low > high or e.high < low for e in seen_all)
    return {"ours": ours, "n": len(seeds), "verdict": "held" if held else "not held" if lost else "undecided"}


def _epoch(record: Mapping[str, Any]) -> float:
    """Seconds an epoch. Runs that trained together have one time, which counts once."""
    return record.get("epoch_seconds") or record["seconds"] / record["recipe"]["epochs"]


def _show(ratios: list[float]) -> str:
    if len(ratios) < 2:
        return f"{ratios[0]:.3g}"
    seen = stats.t_interval(ratios)
    return f"{seen.mean:.3g} [{seen.low:.3g}, {seen.high:.3g}]"
