"""Runs that go from one machine to another: what has ended as JSON lines, without places, and back into a store.

A study that is cut short on one machine goes on upon another: `--reuse FILE` puts the runs of the file into the store
as if they had been made there, under the places (data, weights) of that machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from adaxopt.lab import files, store
from adaxopt.lab.errors import LabError
from adaxopt.lab.store import RunFolder, RunRecord

UNFINISHED = "unfinished"
"""The folder of records/ for runs of studies that are not complete."""
PLACES = ("data", "weights")
"""Options of a task that say where things lie on a machine; records do not."""


def ended(out: Path | str, study: str) -> list[RunRecord]:
    """The runs of `study` in the store at `out` that have ended."""
    folder = Path(out) / study
    return [run for run in store.load_runs(folder) if run.done] if folder.is_dir() else []


def bare(records: Iterable[RunRecord]) -> list[RunRecord]:
    """The records without places: `weights` keeps its last name only, `data` nothing."""
    found = []
    for one in records:
        options = {k: v for k, v in one.spec["task_options"].items() if k not in PLACES}
        if one.spec["task_options"].get("weights"):
            options["weights"] = Path(one.spec["task_options"]["weights"]).name
        found.append(replace(one, spec={**one.spec, "task_options": options}))
    return found


def hand_over(out: Path | str, study: str, path: Path | str) -> int:
    """Write what has ended to `path`, as `store.export` does; the number of runs (0: nothing is written)."""
    runs = ended(out, study)
    if runs:
        store.export(bare(runs), path)
    return len(runs)


def take_over(path: Path | str, out: Path | str, studies: Mapping[str, Mapping[str, Any]]) -> int:
    """Put the ended runs of the file (or folder of files) `path` into the store at `out`; how many they are.

    `studies` has the task's options of each study on this machine. A run that the store has already stays as it is.
    """
    runs = [run for run in store.load_runs(path) if run.done and run.spec["study"] in studies]
    if not runs:
        raise LabError(f"reuse={path}: holds no ended run of {', '.join(studies)}")
    for run in runs:
        places = {key: value for key, value in studies[run.spec["study"]].items() if key in PLACES}
        kept = {key: value for key, value in run.spec["task_options"].items() if key not in PLACES}
        folder = RunFolder(out, {**run.spec, "task_options": {**kept, **places}})
        with folder.lock():
            if folder.finished():
                continue
            files.write_json(folder.path / "env.json", run.env)
            lines = "".join(json.dumps(line) + "\n" for line in run.metrics)
            files.write(folder.path / "metrics.jsonl", lines.encode())
            folder.finish(dict(run.done or {}))
    return len(runs)
