"""Claims and judged claims, as data.

A claim consists of a statement of the paper (or a comparison of this project), the study whose runs judge it, and a
rule that was written before those runs. `measure` names the quantity that is taken from each run (`measures.py`); if
there are several, all must agree. `a` and `b` are rows of the study; `STUDY: ROW` is a row of another study of the same
family.

    better         a is better than b by more than the margin
    not_worse      a is not worse than b by more than the margin
    similar        a and b differ by no more than the margin
    equals_paper   a's value and the paper's overlap
    below          a's value is below the margin
    larger         a/b is above 1
    ratio          a/b is within 1 +- margin
    paper_ratio    the ratio of tuned settings, a/b, is within a factor of the margin of the paper's

A claim that its study leaves open may name a `retest`, a study with the same rows on new seeds. After the retest has
been run, only the retest decides.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

ClaimRule = Literal[
    "better", "not_worse", "similar", "equals_paper", "below", "larger", "ratio", "paper_ratio"
]  # fmt: skip
KEYS = (
    "id", "section", "claim", "by", "paper", "ours", "estimate", "n", "p", "family", "rule", "verdict", "provisional",
    "post_hoc", "runs", "reason", "plan", "note",
)  # fmt: skip
VERDICTS = {True: "supported", False: "contradicted", None: "inconclusive"}
"""The verdict for each outcome of a rule."""
NOT_RUN = "not run"
WORDS = (*VERDICTS.values(), NOT_RUN)
"""All verdicts."""
PAPER, OURS = "paper", "ours"
"""The source of a claim: a statement of the paper, or a comparison, correction or fact of this project."""
LEAST, ENOUGH = 3, 5
"""Fewer seeds give no verdict; a verdict from fewer seeds is provisional."""


@dataclass(frozen=True)
class Claim:
    """A statement and the rule that judges it; `ours` marks statements that are not in the paper."""

    id: str
    text: str
    where: str
    study: str
    rule: ClaimRule
    measure: str | tuple[str, ...]
    a: str
    b: str = ""
    margin: float = 0.0
    paper: float | tuple[float, float] | str | None = None
    """A difference, (mean, margin of error), (setting of a, setting of b), or words."""
    ours: bool = False
    post_hoc: bool = False
    """Whether the rule was written after the runs of `study`."""
    retest: str = ""
    superseded_by: str = ""
    """The id of the claim that makes the same comparison on new seeds, if this one's runs should no longer decide."""
    note: str = ""

    @property
    def measures(self) -> tuple[str, ...]:
        return (self.measure,) if isinstance(self.measure, str) else self.measure

    @property
    def studies(self) -> tuple[str, ...]:
        """The studies whose runs the claim needs."""
        own = tuple(filter(None, (self.study, self.retest)))
        return (*own, *(resolve(self.study, name)[0] for name in (self.a, self.b) if name))

    @property
    def says(self) -> str:
        """The paper's value as text.

        >>> Claim("x", "", "", "", "better", "accuracy", "a", "b", paper=0.46).says
        '+0.46'
        """
        if self.ours:
            return "not in the paper"
        if isinstance(self.paper, tuple):
            if self.rule == "paper_ratio":
                return " against ".join(re.sub("e-0", "e-", f"{x:g}") for x in self.paper)
            return "{:.2f} +- {:.2f}".format(*self.paper)
        if isinstance(self.paper, float):
            return f"{self.paper:+.2f}"
        return self.paper or "no number in the text"


def about(
    study: str, where: str, rule: ClaimRule, measure: str | tuple[str, ...], **common: Any
) -> Callable[..., Claim]:
    """Return a function `(id, text, a, b, **more)` that creates claims on one study with one rule. The family's name is
    added to the ids."""

    def make(id: str, text: str, a: str, b: str = "", **more: Any) -> Claim:
        name = f"{study.partition('/')[0]}.{id}"
        return Claim(name, text, where, study, rule, measure, a, b, **{**common, **more})

    return make


def resolve(study: str, name: str) -> tuple[str, str]:
    """Return the study and the row to which a name refers in a claim on `study`.

    >>> resolve("cifar10/tuned", "adamw"), resolve("cifar10/tuned", "table2: adamw")
    (('cifar10/tuned', 'adamw'), ('cifar10/table2', 'adamw'))
    """
    other, _, row = name.rpartition(": ")
    return (f"{study.rpartition('/')[0]}/{other}" if other else study), row


def notes(*parts: str) -> str:
    """Join the non-empty parts to one note."""
    return "; ".join(filter(None, parts))


def row(
    id: str,
    section: str,
    claim: str,
    *,
    paper: str,
    ours: str,
    rule: str,
    holds: bool | None,
    n: int | None = None,
    by: str = PAPER,
    run: bool = True,
    note: str = "",
    **tested: Any,
) -> dict[str, Any]:
    """Return a judged claim as a dict.

    `holds` is the outcome of the rule (None: inconclusive), `n` the number of samples or enumerated cases. With
    `run=False` the verdict is "not run". `tested` contains the keys of claims that are judged on runs: `estimate` has
    the mean of the first measure with its plain 95% interval, as numbers and as text; the `plan` of an open claim has
    the number of new seeds that would decide it (`needed`, as text) and the study that is to judge it.
    """
    made = {
        "estimate": {},
        "p": None,
        "family": 0,
        "provisional": False,
        "post_hoc": False,
        "runs": "",
        "reason": "",
        "plan": {},
        **tested,
    }
    made |= {"id": id, "section": section, "claim": claim, "by": by, "paper": paper, "ours": ours, "n": n}
    made |= {"rule": rule, "note": note}
    made["verdict"] = VERDICTS[None if holds is None else bool(holds)] if run else NOT_RUN
    return {key: made[key] for key in KEYS}


def words(row: Mapping[str, Any]) -> str:
    """The verdict as it is shown in tables and on pages.

    >>> words({"verdict": "supported", "provisional": True, "n": 3, "post_hoc": True})
    'supported (provisional, n = 3; post hoc)'
    """
    marks = [f"provisional, n = {row['n']}"] if row["provisional"] else []
    marks += ["post hoc"] if row["post_hoc"] and row["verdict"] != NOT_RUN else []
    return row["verdict"] + (f" ({'; '.join(marks)})" if marks else "")


OF_RUNS = ("cifar10", "gpt", "imagenet", "language", "voc")
"""What the ids of claims about runs begin with; all other claims are computed."""


def family(id: str) -> str:
    """The family of studies that judges the claim, or 'theory'.

    >>> family("cifar10.table2.adamW"), family("T4.1")
    ('cifar10', 'theory')
    """
    first = id.partition(".")[0]
    return first if first in OF_RUNS else "theory"


def anchor(id: str) -> str:
    """The anchor of the claim on the page of its family.

    >>> anchor("cifar10.table2.adamW")
    'claim-cifar10-table2-adamw'
    """
    return "claim-" + id.lower().replace(".", "-")


def link(id: str, text: str) -> str:
    """A link from a page of docs/ to the claim.

    >>> link("cifar10.table2.adamW", "supported")
    '[supported](claims-cifar10.md#claim-cifar10-table2-adamw)'
    """
    return f"[{text}](claims-{family(id)}.md#{anchor(id)})"


def check(rows: Iterable[Mapping[str, Any]], source: str) -> None:
    """Raise ValueError unless every row has all keys and a known verdict, and the ids are unique."""
    rows = list(rows)
    for each in rows:
        missing = [key for key in KEYS if key not in each]
        if missing:
            raise ValueError(
                f"{source}: claim {each.get('id', '?')!r} lacks {', '.join(missing)}; needed are {', '.join(KEYS)}"
            )
        if each["verdict"] not in WORDS:
            allowed = ", ".join(WORDS)
            raise ValueError(
                f"{source}: claim {each['id']!r} has verdict={each['verdict']!r}; allowed are {allowed}"
            )
    twice = [id for id, count in Counter(each["id"] for each in rows).items() if count > 1]
    if twice:
        raise ValueError(f"{source}: the ids {', '.join(twice)} occur twice; every claim needs its own")
