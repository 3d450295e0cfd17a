"""The paper's sentences on language that the stand-ins can touch, with rules written before the runs.

    python -m adaxlab.language.claims            writes records/claims/language.json
    python -m adaxlab.language.claims --check    fails when the committed file is not what the records give

Losses are nats per word; a difference of d is a ratio of perplexities of e^d. Rows of one seed share weights and text:
differences are taken seed by seed and judged by Student's paired 95% interval. The paper's own perplexities are of
another text and are no claims here. Fewer than 3 seeds decide nothing; a diverged run cannot hold a claim of its
method.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adaxlab import claims, records, stats
from adaxlab.claims import LEAST, RECORDS
from adaxlab.paper import catalogue
from adaxlab.summary import summarise

TEXTS = {"ptb": "Penn Treebank", "enwik8": "words of enwik8"}
POOR = 0.1
Curve = list[list[float]]


@dataclass(frozen=True)
class Claim:
    """A sentence; `a` and `b` are rows of `studies.py`; `sides` are the measures whose intervals must all agree."""

    id: str
    text: str
    a: str
    b: str
    sides: tuple[tuple[str, float], ...]
    """(measure, margin): the interval of b - a is above the margin. All held: held; one not held: not held."""
    paper: str
    note: str = ""


def test(curve: Curve) -> float:
    """Loss on the test split after the last epoch."""
    return curve[-1][2]


def early(curve: Curve) -> float:
    """Training loss of the first epoch, the other way round: a slower start is a larger one."""
    return -curve[0][1]


def trained(curve: Curve) -> float:
    """Training loss of the last epoch."""
    return curve[-1][1]


MEASURES: dict[str, Callable[[Curve], float]] = {"test": test, "early": early, "trained": trained}
WORDS = {
    "test": "test loss, b - a: above {margin:g}",
    "early": "training loss of the first epoch, a - b: above {margin:g}",
    "trained": "training loss of the last epoch, b - a: above {margin:g}",
}
PPL = "35.22 against 36.90: 0.047 nats"
CLAIMS = (
    Claim("adax-over-adam", "AdaX ends below Adam's perplexity", "adax", "adam", (("test", 0.0),), PPL, "b2*T = 35"),
    Claim(
        "adax-over-adam.b2T3",
        "AdaX ends below Adam's perplexity",
        "adax@b2T=3",
        "adam",
        (("test", 0.0),),
        PPL,
        "b2*T = 3",
    ),
    Claim(
        "slow-start",
        "AdaX starts a little slower and soon surpasses Adam, in training and in validation",
        "adax",
        "adam",
        (("early", 0.0), ("trained", 0.0), ("test", 0.0)),
        "no number in the text",
        "b2*T = 35; all three must hold",
    ),
    Claim(
        "amsgrad-poor",
        "AMSGrad performs rather poorly",
        "adam",
        "amsgrad",
        (("test", POOR),),
        "61.66 against 36.90: 0.51 nats",
        "poorly: more than 0.1 nats worse than Adam",
    ),
)  # fmt: skip


def judge(claim: Claim, text: str, record: Mapping[str, Any] | None) -> dict[str, Any]:
    """The claim on one text as a row of records/claims/*.json."""
    sides = "; ".join(WORDS[measure].format(margin=margin) for measure, margin in claim.sides)
    rule = f"paired 95% intervals: {sides} held, below not held, else undecided"
    section = f"Section 5.1, language (stand-in: {TEXTS[text]})"
    row = claims.not_run(claim, f"language.{text}.{claim.id}", section, f"language/{text}", rule, claim.paper)
    if record is None:
        return row
    rows = {r["optimizer"]: r for r in record["rows"]}
    a, b = rows[claim.a], rows[claim.b]
    pairs = [
        (a["curves"][seed], b["curves"][seed])
        for seed in a["curves"]
        if a["curves"][seed] and b["curves"].get(seed)
    ]
    lost = f"; {a['diverged']} of {len(a['curves'])} runs of {claim.a} diverged" if a["diverged"] else ""
    if len(pairs) < LEAST:
        return {**row, "ours": f"{len(pairs)} pairs{lost}", "n": len(pairs)}
    shown, verdicts = [], []
    for measure, margin in claim.sides:
        of = MEASURES[measure]
        seen = stats.t_interval([of(theirs) - of(mine) for mine, theirs in pairs])
        verdicts.append(claims.outcome("above", margin, seen.low, seen.high))
        shown.append(f"{measure} {seen.mean:+.4f} [{seen.low:+.4f}, {seen.high:+.4f}]")
        if measure == "test" and claim.id != "slow-start":
            ends = [math.exp(stats.mean([of(pair[i]) for pair in pairs])) for i in (0, 1)]
            shown[-1] += f" (perplexities {ends[0]:.1f} and {ends[1]:.1f})"
        left, right = ([of(pair[i]) for pair in pairs] for i in (1, 0))
        shown[-1] += claims.without_pairs("above", margin, verdicts[-1], left, right, 4)
    worst = (
        "not held" if "not held" in verdicts or lost else "undecided" if "undecided" in verdicts else "held"
    )
    return {**row, "ours": "; ".join(shown) + lost, "n": len(pairs), "verdict": worst}


def _rows(text: str, runs: Any) -> dict[str, Any]:
    rows = []
    for row in summarise(catalogue.study(f"language/{text}"), runs).rows:
        curves = {
            str(r.spec["seed"]): [
                [float(f"{m[k]:.6g}") for k in ("step", "train_loss", "metric")] for m in r.metrics
            ]
            if r.done and r.done["metric"] is not None
            else []
            for r in row.runs
        }
        rows.append({"optimizer": row.name, "curves": curves, "diverged": row.diverged})
    return {"rows": rows}


def all_claims(root: Path = RECORDS) -> list[dict[str, Any]]:
    """Every claim on every text, judged from `root`/language/*.json."""
    found = []
    for text in TEXTS:
        runs = records.load(root, f"language/{text}")
        record = _rows(text, runs) if runs else None
        found += [judge(claim, text, record) for claim in CLAIMS]
    return found


if __name__ == "__main__":
    sys.exit(claims.command("language", "adaxlab.language.claims", all_claims))
