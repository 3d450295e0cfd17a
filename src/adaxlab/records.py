"""The committed records of a study as run records: what the judge reads.

records/FAMILY/STUDY.jsonl is a file of `store.export`, or (CIFAR-10) has a line of its own kind for each run;
records/FAMILY/speed.json has milliseconds of a step, a round for each method
in turn, and gives a record for each round, whose number is its seed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from adaxlab import store
from adaxlab.store import RunRecord

FLOORS = {"cifar10": 15.0}
"""A final accuracy in percent that is no more than this is a run that failed: little more than chance."""
FOLDER = Path("records")
Line = Mapping[str, Any]


def failed(line: Line, family: str) -> bool:
    """Whether a line tells of a run that diverged: a loss that is not finite, or an accuracy at the floor."""
    return None in line["curve"]["train_loss"] or line["test_accuracy"] <= FLOORS[family]


def load(root: Path, study: str) -> list[RunRecord]:
    """The runs of a study that have ended, such as `cifar10/table2`; none if it was not run."""
    path = root / f"{study}.jsonl"
    if path.stem == "speed":
        return list(_rounds(path.with_suffix(".json"), study))
    if not path.is_file():
        return []
    text = path.read_text()  # a last line that was cut off is none
    if store.EXPORT in text.partition("\n")[0]:
        return store.read_export(path)
    return [_run(json.loads(line), study) for line in text[: text.rfind("\n") + 1].splitlines()]


def _run(line: Line, study: str) -> RunRecord:
    """A line as a run; accuracies become shares of 1."""
    recipe, curve = line["recipe"], line["curve"]
    epochs, lost = recipe["epochs"], failed(line, study.partition("/")[0])
    steps = line.get("steps") or epochs * math.ceil(line["images"] / recipe["batch"])
    spec = {key: line[key] for key in ("row", "optimizer", "options", "seed")}
    spec |= {"study": study, "purpose": "tune" if line["study"] == "tuning" else "final"}
    spec |= {"epochs": epochs, "batch_size": recipe["batch"], "recipe": recipe}
    metrics = [
        {
            "step": steps * epoch // epochs,
            "epoch": epoch,
            "train_loss": loss,
            "train_metric": _share(trained),
            "metric": _share(tested),
            "seconds": round(line["seconds"] * epoch / epochs, 2),
        }
        for epoch, (loss, trained, tested) in enumerate(
            zip(curve["train_loss"], curve["train_accuracy"], curve["test_accuracy"], strict=True), 1
        )
    ]
    done = {
        "status": "diverged" if lost else "finished",
        "metric": None if lost else _share(line["test_accuracy"]),
        "metric_name": "accuracy",
        "higher_is_better": True,
        "steps": steps,
        "seconds": line["seconds"],
        "train_loss": line["train_loss"],
        **{key: line[key] for key in ("trace", "together", "epoch_seconds", "same_run_as") if key in line},
    }
    place = Path(study) / f"{line['row']}-{line['seed']}"
    return RunRecord(spec, dict(line.get("environment", {})), metrics, done, place)


def _share(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def _rounds(path: Path, study: str) -> Iterator[RunRecord]:
    record = json.loads(path.read_text()) if path.is_file() else {}
    record = record.get("in_turn", record)
    times = record.get("ms", {}) if record.get("study", "tiny") == "tiny" else {}  # the claim is about `tiny`
    for row, each in times.items():
        for round, ms in enumerate(each):
            spec = {"study": study, "row": row, "optimizer": row, "seed": round, "purpose": "final"}
            yield RunRecord(spec, {}, [], {"status": "finished", "step_ms": ms}, path)
