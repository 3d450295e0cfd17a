"""docs/claims-FAMILY.md: the claims of a family of studies, or of the theory, with rule and result."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from adaxlab.claim import NOT_RUN, VERDICTS, WORDS, anchor, words
from adaxlab.judge import ALPHA
from adaxlab.markdown import spelled, table
from adaxlab.paper import claims_text as text
from adaxlab.paper.drawn import image

Row = dict[str, Any]


def page(family: str, rows: list[Row], more: Mapping[str, str] = MappingProxyType({})) -> str:
    """The page of a family; `more` are further sections by their headings."""
    begin = text.FAMILIES[family]
    lines = [f"# {begin.title}", "", text.MADE, "", begin.begin(), ""]
    lines += [counts(rows, "whose", lambda row: row["by"]), ""]
    sections = dict.fromkeys(row["section"] for row in rows)
    lines += [f"- [{spelled(section)}](#{_part(section)})" for section in sections]
    lines += [f"- [{heading}](#{heading.lower().replace(' ', '-')})" for heading in more]
    for section in sections:
        lines += ["", f'<a id="{_part(section)}"></a>', f"## {spelled(section)}", ""]
        for row in rows:
            lines += _entry(row) if row["section"] == section else []
    for heading, content in more.items():
        lines += ["", f"## {heading}", "", content]
    return "\n".join(lines).rstrip() + "\n"


def theory_sections(theory: list[Row]) -> dict[str, str]:
    """What the page of the theory has besides claims, from its records."""
    figures = (
        f"{shows}\n\n{image(f'theory-{name}', shows, 'images')}" for name, shows in text.FIGURES.items()
    )
    cells = []
    for record in theory:
        versions = ", ".join(f"{name} {value}" for name, value in record["versions"].items())
        cells.append((f"`records/theory/{record['name']}.json`", cell(record["what"]), versions))
    return {
        "Changes after first results": "\n".join([text.RULES, *(f"- {change}" for change in text.CHANGED)]),
        "Figures": "\n\n".join(figures),
        "What was run": table(("record", "what", "versions"), cells),
    }


def _part(heading: str) -> str:
    """Where the claims of a section begin; GitHub and the site have different places for headings with signs.

    >>> _part("Section 5.1, ImageNet (stand-in: x)")
    'part-section-5-1-imagenet-stand-in-x'
    """
    return "-".join(["part", *re.findall(r"[a-z0-9]+", heading.lower())])


def counts(rows: list[Row], head: str, key: Callable[[Row], str]) -> str:
    """A table of verdicts; provisional ones are counted with the others."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    cells = []
    for name, part in groups.items():
        found = Counter(row["verdict"] for row in part)
        provisional = sum(row["provisional"] for row in part)
        cells.append((name, *(str(found[verdict]) for verdict in WORDS), str(provisional), str(len(part))))
    return table((head, *WORDS, "of these provisional", "claims"), cells)


def _entry(row: Row) -> list[str]:
    post_hoc = " (written after the runs)" if row["post_hoc"] else ""
    count = f" (n = {row['n']:,})" if row["n"] is not None else ""
    found = f"- Computed{count}: {plain(row['ours'])}"
    out = [
        f'<a id="{anchor(row["id"])}"></a>',
        f"### {row['id']}: {words(row)}",
        "",
        plain(row["claim"]),
        "",
        f"- Paper: {plain(row['paper'])}",
        f"- Rule{post_hoc}: {plain(row['rule'])}",
        f"- Study: {row['ours'].removeprefix('study ')}" if row["verdict"] == NOT_RUN else found,
    ]
    if row["p"] is not None:
        out.append(f"- Test: {_test(row)}")
    if row["reason"]:
        out.append(f"- Open: {plain(row['reason'])}")
    if row["runs"]:
        out.append(f"- Runs: {plain(row['runs'])}")
    if row["note"]:
        out.append(f"- Note: {plain(row['note'])}")
    return [*out, ""]


def _test(row: Row) -> str:
    """The p that decides, and how it was adjusted.

    >>> _test({"p": 0.0624, "family": 8, "verdict": "inconclusive"})
    "adjusted p = 0.062 (Holm's method, 8 claims of the study), not below 0.05"
    """
    many = row["family"] > 1
    found = (
        f"adjusted p = {row['p']:.2g} (Holm's method, {row['family']} claims of the study)"
        if many
        else f"p = {row['p']:.2g}"
    )
    if row["p"] < ALPHA:
        return f"{found}, below {ALPHA:g}"
    return f"{found}, not below {ALPHA:g}" if row["verdict"] == VERDICTS[None] else found


def cell(text: str) -> str:
    """`plain` in a table."""
    return plain(text).replace("|", "\\|")


def plain(text: str) -> str:
    """One line in which a product such as alpha*x is not taken for emphasis."""
    return spelled(str(text)).replace("\n", " ").replace("*", "\\*")
