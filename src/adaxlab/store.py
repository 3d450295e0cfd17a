"""The run store: `runs/<study>/<hash>/` holds one run. Tables, verdicts and reports are functions of its contents.

    spec.json      the specification (its hash names the folder)  metrics.jsonl  one line per evaluation
    env.json       versions, hardware, commit, time               done.json      how it ended
    checkpoint.pt  while it runs                                  error.txt      why it failed: the reason in a
    .lock          held by the process that writes                               line, then the traceback
    row-*.json     the labels of another row of the study that uses this run

A folder that is damaged or not a run is reported by its path and not changed.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from adaxlab import files, run_faults
from adaxlab.errors import LabError, StoreError
from adaxlab.spec import SCHEMA, digest, folder, identity, without_places

EXPORT = "adaxopt-runs"
ERROR = "error.txt"


class StoreWarning(UserWarning):
    """A folder in the store could not be read; the message has its path."""


@dataclass(frozen=True)
class RunRecord:
    """One run as data. `done` is None while the run is unfinished. `path` is where it was read, and is ignored by
    comparisons."""

    spec: dict[str, Any]
    env: dict[str, Any]
    metrics: list[dict[str, Any]]
    done: dict[str, Any] | None
    path: Path = field(compare=False)
    error: str = field(default="", compare=False)
    """Why the run failed, in one line. The same command tries it again."""

    @property
    def name(self) -> str:
        return digest(self.spec)

    @property
    def row(self) -> str:
        """The name of the study's row to which the run belongs."""
        return self.spec["row"]

    @property
    def status(self) -> str:
        """'finished', 'diverged', 'failed' (its task or optimizer raised) or 'unfinished'."""
        if self.done:
            return self.done["status"]
        return "failed" if self.error else "unfinished"


class RunFolder:
    """The folder of one run, for the process that writes it (inside `with folder.lock()`)."""

    def __init__(self, root: Path | str, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.path = Path(root) / folder(spec["study"]) / digest(spec)
        self.checkpoint = self.path / "checkpoint.pt"
        self.error = self.path / ERROR

    def finished(self) -> bool:
        return (self.path / "done.json").exists()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the run: create its folder if needed, check that it belongs to this run, remove partly written files."""
        files.make_folder(self.path)
        self._check()
        with files.locked(self.path / ".lock"):
            self._check()
            for left in self.path.glob(f"*{files.TEMPORARY}"):
                left.unlink(missing_ok=True)
            if not (self.path / "spec.json").exists():
                files.write_json(self.path / "spec.json", self.spec)
            yield

    def _check(self) -> None:
        if (self.path / "spec.json").exists():
            if identity(read_spec(self.path)) != identity(self.spec):
                raise StoreError(
                    f"{self.path}: holds another specification; left untouched, move it away to continue"
                )
            return
        foreign = [p.name for p in self.path.iterdir() if p.name != ".lock" and p.suffix != files.TEMPORARY]
        if foreign:
            raise StoreError(
                f"{self.path}: not a run folder (has {foreign[0]}, no spec.json); left untouched, move it away to "
                "continue"
            )

    def begin(self, env: dict[str, Any]) -> dict[str, Any]:
        """The environment in which the run started: the recorded one if there is a checkpoint, else this one. The kind
        of device must not change."""
        self.error.unlink(missing_ok=True)
        path = self.path / "env.json"
        if not (path.exists() and self.checkpoint.exists()):
            files.write_json(path, env)
            return env
        found = files.read_json(path)
        if found.get("device", env["device"]).partition(":")[0] != env["device"].partition(":")[0]:
            raise LabError(
                f"run {self.path} was started on {found['device']}; resume with --device {found['device']}"
            )
        return found

    def metrics(self, keep: int) -> files.Appender:
        """The metrics file, truncated to the first `keep` bytes."""
        return files.Appender(self.path / "metrics.jsonl", keep)

    def write_metrics(self, lines: Iterable[dict[str, Any]]) -> None:
        """Write all lines of the metrics file at once."""
        text = "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines)
        files.write(self.path / "metrics.jsonl", text.encode())

    def finish(self, done: dict[str, Any]) -> None:
        """The last write: marks the run as finished; its checkpoint is no longer needed."""
        files.write_json(self.path / "done.json", done)
        self.checkpoint.unlink(missing_ok=True)
        self.error.unlink(missing_ok=True)

    def fail(self, reason: str, trace: str) -> None:
        """Record why the run failed. It is not finished, and the same command tries it again."""
        files.write(self.error, f"{reason}\n\n{trace}".encode())

    def put(self, env: dict[str, Any], metrics: Iterable[dict[str, Any]], done: dict[str, Any]) -> bool:
        """Write a run that ended elsewhere; return False if this store already has it."""
        with self.lock():
            new = not self.finished()
            if new:
                self.fill(env, metrics, done)
            self.record()
            return new

    def fill(self, env: dict[str, Any], metrics: Iterable[dict[str, Any]], done: dict[str, Any]) -> None:
        """Write all files of a run that ended (inside `with folder.lock()`)."""
        self.checkpoint.unlink(missing_ok=True)
        files.write_json(self.path / "env.json", env)
        self.write_metrics(metrics)
        self.finish(done)

    def borrow(self) -> bool:
        """Copy the run from another study of the same store, if one has it."""
        if self.finished():
            return True
        for found in sorted(self.path.parent.parent.glob(f"*/{self.path.name}/done.json")):
            run = read_run(found.parent)
            if run.done:
                self.put({**run.env, "made_for": run.spec["study"]}, run.metrics, run.done)
                return True
        return False

    def record(self) -> RunRecord:
        """The run as data, with the labels of this study's row. If another row has made it, the folder keeps them, so
        that the store has the run for both."""
        run = read_run(self.path)
        if run.row != self.spec["row"] and run.spec["study"] == self.spec["study"]:
            place = self.path / f"row-{hashlib.sha256(self.spec['row'].encode()).hexdigest()[:8]}.json"
            if not place.exists():
                files.write_json(place, {"row": self.spec["row"], "trial": self.spec["trial"]})
        return replace(run, spec=self.spec)


def read_spec(path: Path) -> dict[str, Any]:
    """The specification in a run folder. Raises unless it is complete, of this schema, and its hash is the folder's
    name."""
    spec = files.read_json(path / "spec.json")
    version = spec.get("schema") if isinstance(spec, dict) else None
    if version != SCHEMA:
        raise StoreError(
            f"{path}: run folder of schema {version!r}, this version reads {SCHEMA}; left untouched, "
            "use the adaxopt that wrote it or another --out"
        )
    if fault := run_faults.spec_fault(spec):
        raise _damaged(path / "spec.json", fault)
    if digest(spec) != path.name:
        raise StoreError(f"{path}: spec.json was changed (its hash is {digest(spec)}); left untouched")
    return spec


def _damaged(path: Path, fault: str) -> StoreError:
    return StoreError(f"{path}: {fault} (damaged?); left untouched, move the folder away to run it again")


def read_run(path: Path) -> RunRecord:
    """Read the run in a folder. Raises StoreError with the path if it is damaged, of another version or not a run."""
    path = Path(path)
    if not (path / "spec.json").is_file():
        raise StoreError(f"{path}: not a run folder (no spec.json); left untouched")
    spec = read_spec(path)
    env = files.read_json(path / "env.json") if (path / "env.json").exists() else {}
    if not isinstance(env, dict):
        raise _damaged(path / "env.json", "is not an object")
    ended = (path / "done.json").exists()
    done = files.read_json(path / "done.json") if ended else None
    if ended and (fault := run_faults.done_fault(done)):
        raise _damaged(path / "done.json", fault)
    metrics = _read_metrics(path / "metrics.jsonl", whole=ended)
    if fault := run_faults.metrics_fault(metrics) or run_faults.whole_fault(metrics, done):
        raise _damaged(path / "metrics.jsonl", fault)
    return RunRecord(spec, env, metrics, done, path, "" if done else _reason(path / ERROR))


def read_rows(path: Path) -> list[RunRecord]:
    """The run in a folder, once for each row of the study that uses it."""
    run = read_run(path)
    labels = [files.read_json(file) for file in sorted(path.glob("row-*.json"))]
    if not all(isinstance(each, dict) and isinstance(each.get("row"), str) for each in labels):
        raise _damaged(path / "row-*.json", "has no row")
    return [run, *(replace(run, spec={**run.spec, **each}) for each in labels)]


def _reason(path: Path) -> str:
    """The first line of a run's error file; empty if there is none."""
    if not path.exists():
        return ""
    lines = files.read(path).decode(errors="replace").splitlines()
    return lines[0] if lines else "unknown error"


def _read_metrics(path: Path, whole: bool) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    lines = files.read(path).split(b"\n")
    if lines[-1] and whole:
        raise _damaged(path, "its last line is cut off")
    try:
        return [files.loads(line) for line in lines[:-1]]
    except ValueError as error:
        raise _damaged(path, "has a line that is not JSON") from error


def _warn(problem: StoreError) -> None:
    warnings.warn(str(problem), StoreWarning, stacklevel=3)


def load_runs(path: Path | str, on_problem: Callable[[StoreError], None] = _warn) -> list[RunRecord]:
    """Every run under `path`: a store, a study, one run folder, an exported file, or a folder of exported
    files.

    A damaged folder, or one that is not a run, is passed to `on_problem` (a StoreWarning by default) and not changed.
    """
    path = Path(path)
    try:
        return _load(path, on_problem)
    except OSError as error:
        raise StoreError(f"{error.filename or path}: cannot be read: {error.strerror}") from error


def _load(path: Path, on_problem: Callable[[StoreError], None]) -> list[RunRecord]:
    if not path.exists():
        raise StoreError(
            f"{path}: no such file or folder; runs are written by `adax compare` and `adax demo`"
        )
    if not path.is_dir():
        return _once(read_export(path))
    if (path / "spec.json").exists():
        return read_rows(path)
    records: list[RunRecord] = []
    for file in sorted(path.glob("*.jsonl")):
        if _is_export(file) and not file.with_suffix("").is_dir():  # a study's own runs are in its folder
            records += read_export(file)
    records = _once(records)
    for place in run_folders(path):
        try:
            records += read_rows(place)
        except StoreError as problem:
            on_problem(problem)
    return records


def _once(records: Iterable[RunRecord]) -> list[RunRecord]:
    """Each run once, the one that has ended if there is one: the exported files of a folder may overlap."""
    found: dict[tuple[str, str, str], RunRecord] = {}
    for run in records:
        key = run.spec["study"], run.name, run.row
        if key not in found or (run.done and not found[key].done):
            found[key] = run
    return list(found.values())


def run_folders(path: Path) -> Iterator[Path]:
    """Folders that should each be a run, including folders that are neither a run nor a study, to be reported."""
    if _is_study(path):
        yield from _folders(path)
        return
    records = any(_is_export(file) for file in path.glob("*.jsonl"))
    for child in _folders(path):
        if _is_study(child):
            yield from _folders(child)
        elif not records:
            yield child


def _folders(path: Path) -> list[Path]:
    """The folders in `path` that may be runs or studies, or contain foreign files.

    A new run briefly has only its lock; `x` with `x.json` inside is a record of `adax reproduce`.
    """
    children = (child for child in path.iterdir() if child.is_dir() and not child.name.startswith("."))
    filled = (child for child in children if any(p.name != ".lock" for p in child.iterdir()))
    return sorted(child for child in filled if not (child / f"{child.name}.json").exists())


def _is_study(path: Path) -> bool:
    return (path / "study.json").exists() or any((child / "spec.json").exists() for child in _folders(path))


def export(records: Iterable[RunRecord], path: Path | str) -> Path:
    """Write records to one file, in the form of `exported`."""
    path = Path(path)
    files.put(path, exported(records).encode())
    return path


def exported(records: Iterable[RunRecord]) -> str:
    """Records as JSON lines (a header, then one run per line), sorted, so that equal runs give equal bytes. Metrics are
    stored as columns; paths on this machine are omitted."""
    chosen = sorted(records, key=lambda r: (r.spec["study"], r.name, r.row))
    lines = [json.dumps({"kind": EXPORT, "schema": SCHEMA, "runs": len(chosen)})]
    lines += [
        json.dumps(
            {
                "path": f"{folder(r.spec['study'])}/{r.name}",
                "spec": _portable(r.spec),
                "env": r.env,
                "metrics": _columns(r.metrics),
                "done": r.done,
                **({"error": r.error} if r.error else {}),
            },
            allow_nan=False,
        )
        for r in chosen
    ]
    return "\n".join(lines) + "\n"


def bring(path: Path | str, root: Path | str) -> int:
    """Import the ended runs of a store or an exported file into the store at `root`; return how many were new.

    A study can thus be resumed on another machine: run names do not depend on the location of the data.
    """
    ended = [run for run in load_runs(path) if run.done]
    return sum(RunFolder(root, run.spec).put(run.env, run.metrics, run.done) for run in ended if run.done)


def _columns(metrics: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Lines of metrics as columns, which take a third of the size; None if a line has no such key.

    >>> _columns([{"step": 1, "metric": 0.5}, {"step": 2, "metric": 0.6}])
    {'step': [1, 2], 'metric': [0.5, 0.6]}
    """
    keys = dict.fromkeys(key for line in metrics for key in line)
    return {key: [line.get(key) for line in metrics] for key in keys}


def _lines(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """The inverse of `_columns`."""
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _portable(spec: dict[str, Any]) -> dict[str, Any]:
    """The specification without paths on this machine, if the data have a digest."""
    return {**spec, "task_options": without_places(spec["task_options"])} if "data" in spec else spec


def _is_export(path: Path) -> bool:
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return EXPORT.encode() in file.readline()


def _sound(run: RunRecord) -> bool:
    """Whether a run that was read is valid: its hash is correct, and every part has the right type."""
    return (
        run.spec["schema"] == SCHEMA
        and not run_faults.spec_fault(run.spec)
        and run.name == run.path.name
        and isinstance(run.env, dict)
        and not run_faults.metrics_fault(run.metrics)
        and (run.done is None or not run_faults.done_fault(run.done))
        and not run_faults.whole_fault(run.metrics, run.done)
    )


def read_export(path: Path | str) -> list[RunRecord]:
    """Read the records that `export` wrote. Raises StoreError with the path if the file is not an export or was
    changed."""
    path = Path(path)
    try:
        header, *rows = [files.loads(line) for line in files.read(path).splitlines()]
        if header.get("kind") != EXPORT:
            raise StoreError(f"{path}: not a file of exported runs")
        if header["schema"] != SCHEMA:
            raise StoreError(
                f"{path}: exported runs of schema {header['schema']!r}, this version reads {SCHEMA}"
            )
        if header["runs"] != len(rows):
            raise StoreError(f"{path}: says {header['runs']} runs and has {len(rows)} (damaged?)")
        found = [
            RunRecord(
                r["spec"], r["env"], _lines(r["metrics"]), r["done"], Path(r["path"]), str(r.get("error", ""))
            )
            for r in rows
        ]
        for run in found:
            if not _sound(run):
                raise StoreError(f"{path}: the run {run.path} was changed (or damaged)")
        return found
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{path}: not a file of exported runs (or damaged)") from error
