"""Judge the claims of `rules.py` from the records, and write them where docs/claims.md finds them.

python -m adaxlab.voc.claims            writes records/claims/voc.json
python -m adaxlab.voc.claims --check    fails when the committed file is not what the records give
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from adaxlab import claims, stats, store
from adaxlab.claims import RECORDS
from adaxlab.store import RunRecord
from adaxlab.voc.rules import CLAIMS, QUARTERS, Claim

PAPER_LR_RATIO = 10.0
RULES = {
    "better": "the paired 95% interval of (a - b), final IoU, is above 0: held; below: not held; else undecided",
    "faster": "training loss averaged over three quarters, paired 95% interval of (b - a), as 'better'",
    "as-fast": "the 95% interval, over rounds, of the time of a's step over b's is within 1 +- {margin}: held; "
    "outside: not held; else undecided",
    "lr-ratio": "a's tuned lr over b's is within a factor of {margin:g} of the paper's: held; else not held",
}


def records(name: str, root: Path = RECORDS) -> list[RunRecord]:
    """The runs of a study that have ended; none if it was not run."""
    path = root / "voc" / f"{name}.jsonl"
    return store.read_export(path) if path.is_file() else []


def finals(runs: Iterable[RunRecord], row: str) -> dict[int, RunRecord]:
    """A row's final runs by seed."""
    chosen = (r for r in runs if r.row == row and r.spec["purpose"] == "final")
    return {r.spec["seed"]: r for r in chosen}


def trials(runs: Iterable[RunRecord], row: str) -> dict[float, float | None]:
    """IoU on the validation split by lr, of a row's tuning runs; None where it diverged."""
    mine = (r for r in runs if r.row == row and r.spec["purpose"] == "tune")
    return {r.spec["options"]["lr"]: iou(r) for r in mine}


def iou(run: RunRecord) -> float | None:
    """IoU of the last evaluation, in percent; None for a run that diverged."""
    assert run.done is not None
    return None if run.done["metric"] is None else 100 * run.done["metric"]


def early_loss(run: RunRecord) -> float | None:
    """Training loss averaged over the first three quarters."""
    assert run.done is not None
    if run.done["status"] != "finished":
        return None
    part = [line["train_loss"] for line in run.metrics[:QUARTERS]]
    return stats.mean(part)


def rounds(root: Path = RECORDS) -> dict[str, list[float]]:
    """Milliseconds of a row's step, round by round (`benchmarks/voc.py`); none if it was not measured."""
    path = root / "voc" / "speed.json"
    return json.loads(path.read_text())["ms"] if path.is_file() else {}


MEASURES: dict[str, tuple[Callable[[RunRecord], float | None], int]] = {
    "better": (iou, 2),
    "faster": (early_loss, 3),
}
"""What of a run is judged, and with how many decimals it is shown."""


def judge(
    claim: Claim, runs: Sequence[RunRecord], ms: Mapping[str, Sequence[float]] | None = None
) -> dict[str, Any]:
    """The claim as a row of records/claims/*.json."""
    rule = RULES[claim.rule].format(margin=claim.margin)
    row = claims.not_run(claim, claim.id, claim.where, f"voc/{claim.study}", rule, claim.paper)
    if claim.rule == "as-fast":
        timed = claims.in_rounds(claim.margin, *((ms or {}).get(name, ()) for name in (claim.a, claim.b)))
        return {**row, "ours": "not run (benchmarks/voc.py)", **timed}
    mine, other = finals(runs, claim.a), finals(runs, claim.b)
    if not mine or not other:
        return row
    if claim.rule == "lr-ratio":
        a, b = (next(iter(part.values())).spec["options"]["lr"] for part in (mine, other))
        near = 1 / claim.margin <= a / b / PAPER_LR_RATIO <= claim.margin
        allowed = [PAPER_LR_RATIO / claim.margin, PAPER_LR_RATIO * claim.margin]
        ours = f"{a:g} against {b:g}, {a / b:.2g} times; held from {allowed[0]:g} to {allowed[1]:g}"
        ours += _runner_up(trials(runs, claim.b))
        return {**row, "ours": ours, "n": 1, "verdict": "held" if near else "not held"}
    measure, digits = MEASURES[claim.rule]
    left, right = ({seed: measure(run) for seed, run in part.items()} for part in (mine, other))
    lost = sum(value is None for value in left.values())
    found = list(stats.paired(left, right, higher_is_better=claim.rule == "better").values())
    if len(found) < claims.LEAST:
        return {**row, "ours": f"{len(found)} pairs, {lost} diverged", "n": len(found)}
    seen = stats.t_interval(found)
    both = [[v for v in part.values() if v is not None] for part in (left, right)]
    a, b = (f"{stats.mean(values):.{digits}f}" for values in both)
    by, low, high = (f"{value:+.{digits}f}" for value in (seen.mean, seen.low, seen.high))
    ours = f"{a} and {b}; better by {by} [{low}, {high}]"
    verdict = claims.outcome("above", 0.0, seen.low, seen.high)
    if lost:
        verdict, ours = "not held", f"{ours}; {lost} of {len(left)} runs diverged"
    else:
        upper, lower = both if claim.rule == "better" else reversed(both)
        ours += claims.without_pairs("above", 0.0, verdict, upper, lower, digits)
    return {**row, "ours": ours, "n": seen.n, "verdict": verdict}


def _runner_up(tried: Mapping[float, float | None]) -> str:
    """How close another choice was: the second best lr and how far it was behind."""
    ended = sorted(((value, lr) for lr, value in tried.items() if value is not None), reverse=True)
    if len(ended) < 2:
        return ""
    (best, _), (second, lr) = ended[:2]
    return f"; the latter's second best, {lr:g}, was {best - second:.2f} points behind"


def all_claims(root: Path = RECORDS) -> list[dict[str, Any]]:
    """Every claim, judged from `root`/voc/."""
    found = {name: records(name, root) for name in {claim.study for claim in CLAIMS}}
    ms = rounds(root)
    return [judge(claim, found[claim.study], ms) for claim in CLAIMS]


def main(arguments: list[str] | None = None) -> int:
    """Write the file, or check it."""
    return claims.command("voc", "adaxlab.voc.claims", all_claims, arguments)


if __name__ == "__main__":
    sys.exit(main())
