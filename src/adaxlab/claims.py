"""What every part of the paper's experiments does with its claims: verdicts on intervals, and the committed file.

A claim is judged by an interval and a rule that was written before the run:

    above m      the whole interval is above m: held; below m: not held
    below m      the whole interval is below m: held; above m: not held
    no-loss m    the whole interval is above -m: held; below -m: not held
    within m     the whole interval is within +-m: held; outside: not held
    ratio m      the whole interval is within 1 +- m: held; outside: not held

and anything else is undecided.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from adaxlab import stats

RECORDS = Path("records")
OURS = "(ours)"
"""What a claim has in the place of the paper's number when it is a comparison of ours."""
LEAST = 3
"""Fewer seeds decide nothing."""


class Sentence(Protocol):
    """What every part's claims have; `a` and `b` are rows of the study, b empty where a stands alone."""

    @property
    def text(self) -> str: ...
    @property
    def a(self) -> str: ...
    @property
    def b(self) -> str: ...
    @property
    def note(self) -> str: ...


def notes(*parts: str) -> str:
    """Those that say something, as one."""
    return "; ".join(filter(None, parts))


def and_the_papers(note: str, at: str, paper: str) -> str:
    """The note of a comparison of ours, with the paper's number at its own settings, where it has one.

    >>> and_the_papers("b2*T = 50", "paper", "+2.95"), and_the_papers("", "paper", "no number in the text")
    ('b2*T = 50; paper: +2.95', '')
    """
    return notes(note, "" if "no number" in paper else f"{at}: {paper}")


def not_run(claim: Sentence, id: str, section: str, study: str, rule: str, paper: str) -> dict[str, Any]:
    """The claim as a row of records/claims/*.json, before anything is known."""
    rows = f" (a: {claim.a}, b: {claim.b})" if claim.b else ""
    return {
        "id": id,
        "section": section,
        "claim": claim.text,
        "paper": paper,
        "ours": f"not run (study {study})",
        "n": 0,
        "rule": rule + rows,
        "verdict": "undecided",
        "note": claim.note,
    }


def outcome(rule: str, margin: float, low: float, high: float) -> str:
    """The verdict on an interval.

    >>> outcome("above", 0, 0.1, 2.0), outcome("no-loss", 0.5, -0.6, 0.2), outcome("within", 1, 1.5, 2.0)
    ('held', 'undecided', 'not held')
    """
    inside, outside = {
        "above": (low > margin, high < margin),
        "below": (high < margin, low > margin),
        "no-loss": (low > -margin, high < -margin),
        "within": (low > -margin and high < margin, low > margin or high < -margin),
        "ratio": (low > 1 - margin and high < 1 + margin, low > 1 + margin or high < 1 - margin),
    }[rule]
    return "held" if inside else "not held" if outside else "undecided"


def without_pairs(
    rule: str, margin: float, verdict: str, a: Sequence[float], b: Sequence[float], digits: int = 2
) -> str:
    """What to put beside a verdict on pairs where Welch's interval (`stats.unpaired`) would give another; else nothing.

    >>> without_pairs("above", 0, "held", [1.0, 2.0, 3.0], [0.0, 1.0, 2.0])
    '; without pairing by seed [-1.27, +3.27], which would be undecided'
    """
    low, high = stats.unpaired(a, b)
    other = outcome(rule, margin, low, high)
    if other == verdict:
        return ""
    return f"; without pairing by seed [{low:+.{digits}f}, {high:+.{digits}f}], which would be {other}"


def in_rounds(margin: float, a: Sequence[float], b: Sequence[float]) -> dict[str, Any]:
    """`ratio` on milliseconds of steps that were measured round by round, in turn; {} if one of them was not.

    >>> in_rounds(0.05, [3.0, 3.0], [3.0, 3.0])
    {'ours': '2 rounds, fewer than 3 decide nothing', 'n': 2}
    """
    if not a or not b:
        return {}
    pairs = list(zip(a, b, strict=False))  # of unequal lengths the rounds that both have
    if len(pairs) < LEAST:
        return {"ours": f"{len(pairs)} rounds, fewer than {LEAST} decide nothing", "n": len(pairs)}
    left, right = (stats.mean([pair[i] for pair in pairs]) for i in (0, 1))
    seen = stats.t_interval([x / y for x, y in pairs])
    return {
        "ours": f"mean {left:.2f} ms / {right:.2f} ms; a/b of a round {seen.mean:.3f} "
        f"[{seen.low:.3f}, {seen.high:.3f}], rounds",
        "n": seen.n,
        "verdict": outcome("ratio", margin, seen.low, seen.high),
    }


def command(
    name: str,
    module: str,
    judged: Callable[[Path], list[dict[str, Any]]],
    arguments: list[str] | None = None,
) -> int:
    """`python -m MODULE [--check]`: write records/claims/NAME.json, or fail where it is not what the records give."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}", description=f"Judge the claims of {name} from the records."
    )
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(arguments)
    path = options.records / "claims" / f"{name}.json"
    text = json.dumps(judged(options.records), indent=1) + "\n"
    if options.check:
        same = path.is_file() and path.read_text() == text
        if not same:
            print(f"{path}: is not what the records give; run python -m {module}", file=sys.stderr)
        return 0 if same else 1
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return 0
