"""Judge the claims of `rules.py` from the records, and write them where docs/claims.md finds them.

python -m adaxopt.lab.imagenet.claims            writes records/claims/imagenet.json
python -m adaxopt.lab.imagenet.claims --check    fails when the committed file is not what the records give
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adaxopt.lab import claims, stats
from adaxopt.lab.cifar.drive import records
from adaxopt.lab.claims import LEAST, RECORDS, command, outcome
from adaxopt.lab.imagenet.rules import CLAIMS, EARLY, FLOOR, LATER, Claim

MEASURES = {
    "final": "top-1 after the last epoch",
    "trained": "training accuracy of the last epoch",
    "early": "training accuracy averaged over the first 30% of the epochs",
    "late": "top-1 after the last epoch less that when 70% of the epochs are over",
    "step": "time of a training step, rounds in turn",
}
RULES = {
    "above": "{measure}, paired 95% interval of (a - b): above {margin:g} held, below not held, else undecided",
    "within": "{measure}, paired 95% interval of (a - b): within +-{margin:g} held, outside not held, else undecided",
    "no-loss": "{measure}, paired 95% interval of (a - b): above -{margin:g} held, below not held, else undecided",
    "below": "{measure}, 95% interval: below {margin:g} held, above not held, else undecided",
    "ratio": "{measure}, 95% interval of a/b: within 1 +- {margin:g} held, outside not held, else undecided",
}
Line = Mapping[str, Any]


def failed(record: Line) -> bool:
    """Loss no number at some epoch, or an accuracy that is little more than chance."""
    return None in record["curve"]["train_loss"] or record["test_accuracy"] <= FLOOR


def measured(measure: str, record: Line) -> float:
    """The quantity of one run."""
    curve, epochs = record["curve"], record["recipe"]["epochs"]
    if measure == "final":
        return record["test_accuracy"]
    if measure == "trained":
        return record["train_accuracy"]
    if measure == "early":
        return stats.mean(curve["train_accuracy"][: max(1, math.floor(EARLY * epochs))])
    assert measure == "late"
    return curve["test_accuracy"][-1] - curve["test_accuracy"][max(1, round(LATER * epochs)) - 1]


def rounds(root: Path = RECORDS) -> dict[str, list[float]]:
    """Milliseconds of a method's step, round by round (`speed.in_turn`); none if it was not measured."""
    path = root / "imagenet" / "speed.json"
    return json.loads(path.read_text())["in_turn"]["ms"] if path.is_file() else {}


def judge(
    claim: Claim, lines: Sequence[Line], ms: Mapping[str, Sequence[float]] | None = None
) -> dict[str, Any]:
    """The claim as a row of records/claims/*.json."""
    rule = RULES[claim.rule].format(measure=MEASURES[claim.measure], margin=claim.margin)
    row = claims.not_run(claim, claim.id, claim.where, f"imagenet/{claim.study}", rule, claim.paper)
    if claim.rule == "ratio":
        return _ratio(claim, row, ms or {})
    a, b = ({r["seed"]: r for r in lines if r["row"] == name} for name in (claim.a, claim.b))
    seeds = sorted(set(a) & set(b)) if claim.b else sorted(a)
    if not seeds:
        return row
    pairs = [
        (measured(claim.measure, a[s]), measured(claim.measure, b[s]) if claim.b else 0.0)
        for s in seeds
        if not failed(a[s]) and not (claim.b and failed(b[s]))
    ]
    lost, others = (sum(failed(runs[s]) for s in seeds if s in runs) for runs in (a, b))
    told = ((lost, claim.a), (others, claim.b))
    gone = "".join(f"; {count} of {len(seeds)} runs of {name} failed" for count, name in told if count)
    if len(pairs) < LEAST:
        verdict = "not held" if lost >= LEAST else "undecided"
        return {**row, "ours": f"{len(pairs)} usable seeds{gone}", "n": len(seeds), "verdict": verdict}
    seen = stats.t_interval([x - y for x, y in pairs])
    means = [stats.mean([pair[i] for pair in pairs]) for i in (0, 1)]
    shown = f"{seen.mean:+.2f} [{seen.low:+.2f}, {seen.high:+.2f}]"
    if claim.b:
        shown = f"{means[0]:.2f} - {means[1]:.2f} = {shown}"
    verdict = "not held" if lost else outcome(claim.rule, claim.margin, seen.low, seen.high)
    return {**row, "ours": shown + gone, "n": len(pairs), "verdict": verdict}


def _ratio(claim: Claim, row: dict[str, Any], ms: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    a, b = ms.get(claim.a, ()), ms.get(claim.b, ())
    if min(len(a), len(b)) < LEAST:
        return {**row, "ours": "not run (python -m adaxopt.lab.imagenet speed)"}
    seen = stats.t_interval([x / y for x, y in zip(a, b, strict=True)])
    means = f"{stats.mean(a):.2f} ms / {stats.mean(b):.2f} ms"
    return {
        **row,
        "ours": f"{means} = {seen.mean:.3f} [{seen.low:.3f}, {seen.high:.3f}], rounds",
        "n": seen.n,
        "verdict": outcome(claim.rule, claim.margin, seen.low, seen.high),
    }


def all_claims(root: Path = RECORDS) -> list[dict[str, Any]]:
    """Every claim, judged from `root`/imagenet/*.jsonl."""
    found = {name: records(root / "imagenet" / f"{name}.jsonl") for name in {c.study for c in CLAIMS}}
    return [judge(claim, found[claim.study], rounds(root)) for claim in CLAIMS]


if __name__ == "__main__":
    sys.exit(command("imagenet", "adaxopt.lab.imagenet.claims", all_claims))
