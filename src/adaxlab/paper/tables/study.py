"""The section of a page on one study, for every family: question, table, how it was run, figures, verdicts.

A family says in a `Layout` how its score is written, which columns it adds and what was trained; everything else
follows from the study and its records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from adaxlab import markdown, records, stats
from adaxlab.claim import OURS, link, words
from adaxlab.measures import Of, ended, final_percent
from adaxlab.paper import catalogue, drawn
from adaxlab.paper.claims import claims_of, judge_files
from adaxlab.records import made_at, not_complete
from adaxlab.report import names
from adaxlab.store import RunRecord
from adaxlab.study import Row, Study
from adaxlab.summary import RowResult, best_rate, summarise
from adaxopt.zoo import METHODS

Runs = Sequence[RunRecord]
PERCENT = ended(final_percent)


class Line(NamedTuple):
    """One line of the table: a row of the study with its final runs, and those of them that did not fail."""

    row: Row
    result: RowResult
    good: list[RunRecord]


class Column(NamedTuple):
    head: str
    cell: Callable[[Line], str]


@dataclass(frozen=True)
class Layout:
    """The family-specific part of the tables."""

    score: str = "test accuracy, %"
    value: Of = PERCENT
    """A run's score; None for a run that failed."""
    write: Callable[[float], str] = "{:.2f}".format
    columns: tuple[Column, ...] = ()
    title: Callable[[str], str] = names.title
    """The title of a row."""
    setting: Callable[[Study, Runs], str] = lambda study, runs: ""
    """A short description of what was trained."""
    notes: Callable[[Study, Runs], str] = lambda study, runs: ""
    """Additional sentences below the table."""


LayoutOf = Callable[[Study, Runs], Layout]


def table(study: Study, runs: Runs, layout: Layout) -> str:
    """The rows of a study: settings, n, score with interval, the family's columns, the paper's value. Then the learning
    rates tried, if it tuned them."""
    lines = _lines(study, runs, layout)
    trials = _trials_table(lines, runs, layout) if study.tuning else ""
    if not study.seeds:
        return trials
    data = f", on {study.stand_in}" if study.stand_in else ""
    columns = [
        Column("", lambda line: layout.title(line.row.name)),
        Column("lr", lambda line: _lr(study, line)),
        Column("b2 (b2·T)", lambda line: memory(line.result.runs)),
    ]
    columns += [
        Column("n", _n),
        Column(f"{layout.score} (95%)", lambda line: score(line, layout)),
        *layout.columns,
        Column(f"paper{data}", lambda line: published(line.row)),
    ]
    cells = [[column.cell(line) for column in columns] for line in lines]
    kept = [i for i in range(len(columns)) if not i or any(row[i] for row in cells)]
    text = markdown.table([columns[i].head for i in kept], [[row[i] for i in kept] for row in cells])
    return f"{text}\n\nThe learning rates tried, on validation data:\n\n{trials}" if trials else text


def _lines(study: Study, runs: Runs, layout: Layout) -> list[Line]:
    found = summarise(study, runs)
    made = [(row, found.row(row.name)) for row in study.rows]
    return [Line(row, mine, [r for r in mine.runs if layout.value(r) is not None]) for row, mine in made]


def score(line: Line, layout: Layout) -> str:
    """Mean and interval; only the mean if there is one run."""
    if not line.good:
        return f"all {line.result.n} failed" if line.result.n else "not run"
    seen = stats.t_interval([value for run in line.good if (value := layout.value(run)) is not None])
    write = layout.write
    return write(seen.mean) + (f" ({write(seen.low)} to {write(seen.high)})" if seen.n > 1 else "")


def _n(line: Line) -> str:
    lost = line.result.n - len(line.good)
    return f"{len(line.good)}" + (f" ({lost} failed)" if lost else "")


def _lr(study: Study, line: Line) -> str:
    """The lr of the final runs, marked if it is the smallest or the largest of those tried."""
    if not line.result.n:
        return ""
    tried = set(line.result.trials)
    if study.follows:
        tried = {lr for row in catalogue.study(study.follows).variants(line.row.name) for lr in row.rates}
    edge = len(tried) > 1 and line.result.lr in (min(tried), max(tried))
    return f"{line.result.lr:g}{' (edge)' if edge else ''}"


def memory(runs: Runs) -> str:
    """The second of betas, with the method's own name if that is not b2, and with b2*T for AdaX's b2; empty for a
    memory whose number is not a b2."""
    for run in runs:
        betas, given = (run.spec["options"].get(key) for key in ("betas", "memory"))
        method = METHODS.get(run.spec["optimizer"].partition("@")[0])
        memory = method.rule.memory if method else None
        if betas is None or (method and memory is None):
            continue
        kind = given.split()[0] if given else memory.kind if memory else ""
        if "fast" in run.spec["options"]:  # the memory study's prototype
            kind = "growing"
        if given and kind not in ("growing", "fading"):
            return ""
        if kind == "growing" and run.done:
            return f"{betas[1]:.3g} ({betas[1] * run.done['steps']:.3g})"
        word = next((word for word, place in method.names.items() if place), "") if method else ""
        return f"{word} {betas[1]:g}".strip()
    return ""


def published(row: Row) -> str:
    """The paper's value and margin."""
    return f"{row.paper[0]:.2f} ± {row.paper[1]:.2f}" if row.paper else ""


def tried(runs: Runs, row: Row, layout: Layout) -> dict[float, float | None]:
    """The score of every learning rate tried, smallest first, over the tuning seeds; None where a run failed."""
    scores: dict[float, list[float | None]] = {}
    for run in runs:
        if run.row == row.name and run.spec["purpose"] == "tune" and run.done:
            scores.setdefault(run.spec["options"]["lr"], []).append(layout.value(run))
    good = {lr: [v for v in values if v is not None] for lr, values in scores.items()}
    return {lr: stats.mean(good[lr]) if len(good[lr]) == len(scores[lr]) else None for lr in sorted(scores)}


def best(runs: Runs, row: Row, layout: Layout) -> float | None:
    """The learning rate with the best score, in the direction that the runs record."""
    higher = all(run.done["higher_is_better"] for run in runs if run.done)
    return best_rate(tried(runs, row, layout), higher)


def _trial(lr: float, value: float | None, layout: Layout, bold: bool) -> str:
    text = f"{lr:g}: {'failed' if value is None else layout.write(value)}"
    return f"**{text}**" if bold else text


def _trials_table(lines: Sequence[Line], runs: Runs, layout: Layout) -> str:
    """One row per method, its learning rates in ascending order, the best in bold. b2 is that of the tuning runs."""
    rows = []
    for line in lines:
        scores, top = tried(runs, line.row, layout), best(runs, line.row, layout)
        mine = [run for run in runs if run.row == line.row.name and run.spec["purpose"] == "tune"]
        cells = [
            _trial(lr, scores[lr], layout, lr == top) if lr in scores else f"{lr:g}: not run"
            for lr in sorted(line.row.rates or scores)
        ]
        rows.append([layout.title(line.row.name), memory(mine), *cells])
    most = max(len(row) for row in rows)
    head = ["", "b2 (b2·T)", *[f"lr: {layout.score} (best in bold)", *[""] * most][: most - 2]]
    return markdown.table(head, [row + [""] * (most - len(row)) for row in rows])


def caption(study: Study, runs: Runs, layout: Layout) -> str:
    """What was trained, where, by which command, and the missing runs of the study."""
    setting = layout.setting(study, runs)
    parts = [f"{setting}; {made_at(runs)}." if setting else f"{made_at(runs)}."]
    parts += [f"`adax reproduce {study.name}`.", study.note, missing(study, runs), layout.notes(study, runs)]
    return " ".join(part for part in parts if part)


def missing(study: Study, runs: Runs) -> str:
    """The number of missing runs, as a sentence."""
    left = study.runs() - len([run for run in runs if run.done])
    return f"{left} of {study.runs()} runs were not executed." if left > 0 else ""


def claims(study: Study, root: Path) -> str:
    """The verdict on each claim that the study judges, with links to the rules. Claims that a later study judges
    are only named."""
    asked = [claim for claim in claims_of(study.name) if study.name in (claim.study, claim.retest)]
    rows = judge_files(asked, root / "records")
    mine, later = [], dict[str, list[str]]()
    for claim, row in zip(asked, rows, strict=True):
        if claim.retest != study.name and claim.retest and records.load(root / "records", claim.retest):
            later.setdefault(claim.retest, []).append(link(claim.id, claim.id))
        else:
            mine.append(row)
    return "\n\n".join([*_verdicts(mine), *(_judged_later(name, ids) for name, ids in later.items())])


def _judged_later(study: str, ids: Sequence[str]) -> str:
    name = study.partition("/")[2] or study
    return f"Judged by the runs of [{name}](#{name}): {', '.join(ids)}."


LONG = 40
"""A note of more characters than this is not repeated for every claim."""


def _verdicts(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A table of claims; a long note that all of them share is written once, above it."""
    notes = [str(row["note"]).split("; ") if row["note"] else [] for row in rows]
    common = [part for part in notes[0] if all(part in other for other in notes)] if len(rows) > 1 else []
    common = common if len("; ".join(common)) > LONG else []
    cells = []
    for row, note in zip(rows, notes, strict=True):
        own = ["ours"] * (row["by"] == OURS) + [part for part in note if part not in common]
        about = f" ({'; '.join(own)})" if own else ""
        verdict = words(row).replace(f", n = {row['n']}", "")
        cells.append((f"{row['claim']}{about}", row["ours"], row["n"], link(row["id"], verdict)))
    shown = [f"For all claims of this table: {'; '.join(common)}."] if common else []
    return [*shown, markdown.table(("claim", "result (95%)", "n", "verdict"), cells)] if rows else []


def section(
    study: Study, root: Path, layout_of: LayoutOf, extra: Callable[[Study, Runs], str] | None = None
) -> str:
    """The whole section; it states if the study has no records."""
    runs = records.load(root / "records", study.name)
    if not runs:
        return not_complete(study, root)
    layout = layout_of(study, runs)
    parts = [study.title, table(study, runs, layout), caption(study, runs, layout)]
    parts += [extra(study, runs) if extra else "", drawn.shown(study), claims(study, root)]
    return "\n\n".join(part for part in parts if part)
