"""Records of the studies as run records of the lab's store, so that its reports and charts can show them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from adaxopt.lab.cifar.claims import diverged
from adaxopt.lab.store import RunRecord

METHODS = {"torch:SGD": "sgdm", "torch:AdamW": "adamw", "torch:Adam": "adam"}
"""torch's own optimizers by the name of the method that they are."""


def method(record: Mapping[str, Any]) -> str:
    """The method's name in the lab: `amsgradw` for torch's AdamW with amsgrad."""
    name = METHODS.get(record["optimizer"], record["optimizer"])
    return name.replace("adam", "amsgrad") if record["options"].get("amsgrad") else name


def as_runs(records: Iterable[Mapping[str, Any]]) -> list[RunRecord]:
    """One RunRecord a line. Accuracies become shares of 1, as the lab's own tasks have them."""
    return [_as_run(record) for record in records]


def _as_run(r: Mapping[str, Any]) -> RunRecord:
    recipe, curve = r["recipe"], r["curve"]
    steps = -(-r["images"] // recipe["batch"])
    hidden = ("amsgrad", "wake")
    spec = {
        "schema": 1,
        "study": f"cifar10-{r['study']}",
        "task": "cifar10",
        "task_options": {"model": recipe["model"]},
        "optimizer": method(r),
        "options": {k: v for k, v in r["options"].items() if k not in hidden},
        "schedule": {
            "name": "step",
            "milestones": [m * steps for m in recipe["milestones"]],
            "gamma": recipe["gamma"],
        },
        "epochs": recipe["epochs"],
        "batch_size": recipe["batch"],
        "seed": r["seed"],
        "purpose": "final",
        "trial": None,
    }
    lines = []
    for i, (loss, train, test) in enumerate(zip(*(curve[k] for k in _CURVES), strict=True), 1):
        drops = sum(i > m for m in recipe["milestones"])
        lines.append(
            {
                "step": i * steps,
                "epoch": i,
                "train_loss": loss,
                "train_metric": train / 100,
                "metric": test / 100,
                "lr": r["options"]["lr"] * recipe["gamma"] ** drops,
                "seconds": round(r["seconds"] * i / recipe["epochs"], 2),
            }
        )
    lost = diverged(r)
    done = {
        "status": "diverged" if lost else "finished",
        "metric": None if lost else r["test_accuracy"] / 100,
        "best": max(curve["test_accuracy"]) / 100,
        "train_loss": r["train_loss"],
        "seconds": r["seconds"],
        "metric_name": "accuracy",
        "higher_is_better": True,
    }
    return RunRecord(
        spec, dict(r["environment"]), lines, done, Path(spec["study"]) / f"{r['row']}-{r['seed']}"
    )


_CURVES = ("train_loss", "train_accuracy", "test_accuracy")
