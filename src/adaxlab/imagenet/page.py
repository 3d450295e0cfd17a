"""The ImageNet page, and records as the lab's runs: `python -m adaxlab.imagenet.page --out imagenet.html`."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from adaxlab.cifar.page import command
from adaxlab.claim import not_run
from adaxlab.errors import LabError
from adaxlab.imagenet.book import STAND_INS, STUDIES
from adaxlab.imagenet.lines import records
from adaxlab.imagenet.recipe import Recipe
from adaxlab.imagenet.rules import CLAIMS, failed
from adaxlab.judge import judge_files
from adaxlab.report.cifar import method
from adaxlab.schedule import factor
from adaxlab.store import RunRecord

LEAD = (
    "Tiny-ImageNet, a stand-in for ImageNet. SGDM, AdamW and AMSGrad(W) are PyTorch's, AdaX-W is this library's. Top-1 "
    "accuracy is that of the last epoch; rules were written before the runs."
)
_CURVES = ("train_loss", "train_accuracy", "test_accuracy")


def as_runs(lines: Iterable[Mapping[str, Any]]) -> list[RunRecord]:
    """One RunRecord a line. Accuracies become shares of 1, as the lab's own tasks have them."""
    return [_as_run(line) for line in lines]


def _as_run(line: Mapping[str, Any]) -> RunRecord:
    recipe = Recipe(**{**line["recipe"], "milestones": tuple(line["recipe"]["milestones"])})
    steps, lr = math.ceil(line["images"] / recipe.batch), line["options"]["lr"]
    schedule = recipe.schedule(lr)
    scale = factor(schedule, line["steps"])
    second = "@b2T=50" if "b2T50" in line["row"] else ""
    spec = {
        "schema": 1,
        "study": f"imagenet-{line['study']}",
        "task": "imagenet",
        "task_options": {"model": recipe.model, "stem": recipe.stem, "size": recipe.size},
        "optimizer": method(line) + second,
        "options": {k: v for k, v in line["options"].items() if k not in ("amsgrad", "wake")},
        "schedule": schedule,
        "epochs": recipe.epochs,
        "batch_size": recipe.batch,
        "seed": line["seed"],
        "purpose": "tune" if line["study"] == "tuning" else "final",
        "trial": None,
    }
    metrics = [
        {
            "step": i * steps,
            "epoch": i,
            "train_loss": loss,
            "train_metric": trained / 100,
            "metric": tested / 100,
            "lr": lr * scale(i * steps - 1),
            "seconds": round(line["seconds"] * i / len(line["curve"]["train_loss"]), 2),
        }
        for i, (loss, trained, tested) in enumerate(zip(*(line["curve"][k] for k in _CURVES), strict=True), 1)
    ]
    lost = failed(line)
    done = {
        "status": "diverged" if lost else "finished",
        "metric": None if lost else line["test_accuracy"] / 100,
        "best": max(line["curve"]["test_accuracy"]) / 100,
        "train_loss": line["train_loss"],
        "seconds": line["seconds"],
        "metric_name": "accuracy",
        "higher_is_better": True,
    }
    place = Path(spec["study"]) / f"{line['row']}-{line['seed']}"
    return RunRecord(spec, dict(line["environment"]), metrics, done, place)


def load(folder: Path) -> list[RunRecord]:
    """Every run under `folder`, in the order of the book."""
    return as_runs(line for name in STUDIES for line in records(folder / f"{name}.jsonl"))


def write(root: Path, out: Path) -> Path:
    """One self-contained HTML page: every study that has records, and the claims."""
    from adaxlab.report import write_report

    runs = load(root / "imagenet")
    if not runs:
        raise LabError(f"{root / 'imagenet'}: no ImageNet records; give the repository's records/ folder")
    missing = [name for name in STAND_INS if not records(root / "imagenet" / f"{name}.jsonl")]
    lead = LEAD + (f" Not run yet: {', '.join(missing)}." if missing else "")
    rows = [
        {**row, "text": row["claim"], "verdict": "not run" if not_run(row) else row["verdict"]}
        for row in judge_files(CLAIMS, root)
    ]
    return write_report(runs, out, title="ImageNet (stand-in: Tiny-ImageNet)", claims=rows, lead=lead)


def main(arguments: list[str] | None = None) -> int:
    """Write the page."""
    return command("the ImageNet page", Path("imagenet.html"), write, arguments)


if __name__ == "__main__":
    sys.exit(main())
