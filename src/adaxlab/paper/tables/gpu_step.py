"""The records of a step's time on a GPU as one, for the tables of docs/speed.md and their figure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def read(records: Path) -> dict[str, Any] | None:
    """gpu_step.json; a model that gpu_step_resnet20.json has too, measured in more rounds, is taken from there.

    None where nothing was measured. ResNet-20's step is a twentieth of a millisecond of host time, which scatters.
    """
    main, more = records / "gpu_step.json", records / "gpu_step_resnet20.json"
    if not main.is_file():
        return None
    record = json.loads(main.read_text())
    again = json.loads(more.read_text())["rows"] if more.is_file() else []
    twice = {row["model"] for row in again}
    rows = []
    for model in dict.fromkeys(row["model"] for row in record["rows"]):
        rows += [row for row in (again if model in twice else record["rows"]) if row["model"] == model]
    return {**record, "rows": rows}


def since(record: Mapping[str, Any]) -> str:
    """What has changed in the code since the record was made, from the record's note."""
    return f" Changed since these measurements: {record['since']}." if record.get("since") else ""


def spread(row: dict[str, Any]) -> str:
    """Milliseconds, and between which quartiles."""
    return f"{row['ms']:.3f} ({row['low']:.3f} to {row['high']:.3f})"
