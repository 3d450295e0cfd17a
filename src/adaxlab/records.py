"""Load the committed records of a study, from which tables, figures and verdicts are computed.

records/STUDY.jsonl        the runs of a study, written by `store.export`
records/FAMILY/speed.json  milliseconds per step in alternating rounds; each round becomes a run record whose seed is
                           the number of the round
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from adaxlab import store
from adaxlab.store import RunRecord

FOLDER = Path("records")


def load(root: Path, study: str) -> list[RunRecord]:
    """Return the runs of a study such as `cifar10/table2` that have ended; an empty list if it was not run."""
    path = root / f"{study}.jsonl"
    if path.stem == "speed":
        return list(_rounds(path.with_suffix(".json"), study))
    if not path.is_file():
        return []
    return store.read_export(path)


def _rounds(path: Path, study: str) -> Iterator[RunRecord]:
    record = json.loads(path.read_text()) if path.is_file() else {}
    env = {"commit": record.get("environment", {}).get("commit")}
    record = record.get("in_turn", record)
    times = record.get("ms", {}) if record.get("study", "tiny") == "tiny" else {}  # the claim is about `tiny`
    for row, each in times.items():
        for round, ms in enumerate(each):
            spec = {"study": study, "row": row, "optimizer": row, "seed": round, "purpose": "final"}
            yield RunRecord(spec, env, [], {"status": "finished", "step_ms": ms}, path)
