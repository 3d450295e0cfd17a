"""The generated parts of docs/cifar10.md: what was asked, run, seen and concluded, study by study; and the speed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from adaxlab.claim import OURS, anchor
from adaxlab.judge import judge_files
from adaxlab.markdown import table
from adaxlab.paper.cifar10_claims import CLAIMS
from adaxlab.paper.cifar10_runs import STUDIES, load, not_run, short
from adaxlab.paper.tables import cifar10 as tables
from adaxlab.study import Study

PICTURES: Mapping[str, tuple[str, ...]] = {
    "table2": ("seeds", "metric", "train-loss"),
    "tuning": ("lr",),
    "tuned": ("seeds", "difference"),
    "fresh": ("seeds", "difference"),
    "trace": ("second-moment",),
    "trace-lr": ("second-moment",),
    "epsilon": ("sweep",),
    "padax": ("seeds", "sweep"),
    "decay": ("seeds", "metric"),
    "lr": ("sweep",),
    "beta1": ("sweep",),
    "beta2": ("sweep",),
    "runtime": (),
    "zoo": ("seeds",),
}
"""The figures that the page shows for each study; no others are drawn (`report/figures.py`)."""
WORDS = {
    "seeds": "Final accuracy of every run",
    "metric": "Accuracy during training",
    "train-loss": "Training loss",
    "lr": "Held-out accuracy against the learning rate",
    "sweep": "Final accuracy against the varied setting",
    "difference": "Paired differences of final accuracy",
    "second-moment": "Mean of sqrt(v) during training",
}
Picture = Callable[[str, str], str]


def studies(root: Path, picture: Picture) -> str:
    """A section for every study with records under `root`, then the names of those without.

    `picture` makes the markup for a name and what it shows.
    """
    waiting = not_run(root)
    parts = [section(study, root, picture) for name, study in STUDIES.items() if name not in waiting]
    if waiting:
        lines = "\n".join(f"- `cifar10/{name}`: {STUDIES[name].title}" for name in waiting)
        parts.append(f"### Not run yet\n{lines}")
    return "\n\n".join(parts)


def section(study: Study, root: Path, picture: Picture) -> str:
    """The question, the table, the figures, the claims."""
    name = short(study)
    found = load(name, root)
    shown = [picture(f"cifar10-{name}-{kind}", f"{WORDS[kind]}: {name}") for kind in PICTURES[name]]
    parts = [f"### {name}\n{study.title}", tables.show(study, found), tables.again(study, found, root)]
    return "\n\n".join(part for part in (*parts, *shown, claims(study, root)) if part)


def claims(study: Study, root: Path) -> str:
    """The verdict on each claim that rests on the study, with links to the rules."""
    rows = judge_files([claim for claim in CLAIMS if claim.study == study.name], root)
    return "\n".join(
        f"- [{row['id']}](claims.md#{anchor(row['id'])}): {_sentence(row)}: "
        f"**{row['verdict']}**, {row['ours']} (n = {row['n']})"
        for row in rows
    )


def _sentence(row: Mapping[str, Any]) -> str:
    """The claim with its note; comparisons of our own are marked."""
    notes = ["ours"] * (row["paper"] == OURS) + [row["note"]] * bool(row["note"])
    return row["claim"] + (f" ({'; '.join(notes)})" if notes else "")


def speed(root: Path) -> str:
    """Seconds per model and epoch, by the number of networks at once and the precision."""
    record = json.loads((root / "cifar10" / "throughput.json").read_text())
    order = ("bf16", "tf32", "fp32")
    rows = sorted(record["rows"], key=lambda row: (order.index(row["precision"]), row["models"]))
    shown = [
        (r["models"], r["precision"], f"{r['train_seconds']:.3f}", f"{r['test_seconds']:.3f}") for r in rows
    ]
    whole, floor, kernels = (record[key] for key in ("whole", "floor", "kernels_us_per_step_25_models"))
    largest = max(kernels, key=kernels.__getitem__)
    share = kernels[largest] / sum(kernels.values())
    environment = record["environment"]
    return (
        f"Measured on one {environment['gpu']} with torch {environment['torch']} and Triton {environment['triton']}, "
        f"seconds per model and epoch, medians of n = {rows[0]['n']} epochs "
        "([record](../records/cifar10/throughput.json), `benchmarks/cifar.py`):\n\n"
        + table(("networks at once", "precision", "training", "testing"), shown)
        + f"\n\nThe whole table took {whole['seconds']:.0f} s ({whole['models']} networks, {whole['epochs']} epochs). "
        f"Lower bounds per model and epoch: {floor['seconds_at_4.3_tbps']:.3f} s for the minimum memory traffic of the "
        f"activations at the GPU's copy speed, {floor['seconds_at_790_tflops']:.3f} s for the multiplications. The "
        "largest "
        f"part of a step of 25 networks is the {largest.replace('_', ' ')}, {100 * share:.0f}%. The kernels for "
        "`precision=tf32` and `precision=fp32` (three TF32 products instead of one) use tile sizes that fit the GPU "
        "and "
        "were not tuned for speed."
    )
