"""Validation of the parts of a stored run. Files can be edited, truncated or written by other programs; an invalid part
is reported here, before it is used."""

from __future__ import annotations

import math
from typing import Any

PURPOSES = ("tune", "final")
ENDS = ("finished", "diverged")
SPEC: dict[str, type] = {
    "study": str,
    "row": str,
    "task": str,
    "task_options": dict,
    "optimizer": str,
    "options": dict,
    "schedule": dict,
    "epochs": int,
    "batch_size": int,
    "seed": int,
}


def number(value: Any) -> bool:
    """Whether the value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def spec_fault(spec: Any) -> str:
    """What is wrong with a specification, in a few words; empty if nothing is."""
    if not isinstance(spec, dict):
        return "is not a specification"
    for key, kind in SPEC.items():
        if key not in spec:
            return f"has no {key}"
        if not isinstance(spec[key], kind) or isinstance(spec[key], bool):
            return f"has a {key} of the wrong kind"
    if spec.get("purpose") not in PURPOSES:
        return "has no purpose"
    return "" if number(spec["options"].get("lr")) else "has no lr"


def metrics_fault(lines: Any) -> str:
    """What is wrong with the lines of metrics."""
    for at, line in enumerate(lines, 1):
        if not isinstance(line, dict):
            return f"line {at} is not an object"
        for key in ("step", "metric"):
            if not number(line.get(key)):
                return f"line {at} has no {key}"
        if line.get("train_loss") is not None and not number(line["train_loss"]):
            return f"line {at} has a train_loss that is not a number"
    return ""


def done_fault(done: Any) -> str:
    """What is wrong with how the run ended."""
    if not isinstance(done, dict) or done.get("status") not in ENDS:
        return "has no status"
    if done["status"] == "finished" and not number(done.get("metric")):
        return "has no metric"
    for key, fits in {"metric_name": str, "higher_is_better": bool}.items():
        if not isinstance(done.get(key), fits):
            return f"has no {key}"
    for key in ("seconds", "steps"):
        if not number(done.get(key)):
            return f"has no {key}"
    return ""


def whole_fault(metrics: list[Any], done: dict[str, Any] | None) -> str:
    """What is missing from a run that says it is finished."""
    return (
        "is empty though the run is finished" if done and done["status"] == "finished" and not metrics else ""
    )
