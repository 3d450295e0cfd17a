"""Studies of rows over several bookings: what has ended goes along as one file, without places, and is taken up again.

    OUT/STUDY.jsonl     the study's runs that have ended, a line a run; written now and then and at the end of a call
    --reuse FILE        puts the runs of such a file (or of a folder of them) into the store, as if they had been made
                        there; a file that lies at OUT/STUDY.jsonl already is taken up by itself

Runs made on other data or from other weights are refused, by the digest that each has in its environment. What the
study does not ask for is left out.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adaxlab import files, spec, store, task
from adaxlab.data.fetch import say
from adaxlab.errors import Busy, LabError
from adaxlab.store import RunFolder, RunRecord

if TYPE_CHECKING:
    from adaxlab.grid import Grid, Row

UNFINISHED = "unfinished"
"""The folder of records/ for runs of studies that are not complete."""
PLACES = ("data", "weights")
"""Options of a task that say where things lie on a machine; records do not."""
PAUSE = 20.0
"""Seconds between two writings of the file while a study runs."""


def data_digest(grid: Grid) -> str | None:
    """Which data the study has on this machine; None where the task cannot tell."""
    return task.data_digest(task.load(grid.task, grid.task_options)).get("data")


def _row_of(grid: Grid, given: Mapping[str, Any]) -> Row | None:
    """The row that a run is of; None where the study has no such row or seed."""
    if given.get("purpose") == "final" and given["seed"] not in range(grid.seeds):
        return None
    return next((row for row in grid.rows if row.optimizer == given["optimizer"]), None)


def asked_for(grid: Grid, runs: Iterable[RunRecord]) -> Iterator[RunRecord]:
    """Those of the runs that the study asks for, here and now: the same row, recipe, data's place and seed."""
    steps = {row.optimizer: grid.epoch_steps(row.task_options) for row in grid.rows}
    for run in runs:
        given = run.spec
        row = _row_of(grid, given)
        if row is None:
            continue
        try:
            how = {key: given[key] for key in ("seed", "purpose", "trial")}
            made = grid.spec(row, given["options"]["lr"], steps[row.optimizer], **how)
        except (LabError, LookupError, TypeError, ValueError, ArithmeticError):
            continue  # such a run cannot be asked for
        if spec.digest(made) == run.name:
            yield run


def _without_places(options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key not in PLACES}


def bare(records: Iterable[RunRecord]) -> list[RunRecord]:
    """The records without places: `weights` keeps its last name only, `data` nothing (its digest is in `env`)."""
    found = []
    for one in records:
        options = _without_places(one.spec["task_options"])
        if one.spec["task_options"].get("weights"):
            options["weights"] = Path(one.spec["task_options"]["weights"]).name
        found.append(replace(one, spec={**one.spec, "task_options": options}))
    return found


def hand_over(grid: Grid, out: Path | str, path: Path | str) -> int:
    """Write the runs that have ended to `path`, as `store.export` does; how many (0: nothing is written)."""
    folder = Path(out) / grid.name
    if not folder.is_dir():
        return 0
    ended = [run for run in store.load_runs(folder) if run.done]
    runs = {run.name: run for run in bare(asked_for(grid, ended))}
    if runs:
        store.export(runs.values(), path)
    return len(runs)


def take_over(grid: Grid, out: Path | str, path: Path | str, given: bool = True) -> int:
    """Put the runs of `path` that the study asks for into the store at `out`; how many it did not ask for.

    A run that the store has, or that another process is at, stays as it is. A file without any is an error; a folder
    may be of other studies. `given` is False for the file that lies in `out` itself.
    """
    what = f"reuse={path}" if given else f"{path}"
    way_out = "" if given else "; take another --out, or move that file away"
    if not Path(path).exists():
        raise LabError(f"{what}: no such file or folder; OUT/{grid.name}.jsonl of an earlier call is one")
    digest = data_digest(grid)
    places = {key: value for key, value in grid.task_options.items() if key in PLACES}
    runs = []
    for run in store.load_runs(path):
        if run.spec["study"] != grid.name or not run.done:
            continue
        made = run.env.get("data")
        if digest and made != digest:
            which = f"digest {str(made)[:12]}, here {digest[:12]}" if made else "no digest of theirs is known"
            raise LabError(f"{what}: holds runs on other data or from other weights ({which}){way_out}")
        options = {**_without_places(run.spec["task_options"]), **places}
        runs.append(replace(run, spec={**run.spec, "task_options": options}))
    wanted = list(asked_for(grid, runs))
    if given and not wanted and Path(path).is_file():
        raise LabError(f"{what}: holds no ended run that the study {grid.name} asks for")
    new = sum(_put(out, run) for run in wanted)
    left = len(runs) - len(wanted)
    rest = f"; {left} that the study does not ask for were left out" if left else ""
    if given or new or left:
        say(f"{grid.name}: {new} runs taken over from {path}, {len(wanted) - new} were there{rest}")
    return left


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
        self.grid, self.out = grid, out
        self.path = Path(out) / f"{grid.name}.jsonl"
        self.last = time.monotonic()
        if reuse:
            take_over(grid, out, reuse)
        # one that lies there was written by an earlier call, or brought; what is not taken from it is not lost
        if self.path.is_file() and take_over(grid, out, self.path, given=False):
            self.path.replace(self.path.with_suffix(".jsonl.old"))

    def now_and_then(self) -> None:
        if time.monotonic() - self.last > PAUSE:
            self.write()

    def write(self, path: Path | None = None) -> int:
        """Read the store and write the file, one process at a time: a slower one must not put an older list back."""
        self.last = time.monotonic()
        lock = Path(self.out) / f".{self.grid.name}.lock"
        lock.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(100):
            try:
                with files.locked(lock):
                    return hand_over(self.grid, self.out, path or self.path)
            except Busy:
                time.sleep(0.1)
        return hand_over(self.grid, self.out, path or self.path)


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


def made_at(places: Iterable[Mapping[str, Any]]) -> str:
    """`environments` in words, commits together.

    >>> made_at([{"device": "H200", "torch": "2.11", "runs": 3, "commit": c} for c in "ab"])
    '6 runs on H200, torch 2.11'
    """
    counts: dict[str, int] = {}
    for place in places:
        where = f"{place['device']}, torch {place['torch']}"
        counts[where] = counts.get(where, 0) + place["runs"]
    return "; ".join(f"{count} runs on {where}" for where, count in counts.items())


def _fits(grid: Grid, given: Mapping[str, Any]) -> bool:
    """Whether the study as it is now asks for such a run, as far as can be told without its data (`asked_for`)."""
    row = _row_of(grid, given)
    if row is None or given["epochs"] != grid.length(given["purpose"]):
        return False
    wanted = _without_places({**grid.task_options, **row.task_options})
    return _without_places(given["task_options"]) == json.loads(spec.canonical(wanted))


def not_complete(grid: Grid, root: Path, command: str) -> str:
    """What a page says of a study without a record; runs that ended meanwhile lie in records/unfinished/."""
    name = f"records/{UNFINISHED}/{grid.name}.jsonl"
    if not (root / name).is_file():
        return f"*Not run yet (`adax reproduce {command}`).*"
    ended = sum(_fits(grid, run.spec) for run in store.read_export(root / name))
    planned = len(grid.rows) * (grid.tune + grid.seeds)
    return (
        f"*Not complete: {ended} of {planned} runs have ended ([they](../{name})); nothing is said before all have. "
        f"`adax reproduce {command} --set reuse={name}` goes on from there.*"
    )
