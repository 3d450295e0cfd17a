"""Tables of the CIFAR-10 studies in Markdown, from the records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from adaxlab import records, spec, stats
from adaxlab.measures import failed, percent
from adaxlab.paper.cifar10 import FRESH, TUNING
from adaxlab.paper.cifar10_runs import STUDIES, accuracy, borrowed, label, labels, load, short
from adaxlab.report import names
from adaxlab.store import RunRecord
from adaxlab.study import Row, Study

Runs = Sequence[RunRecord]
UNTIL = 99
"""Epochs before the first drop of the learning rate."""
TITLES = {
    **names.TITLES,
    "sgdm-5e-4": "SGDM, L2 5e-4 (released code)",
    "sgdm-1e-4": "SGDM, L2 1e-4 (the paper's text)",
}


def table(name: str, root: Path = records.FOLDER) -> str:
    """A study's table from the committed records; what was not run says so."""
    found = load(name, root)
    if not found:
        return f"*CIFAR-10, {name}: not run yet (`adax reproduce cifar10/{name}`).*"
    return show(STUDIES[name], found)


def show(study: Study, found: Runs) -> str:
    """A study's rows: ours with n and interval, the paper's beside it where it has one."""
    epoch = min(UNTIL, found[0].spec["epochs"])
    judged = "held-out" if study.tuning else "test"
    paper = any(row.paper for row in study.rows)
    head = ["", "n", f"{judged} accuracy, %", "95% interval", *(["paper"] if paper else [])]
    head += [f"training accuracy at epoch {epoch}, %", "training loss at the end"]
    head += [] if study.share else ["seconds"]
    lines = [_line(head), "|" + "---|" * len(head)]
    for name in labels(study):
        row = None if study.tuning else study.row(name)
        cells = _cells(name, row, [r for r in found if label(r) == name], paper, not study.share)
        if study.tuning and name in best(found):
            cells[2] = f"**{cells[2]}**"
        lines.append(_line(cells + [""] * (len(head) - len(cells))))
    return "\n".join(lines) + "\n\n" + caption(study, found)


def _line(cells: Sequence[str]) -> str:
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)


def best(found: Runs) -> list[str]:
    """The line of each method that is best: what tuning is for."""
    rows: dict[str, RunRecord] = {}
    for run in found:
        rows[run.row] = max(rows.get(run.row, run), run, key=accuracy)
    return [label(run) for run in rows.values()]


def at_best(root: Path = records.FOLDER) -> str:
    """A sentence beside the table at the paper's rates: what each method reaches at the best of the rates tried."""
    found = load(short(TUNING), root)
    if not found:
        return ""
    rows = {label(r): f"{accuracy(r):.2f}" for r in found}
    said = ", ".join(f"{rows[row]} ({title(row)})" for row in best(found))
    tries = len(rows) // len(best(found))
    sentence = (
        f"The table uses the paper's learning rates. With {tries} learning rates tried per method, one run each, the "
        "best "
        f"accuracies on held-out images are {said} ([tuning](docs/cifar10.md#tuning)). "
    )
    tested = [r for r in load(short(FRESH), root) if not failed(r)]
    runs = {row.name: [accuracy(r) for r in tested if r.row == row.name] for row in FRESH.rows}
    if not all(runs.values()):
        return sentence + "`cifar10/fresh` tests whether the ranking holds."
    means = ", ".join(
        f"{stats.mean(values):.2f} ({title(row)}, n = {len(values)})" for row, values in runs.items()
    )
    return sentence + (
        f"At these rates, the test accuracies on ten new seeds are {means} ([fresh](docs/cifar10.md#fresh)): "
        "AdaX-W's lead changes "
        f"{_lead('adamw', runs, root)} and {_lead('amsgradw', runs, root)}."
    )


def _lead(row: str, tuned: Mapping[str, list[float]], root: Path) -> str:
    """AdaX-W's lead at the paper's rates and at the best ones."""
    main = [r for r in load("table2", root) if not failed(r)]
    ends = {name: stats.mean([accuracy(r) for r in main if r.row == name]) for name in ("adaxw", row)}
    after = stats.mean(tuned["adaxw"]) - stats.mean(tuned[row])
    return f"from {ends['adaxw'] - ends[row]:+.2f} to {after:+.2f} points over {title(row)}"


def _cells(name: str, row: Row | None, mine: Runs, paper: bool, times: bool) -> list[str]:
    good = [r for r in mine if not failed(r)]
    theirs = [f"{row.paper[0]:.2f} ± {row.paper[1]:.2f}" if row and row.paper else ""] if paper else []
    if not good:
        return [title(name), "0", f"all {len(mine)} failed" if mine else "not run", "", *theirs]
    seen = stats.t_interval([accuracy(r) for r in good])
    early = stats.mean([percent(r.metrics[:UNTIL][-1]["train_metric"]) for r in good])
    lost = f" ({len(mine) - len(good)} failed)" if len(mine) > len(good) else ""
    whose = {borrowed(r) for r in mine if borrowed(r)}
    return [
        title(name) + (f" ({', '.join(sorted(whose))}'s runs)" if whose else ""),
        f"{seen.n}{lost}",
        f"{seen.mean:.2f}",
        f"{seen.low:.2f} to {seen.high:.2f}" if seen.n > 1 else "–",
        *theirs,
        f"{early:.1f}",
        f"{stats.mean([r.metrics[-1]['train_loss'] for r in good]):.4f}",
        *([_seconds(good)] if times else []),
    ]


def _seconds(good: Runs) -> str:
    """Mean seconds of a stack, with the number of stacks: runs that trained together have one time."""
    stacks = _own(good)
    return f"{stats.mean([seconds for _, seconds in stacks]):.1f} (n = {len(stacks)})"


def again(study: Study, found: Runs, root: Path = records.FOLDER) -> str:
    """How far runs that were trained a second time, with table2's settings and seeds, ended from table2's own."""

    def key(run: RunRecord) -> str:
        options = {k: v for k, v in run.spec["task_options"].items() if k != "trace"}
        return spec.digest({**run.spec, "task_options": options})

    first = {key(r): r for r in load("table2", root)}
    rows: dict[str, list[float]] = {}
    for r in found:
        if short(study) != "table2" and not borrowed(r) and key(r) in first:
            rows.setdefault(label(r), []).append(accuracy(r) - accuracy(first[key(r)]))
    if not rows:
        return ""
    said = "; ".join(
        f"{title(row)} " + (", ".join(f"{d:+.2f}" for d in ds) if any(ds) else "none")
        for row, ds in rows.items()
    )
    return (
        f"These settings and seeds are also in table2 and were trained a second time here. Difference from the runs of "
        f"table2, in points: {said}."
    )


def title(row: str) -> str:
    """A row's name in words.

    >>> title("adaxw eps 1e-3"), title("sgdm-1e-4"), title("padax lr 0.1")
    ('AdaX-W, eps 1e-3', "SGDM, L2 1e-4 (the paper's text)", 'Padax, lr 0.1')
    """
    method, _, rest = row.partition(" ")
    return TITLES.get(method, method) + (f", {rest}" if rest else "")


def caption(study: Study, found: Runs) -> str:
    """What was run, on what."""
    record = next((r for r in found if not borrowed(r)), found[0])
    device, given = record.env["hardware"]["device"], record.spec
    precision = {"bf16": "bfloat16 autocast", "tf32": "TF32", "fp32": "float32"}[record.env["precision"]]
    part = f" on {_held_out(study):,} held-out images" if study.tuning else ""
    return (
        f"CIFAR-10, {given['task_options']['model'].replace('resnet', 'ResNet-')}, {given['epochs']} epochs, "
        f"batch {given['batch_size']}, {precision}, accuracy at the last epoch{part}; {device}, "
        f"{_stacks(found)}. "
        f"`adax reproduce {study.name}`. AdaX is run as published (`wake=False`). {study.note}"
        f"{_limits(study, found)}"
    ).rstrip()


def _held_out(study: Study) -> int:
    return study.task_options["holdout"]


def _limits(study: Study, found: Runs) -> str:
    """What was planned and not done, and how far a number can be trusted, where the records tell."""
    said = []
    seeds = len({r.spec["seed"] for r in found})
    if seeds < study.seeds:
        said.append(f"{seeds} of {study.seeds} seeds have been run so far.")
    if study.tuning:
        share = max(map(accuracy, found)) / 100
        error = 100 * (share * (1 - share) / _held_out(study)) ** 0.5
        said.append(
            f"On {_held_out(study):,} images an accuracy has a standard error of {error:.1f} points, in addition to "
            "the "
            "variation between seeds."
        )
    many = max(n for n, _ in _times(found))
    if not study.share and many > 1:
        said.append(
            f"This record is from an earlier version of the study: {many} networks of a method trained at once, one "
            "method "
            "after the other, and the seconds include a first epoch with compilation."
        )
    return "".join(f" {text}" for text in said)


def _times(found: Runs) -> list[tuple[int, float]]:
    """(networks, seconds) of the stack that each run trained in."""
    return [(r.done["together"], r.done["seconds"]) for r in found if r.done]


def _own(found: Runs) -> list[tuple[int, float]]:
    """(networks, seconds) of each stack that the runs are of; a network that trained alone is one."""
    own = _times([r for r in found if not borrowed(r)])
    return [
        *dict.fromkeys(stack for stack in own if stack[0] > 1),
        *(stack for stack in own if stack[0] == 1),
    ]


def _stacks(found: Runs) -> str:
    """How many networks trained together, in what time; those of other studies in a common stack count too."""
    own = _own(found)
    if not own:
        return "all runs are from other studies"
    alone = [seconds for n, seconds in own if n == 1]
    parts = [f"{n} networks at once in {_time(seconds)}" for n, seconds in own if n > 1]
    parts += [f"one network at a time, {_time(sum(alone))} in all"] if alone else []
    return " and ".join(parts)


def _time(seconds: float) -> str:
    return f"{seconds / 60:.1f} minutes" if seconds >= 60 else f"{seconds:.1f} seconds"
