"""docs/claims.md: what verdicts mean, the list of claims, the open claims and the errata, written by `adax claims`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from adaxlab.claim import OURS, PAPER, VERDICTS, check, family, link, words
from adaxlab.markdown import table
from adaxlab.paper import claims_entries
from adaxlab.paper import claims_text as text
from adaxlab.paper.cifar10_claims import SEED_0
from adaxlab.paper.claims_entries import Row, cell, counts
from adaxlab.paper.theory.record import order


def pages(records: Path, experiments: list[Row]) -> dict[str, str]:
    """The pages by their names in docs/: the theory's records under `records`, and the judged claims of the
    experiments."""
    theory = [json.loads(path.read_text()) for path in sorted((records / "theory").glob("*.json"))]
    computed = sorted((row for record in theory for row in record["claims"]), key=order)
    rows = computed + experiments
    check(rows, str(records))
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(family(row["id"]), []).append(row)
    more = {"theory": claims_entries.theory_sections(theory)}
    made = {
        f"claims-{name}.md": claims_entries.page(name, part, more.get(name, {}))
        for name, part in groups.items()
    }
    return {"claims.md": _summary(rows, theory, list(groups)), **made}


def _summary(rows: list[Row], theory: list[Row], families: list[str]) -> str:
    """docs/claims.md."""
    lines = [
        "# The paper's claims, checked",
        "",
        text.MADE,
        "",
        text.BEGIN,
        "- [What a verdict means](#what-a-verdict-means)",
        "- [List of claims](#list-of-claims)",
        *(["- [Open claims](#open-claims)"] if any(row["reason"] for row in rows) else []),
        *(["- [Errata](#errata)"] if _errata(theory) else []),
        "",
        "Claims, with rule and result:",
        "",
        *(f"- [{text.FAMILIES[name].title}](claims-{name}.md)" for name in families),
        "",
        text.MEANING,
        *_overview(rows),
        *_open(rows),
        *_errata(theory),
    ]
    return "\n".join(lines).rstrip() + "\n"


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
        cells.append((link(row["id"], row["id"]), row["by"], cell(row["claim"]), verdict))
    whose = "*Whose* is `paper` for a claim of the paper and `ours` for a claim of this project. On CIFAR-10:"
    return [*out, "", f"{whose} {text.HE}", "", table(("id", "whose", "claim", "verdict"), cells)]


def _contradicted(theirs: list[Row]) -> list[str]:
    """The paper's contradicted claims: those on runs with their results and limits."""
    found = [row for row in theirs if row["verdict"] == VERDICTS[False]]
    computed = [
        (link(row["id"], row["id"]), cell(row["claim"])) for row in found if family(row["id"]) == "theory"
    ]
    cells = [
        (
            link(row["id"], row["id"]),
            cell(row["claim"]),
            source(row),
            cell(row["ours"]),
            row["n"],
            "; ".join(
                filter(
                    None,
                    (
                        words(row).removeprefix(row["verdict"]).strip(" ()"),
                        _unproven(row["runs"]),
                        SEED_0 if SEED_0 in row["note"] else "",
                    ),
                )
            ),
        )
        for row in found
        if family(row["id"]) != "theory"
    ]
    if not found:
        return []
    lines = ["", f"{len(found)} of the paper's {len(theirs)} claims are contradicted."]
    if computed:
        lines += ["", f"{len(computed)} by computation:", "", table(("id", "claim"), computed)]
    if cells:
        head = ("id", "claim", "judged by", "result (95%)", "n", "limits")
        lines += ["", f"{len(cells)} by runs:", "", table(head, cells)]
    return lines


def _unproven(runs: str) -> str:
    """What the records of the runs do not prove.

    >>> _unproven("commit not recorded (5 runs); commit e758abc00f90 (5 runs)")
    'commit not recorded (5 runs)'
    """
    return "; ".join(
        part for part in runs.split("; ") if not part.startswith("commit ") or "not recorded" in part
    )


def _theorem(rows: list[Row]) -> list[str]:
    """A theorem and what the paper says about it are claims of their own."""
    found = {row["id"]: row["verdict"] for row in rows}
    if not {"T4.1", "T4.1b", "T4.1o"} <= set(found):
        return []
    return [
        "A theorem and what the paper says about it are separate claims. That the regret stays below the bound of "
        f"Theorem 4.1 is {found['T4.1']} ({link('T4.1', 'T4.1')}); that the theorem is about Algorithm 2 "
        f"is {found['T4.1b']} ({link('T4.1b', 'T4.1b')}), and that its bound gives R_T = o(T) is "
        f"{found['T4.1o']} ({link('T4.1o', 'T4.1o')}).",
        "",
    ]


def source(row: Row) -> str:
    """What judges a claim."""
    return text.FAMILIES[family(row["id"])].judged_by


def by_source(rows: list[Row]) -> str:
    """How many claims have each verdict, by what judges them."""
    return counts(rows, "judged by", source)


def _open(rows: list[Row]) -> list[str]:
    """What is inconclusive or not run, and why."""
    found = [row for row in rows if row["reason"]]
    if not found:
        return []
    cells = []
    for row in found:
        plan = row["plan"]
        study = (
            ", ".join([f"`{plan['study']}`", *filter(None, [plan.get("length")])])
            if "study" in plan
            else "none"
        )
        if other := plan.get("superseded_by"):
            study = f"superseded by {link(other, other)}"
        cells.append(
            (
                link(row["id"], row["id"]),
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
        f"{_totals(found)} *n needed* is the smallest number of new seeds at which the "
        "mean and the standard deviation observed so far would decide the claim at Holm's strictest level. A new "
        "sample of that size decides the claim with a probability of about 50%, because its mean may be smaller. "
        "Claims that were not run have no *n needed*. *GPU minutes* is the cost of the whole study that would judge "
        "the claim, shared by all claims that it judges ([the queue](queue.md) has the studies in order); if none is "
        "planned, the cost of the claim's own new runs, or of its whole study if that was not run."
    )
    return ["", "## Open claims", "", about, "", table(head, cells)]


def _totals(found: list[Row]) -> str:
    """How many claims are open, whose they are, and how many a planned study would judge."""
    parts = []
    for whose, name in ((PAPER, "of the paper"), (OURS, "of our own")):
        kinds = Counter(row["verdict"] for row in found if row["by"] == whose)
        if kinds:
            parts.append(
                f"{kinds.total()} {name} ({', '.join(f'{count} {kind}' for kind, count in kinds.items())})"
            )
    planned = sum("study" in row["plan"] for row in found)
    gone = sum("superseded_by" in row["plan"] for row in found)
    return (
        f"{len(found)} claims are not decided: {' and '.join(parts)}. A study is planned for {planned} of them; {gone} "
        "are superseded by a claim on new seeds."
    )


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
        shown = ", ".join(link(id, id) for id in row["shown_by"]) or "reading"
        cells.append((row["number"], cell(row["paper"]), cell(row["here"]), shown))
    return [*out, table(("", "the paper", "here", "shown by"), cells)]
