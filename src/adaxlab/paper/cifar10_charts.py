"""The runs of CIFAR-10 as charts show them: accuracies in percent, methods by their names in the zoo. Runs of a stack
share their seconds, so no time is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from adaxlab.measures import failed, percent
from adaxlab.paper import catalogue
from adaxlab.paper import cifar10_runs as runs
from adaxlab.report.names import TORCH
from adaxlab.store import RunRecord


def load(root: Path) -> list[RunRecord]:
    """Every run in the folder of records, study by study; those made for another study first, so that variants keep
    the colours that they have in docs/images."""
    found = (sorted(runs.load(name, root), key=lambda r: not runs.borrowed(r)) for name in runs.STUDIES)
    return [shown(run) for study in found for run in study]


def method(spec: Mapping[str, Any]) -> str:
    """The name of the method in the zoo.

    >>> method({"optimizer": "torch:AdamW", "options": {"amsgrad": True}})
    'amsgradw'
    """
    name = spec["optimizer"] + ("@amsgrad" if spec["options"].get("amsgrad") else "")
    return TORCH.get(name, name)


def shown(run: RunRecord) -> RunRecord:
    """The run in the words and units of charts."""
    spec, lost, tune = run.spec, failed(run), run.spec["purpose"] == "tune"
    rows = catalogue.study(spec["study"]).rows
    row = next((row for row in rows if row.name == run.row), None)
    made = {
        **spec,
        "task": f"CIFAR-10, {spec['task_options']['model']}",
        "optimizer": method(spec),
        "options": {key: value for key, value in spec["options"].items() if key != "amsgrad"},
    }
    metrics = [
        {**point, "train_metric": percent(point["train_metric"]), "metric": percent(point["metric"])}
        for point in run.metrics
    ]
    done = {
        "status": "diverged" if lost else "finished",
        "metric": None if lost else runs.accuracy(run),
        "train_loss": None if lost else run.metrics[-1]["train_loss"],
        "metric_name": "accuracy (%)" if tune else "test accuracy (%)",
        "higher_is_better": True,
        "paper": list(row.paper) if row and row.paper else None,
    }
    return replace(run, spec=made, metrics=metrics, done=done)
