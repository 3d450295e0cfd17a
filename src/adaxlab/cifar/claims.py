"""Judge the claims of `rules.py` from the records, and write them where docs/claims.md finds them.

python -m adaxlab.cifar.claims            writes records/claims/cifar10.json
python -m adaxlab.cifar.claims --check    fails when the committed file is not what the records give
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adaxlab import claims, stats
from adaxlab.cifar.claim import FLOOR, UNTIL, Claim
from adaxlab.cifar.drive import records
from adaxlab.cifar.measured import MEASURED, measured
from adaxlab.cifar.rules import CLAIMS
from adaxlab.claims import LEAST, RECORDS

RULES = {
    "better": "the paired 95% interval of (a - b) is above 0: held; below: not held; else undecided",
    "not-worse": "the paired 95% interval of (a - b) is above -{margin}: held; below it: not held; else undecided",
    "similar": "the paired 95% interval of (a - b) is within +-{margin}: held; outside: not held; else undecided",
    "value": "our 95% interval meets the paper's mean +- margin: held; misses it: not held",
    "faster": "training accuracy averaged over epochs 1..99, paired 95% interval of (a - b), as 'better'",
    "below": "the 95% interval of the trace (mean of sqrt(v-hat)) at iteration 1000 is below {margin}: held; above: "
    "not held; else undecided",
    "larger": "the paired 95% intervals of the traces' ratio a/b (means of sqrt(v-hat)) are above 1, at iteration "
    "1000 and at the last: held; one of them below: not held; else undecided",
    "as-fast": "the 95% interval of a's seconds over b's is within 1 +- {margin}: held; outside: not held; else "
    "undecided",
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
    rule = RULES[claim.rule].format(margin=claim.margin)
    row = claims.not_run(claim, claim.id, claim.where, claim.study, rule, claim.says)
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
    failed = f"{len(lost)} of {len(a)} runs diverged"
    against = {"verdict": "not held"} if lost and len(a) >= LEAST else {}
    if not pairs:
        others = sum(value is None for value in b.values())
        ours = f"no seed whose runs both ended; {failed}, {others} of {len(b)} of the other row"
        return {**row, "ours": ours, **against}
    means = [
        stats.mean([value for s, value in x.items() if s in by_seed and value is not None]) for x in (a, b)
    ]
    ours = f"{means[0]:.2f} - {means[1]:.2f} = {stats.mean(pairs):+.2f}"
    if len(pairs) < LEAST:
        why = failed if against else f"fewer than {LEAST} seeds decide nothing"
        return {**row, "ours": f"{ours}; {why}", "n": len(pairs), **against}
    seen = stats.t_interval(pairs)
    ours += f" [{seen.low:+.2f}, {seen.high:+.2f}]"
    if lost:
        verdict, ours = "not held", f"{ours}; {failed}"
    else:
        kind = {"similar": "within", "not-worse": "no-loss"}.get(claim.rule, "above")
        verdict = claims.outcome(kind, claim.margin, seen.low, seen.high)
        left, right = ([v for v in x.values() if v is not None] for x in (a, b))
        ours += claims.without_pairs(kind, claim.margin, verdict, left, right)
    return {**row, "ours": ours, "n": len(pairs), "verdict": verdict}


def _value(claim: Claim, values: list[float], lost: list[int]) -> dict[str, Any]:
    if len(values) < LEAST:
        found = {"ours": f"{len(values)} runs, {len(lost)} diverged", "n": len(values)}
        return {**found, "verdict": "not held"} if lost and len(values) + len(lost) >= LEAST else found
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


def lines_for(claim: Claim, root: Path) -> list[dict[str, Any]]:
    """The records that the claim is about: its study's, and the rows of others that it names (`table2: adamw`)."""
    found = records(root / "cifar10" / f"{claim.study}.jsonl")
    for name in (claim.a, claim.b):
        study, _, row = name.partition(": ")
        if row:
            theirs = records(root / "cifar10" / f"{study}.jsonl")
            found += [{**line, "row": name} for line in theirs if line["row"] == row]
    return found


def all_claims(root: Path = RECORDS, study: str = "") -> list[dict[str, Any]]:
    """Every claim, or those of a study, judged from `root`/cifar10/*.jsonl."""
    chosen = [claim for claim in CLAIMS if study in ("", claim.study)]
    return [judge(claim, lines_for(claim, root)) for claim in chosen]


def main(arguments: list[str] | None = None) -> int:
    """Write the file, or check it."""
    return claims.command("cifar10", "adaxlab.cifar.claims", all_claims, arguments)


if __name__ == "__main__":
    sys.exit(main())
