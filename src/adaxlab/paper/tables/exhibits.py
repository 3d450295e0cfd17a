"""docs/reproduction.md, from the records: the paper's comparisons of final scores, a table for each data set (the
paper's value, here at its settings, here after equal tuning), and the page's first lines."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from adaxlab import files, markdown, records
from adaxlab.claim import NOT_RUN, OURS, VERDICTS, link, words
from adaxlab.judge import MOST
from adaxlab.paper import claims, queue
from adaxlab.report.numbers import listed


class Exhibit(NamedTuple):
    """A comparison of the paper on one data set, and the claims that judge it."""

    where: str
    data: str
    compared: str
    settings: str = ""
    """The claim at the paper's settings; empty where no run used them."""
    tuned: str = ""
    """The claim after equal tuning; empty where there is none."""


class StandIn(NamedTuple):
    """Runs of AdaX on a stand-in, and the paper's steps and b2·T on its own data."""

    study: str
    row: str
    steps: int
    b2_steps: float


STAND_INS = {
    "Tiny-ImageNet": StandIn("imagenet/tiny", "adaxw", 500_000, 50),
    "CamVid": StandIn("voc/camvid", "adaxw", 20_000, 2),
    "Penn Treebank": StandIn("language/ptb", "adax", 350_000, 35),
    "words of enwik8": StandIn("language/enwik8", "adax", 350_000, 35),
}
CIFAR = ("Table 2", "CIFAR-10, the paper's own data (points)")
TINY = ("Table 2", "Tiny-ImageNet, a stand-in for ImageNet (points)")
CAMVID = ("Section 5.1, VOC2012", "CamVid, a stand-in for VOC2012 (points of IoU)")
LANGUAGE = (
    "Section 5.1, One Billion Word",
    "Penn Treebank and words of enwik8, stand-ins for One Billion Word (nats per word)",
)
EXHIBITS = (
    Exhibit(*CIFAR, "AdaX-W better than AdamW", "cifar10.adaxw-over-adamw", "cifar10.fresh-over-adamw"),
    Exhibit(
        *CIFAR, "AdaX-W better than AMSGrad(W)", "cifar10.adaxw-over-amsgradw", "cifar10.fresh-over-amsgradw"
    ),
    Exhibit(
        *CIFAR,
        "AdaX-W within 0.3 points of SGDM (L2 5e-4)",
        "cifar10.adaxw-like-sgdm",
        "cifar10.fresh-like-sgdm",
    ),
    Exhibit(*CIFAR, "AdaX-W within 0.3 points of SGDM (L2 1e-4)", "cifar10.adaxw-like-sgdm-he"),
    Exhibit(
        *CIFAR, "SGDM (L2 5e-4) better than AdamW", "cifar10.adam-not-sgdm", "cifar10.fresh-adamw-not-sgdm"
    ),
    Exhibit(
        *TINY, "AdaX-W better than AdamW", "imagenet.adaxw-over-adamw", "imagenet.tuned.adaxw-over-adamw"
    ),
    Exhibit(
        *TINY,
        "AdaX-W better than AMSGrad(W)",
        "imagenet.adaxw-over-amsgradw",
        "imagenet.tuned.adaxw-over-amsgradw",
    ),
    Exhibit(
        *TINY,
        "AdaX-W not more than 0.5 points below SGDM",
        "imagenet.adaxw-no-loss",
        "imagenet.tuned.adaxw-no-loss",
    ),
    Exhibit(*TINY, "SGDM better than AdamW", "imagenet.sgdm-over-adamw"),
    Exhibit(*CAMVID, "AdaX-W better than AdamW", "voc.adaxw-over-adamw", "voc.adaxw-over-adamw-eight"),
    Exhibit(
        *CAMVID, "AdaX-W better than AMSGrad(W)", "voc.adaxw-over-amsgradw", "voc.adaxw-over-amsgradw-tuned"
    ),
    Exhibit(*CAMVID, "AdaX-W better than SGDM", "voc.adaxw-over-sgdm", "voc.adaxw-over-sgdm-tuned"),
    Exhibit(
        *LANGUAGE,
        "Penn Treebank: AdaX better than Adam ([lr grids of different spacing](language.md))",
        tuned="language.ptb.adax-over-adam",
    ),
    Exhibit(
        *LANGUAGE,
        "words of enwik8: AdaX better than Adam",
        tuned="language.enwik8.adax-over-adam",
    ),
)
HEAD = ("claim", "the paper", "here, at the paper's settings", "here, after equal tuning")


def section(root: Path) -> str:
    """A table for each data set, a row a comparison; a difference is positive where the first method is better."""
    judged = {row["id"]: row for row in claims.committed(root / "records")}
    groups: dict[tuple[str, str], list[Exhibit]] = {}
    for each in EXHIBITS:
        groups.setdefault((each.where, each.data), []).append(each)
    parts = []
    for (where, data), members in groups.items():
        facts = {name: _facts(root, of) for name, of in STAND_INS.items() if name in data}
        many = len(facts) > 1
        told = "; ".join(f"{name}: {fact}" if many else fact for name, fact in facts.items() if fact)
        lines = [_line(each, judged) for each in members]
        kept = [i for i in range(len(HEAD)) if any(line[i] != NOT_RUN for line in lines)]
        cells = markdown.table([HEAD[i] for i in kept], [[line[i] for i in kept] for line in lines])
        parts.append(f"**{where}**: {data}{f'; {told}' if told else ''}.\n\n{cells}")
    return "\n\n".join(parts)


def _facts(root: Path, each: StandIn) -> str:
    """How a stand-in's runs differ from the paper's."""
    found = [
        run for run in records.load(root / "records", each.study) if run.spec["row"] == each.row and run.done
    ]
    ended = [run for run in found if run.spec["purpose"] == "final"]
    if not ended:
        return ""
    assert ended[0].done is not None
    steps = ended[0].done["steps"]
    memory = ended[0].spec["options"]["betas"][1] * steps
    same = math.isclose(memory, each.b2_steps, rel_tol=0.01)
    return f"1/{each.steps / steps:.0f} of the paper's steps, b2·T = {memory:.2g} " + (
        "as in the paper" if same else f"instead of {each.b2_steps:g}"
    )


def _line(each: Exhibit, judged: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    paper = judged[each.settings or each.tuned]["paper"].replace("+-", "±")
    none = {each.settings: NOT_RUN, each.tuned: "no claim"}
    found = (_cell(judged[id]) if id else none[id] for id in (each.settings, each.tuned))
    return (each.compared, paper, *found)


def _cell(row: Mapping[str, Any]) -> str:
    """The difference with its interval, the verdict and n.

    >>> _cell({"id": "x", "estimate": {"text": "+1.00 [+0.50, +1.50]", "unpaired": ""}, "verdict": "supported", "n": 5,
    ...     "provisional": False, "post_hoc": False})
    '+1.00 [+0.50, +1.50], n = 5: [supported](claims-theory.md#claim-x)'
    """
    if row["verdict"] == NOT_RUN:
        return NOT_RUN
    text = words(row).replace(f", n = {row['n']}", "")
    return f"{difference(row)}, n = {row['n']}: {link(row['id'], text)}"


def difference(row: Mapping[str, Any]) -> str:
    """The difference with its interval; if pairing by seed decides the verdict, also the interval without it."""
    without = unpaired(row)
    return interval(row) + (f" ({without})" if without else "")


def interval(row: Mapping[str, Any]) -> str:
    """The difference with its interval, or the whole result of a claim without an interval."""
    return row["estimate"].get("text") or row["ours"]


def unpaired(row: Mapping[str, Any]) -> str:
    """The interval without pairing by seed, if it would give another verdict; else empty."""
    return row["estimate"].get("unpaired", "")


# -- the first lines -----------------------------------------------------------------------------------------------


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
SIMILAR = {
    "cifar10.fresh-like-sgdm": "AdaX-W",
    "cifar10.fresh-adamw-like-sgdm": "AdamW",
    "cifar10.fresh-amsgradw-like-sgdm": "AMSGrad(W)",
}


def answers(root: Path) -> str:
    rows = {row["id"]: row for row in claims.committed(root / "records")}
    if not {*VALUES, *LEADS, *TUNED, *SIMILAR} <= set(rows):
        return "*Not judged yet (`adax claims`).*"
    return "\n".join(f"- {part}" for part in (_table2(rows), _errata(root, rows), _open(root, rows)))


def _table2(rows: Rows) -> str:
    groups: dict[str, list[str]] = {}
    for id, name in VALUES.items():
        groups.setdefault(words(rows[id]), []).append(name)
    values = "; ".join(f"*{verdict}* for {listed(names)}" for verdict, names in groups.items())
    return (
        "**Does Table 2 hold?** On CIFAR-10, the paper's own data: mostly at the paper's settings, and without a "
        "significant lead of AdaX-W after equal tuning. ImageNet was not run.\n"
        f"    - The paper's accuracy is {values} ([each verdict](cifar10.md#table2)).\n"
        f"    - At the paper's settings AdaX-W leads by {_leads(rows, LEADS)}.\n"
        f"    - After equal tuning its lead is {_leads(rows, TUNED)}. Equal tuning means that the same number of "
        "learning rates is tried for every method; no other setting was tuned.\n"
        f"    - After equal tuning, the difference from SGDM is {_leads(rows, SIMILAR, 'for')}; the claim is that it "
        "is within 0.3 points. The paper says that only AdaX catches up with SGDM.\n"
        "    - [Tiny-ImageNet](imagenet.md) is a [stand-in](#scope) for ImageNet and does not test the paper's "
        "accuracies."
    )


def _leads(rows: Rows, named: Mapping[str, str], word: str = "over") -> str:
    parts = [
        f"{difference(rows[id])} points {word} {name} (n = {rows[id]['n']}, {link(id, words(rows[id]))})"
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
        "*supported* is [not a proof](claims.md#what-a-verdict-means). The "
        f"[{count} errata](claims.md#errata) list each error and what this library does instead. "
        "[All contradicted claims](claims.md#list-of-claims), of theory and of data."
    )


def _open(root: Path, rows: Rows) -> str:
    theirs = {id: row for id, row in rows.items() if row["by"] != OURS}
    waits = [row for row in theirs.values() if row["verdict"] in queue.OPEN]
    never = sum(row["verdict"] == NOT_RUN for row in waits)
    asked = [claim for family in claims.FAMILIES.values() for claim in family]
    minutes = sum(job.minutes for job, _ in queue.waiting(root / "records", asked, rows))
    planned = sum("study" in row["plan"] for row in waits)
    many = sum(row["plan"].get("needed") == f"more than {MOST:,}" for row in waits)
    return (
        f"**What is open?** {len(waits)} of the paper's {len(theirs)} claims: {len(waits) - never} are inconclusive "
        f"and {never} were not run ([list](claims.md#open-claims)). Studies for {planned} of them are in "
        f"[the queue](queue.md); all studies there, our own included, take about {minutes / 60:.0f} GPU hours. "
        f"{many} claims would need more than {MOST:,} seeds."
    )
