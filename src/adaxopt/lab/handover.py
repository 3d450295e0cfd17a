"""Studies of rows over several bookings: what has ended goes along as one file, without places, and is taken up again.

    OUT/STUDY.jsonl     the study's runs that have ended, a line a run; written now and then and at the end of a call
    --reuse FILE        puts the runs of such a file (or of a folder of them) into the store, as if they had been made
                        there; a file that lies at OUT/STUDY.jsonl already is taken up by itself

Runs made on other data or from other weights are refused: `env.data` is the digest of the task's data, `weights` the
last name of the weights' place. What the study does not ask for is left out.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adaxopt.lab import files, spec, store, task
from adaxopt.lab.data.fetch import say
from adaxopt.lab.errors import Busy, LabError
from adaxopt.lab.store import RunFolder, RunRecord

if TYPE_CHECKING:
    from adaxopt.lab.grid import Grid

UNFINISHED = "unfinished"
"""The folder of records/ for runs of studies that are not complete."""
PLACES = ("data", "weights")
"""Options of a task that say where things lie on a machine; records do not."""
PAUSE = 20.0
"""Seconds between two writings of the file while a study runs."""


def data_digest(grid: Grid) -> str | None:
    """Which data the study has on this machine; None where the task cannot tell."""
    asked = getattr(task.load(grid.task, grid.task_options), "digest", None)
    return asked() if asked else None


def weights_name(options: Mapping[str, Any]) -> str:
    """The last name of the place of the weights; "" for none.

    >>> weights_name({"weights": "/data/resnet50-weights"}), weights_name({})
    ('resnet50-weights', '')
    """
    return Path(str(options.get("weights") or "")).name


def asked_for(grid: Grid, runs: Iterable[RunRecord]) -> Iterator[RunRecord]:
    """Those of the runs that the study asks for, here and now: the same row, recipe, data's place and seed."""
    rows = {row.optimizer: row for row in grid.rows}
    steps = {name: grid.steps(row.task_options) for name, row in rows.items()}
    for run in runs:
        name, given = run.spec["optimizer"], run.spec
        row = rows.get(name)
        if row is None or (given["purpose"] == "final" and given["seed"] >= grid.seeds):
            continue
        how = {key: given[key] for key in ("seed", "purpose", "trial")}
        if spec.digest(grid.spec(row, given["options"]["lr"], steps[name], **how)) == run.name:
            yield run


def bare(records: Iterable[RunRecord], digest: str | None = None) -> list[RunRecord]:
    """The records without places: `weights` keeps its last name only, `data` nothing but its digest."""
    found = []
    for one in records:
        options = {k: v for k, v in one.spec["task_options"].items() if k not in PLACES}
        if weights_name(one.spec["task_options"]):
            options["weights"] = weights_name(one.spec["task_options"])
        env = {**one.env, "data": digest} if digest else one.env
        found.append(replace(one, spec={**one.spec, "task_options": options}, env=env))
    return found


def hand_over(grid: Grid, out: Path | str, path: Path | str, digest: str | None) -> int:
    """Write the runs that have ended to `path`, as `store.export` does; how many (0: nothing is written)."""
    folder = Path(out) / grid.name
    if not folder.is_dir():
        return 0
    ended = [run for run in store.load_runs(folder) if run.done]
    runs = {run.name: run for run in bare(asked_for(grid, ended), digest)}
    if runs:
        store.export(runs.values(), path)
    return len(runs)


def take_over(grid: Grid, out: Path | str, path: Path | str, digest: str | None) -> int:
    """Put the runs of `path` that the study asks for into the store at `out`; how many of them it has now.

    A run that the store has, or that another process is at, stays as it is. A file without any is an error; a folder
    may be of other studies.
    """
    if not Path(path).exists():
        raise LabError(
            f"reuse={path}: no such file or folder; OUT/{grid.name}.jsonl of an earlier call is one"
        )
    mine = weights_name(grid.task_options)
    places = {key: value for key, value in grid.task_options.items() if key in PLACES}
    runs = []
    for run in store.load_runs(path):
        if run.spec["study"] != grid.name or not run.done:
            continue
        made, theirs = run.env.get("data"), weights_name(run.spec["task_options"])
        if made and digest and made != digest:
            raise LabError(f"reuse={path}: runs on other data (digest {made[:12]}, here {digest[:12]})")
        if theirs != mine:
            raise LabError(
                f"reuse={path}: runs from the weights {theirs or 'none'!r}, here {mine or 'none'!r}"
            )
        kept = {key: value for key, value in run.spec["task_options"].items() if key not in PLACES}
        runs.append(replace(run, spec={**run.spec, "task_options": {**kept, **places}}))
    wanted = list(asked_for(grid, runs))
    steps = {row.optimizer: grid.steps(row.task_options) for row in grid.rows}
    for run in wanted:
        if run.status == "finished" and (run.done or {}).get("steps") != steps[run.spec["optimizer"]]:
            raise LabError(
                f"reuse={path}: runs of {(run.done or {}).get('steps')} steps, here {steps[run.spec['optimizer']]}: "
                "they were made on other data"
            )
    if not wanted and Path(path).is_file():
        raise LabError(f"reuse={path}: holds no ended run that the study {grid.name} asks for")
    new = sum(_put(out, run) for run in wanted)
    say(f"{grid.name}: {new} runs taken over from {path}, {len(wanted) - new} were there")
    return len(wanted)


def _put(out: Path | str, run: RunRecord) -> bool:
    """Write the run's folder; False where it is there, or another process is at it."""
    folder = RunFolder(out, run.spec)
    try:
        with folder.lock():
            if folder.finished():
                return False
            files.write_json(folder.path / "env.json", run.env)
            lines = "".join(json.dumps(line) + "\n" for line in run.metrics)
            files.write(folder.path / "metrics.jsonl", lines.encode())
            folder.finish(dict(run.done or {}))
            return True
    except Busy:
        return False


class Clerk:
    """Keeps OUT/STUDY.jsonl while a study runs: takes up what lies there or is named, and writes what has ended."""

    def __init__(self, grid: Grid, out: Path | str, reuse: str = "") -> None:
        self.grid, self.out, self.digest = grid, out, data_digest(grid)
        self.path = Path(out) / f"{grid.name}.jsonl"
        self.last = time.monotonic()
        if reuse:
            take_over(grid, out, reuse, self.digest)
        if self.path.is_file():  # written by an earlier call, or brought here
            take_over(grid, out, self.path, self.digest)

    def now_and_then(self) -> None:
        if time.monotonic() - self.last > PAUSE:
            self.write()

    def write(self, path: Path | None = None) -> int:
        count = hand_over(self.grid, self.out, path or self.path, self.digest)
        self.last = time.monotonic()
        return count


def environments(runs: Iterable[RunRecord]) -> list[dict[str, Any]]:
    """Where the runs were made: version, torch, device and commit, with the number of runs."""
    counts: dict[str, int] = {}
    for run in runs:
        versions, hardware = run.env.get("versions", {}), run.env.get("hardware", {})
        where = {
            "adaxopt": versions.get("adaxopt"),
            "torch": versions.get("torch"),
            "device": hardware.get("device"),
            "commit": run.env.get("commit"),
        }
        key = spec.canonical(where)
        counts[key] = counts.get(key, 0) + 1
    return [{**json.loads(key), "runs": count} for key, count in sorted(counts.items())]


def not_complete(grid: Grid, root: Path, command: str) -> str:
    """What a page says of a study without a record; runs that ended meanwhile lie in records/unfinished/."""
    name = f"records/{UNFINISHED}/{grid.name}.jsonl"
    if not (root / name).is_file():
        return f"*Not run yet (`adax reproduce {command}`).*"
    ended, planned = len(store.read_export(root / name)), len(grid.rows) * (grid.tune + grid.seeds)
    return (
        f"*Not complete: {ended} of {planned} runs have ended ([they](../{name})); nothing is said before all have. "
        f"`adax reproduce {command} --set reuse={name}` goes on from there.*"
    )
