"""The CIFAR-10 runs in records/, in the order of their studies, and how tables name them."""

from __future__ import annotations

from pathlib import Path

from adaxlab import records
from adaxlab.measures import percent
from adaxlab.paper.cifar10 import STUDIES as ALL
from adaxlab.store import RunRecord
from adaxlab.study import Study


def short(study: Study) -> str:
    """The study's name on pages about CIFAR-10: without `cifar10/`."""
    return study.name.partition("/")[2]


STUDIES = {short(study): study for study in ALL}


def load(name: str, root: Path) -> list[RunRecord]:
    """The committed runs of a study, row by row and seed by seed; none if it was not run."""
    rows = labels(STUDIES[name])
    found = records.load(root, f"cifar10/{name}")
    return sorted((run for run in found if run.done), key=lambda r: (rows.index(label(r)), r.spec["seed"]))


def not_run(root: Path) -> list[str]:
    """The studies that have no record yet."""
    return [name for name in STUDIES if not (root / "cifar10" / f"{name}.jsonl").is_file()]


def label(run: RunRecord) -> str:
    """The line of a table that the run belongs to: its row, with the lr where the study tunes."""
    return _named(run.row, run.spec["options"]["lr"] if run.spec["purpose"] == "tune" else None)


def labels(study: Study) -> list[str]:
    """The lines of a study's table."""
    return [_named(row.name, lr) for row in study.rows for lr in (row.rates if study.tuning else (None,))]


def _named(row: str, lr: float | None) -> str:
    return row if lr is None else f"{row} lr {lr:g}"


def borrowed(run: RunRecord) -> str:
    """The study that the run was made for, if another one; '' for the study's own."""
    return run.env.get("made_for", "").partition("/")[2]


def accuracy(run: RunRecord) -> float:
    """Of the last epoch, in percent."""
    return percent(run.metrics[-1]["metric"])
