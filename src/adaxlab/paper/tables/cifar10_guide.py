"""What the CIFAR-10 studies say about choosing hyper-parameters: a part of docs/hyperparameters.md."""

from __future__ import annotations

from pathlib import Path

from adaxlab import stats
from adaxlab.finding import LEAST
from adaxlab.paper.cifar10_runs import STUDIES, accuracy, load
from adaxlab.paper.tables import cifar10 as tables
from adaxlab.paper.tables.study import Layout, best

VARIED = {"lr": "lr", "beta1": "b1", "beta2": "b2", "epsilon": "eps"}
"""Studies that vary one setting of AdaX-W, and what it is called."""


def section(root: Path) -> str:
    """The marked part."""
    return settings(root / "records")


def settings(root: Path) -> str:
    """A line for each setting that was varied, and one for the learning rates that suit the methods."""
    lines = [line for line in (_varied(root, *pair) for pair in VARIED.items()) if line]
    tuning = load("tuning", root)
    if tuning:
        tops = {row.name: best(tuning, row, Layout()) for row in STUDIES["tuning"].rows}
        said = ", ".join(f"{tables.title(row)} {lr:g}" for row, lr in tops.items())
        lines.append(
            f"- best of five learning rates on held-out images, one run each ([tuning](cifar10.md#tuning)): {said}"
        )
    if not lines:
        return "*Not run yet (`adax reproduce cifar10/lr`, `beta1`, `beta2`, `epsilon`, `tuning`).*"
    return "\n".join(
        [f"Test accuracy of AdaX-W in %, all other settings as in the paper{_noise(root)}:", "", *lines]
    )


def _noise(root: Path) -> str:
    """How far apart runs are that differ by their seed alone: a deviation pooled over rows of 3 and more."""
    squares, free = 0.0, 0
    for study in VARIED:
        found = [r for r in load(study, root) if r.spec["optimizer"] == "adaxw"]
        for row in dict.fromkeys(r.row for r in found):
            values = [accuracy(r) for r in found if r.row == row]
            if len(values) >= LEAST:
                squares += stats.sd(values) ** 2 * (len(values) - 1)
                free += len(values) - 1
    if not free:
        return ""
    return f" (the standard deviation between seeds is {(squares / free) ** 0.5:.2f})"


def _varied(root: Path, study: str, letter: str) -> str:
    found = load(study, root)
    rows = [row.name for row in STUDIES[study].rows if row.optimizer == "adaxw"]
    seen = {row: [accuracy(r) for r in found if r.row == row] for row in rows}
    if not all(seen.values()):
        return ""
    said = ", ".join(f"{stats.mean(values):.2f} at {row.split()[-1]}" for row, values in seen.items())
    return f"- {letter} ([{study}](cifar10.md#{study}), n = {min(map(len, seen.values()))}): {said}"
