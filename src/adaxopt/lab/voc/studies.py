"""The segmentation studies by name, each one call: `adax reproduce voc/camvid`.

Runs are ordinary runs of the store, so a study that was cut goes on with the same call, from its last checkpoint, and
several processes share the work. What has ended is written as JSON lines (`adaxopt.lab.store.export`) whenever a call
ends, complete or not.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from adaxopt.lab import grid, store
from adaxopt.lab.data import default_root, fetch, resnet50
from adaxopt.lab.errors import unknown
from adaxopt.lab.grid import Grid
from adaxopt.lab.settings import Settings, choose_device
from adaxopt.lab.store import RunRecord
from adaxopt.lab.voc.book import NAMES, STUDIES

CHECKPOINT_SECONDS = 120.0
"""A checkpoint has three numbers a parameter, 300 MB."""
SCRATCH = "scratch"
PLACES = ("data", "weights")
"""Options that say where things lie on a machine; records do not."""


def find(name: str) -> Grid:
    """The study called `name`, with or without `voc/`."""
    short = name.removeprefix("voc/")
    if short not in STUDIES:
        raise unknown("study", name, NAMES)
    return STUDIES[short]


def run(
    name: str,
    out: str | Path = "runs",
    *,
    data: str = "",
    weights: str = "",
    record: str = "",
    device: str = "auto",
    threads: int = 1,
    seconds: float = 0.0,
    seeds: int = 0,
    **options: Any,
) -> Path | bool:
    """Carry out the study `name` as far as `seconds` (0: no limit) allow: the record's path, or False when more is to
    be done.

    `data` is a folder with CamVid, `weights` a file or folder with a ResNet-50's (default: where `adax data get` puts
    them; "scratch" takes none). `seeds` other than 0, and any option of the task (`steps=100`, `crop=161`),
    replace the study's own; such runs have another name, and are not taken for the study's.
    """
    study = find(name)
    changed = dict(options) | ({"seeds": seeds} if seeds and seeds != study.seeds else {})
    if changed:
        label = "-".join(f"{key}{value}" for key, value in sorted(changed.items()))
        study = replace(study, name=f"{study.name}-{_plain(label)}", seeds=seeds or study.seeds)
    places = {
        "data": data or str(default_root() / "camvid"),
        "weights": "" if weights == SCRATCH else weights or str(default_root() / resnet50.FOLDER),
    }
    study = replace(study, task_options={**study.task_options, **options, **places})
    settings = Settings(str(choose_device(device)), threads, CHECKPOINT_SECONDS)
    complete = _by_seed(study, out, settings, seconds)
    ended = [r for r in store.load_runs(Path(out) / study.name) if r.done]
    short = find(name).name.removeprefix("voc-")
    path = Path(record or f"records/voc/{short}.jsonl")
    if changed and not record:
        path = Path(out) / f"{study.name}.jsonl"
    store.export(bare(ended), path)
    if not complete:
        fetch.say(f"{study.name}: time is up, {len(ended)} runs ended; the same call goes on from here")
        return False
    return path


def _by_seed(study: Grid, out: str | Path, settings: Settings, seconds: float) -> bool:
    """All rows of the first seed, then of the second: a study that is cut short is balanced over its rows."""
    began = time.monotonic()
    for count in range(1, study.seeds + 1):
        left = seconds - (time.monotonic() - began) if seconds and math.isfinite(seconds) else 0.0
        if left < 0 or grid.carry_out(replace(study, seeds=count), out, settings, left, Once(count)) is None:
            return False
    return True


class Once(grid.Lines):
    """Tells of a run the first time that it is met."""

    def __init__(self, count: int) -> None:
        self.first = count == 1
        self.last = count - 1

    def finished(self, record: RunRecord) -> None:
        if self.first or (record.spec["purpose"] == "final" and record.spec["seed"] == self.last):
            super().finished(record)


def bare(records: Iterable[RunRecord]) -> list[RunRecord]:
    """The records without places: `weights` keeps its last name only, `data` nothing."""
    out = []
    for one in records:
        options = {k: v for k, v in one.spec["task_options"].items() if k not in PLACES}
        if one.spec["task_options"].get("weights"):
            options["weights"] = Path(one.spec["task_options"]["weights"]).name
        out.append(replace(one, spec={**one.spec, "task_options": options}))
    return out


def _plain(label: str) -> str:
    """A label of letters, digits, - _ and . for a folder's name."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in label)
