"""The CIFAR-10 studies as run records, so that their charts and pages are everyone else's.

    from adaxlab.report.cifar import load
    write_report(load(Path("records/cifar10")), Path("cifar10.html"))

A line of `records/cifar10/<study>.jsonl` is one run with its whole curve. Runs of a stack share their seconds, so no
time is given. torch's own optimizers go by the name of the method that they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adaxlab.cifar.book import STUDIES
from adaxlab.errors import StoreError
from adaxlab.records import failed
from adaxlab.store import RunRecord

STEPS = 391
_TORCH = {"torch:SGD": "sgdm", "torch:Adam": "adam", "torch:AdamW": "adamw"}


def load(folder: Path) -> list[RunRecord]:
    """Every run under `folder`, the main table first and the other studies in the order of the book."""
    found = [folder / f"{name}.jsonl" for name in STUDIES]
    return [run for path in found if path.is_file() for run in read(path)]


def read(path: Path) -> list[RunRecord]:
    """The runs of one file; StoreError with its path if it is damaged."""
    try:
        return [_run(json.loads(line)) for line in path.read_text().splitlines()]
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path}: is not a file of CIFAR-10 runs (damaged?)") from error


def method(line: Mapping[str, Any]) -> str:
    """The name of the method in the zoo.

    >>> method({"optimizer": "torch:AdamW", "options": {"amsgrad": True}})
    'amsgradw'
    """
    if line["options"].get("amsgrad"):
        return {"torch:Adam": "amsgrad", "torch:AdamW": "amsgradw"}[line["optimizer"]]
    return _TORCH.get(line["optimizer"], line["optimizer"])


def _run(line: Mapping[str, Any]) -> RunRecord:
    recipe, study = line["recipe"], line["study"]
    options = {k: v for k, v in line["options"].items() if k != "amsgrad"}
    spec = {
        "study": f"cifar10-{study}",
        "task": f"CIFAR-10, {recipe['model']}",
        "task_options": {"precision": line["precision"], "training images": line["images"]},
        "optimizer": method(line),
        "options": options,
        "schedule": {"name": "step", "milestones": recipe["milestones"], "gamma": recipe["gamma"]},
        "epochs": recipe["epochs"],
        "batch_size": recipe["batch"],
        "seed": line["seed"],
        "purpose": "tune" if study == "tuning" else "final",
        "trial": None,
    }
    curve = line["curve"]
    metrics = [
        {"epoch": i + 1, "step": STEPS * (i + 1), "train_loss": loss, "train_metric": train, "metric": test}
        for i, (loss, train, test) in enumerate(
            zip(curve["train_loss"], curve["train_accuracy"], curve["test_accuracy"], strict=True)
        )
    ]
    lost = failed(line, "cifar10")
    done = {
        "status": "diverged" if lost else "finished",
        "metric": None if lost else line["test_accuracy"],
        "train_loss": None if lost else line["train_loss"],
        "metric_name": "accuracy (%)" if study == "tuning" else "test accuracy (%)",
        "higher_is_better": True,
        "paper": _paper(study, line["row"]),
    }
    env = {**line.get("environment", {}), "command": f"adax reproduce cifar10/{study}"}
    return RunRecord(spec, env, metrics, done, Path("cifar10") / study / f"{line['row']}-{line['seed']}")


def _paper(study: str, row: str) -> list[float] | None:
    """The paper's mean and margin for a row, where it gives them."""
    for known in STUDIES[study].rows if study in STUDIES else ():
        if known.name == row and known.paper is not None:
            return list(known.paper)
    return None
