"""The first lines of docs/reproduction.md: Table 2, the errata, what is open; from the records."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adaxlab import files
from adaxlab.claim import NOT_RUN, OURS, VERDICTS, anchor, words
from adaxlab.judge import MOST
from adaxlab.paper import claims, queue
from adaxlab.paper.cifar10 import TABLE2
from adaxlab.paper.tables.exhibits import difference
from adaxlab.report.numbers import listed

Rows = Mapping[str, Mapping[str, Any]]
VALUES = {
    "cifar10.table2.sgdm": "SGDM with the released code's weight decay (5e-4)",
    "cifar10.table2.sgdm-he": "SGDM with the text's weight decay (1e-4)",
    "cifar10.table2.adamw": "AdamW",
    "cifar10.table2.amsgradw": "AMSGrad(W)",
    "cifar10.table2.adaxw": "AdaX-W",
}
"""The accuracies of Table 2 on CIFAR-10, by claim."""
LEADS = {"cifar10.adaxw-over-adamw": "AdamW", "cifar10.adaxw-over-amsgradw": "AMSGrad(W)"}
TUNED = {"cifar10.fresh-over-adamw": "AdamW", "cifar10.fresh-over-amsgradw": "AMSGrad(W)"}


def section(root: Path) -> str:
    rows = {row["id"]: row for row in claims.committed(root / "records")}
    if not set(VALUES) | set(LEADS) | set(TUNED) <= set(rows):
        return "*Not judged yet (`adax claims`).*"
    return "\n".join(f"- {part}" for part in (_table2(rows), _errata(root, rows), _open(root, rows)))


def _table2(rows: Rows) -> str:
    groups: dict[str, list[str]] = {}
    for id, name in VALUES.items():
        groups.setdefault(words(rows[id]), []).append(name)
    values = "; ".join(f"*{verdict}* for {listed(names)}" for verdict, names in groups.items())
    return (
        "**Does Table 2 hold?** On CIFAR-10, the paper's own data, mostly, at the paper's settings. The paper's "
        f"accuracy is {values}. AdaX-W is ahead: by {_leads(rows, LEADS)}. **After equal tuning no "
        f"significant lead remains**: {_leads(rows, TUNED)}. Equal tuning means that every method "
        "has the same number of learning rates to try; "
        "no other setting was tuned. **ImageNet was not run**: [Tiny-ImageNet](imagenet.md) is a [stand-in](#scope) "
        "and says nothing about the paper's accuracies. [Each verdict](cifar10.md#table2)."
    )


def _leads(rows: Rows, named: Mapping[str, str]) -> str:
    parts = [
        f"{difference(rows[id])} points over {name} (n = {rows[id]['n']}, [{words(rows[id])}](claims.md#{anchor(id)}))"
        for id, name in named.items()
    ]
    return listed(parts)


def _errata(root: Path, rows: Rows) -> str:
    theory = [files.read_json(path) for path in sorted((root / "records" / "theory").glob("*.json"))]
    count = sum(len(record.get("errata", [])) for record in theory)
    found = [row for record in theory for row in record["claims"] if row["by"] != OURS]
    wrong = sum(row["verdict"] == VERDICTS[False] for row in found)
    return (
        f"**Does the theory hold?** {wrong} of its {len(found)} claims that can be computed are contradicted; "
        "*supported* is [no proof](claims.md#what-a-verdict-means). The "
        f"[{count} errata](claims.md#errata) name each error and what this library does instead."
    )


def _open(root: Path, rows: Rows) -> str:
    theirs = {id: row for id, row in rows.items() if row["by"] != OURS}
    waits = [row for row in theirs.values() if row["verdict"] in queue.OPEN]
    never = sum(row["verdict"] == NOT_RUN for row in waits)
    asked = [claim for family in claims.FAMILIES.values() for claim in family]
    minutes = sum(job.minutes for job, _ in queue.waiting(root / "records", asked, rows))
    planned = sum("study" in row["plan"] for row in waits)
    many = sum(row["plan"].get("needed") == f"more than {MOST:,}" for row in waits)
    main = [
        rows[claim.id]
        for claim in asked
        if claim.study == TABLE2.name and not claim.ours and rows[claim.id]["verdict"] in queue.OPEN
    ]
    judged = sum("study" in row["plan"] for row in main)
    cost = sum(job.minutes for job in queue.JOBS if job.study in {row["plan"].get("study") for row in main})
    return (
        f"**What is open?** {len(waits)} of the paper's {len(theirs)} claims: {len(waits) - never} are inconclusive "
        f"and {never} were not run ([list](claims.md#open-claims)). Studies for {planned} of them are in "
        f"[the queue](queue.md), which takes about {minutes / 60:.0f} GPU hours in all, studies of our own included. "
        f"{many} would need more than {MOST:,} seeds. Of the claims that the runs of Table 2 on CIFAR-10 judge, "
        f"{len(main)} are open; {judged} of them are in the queue, with {cost:g} GPU minutes."
    )
