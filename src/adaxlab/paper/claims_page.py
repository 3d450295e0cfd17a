"""docs/claims.md: every claim with its rule and its result, generated from the records by `adax claims`."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from adaxlab.claim import NOT_RUN, OURS, VERDICTS, WORDS, anchor, check, words
from adaxlab.markdown import spelled, table
from adaxlab.paper.drawn import image
from adaxlab.paper.theory.record import order

Row = dict[str, Any]


CHANGED = (
    "E3 was inconclusive twice by clock time, and is now judged by counting operations;",
    "the rate's lr went from 0.05 to 0.5 after a reduced run missed its rule (at 0.05 and 1e5 steps the slope was "
    "-0.473, steeper than claimed too);",
    "the rare-gradient problem runs at lr 0.5 after a trial at 0.1, where AdaX had not yet reached the right side on "
    "most seeds;",
    "a drift reversal was removed from the regret problems, because it made regret negative;",
    "the paths drawn on the landscape use other rates than the tuned ones, whose paths were not legible.",
)
"""What was changed after first results were known, in sections 2 to 4."""


HEAD = (
    "A rule on runs is a statement about a mean over seeds, tested by Student's t (paired by seed where two rows are",
    "compared, two-sided). The p values of the claims of one study are adjusted together by Holm's method: those",
    "written before the runs among themselves, post hoc ones among all. The adjusted p decides; the interval shown is",
    "the plain 95% one:",
    "",
    "- *supported*: p below 0.05, and the mean is on the statement's side;",
    "- *contradicted*: p below 0.05, and the mean is on the other side;",
    "- *inconclusive*: anything else. The entry says what n would decide, and its cost;",
    "- *not run*: there are no runs yet.",
    "",
    "A value of the paper is supported when our plain interval meets it. Fewer than 3 seeds decide nothing; a verdict",
    "from fewer than 5 is marked *provisional*. *Post hoc* marks a claim whose rule was written after the runs that",
    "judge it. Many older runs did not record their commit, or were made with uncommitted changes; each entry says how",
    "many. Theorems and lemmas are numbered as in the paper's LaTeX source.",
)


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
        "This page lists every claim of the paper that was checked, and comparisons of our own: what the paper says",
        "(in our words), the rule by which it was tested, and the result.",
        "[The report](reproduction.md) has the summary.",
        "",
        "The rules are part of the code that computes the results, so they were fixed before the recorded run, though",
        "not before every prototype:",
        "",
        *(f"- {change}" for change in CHANGED),
        "",
        *HEAD,
        "",
        "Sections 2 to 4 need no data set: `adax reproduce reddi`, `adax reproduce synthetic` and `adax reproduce "
        "theory`",
        "compute their part of this page in about a minute on one core; see the [figures](#figures) below.",
        "",
        *_overview(ours + experiments),
    ]
    for group in (ours, experiments):
        for section in dict.fromkeys(row["section"] for row in group):
            lines += ["", f"## {spelled(section)}", ""]
            for row in group:
                lines += _entry(row) if row["section"] == section else []
    lines += _open(ours + experiments)
    lines += _figures()
    lines += _errata(theory)
    lines += _runs(theory)
    return "\n".join(lines).rstrip() + "\n"


FIGURES = {
    "gain": "The second moments of the methods differ in one number per step, the gain k_t (S4.3, D1).",
    "figure-3a": "Figure 3(a): updates on problem (4) fade; all methods but SGD have passed the optimum (F5.1, F5.2).",
    "reddi": "Problem (3) and rare large gradients: where Adam moves in the wrong direction (S2.6 to S4.8).",
    "lemma-4-1": "Lemma 4.1 needs its schedule: with the constant steps of the experiments it is false (L4.1, L4.1c).",
    "regret-bound": "The regret bound holds, but grows as fast as the trivial bound (T4.1, T4.1o).",
    "rate": "The rate of Theorem 4.2 (T4.2, T4.2s).",
    "landscape": "Three methods on a surface with three minima.",
}
"""docs/images/theory-NAME.svg, drawn from records/theory, and what it shows."""


def _figures() -> list[str]:
    out = ["", "## Figures", ""]
    for name, shows in FIGURES.items():
        out += [shows, "", *image(f"theory-{name}", shows, "images").splitlines(), ""]
    return out


def _overview(rows: list[Row]) -> list[str]:
    own = [row for row in rows if row["by"] == OURS]
    theirs = [row for row in rows if row["by"] != OURS]
    out = [f"{len(theirs)} claims of the paper:", "", by_source(theirs)]
    if own:
        out += [
            "",
            f"{len(own)} of our own (corrections, facts that the library rests on, further comparisons):",
        ]
        out += ["", by_source(own)]
    cells = []
    for row in rows:
        plain = row["verdict"] in (VERDICTS[True], NOT_RUN)
        verdict = words(row) if plain else words(row).replace(row["verdict"], f"**{row['verdict']}**")
        cells.append((f"[{row['id']}](#{anchor(row['id'])})", _cell(row["claim"]), verdict))
    return [*out, "", table(("id", "claim", "verdict"), cells)]


SOURCES = {
    "cifar10": "the paper's own data (CIFAR-10)",
    "imagenet": "stand-ins",
    "voc": "stand-ins",
    "language": "stand-ins",
}
"""By the first part of an id; the others are computed."""


def by_source(rows: list[Row]) -> str:
    """How many claims have each verdict, by what judges them."""
    return counts(rows, "judged by", lambda row: SOURCES.get(row["id"].partition(".")[0], "theory, computed"))


def by_exhibit(rows: list[Row]) -> str:
    """How many claims have each verdict, by the section, table or figure of the paper, in its order."""
    ordered = sorted(rows, key=lambda row: _place(row["section"]))
    return counts(ordered, "exhibit", lambda row: row["section"])


def _place(section: str) -> tuple[str, bool]:
    """Where the paper has a section: by number, what is not numbered last; stand-ins after the paper's own data.

    >>> sorted(["Appendix, b1", "Section 5.1 (stand-in: x)", "Section 5.1, Table 2", "Section 4"], key=_place)
    ['Section 4', 'Section 5.1, Table 2', 'Section 5.1 (stand-in: x)', 'Appendix, b1']
    """
    number = re.match(r"Section ([\d.]+)", section)
    return number[1] if number else "9", "stand-in" in section


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
    cells = [
        (f"[{row['id']}](#{anchor(row['id'])})", row["verdict"], row["n"], _cell(row["reason"]))
        for row in found
    ]
    text = "Every claim that is not decided, and what would decide it. [The queue](queue.md) has the studies in order."
    return ["", "## Open claims", "", text, "", table(("id", "verdict", "n", "why"), cells)]


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
        together = f" (adjusted over {row['family']} claims of the study)" if row["family"] > 1 else ""
        out.append(f"- Test: p = {row['p']:.2g}{together}")
    if row["reason"]:
        out.append(f"- Open: {_words(row['reason'])}")
    if row["runs"]:
        out.append(f"- Runs: {_words(row['runs'])}")
    if row["note"]:
        out.append(f"- Note: {_words(row['note'])}")
    return [*out, ""]


def _errata(theory: list[Row]) -> list[str]:
    rows = [row for record in theory for row in record.get("errata", [])]
    if not rows:
        return []
    out = [
        "",
        "## Errata",
        "",
        "Errors in the paper or in the code released with it, and what this project does instead.",
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
