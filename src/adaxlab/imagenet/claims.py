"""Judge the claims of `rules.py` from the records, and write them where docs/claims.md finds them.

python -m adaxlab.imagenet.claims            writes records/claims/imagenet.json
python -m adaxlab.imagenet.claims --check    fails when the committed file is not what the records give
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adaxlab import claims, stats
from adaxlab.cifar.drive import records
from adaxlab.claims import LEAST, RECORDS, command, outcome
from adaxlab.imagenet.rules import CLAIMS, EARLY, LATER, Claim, failed

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


def measured(measure: str, record: Line) -> float:
    """The quantity of one run."""
    curve, epochs = record["curve"], record["recipe"]["epochs"]
    if measure == "final":
        return record["test_accuracy"]
    if measure == "trained":
        return record["train_accuracy"]
    if measure == "early":
        return stats.mean(curve["train_accuracy"][: max(1, math.floor(EARLY * epochs))])
    if measure == "late":
        return curve["test_accuracy"][-1] - curve["test_accuracy"][max(1, round(LATER * epochs)) - 1]
    raise ValueError(
        f"measure={measure!r}: not a run's; known are {', '.join(m for m in MEASURES if m != 'step')}"
    )


def rounds(root: Path = RECORDS) -> dict[str, list[float]]:
    """Milliseconds of a method's step, round by round (`speed.in_turn`); none if the study `tiny` was not measured."""
    path = root / "imagenet" / "speed.json"
    found = json.loads(path.read_text()).get("in_turn", {}) if path.is_file() else {}
    return found.get("ms", {}) if found.get("study") == "tiny" else {}


def judge(
    claim: Claim, lines: Sequence[Line], ms: Mapping[str, Sequence[float]] | None = None
) -> dict[str, Any]:
    """The claim as a row of records/claims/*.json."""
    rule = RULES[claim.rule].format(measure=MEASURES[claim.measure], margin=claim.margin)
    row = claims.not_run(claim, claim.id, claim.where, f"imagenet/{claim.study}", rule, claim.paper)
    if claim.measure == "step":
        timed = claims.in_rounds(claim.margin, *((ms or {}).get(name, ()) for name in (claim.a, claim.b)))
        return {**row, "ours": "not run (python -m adaxlab.imagenet speed)", **timed}
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
    if claim.b and not lost:
        x, y = ([measured(claim.measure, r) for r in runs.values() if not failed(r)] for runs in (a, b))
        shown += claims.without_pairs(claim.rule, claim.margin, verdict, x, y)
    return {**row, "ours": shown + gone, "n": len(pairs), "verdict": verdict}


def all_claims(root: Path = RECORDS) -> list[dict[str, Any]]:
    """Every claim, judged from `root`/imagenet/*.jsonl."""
    found = {name: records(root / "imagenet" / f"{name}.jsonl") for name in {c.study for c in CLAIMS}}
    ms = rounds(root)
    return [judge(claim, found[claim.study], ms) for claim in CLAIMS]


if __name__ == "__main__":
    sys.exit(command("imagenet", "adaxlab.imagenet.claims", all_claims))
