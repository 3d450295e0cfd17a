"""docs/claims.md: every claim with its rule and its result, generated from the records by `adax claims`."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from adaxlab.claim import OURS, VERDICTS, WORDS, anchor, check, words
from adaxlab.judge import ALPHA
from adaxlab.markdown import spelled, table
from adaxlab.paper import claims_text as text
from adaxlab.paper.drawn import image
from adaxlab.paper.theory.record import order

Row = dict[str, Any]


def page(records: Path, experiments: list[Row]) -> str:
    """The page as text: the theory's records under `records`, and the judged claims of the experiments."""
    theory = [json.loads(path.read_text()) for path in sorted((records / "theory").glob("*.json"))]
    ours = sorted((row for record in theory for row in record["claims"]), key=order)
    check(ours + experiments, str(records))
    lines = [
        "# The paper's claims, checked",
        "",
        "<!-- Made from records/ by `adax claims`; edits here are lost. -->",
        "",
        text.BEGIN,
        *_contents(ours, experiments),
        "",
        text.MEANING,
        *(f"- {change}" for change in text.CHANGED),
        "",
        text.END,
        *_overview(ours + experiments),
    ]
    for group in (ours, experiments):
        for section in dict.fromkeys(row["section"] for row in group):
            lines += ["", f'<a id="{_part(section)}"></a>', f"## {spelled(section)}", ""]
            for row in group:
                lines += _entry(row) if row["section"] == section else []
    lines += _open(ours + experiments)
    lines += _figures()
    lines += _errata(theory)
    lines += _runs(theory)
    return "\n".join(lines).rstrip() + "\n"


def _contents(*groups: list[Row]) -> list[str]:
    """Links to the parts of the page."""
    found = [
        "- [What a verdict means](#what-a-verdict-means)",
        "- [List of claims](#list-of-claims)",
        "- Claims, with rule and result:",
    ]
    for section in dict.fromkeys(row["section"] for group in groups for row in group):
        found.append(f"    - [{spelled(section)}](#{_part(section)})")
    rest = (
        ("open-claims", "Open claims"),
        ("figures", "Figures"),
        ("errata", "Errata"),
        ("what-was-run", "What was run"),
    )
    return found + [f"- [{name}](#{place})" for place, name in rest]


def _part(heading: str) -> str:
    """Where the claims of a section begin; GitHub and the site have different places for headings with signs.

    >>> _part("Section 5.1, ImageNet (stand-in: x)")
    'part-section-5-1-imagenet-stand-in-x'
    """
    return "-".join(["part", *re.findall(r"[a-z0-9]+", heading.lower())])


def _figures() -> list[str]:
    out = ["", "## Figures", ""]
    for name, shows in text.FIGURES.items():
        out += [shows, "", *image(f"theory-{name}", shows, "images").splitlines(), ""]
    return out


def _overview(rows: list[Row]) -> list[str]:
    own = [row for row in rows if row["by"] == OURS]
    theirs = [row for row in rows if row["by"] != OURS]
    out = [
        "## List of claims",
        "",
        *_theorem(rows),
        f"{len(theirs)} claims of the paper:",
        "",
        by_source(theirs),
        *_contradicted(theirs),
    ]
    if own:
        out += [
            "",
            f"{len(own)} claims of our own (corrections, facts on which the library relies, additional comparisons):",
        ]
        out += ["", by_source(own)]
    cells = []
    for row in rows:
        wrong = row["verdict"] == VERDICTS[False]
        verdict = words(row).replace(row["verdict"], f"**{row['verdict']}**") if wrong else words(row)
        cells.append((f"[{row['id']}](#{anchor(row['id'])})", row["by"], _cell(row["claim"]), verdict))
    whose = "*Whose* is `paper` for a claim of the paper and `ours` for a claim of this project."
    return [*out, "", whose, "", table(("id", "whose", "claim", "verdict"), cells)]


def _contradicted(theirs: list[Row]) -> list[str]:
    """The paper's contradicted claims, by what contradicts them."""
    groups: dict[str, list[str]] = {}
    for row in theirs:
        if row["verdict"] == VERDICTS[False]:
            groups.setdefault(source(row), []).append(f"[{row['id']}](#{anchor(row['id'])})")
    if not groups:
        return []
    lines = [f"- {name}: {', '.join(links)}" for name, links in groups.items()]
    return ["", "Contradicted claims of the paper:", "", *lines]


def _theorem(rows: list[Row]) -> list[str]:
    """A theorem and what the paper says about it are claims of their own."""
    found = {row["id"]: row["verdict"] for row in rows}
    if not {"T4.1", "T4.1b", "T4.1o"} <= set(found):
        return []
    return [
        "A theorem and what the paper says about it are separate claims. That the regret stays below the bound of "
        f"Theorem 4.1 is {found['T4.1']} ([T4.1](#{anchor('T4.1')})); that the theorem is about Algorithm 2 "
        f"is {found['T4.1b']} ([T4.1b](#{anchor('T4.1b')})), and that its bound gives R_T = o(T) is "
        f"{found['T4.1o']} ([T4.1o](#{anchor('T4.1o')})).",
        "",
    ]


SOURCES = {
    "cifar10": "the paper's own data (CIFAR-10)",
    "imagenet": "stand-ins",
    "voc": "stand-ins",
    "language": "stand-ins",
    "gpt": "a transformer of this project (enwik8)",
}
"""By the first part of an id; the others are computed."""


def source(row: Row) -> str:
    """What judges a claim."""
    return SOURCES.get(row["id"].partition(".")[0], "theory, computed")


def by_source(rows: list[Row]) -> str:
    """How many claims have each verdict, by what judges them."""
    return counts(rows, "judged by", source)


def counts(rows: list[Row], head: str, key: Callable[[Row], str]) -> str:
    """A table of verdicts; provisional ones are counted with the others."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    cells = []
    for source, part in groups.items():
        found = Counter(row["verdict"] for row in part)
        provisional = sum(row["provisional"] for row in part)
        cells.append((source, *(str(found[verdict]) for verdict in WORDS), str(provisional), str(len(part))))
    return table((head, *WORDS, "of these provisional", "claims"), cells)


def _open(rows: list[Row]) -> list[str]:
    """What is inconclusive or not run, and why."""
    found = [row for row in rows if row["reason"]]
    if not found:
        return []
    cells = []
    for row in found:
        plan = row["plan"]
        study = f"`{plan['study']}`" if "study" in plan else "none"
        if other := plan.get("superseded_by"):
            study = f"superseded by [{other}](#{anchor(other)})"
        cells.append(
            (
                f"[{row['id']}](#{anchor(row['id'])})",
                row["by"],
                row["verdict"],
                row["n"],
                plan.get("needed", ""),
                study,
                plan.get("planned") or "",
                f"{plan['minutes']:g}" if "minutes" in plan else "",
            )
        )
    head = (
        "id",
        "whose",
        "verdict",
        "n now",
        "n needed",
        "study that would judge it",
        "n planned",
        "GPU minutes",
    )
    about = (
        "This table lists every claim that is not decided. *n needed* is the smallest number of new seeds at which the "
        "mean and the standard deviation observed so far would decide the claim at Holm's strictest level. A new "
        "sample of that size decides the claim with a probability of about 50%, because its mean may be smaller. "
        "Claims that were not run have no *n needed*. *GPU minutes* are those of the study that would judge the claim, "
        "which its claims share ([the queue](queue.md) has the studies in order); if none is planned, those of the "
        "claim's own new runs, or of its whole study if that was not run."
    )
    return ["", "## Open claims", "", about, "", table(head, cells)]


def _entry(row: Row) -> list[str]:
    post_hoc = " (written after the runs)" if row["post_hoc"] else ""
    count = f" (n = {row['n']:,})" if row["n"] is not None else ""
    out = [
        f'<a id="{anchor(row["id"])}"></a>',
        f"### {row['id']}: {words(row)}",
        "",
        _words(row["claim"]),
        "",
        f"- Paper: {_words(row['paper'])}",
        f"- Rule{post_hoc}: {_words(row['rule'])}",
        f"- Computed{count}: {_words(row['ours'])}",
    ]
    if row["p"] is not None:
        out.append(f"- Test: {_test(row)}")
    if row["reason"]:
        out.append(f"- Open: {_words(row['reason'])}")
    if row["runs"]:
        out.append(f"- Runs: {_words(row['runs'])}")
    if row["note"]:
        out.append(f"- Note: {_words(row['note'])}")
    return [*out, ""]


def _test(row: Row) -> str:
    """The p that decides, and how it was adjusted.

    >>> _test({"p": 0.0624, "family": 8, "verdict": "inconclusive"})
    "adjusted p = 0.062 (Holm's method, 8 claims of the study), not below 0.05"
    """
    many = row["family"] > 1
    text = (
        f"adjusted p = {row['p']:.2g} (Holm's method, {row['family']} claims of the study)"
        if many
        else f"p = {row['p']:.2g}"
    )
    if row["p"] < ALPHA:
        return f"{text}, below {ALPHA:g}"
    return f"{text}, not below {ALPHA:g}" if row["verdict"] == VERDICTS[None] else text


def _errata(theory: list[Row]) -> list[str]:
    rows = [row for record in theory for row in record.get("errata", [])]
    if not rows:
        return []
    out = [
        "",
        "## Errata",
        "",
        text.ERRATA,
        "",
    ]
    cells = []
    for row in rows:
        shown = ", ".join(f"[{id}](#{anchor(id)})" for id in row["shown_by"]) or "reading"
        cells.append((row["number"], _cell(row["paper"]), _cell(row["here"]), shown))
    return [*out, table(("", "the paper", "here", "shown by"), cells)]


def _runs(theory: list[Row]) -> list[str]:
    cells = []
    for record in theory:
        versions = ", ".join(f"{name} {value}" for name, value in record["versions"].items())
        cells.append((f"`records/theory/{record['name']}.json`", _cell(record["what"]), versions))
    return ["", "## What was run", "", table(("record", "what", "versions"), cells)]


def _cell(text: str) -> str:
    return _words(text).replace("|", "\\|")


def _words(text: str) -> str:
    """One line in which a product such as alpha*x is not taken for emphasis."""
    return spelled(str(text)).replace("\n", " ").replace("*", "\\*")
