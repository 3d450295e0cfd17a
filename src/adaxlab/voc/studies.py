"""The segmentation studies by name, each one call: `adax reproduce voc/camvid`.

Runs are ordinary runs of the store, so a study that was cut goes on with the same call, from its last checkpoint, and
several processes share the work. What has ended is written as JSON lines (`adaxlab.store.export`) whenever a call
ends, complete or not.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from adaxlab import grid, handover
from adaxlab.data import default_root, fetch, resnet50
from adaxlab.errors import LabError, unknown
from adaxlab.grid import Grid
from adaxlab.settings import Settings, choose_device
from adaxlab.store import RunRecord
from adaxlab.voc.book import NAMES, STUDIES

CHECKPOINT_SECONDS = 120.0
"""A checkpoint has three numbers a parameter, 300 MB."""
SCRATCH = "scratch"


def find(name: str) -> Grid:
    """The study called `name`, with or without `voc/`."""
    short = name.removeprefix("voc/")
    if short not in STUDIES:
        raise unknown("study", name, NAMES)
    return STUDIES[short]


def run(
    name: str | Sequence[str],
    out: str | Path = "runs",
    *,
    data: str = "",
    weights: str = "",
    record: str = "",
    device: str = "auto",
    threads: int = 1,
    seconds: float = 0.0,
    seeds: int = 0,
    reuse: str = "",
    **options: Any,
) -> Path | bool:
    """Carry out the study `name` as far as `seconds` (0: no limit) allow: the record's path, or False when more is to
    be done. Several names are several studies, one after the other; the path is the last one's.

    What has ended is in `out`/voc-<study>.jsonl, complete or not; `reuse` is such a file, or a folder of them, from
    elsewhere, to go on from. A study that is complete is written to `record` as well, in which `{}` stands for its
    name. `data` is a folder with CamVid, `weights` a file or folder with a ResNet-50's (default: where `adax data get`
    puts them; "scratch" takes none); a run that is to go on must find both under the same names. `seeds` other than 0,
    and any option of the task (`steps=100`, `crop=161`), replace the study's own; such runs have another name, and are
    not taken for the study's.
    """
    began = time.monotonic()
    names = list(dict.fromkeys([name] if isinstance(name, str) else name))
    grids = [find(one) for one in names]
    if not grids:
        raise LabError("no study is named; known are " + ", ".join(NAMES))
    if record and "{}" not in record and len(grids) > 1:
        raise LabError(
            f"record={record}: {len(grids)} studies have a record each; write {{}} where the name goes, such as "
            "records/voc/{}.jsonl"
        )
    if len(grids) > 1 and Path(reuse).is_file():
        raise LabError(f"reuse={reuse}: is of one study, {len(grids)} are named; give a folder of such files")
    settings = Settings(str(choose_device(device)), threads, CHECKPOINT_SECONDS)
    end = began + seconds if seconds else math.inf
    for study in grids:
        study = _placed(_changed(study, seeds, options), data, weights)
        clerk = handover.Clerk(study, out, reuse)
        try:
            complete = _by_seed(study, out, settings, end, clerk)
        finally:
            ended = clerk.write()
        if not complete:
            fetch.say(f"{study.name}: time is up, {ended} runs ended; the same call goes on from here")
            return False
        path = clerk.path
        if record:
            path = Path(record.replace("{}", study.name.removeprefix("voc-")))
            clerk.write(path)
    return path


def _changed(study: Grid, seeds: int, options: Mapping[str, Any]) -> Grid:
    """The study with other values than its own, and a name that says so."""
    changed = dict(options) | ({"seeds": seeds} if seeds and seeds != study.seeds else {})
    if not changed:
        return study
    label = "-".join(f"{key}{value}" for key, value in sorted(changed.items()))
    return replace(
        study,
        name=f"{study.name}-{_plain(label)}",
        seeds=seeds or study.seeds,
        task_options={**study.task_options, **options},
    )


def _placed(study: Grid, data: str, weights: str) -> Grid:
    """The study with the places of its pictures and weights on this machine."""
    places = {
        "data": data or str(default_root() / "camvid"),
        "weights": "" if weights == SCRATCH else weights or str(default_root() / resnet50.FOLDER),
    }
    return replace(study, task_options={**study.task_options, **places})


def _by_seed(study: Grid, out: str | Path, settings: Settings, end: float, clerk: handover.Clerk) -> bool:
    """All rows of the first seed, then of the second: a study that is cut short is balanced over its rows.

    False when it was `end` (of the monotonic clock) before all were done.
    """
    study.epoch_steps({})  # pictures are decoded before the time that is left is looked at
    for count in range(1, study.seeds + 1):
        left = end - time.monotonic()
        if left <= 0:
            return False
        limit = left if math.isfinite(left) else 0.0
        if grid.carry_out(replace(study, seeds=count), out, settings, limit, Once(count, clerk)) is None:
            return False
    return True


class Once(grid.Lines):
    """Tells of a run the first time that it is met."""

    def __init__(self, count: int, clerk: handover.Clerk) -> None:
        super().__init__(clerk)
        self.first = count == 1
        self.last = count - 1

    def finished(self, record: RunRecord) -> None:
        if self.first or (record.spec["purpose"] == "final" and record.spec["seed"] == self.last):
            super().finished(record)


def _plain(label: str) -> str:
    """A label of letters, digits, - _ and . for a folder's name."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in label)
