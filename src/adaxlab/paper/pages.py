"""Generate the marked sections of README.md and docs/ from the code and from records/.

    python -m adaxlab.paper.pages          update the pages that are out of date (`make docs`)
    python -m adaxlab.paper.pages --check  list them and exit with 1

A marked section is enclosed in `<!-- name: begin -->` and `<!-- name: end -->`; `SECTIONS` maps its name to the
function that generates it. A section without a record states that it was not run.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from adaxlab import records, spec, stats
from adaxlab.claim import NOT_RUN, OURS, link, words
from adaxlab.markdown import recorded, spelled, table
from adaxlab.paper import catalogue
from adaxlab.paper.cifar10 import TABLE2
from adaxlab.paper.claims import committed
from adaxlab.paper.claims_page import by_source
from adaxlab.paper.drawn import image
from adaxlab.paper.tables import (
    adamw,
    decision,
    example,
    exhibits,
    gpu_step,
    guide,
    low_bit,
    memory_answer,
    memory_study,
    sparse_step,
)
from adaxlab.paper.tables import cifar10 as cifar_tables
from adaxlab.paper.tables import imagenet as image_tables
from adaxlab.paper.tables import language as text_tables
from adaxlab.paper.tables import study as studies
from adaxlab.paper.tables import voc as voc_tables
from adaxlab.study import Study
from adaxopt.zoo import METHODS, Method

Cells = Iterable[Any]
Section = Callable[[Path], str]


# -- from the code ----------------------------------------------------------------------------------------------

GAINS = {
    "growing": "b2/((1+b2)^t − 1)",
    "fading": "(1−b2)/(1−b2^t)",
    "unnormalised": "1−b2",
    "equal": "1/t",
    "power": "t^−c / Σ i^−c",
    None: "no v",
}
DECAYS = {"l2": "L2", "decoupled": "decoupled"}


def _method(row: Method) -> Cells:
    rule, o = row.rule, row.defaults
    kind = rule.memory.kind if rule.memory else None
    gain = GAINS[kind] + (", running maximum" if rule.maximum else "")
    if rule.mean == "window":
        gain += ", on the gradient n steps back"
    power = "–" if rule.memory is None else f"{o['p']:g}"
    decay = f"{DECAYS[o['decay']]} {o['weight_decay']:g}"
    return (
        f"`{row.name}`",
        gain,
        power,
        f"{o['lr']:g}",
        _rates(row),
        decay,
        row.source,
    )


def _rates(row: Method) -> str:
    """The rates of both moments, by the method's own names; rates of 0 are not used and not shown.

    >>> _rates(METHODS["adax"]), _rates(METHODS["nosadam"]), _rates(METHODS["sgdm"]), _rates(METHODS["adagrad"])
    ('b1 0.9, b2 0.0001', 'b1 0.9, c 0.1', 'momentum 0.9', '–')
    """
    words = {0: "b1", 1: "b2"} | {place: word for word, place in row.names.items()}
    return ", ".join(f"{words[i]} {x:.6g}" for i, x in enumerate(row.defaults["betas"]) if x) or "–"


def methods(root: Path) -> str:
    head = ("name", "gain k_t", "p", "lr", "b1, b2 (or own names)", "decay", "source of the defaults")
    return table(head, map(_method, METHODS.values()))


# -- from records -----------------------------------------------------------------------------------------------


def cpu(record: dict[str, Any]) -> str:
    rows = [
        (
            name,
            f"{r['median_ms']:.1f}" if r["median_ms"] >= 1 else f"{r['median_ms']:.3f}",
            f"{1 / r['ratio']:.2f} × {r['against']}" if r["ratio"] else "",
            f"{r['peak_bytes'] / 1e6:.1f}",
        )
        for name, r in record["rows"].items()
    ]
    environment = record["environment"]
    return (
        f"CPU, ResNet-50's {record['tensors']} tensors ({record['numbers'] / 1e6:.1f}M float32), torch "
        f"{environment['torch']}, {environment['threads']} threads of {environment['processor']}; medians of "
        f"n = {record['rounds']} alternating rounds (`make bench`). Sparse rows: an embedding of "
        f"{' x '.join(f'{n:,}' for n in record['sparse_table'])}, of which each step updates "
        f"{record['sparse_named']:,}. "
        "In the rows with coordinates without a gradient, one coordinate of every tensor (or half of them) never "
        "receives a gradient, and `wake` checks for it. A speedup of 2 × X means half the time of X:"
        "\n\n"
        + table(("", "ms per step", "speedup", "extra memory, MB"), rows)
        + (f"\n\n{gpu_step.since(record).strip()}" if record.get("since") else "")
    )


HEADLINES = {
    "cifar10.adaxw-faster-sgdm": "CIFAR-10, SGDM's L2 5e-4, training accuracy",
    "cifar10.adaxw-faster-sgdm-he": "CIFAR-10, SGDM's L2 1e-4, training accuracy",
    "cifar10.lr-best-adamw": "CIFAR-10, lr 1e-3 and 3e-3",
    "cifar10.trace-adax": "CIFAR-10, mean of sqrt(v)",
    "F5.1": "problem (4)",
    "L4.1c": "Lemma 4.1",
    "E1": "Algorithm 3",
}
"""Claims in addition to those of `tables/exhibits.py` that docs/reproduction.md shows after they have been run."""


FOREST = (
    "The forest plot shows every claim about a final score (test accuracy, IoU or test loss) that is judged on at "
    "least three seeds, the paper's own data first, except those of the [memory study](memory-study.md). Claims about "
    "training speed, run time, second moments and learning rates are only in the tables. *Equal tuning* and b2·T = 50 "
    "are comparisons of this project; *the paper's learning rates* are those of its text."
)


SELECTION = "A selection of claims about training speed, settings and theory:"


def claims(root: Path) -> str:
    found = committed(root / "records")
    if not found:
        return "*No claims checked yet (`adax reproduce theory`).*"
    theirs = [claim for claim in found if claim["by"] != OURS]
    by_id = {claim["id"]: claim for claim in found}
    heads = ("", "claim", "result here", "verdict")
    return (
        f"Claims of the paper, by how they are judged ([all claims](claims.md), with their rules):\n\n"
        f"{by_source(theirs)}\n\n"
        f"{FOREST}\n\n{image('claims-forest', 'Forest plot of the claims about final scores', 'images')}\n\n"
        f"{SELECTION}\n\n{table(heads, _headlines(by_id))}"
    )


def _headlines(by_id: dict[str, dict[str, Any]]) -> list[Cells]:
    rows: list[Cells] = []
    for key, about in HEADLINES.items():
        claim = by_id.get(key)
        if claim is None or claim["verdict"] == NOT_RUN:
            continue
        seen = f"{claim['ours']} (n = {claim['n']})" if claim["n"] else claim["ours"]
        rows.append((about, claim["claim"].rstrip("."), seen, link(key, words(claim))))
    return rows


def lr(record: dict[str, Any]) -> str:
    parts = []
    for name in dict.fromkeys(row["task"] for row in record["rows"]):
        rows = [row for row in record["rows"] if row["task"] == name]
        rates = sorted({row["lr"] for row in rows})
        higher = rows[0]["higher_is_better"]
        lines = []
        for optimizer in dict.fromkeys(row["optimizer"] for row in rows):
            cells = {row["lr"]: row for row in rows if row["optimizer"] == optimizer}
            means = [row["mean"] for row in cells.values() if row["mean"] is not None and not row["diverged"]]
            best = (max if higher else min)(means, default=None)
            lines.append((optimizer, *(_cell(cells.get(rate), best, higher) for rate in rates)))
        n = max(row["n"] + row["diverged"] for row in rows)
        what = f"`{name}`, final test {rows[0]['metric']}, mean ± sd over n = {n} seeds, best in bold:"
        parts.append(what + "\n\n" + table(("lr", *(f"{rate:g}" for rate in rates)), lines))
    return "\n\n".join(parts)


def _cell(row: dict[str, Any] | None, best: float | None, higher: bool) -> str:
    if row is None or row["mean"] is None:
        return "diverged" if row else ""
    scale, digits = (100, 1) if higher else (1, 3)
    shown = f"{scale * row['mean']:.{digits}f} ± {scale * stats.sd(row['values']):.{digits}f}"
    if row["diverged"]:
        shown += f" ({row['diverged']} diverged)"
    return f"**{shown}**" if row["mean"] == best else shown


def cifar(root: Path) -> str:
    runs = records.load(root / "records", TABLE2.name)
    if not runs:
        return "*CIFAR-10: not run yet (`adax reproduce cifar10/table2`).*"
    layout = cifar_tables.layout(TABLE2, runs)
    rest = f"\n\n{best}" if (best := cifar_tables.at_best(root / "records")) else ""
    rest += "\n\nAll studies: [CIFAR-10](cifar10.md)."
    return (
        "The paper's main table, reproduced on CIFAR-10 with each method at the paper's settings. SGDM, AdamW and "
        "AMSGrad(W) are PyTorch's implementations; AdaX-W is this library's.\n\n"
        + image("cifar10-table2-seeds", "Final test accuracy of every run and the paper's means", "images")
        + f"\n\n{studies.table(TABLE2, runs, layout)}\n\n{studies.caption(TABLE2, runs, layout)}{rest}"
    )


LAYOUTS: dict[str, studies.LayoutOf] = {
    "cifar10": cifar_tables.layout,
    "imagenet": image_tables.layout,
    "voc": voc_tables.layout,
    "language": text_tables.words,
    "gpt": text_tables.transformer,
}
"""The layout of the tables of each family."""


def study(name: str) -> Section:
    """The section of a page on one study."""
    found = catalogue.study(name)

    def section(root: Path) -> str:
        family = next(family for family, members in OF_FAMILY.items() if found in members)
        extra = cifar_tables.again if family == "cifar10" else None
        return studies.section(found, root, LAYOUTS[family], extra)

    return section


def others(family: str) -> Section:
    """The studies of a family that have no section of their own on its page: those with records, then the names of the
    others."""

    def section(root: Path) -> str:
        page = root / "docs" / f"{family}.md"
        text = page.read_text(encoding="utf-8") if page.is_file() else ""
        found = [s for s in OF_FAMILY[family] if f"<!-- {spec.folder(s.name)}: begin -->" not in text]
        ran = [s for s in found if records.load(root / "records", s.name)]
        parts = [f"### {s.name.partition('/')[2] or s.name}\n{study(s.name)(root)}" for s in ran]
        lists: dict[str, list[str]] = {"Unfinished": [], "Not run yet": []}
        for s in found:
            if s in ran:
                continue
            count = records.ended(s, root)
            share = f" ({count} of {s.runs()} runs)" if count else ""
            lists["Unfinished" if count else "Not run yet"].append(
                f"- `{s.name}`: {s.title or s.asks}{share}"
            )
        parts += [f"### {heading}\n" + "\n".join(lines) for heading, lines in lists.items() if lines]
        return "\n\n".join(parts) or "None: this page shows every study of the family."

    return section


OF_FAMILY = {
    name: [s for s in module.STUDIES if isinstance(s, Study)]
    for name, module in catalogue.modules()
    if name in LAYOUTS
}


SECTIONS: dict[str, Section] = {
    "methods": methods,
    "cpu": recorded("cpu_step.json", cpu, "*CPU: not measured yet (`make bench`).*"),
    "claims": claims,
    "lr": recorded("first_lr.json", lr, "*Not measured yet (`adax reproduce first-lr --records records`).*"),
    "speed": gpu_step.answer,
    "gpu": gpu_step.section,
    "gpu-sparse": sparse_step.section,
    "adamw": recorded(
        "adamw_step.json", adamw.measured, "*Not measured yet (`python benchmarks/adamw.py`).*"
    ),
    "cifar": cifar,
    "cifar-speed": cifar_tables.speed,
    "memory-answer": memory_answer.answer,
    "memory-study": memory_study.section,
    "decision": decision.section,
    "headline": decision.headline,
    "example": example.section,
    "wrong": recorded("fairness.json", example.wrong, "*Not measured yet (`benchmarks/fairness.py`).*"),
    "exhibits": exhibits.section,
    "answers": exhibits.answers,
    **guide.SECTIONS,
    **low_bit.SECTIONS,
    **text_tables.SECTIONS,
    **image_tables.SECTIONS,
    **voc_tables.SECTIONS,
    **{f"{family}-studies": others(family) for family in OF_FAMILY},
    **{spec.folder(s.name): study(s.name) for family in OF_FAMILY.values() for s in family},
}


def filled(text: str, root: Path) -> str:
    """The page with every marked section regenerated."""

    def fill(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in SECTIONS:
            raise ValueError(f"mark {name!r}: unknown; known are {', '.join(SECTIONS)}")
        return f"<!-- {name}: begin -->\n{spelled(SECTIONS[name](root))}\n<!-- {name}: end -->"

    return re.sub(
        r"<!-- (?P<name>[a-z0-9-]+): begin -->.*?<!-- (?P=name): end -->", fill, text, flags=re.DOTALL
    )


def main(arguments: list[str] | None = None, root: Path | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    root = root or Path(__file__).resolve().parents[3]
    stale = []
    for page in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        new = filled(text, root)
        if new != text:
            stale.append(page.relative_to(root))
            if "--check" not in given:
                page.write_text(new, encoding="utf-8")
    for page in stale:
        print(f"{page}: {'not current; run make docs' if '--check' in given else 'written'}")
    return 1 if stale and "--check" in given else 0


if __name__ == "__main__":
    sys.exit(main())
