"""The layout of the tables of the CIFAR-10 studies, and sentences for their pages, from the records."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from adaxlab import markdown, records, spec, stats
from adaxlab.measures import failed, percent
from adaxlab.paper import memory_rule
from adaxlab.paper.cifar10 import FRESH, TUNING
from adaxlab.paper.cifar10_runs import accuracy, borrowed, label, load, short
from adaxlab.paper.tables.study import Column, Layout, Line, Runs, best
from adaxlab.report import names
from adaxlab.report.numbers import listed
from adaxlab.store import RunRecord
from adaxlab.study import Study

UNTIL = 99
"""Epochs before the first drop of the learning rate."""
TITLES = {
    **names.TITLES,
    "sgdm-5e-4": "SGDM, L2 5e-4 (released code)",
    "sgdm-1e-4": "SGDM, L2 1e-4 (the paper's text)",
}


def layout(study: Study, runs: Runs) -> Layout:
    """Accuracy in percent, and how training went."""
    epoch = min(UNTIL, runs[0].spec["epochs"])
    columns = [
        Column(f"training accuracy at epoch {epoch}, %", _early),
        Column("training loss at the end", _loss),
        *([] if study.share else [Column("seconds", _seconds)]),
        Column("runs from study", _whose),
    ]
    judged = "held-out" if study.tuning else "test"
    return Layout(
        f"{judged} accuracy, %", columns=tuple(columns), title=title, setting=_setting, notes=_notes
    )


def _early(line: Line) -> str:
    values = [percent(run.metrics[:UNTIL][-1]["train_metric"]) for run in line.good]
    return f"{stats.mean(values):.1f}" if values else ""


def _loss(line: Line) -> str:
    return f"{stats.mean([run.metrics[-1]['train_loss'] for run in line.good]):.4f}" if line.good else ""


def _whose(line: Line) -> str:
    """The studies for which the runs were made, if not this one."""
    return ", ".join(sorted({study for run in line.result.runs if (study := borrowed(run))}))


def at_best(root: Path = records.FOLDER) -> str:
    """A sentence beside the table at the paper's rates: what each method reaches at the best of the rates tried."""
    found = load(short(TUNING), root)
    if not found or TUNING.tuning is None:
        return ""
    score = Layout()
    tops = {row.name: best(found, row, score) for row in TUNING.rows}
    said = ", ".join(
        f"{max(accuracy(r) for r in found if r.row == row):.2f} ({title(row)}, lr {lr:g})"
        for row, lr in tops.items()
    )
    sentence = (
        f"The table uses the paper's learning rates. With {TUNING.tuning.trials} learning rates tried per method, one "
        f"run each, the best accuracies on held-out images are {said} ([tuning](cifar10.md#tuning)). "
    )
    tested = [r for r in load(short(FRESH), root) if not failed(r)]
    runs = {row.name: [accuracy(r) for r in tested if r.row == row.name] for row in FRESH.rows}
    if not all(runs.values()):
        return sentence + "`cifar10/fresh` tests whether the ranking holds."
    means = ", ".join(
        f"{stats.mean(values):.2f} ({title(row)}, n = {len(values)})" for row, values in runs.items()
    )
    return sentence + (
        f"At these rates, the test accuracies on ten new seeds are {means} ([fresh](cifar10.md#fresh)): AdaX-W's "
        f"lead changes {_lead('adamw', runs, root)} and {_lead('amsgradw', runs, root)}."
    )


def _lead(row: str, tuned: Mapping[str, list[float]], root: Path) -> str:
    """AdaX-W's lead at the paper's rates and at the best ones."""
    main = [r for r in load("table2", root) if not failed(r)]
    ends = {name: stats.mean([accuracy(r) for r in main if r.row == name]) for name in ("adaxw", row)}
    after = stats.mean(tuned["adaxw"]) - stats.mean(tuned[row])
    return f"from {ends['adaxw'] - ends[row]:+.2f} to {after:+.2f} points over {title(row)}"


def _seconds(line: Line) -> str:
    """Mean seconds of a stack, with the number of stacks: runs that trained together have one time."""
    stacks = _own(line.good)
    return f"{stats.mean([seconds for _, seconds in stacks]):.1f} (n = {len(stacks)})" if stacks else ""


def again(study: Study, runs: Runs, root: Path = records.FOLDER) -> str:
    """How far runs that were trained a second time, with table2's settings and seeds, ended from table2's own."""

    def key(run: RunRecord) -> str:
        options = {k: v for k, v in run.spec["task_options"].items() if k != "trace"}
        return spec.digest({**run.spec, "task_options": options})

    first = {key(r): r for r in load("table2", root)}
    rows: dict[str, list[float]] = {}
    order = [row.name for row in study.rows]
    for r in sorted(runs, key=lambda r: (order.index(r.row), r.spec["seed"])):
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

    >>> title("adaxw eps 1e-3"), title("sgdm-1e-4"), title("adaxw, 8-bit"), title("growing b2T=3")
    ('AdaX-W, eps 1e-3', "SGDM, L2 1e-4 (the paper's text)", 'AdaX-W, 8-bit', 'growing, b2·T = 3')
    """
    method, _, rest = row.partition(" ")
    method = method.removesuffix(",")
    if method not in TITLES:
        return memory_rule.label(row)
    return TITLES[method] + (f", {rest}" if rest else "")


def _setting(study: Study, runs: Runs) -> str:
    """What was trained, and how many networks at once."""
    record = next((r for r in runs if not borrowed(r)), runs[0])
    given = record.spec
    precision = {"bf16": "bfloat16 autocast", "tf32": "TF32", "fp32": "float32"}[record.env["precision"]]
    part = f" on {_held_out(study):,} held-out images" if study.tuning else ""
    return (
        f"CIFAR-10, {given['task_options']['model'].replace('resnet', 'ResNet-')}, {given['epochs']} epochs, "
        f"batch {given['batch_size']}, {precision}, accuracy at the last epoch{part}; {_stacks(runs)}"
    )


def _held_out(study: Study) -> int:
    return study.task_options["holdout"]


def _notes(study: Study, runs: Runs) -> str:
    """Notes on the accuracy of the numbers."""
    said = []
    if study.tuning:
        share = max(map(accuracy, runs)) / 100
        error = 100 * (share * (1 - share) / _held_out(study)) ** 0.5
        said.append(
            f"On {_held_out(study):,} images an accuracy has a standard error of {error:.1f} points, in addition to "
            "the variation between seeds."
        )
    many = max(n for n, _ in _times(runs))
    if not study.share and many > 1:
        said.append(
            f"This record is from an earlier version of the study: {many} networks of a method trained at once, one "
            "method after the other, and the seconds include a first epoch with compilation."
        )
    return " ".join(said)


def _times(found: Runs) -> list[tuple[int, float]]:
    """(networks, seconds) of the stack that each run trained in."""
    return [(r.done["together"], r.done["seconds"]) for r in found if r.done]


def _own(found: Runs) -> list[tuple[int, float]]:
    """(networks, seconds) of each stack of the runs; a network that was trained alone is a stack of one."""
    own = _times([r for r in found if not borrowed(r)])
    return [
        *dict.fromkeys(stack for stack in own if stack[0] > 1),
        *(stack for stack in own if stack[0] == 1),
    ]


def _stacks(found: Runs) -> str:
    """The number of networks that were trained together and the time; networks of other studies in a common stack are
    counted."""
    own = _own(found)
    if not own:
        return "all runs are from other studies"
    parts = []
    for n in dict.fromkeys(n for n, _ in own):
        times = [seconds for m, seconds in own if m == n]
        total = _time(math.fsum(times))
        if n == 1:
            parts.append(f"one network at a time, {total} in all")
        elif len(times) == 1:
            parts.append(f"{n} networks at once in {total}")
        else:
            parts.append(f"{len(times)} times {n} networks at once ({total} in all)")
    return listed(parts)


def _time(seconds: float) -> str:
    return f"{seconds / 60:.1f} minutes" if seconds >= 60 else f"{seconds:.1f} seconds"


def speed(root: Path) -> str:
    """Seconds per model and epoch, by the number of networks at once and the precision."""
    record = markdown.read(root, "cifar10/throughput.json")
    order = ("bf16", "tf32", "fp32")
    rows = sorted(record["rows"], key=lambda row: (order.index(row["precision"]), row["models"]))
    shown = [
        (r["models"], r["precision"], f"{r['train_seconds']:.3f}", f"{r['test_seconds']:.3f}") for r in rows
    ]
    whole, floor, kernels = (record[key] for key in ("whole", "floor", "kernels_us_per_step_25_models"))
    newer = record["kernels_by_rows"]
    largest = max(kernels, key=kernels.__getitem__)
    share = kernels[largest] / sum(kernels.values())
    environment = record["environment"]
    return (
        f"Measured on one {environment['gpu']} with torch {environment['torch']} and Triton {environment['triton']}, "
        f"seconds per model and epoch, medians of n = {rows[0]['n']} epochs "
        "([record](../records/cifar10/throughput.json), `benchmarks/cifar.py`):\n\n"
        + markdown.table(("networks at once", "precision", "training", "testing"), shown)
        + f"\n\nThe whole table took {whole['seconds']:.0f} s ({whole['models']} networks, {whole['epochs']} epochs). "
        f"Lower bounds per model and epoch: {floor['seconds_at_4.3_tbps']:.3f} s for the minimum memory traffic of the "
        f"activations at the GPU's copy speed, {floor['seconds_at_790_tflops']:.3f} s for the multiplications. The "
        f"largest part of a step of 25 networks is the {largest.replace('_', ' ')}, {100 * share:.0f}%. The kernels "
        "for `precision=tf32` and `precision=fp32` (three TF32 products instead of one) use tile sizes that fit the "
        "GPU and were not tuned for speed.\n\n"
        "These measurements were made before the kernels were changed to load each row of an image once. With the new "
        f"kernels a step of {newer['models']} networks takes {newer['after_us'] / 1000:.2f} ms instead of "
        f"{newer['before_us'] / 1000:.2f} (medians of n = {newer['n']} alternating rounds in one run)."
    )
