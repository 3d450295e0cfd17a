"""Judge the claims of `rules.py` from the records, and write them where docs/claims.md finds them.

python -m adaxopt.lab.cifar.claims            writes records/claims/cifar10.json
python -m adaxopt.lab.cifar.claims --check    fails when the committed file is not what the records give
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adaxopt.lab import claims, stats
from adaxopt.lab.cifar.claim import FLOOR, UNTIL, Claim
from adaxopt.lab.cifar.drive import records
from adaxopt.lab.cifar.measured import MEASURED, measured
from adaxopt.lab.cifar.rules import CLAIMS
from adaxopt.lab.claims import LEAST, RECORDS

RULES = {
    "better": "the paired 95% interval of (a - b) is above 0: held; below: not held; else undecided",
    "not-worse": "the paired 95% interval of (a - b) is above -{margin}: held; below it: not held; else undecided",
    "similar": "the paired 95% interval of (a - b) is within +-{margin}: held; outside: not held; else undecided",
    "value": "our 95% interval meets the paper's mean +- margin: held; misses it: not held",
    "faster": "training accuracy averaged over epochs 1..99, paired 95% interval of (a - b), as 'better'",
    "below": "the 95% interval of the trace at iteration 1000 is below {margin}: held; above: not held",
    "larger": "the paired 95% intervals of the traces' ratio a/b are above 1, at iteration 1000 and at the last: held",
    "as-fast": "the 95% interval of a's seconds over b's is within 1 +- {margin}: held; outside: not held",
}
Lines = Sequence[Mapping[str, Any]]


def final(lines: Lines, row: str) -> dict[int, float | None]:
    """Accuracy of the last epoch by seed; None where a run diverged."""
    return {r["seed"]: None if diverged(r) else r["test_accuracy"] for r in lines if r["row"] == row}


def speed(lines: Lines, row: str) -> dict[int, float | None]:
    """Mean training accuracy before the first drop of lr, by seed."""
    out: dict[int, float | None] = {}
    for r in lines:
        if r["row"] == row:
            part = r["curve"]["train_accuracy"][:UNTIL]
            out[r["seed"]] = None if diverged(r) else sum(part) / len(part)
    return out


def diverged(record: Mapping[str, Any]) -> bool:
    """Loss not finite at some epoch, or an accuracy that is little more than chance."""
    return None in record["curve"]["train_loss"] or record["test_accuracy"] <= FLOOR


def judge(claim: Claim, lines: Lines) -> dict[str, Any]:
    """The claim as a row of records/claims/*.json."""
    row: dict[str, Any] = {
        "id": claim.id,
        "section": claim.where,
        "claim": claim.text,
        "paper": claim.says,
        "ours": f"not run (study {claim.study})",
        "n": 0,
        "rule": RULES[claim.rule].format(margin=claim.margin)
        + (f" (a: {claim.a}, b: {claim.b})" if claim.b else ""),
        "verdict": "undecided",
        "note": claim.note,
    }
    if claim.rule in MEASURED:
        return {**row, **measured(claim, lines)}
    measure = speed if claim.rule == "faster" else final
    a, b = measure(lines, claim.a), measure(lines, claim.b)
    if not a or (claim.b and not b):
        return row
    lost = [seed for seed, value in a.items() if value is None]
    if claim.rule == "value":
        return {**row, **_value(claim, [v for v in a.values() if v is not None], lost)}
    by_seed = stats.paired(a, b)
    pairs = list(by_seed.values())
    if not pairs:
        return {**row, "ours": f"no seed whose runs both ended; {len(lost)} of {len(a)} diverged"}
    means = [
        stats.mean([value for s, value in x.items() if s in by_seed and value is not None]) for x in (a, b)
    ]
    ours = f"{means[0]:.2f} - {means[1]:.2f} = {stats.mean(pairs):+.2f}"
    if len(pairs) < LEAST:
        return {**row, "ours": f"{ours}; fewer than {LEAST} seeds decide nothing", "n": len(pairs)}
    seen = stats.t_interval(pairs)
    ours += f" [{seen.low:+.2f}, {seen.high:+.2f}]"
    if lost:
        verdict, ours = "not held", f"{ours}; {len(lost)} of {len(a)} runs diverged"
    elif claim.rule in ("similar", "not-worse"):
        kind = "within" if claim.rule == "similar" else "no-loss"
        verdict = claims.outcome(kind, claim.margin, seen.low, seen.high)
    else:
        verdict = claims.outcome("above", 0.0, seen.low, seen.high)
    return {**row, "ours": ours, "n": len(pairs), "verdict": verdict}


def _value(claim: Claim, values: list[float], lost: list[int]) -> dict[str, Any]:
    if len(values) < LEAST:
        return {"ours": f"{len(values)} runs, {len(lost)} diverged", "n": len(values)}
    seen = stats.t_interval(values)
    assert isinstance(claim.paper, tuple)
    mean, margin = claim.paper
    meets = seen.low <= mean + margin and seen.high >= mean - margin
    verdict = "held" if meets and not lost else "not held"
    return {
        "ours": f"{seen.mean:.2f} [{seen.low:.2f}, {seen.high:.2f}]",
        "n": len(values),
        "verdict": verdict,
    }


def all_claims(root: Path = RECORDS) -> list[dict[str, Any]]:
    """Every claim, judged from `root`/cifar10/*.jsonl."""
    found = {name: records(root / "cifar10" / f"{name}.jsonl") for name in {c.study for c in CLAIMS}}
    return [judge(claim, found[claim.study]) for claim in CLAIMS]


def main(arguments: list[str] | None = None) -> int:
    """Write the file, or check it."""
    return claims.command("cifar10", "adaxopt.lab.cifar.claims", all_claims, arguments)


if __name__ == "__main__":
    sys.exit(main())
