"""Carry a study out run by run, over as many bookings of a machine as it takes.

Each finished run is one JSON line at once. The run that is unfinished when the time is up, or when the process dies,
is a checkpoint, and the same call goes on from it. A run that another study of the same folder has made with the same
settings is copied, not repeated. Runs at an lr that the study they follow no longer chooses are set aside. The first
process decides what is to be done: it alone writes, so it alone knows.
"""

from __future__ import annotations

import io
import json
import math
import os
import platform
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from adaxlab import environment, files
from adaxlab.cifar.stack import Run
from adaxlab.errors import Busy, LabError, StoreError
from adaxlab.imagenet.book import Study
from adaxlab.imagenet.feed import Feed
from adaxlab.imagenet.lines import records
from adaxlab.imagenet.ranks import Ranks
from adaxlab.imagenet.recipe import Recipe
from adaxlab.imagenet.train import Training

Say = Callable[[str], None]
MARGIN = 8.0
"""Seconds kept back at the end, for the checkpoint."""


@dataclass(frozen=True)
class Data:
    """What is trained on and what is tested on."""

    train: Feed
    test: Feed
    classes: int
    digest: str


@dataclass(frozen=True)
class How:
    """How runs are carried out; None: channels_last on a GPU, a CUDA graph on one GPU."""

    precision: str = "bf16"
    channels_last: bool | None = None
    graph: bool | None = None
    checkpoint_seconds: float = 60.0
    compiled: bool = False
    """The network by torch.compile: a minute to begin with, then fewer passes over memory."""

    def begin(self, run: Run, data: Data, recipe: Recipe, ranks: Ranks) -> Training:
        """The run at its beginning."""
        return Training(
            run,
            recipe,
            data.train,
            data.test,
            data.classes,
            ranks,
            precision=self.precision,
            channels_last=self.channels_last,
            graph=self.graph,
            compiled=self.compiled,
            digest=data.digest,
        )


def now() -> float:
    """The clock by which the time of a call is counted."""
    return time.monotonic()


def carry_out(
    study: Study,
    data: Data,
    out: Path,
    ranks: Ranks,
    how: How,
    *,
    seconds: float = math.inf,
    began: float | None = None,
    tell: Say = lambda text: None,
) -> bool:
    """Run what `out` does not hold yet; True when the study is complete, False when the time was up before.

    `seconds` are counted from `began` (a value of `now`; the call itself if None). A study that another process writes
    into `out` at this time raises Busy.
    """
    if seconds <= MARGIN:
        raise LabError(
            f"seconds={seconds:g}: no run begins in the last {MARGIN:g} seconds; give more, or leave it out"
        )
    out.mkdir(parents=True, exist_ok=True)
    start = now() if began is None else began

    def over() -> bool:
        return now() - start > seconds - MARGIN

    with _alone(out, study.name, ranks):
        return _all(study, data, out, ranks, how, over, tell)


@contextmanager
def _alone(out: Path, name: str, ranks: Ranks) -> Iterator[None]:
    """Hold the study's lock in the first process; who holds it stands in the file. The kernel frees it with a death."""
    path = out / f".{name}.lock"
    with ExitStack() as held:
        failed: LabError | None = None
        if ranks.first:
            try:
                held.enter_context(files.locked(path))
                path.write_text(f"process {os.getpid()} on {platform.node()}")
            except Busy:
                holder = path.read_text() or "another process"
                failed = Busy(
                    f"{out / name}.jsonl: {holder} writes this study; wait for it, stop it, or choose another --out"
                )
            except LabError as error:
                failed = error
            except OSError as error:
                failed = files.failed(path, error)
        if not ranks.agree(failed is None):
            raise failed or LabError("the first process could not begin the study; its message says why")
        yield


def _all(
    study: Study, data: Data, out: Path, ranks: Ranks, how: How, over: Callable[[], bool], tell: Say
) -> bool:
    """Every run that has no line yet, one after the other."""
    lines = out / f"{study.name}.jsonl"
    if study.follows:
        _set_aside(lines, study, data, how, ranks, tell)
    for run in study.runs():
        _refuse_others(lines, study, run, data, how, ranks)
        place = out / f"{study.name}-{re.sub(r'[^a-z0-9.-]+', '-', run.row)}-{run.seed}.pt"
        if ranks.agree(any((r["row"], r["seed"]) == (run.row, run.seed) for r in records(lines))):
            if ranks.first:
                place.unlink(missing_ok=True)  # of a process that was killed just before it did
            continue
        line = _copied(study, run, data, out, how, ranks) if ranks.first else None
        if ranks.agree(line is not None):
            if line is not None:
                _append(lines, line)
                tell(f"{study.name} {run.row} seed {run.seed}: taken from study {line['copied_from']}")
            continue
        if ranks.agree(over()):
            tell(f"{study.name}: time is up before {run.row} seed {run.seed}; the same call goes on")
            return False
        training = how.begin(run, data, study.recipe, ranks)
        if not _one(study, training, place, how, over, tell):
            return False
        if ranks.first:
            _append(lines, _record(study, training, data, how))
            place.unlink(missing_ok=True)
        ranks.agree(True)  # nobody looks at the lines before they are written
    return True


def _one(
    study: Study, training: Training, place: Path, how: How, over: Callable[[], bool], tell: Say
) -> bool:
    """One run, from its checkpoint if there is one, to its end or to the end of the time."""
    run, ranks = training.run, training.ranks
    saved = _load(place)
    if saved and study.follows and _other_rate(saved, training):
        tell(f"{place}: a run at an lr that tuning does not choose; {run.row} seed {run.seed} begins anew")
        saved = None
    if saved:
        try:
            training.load(saved)
        except LabError as error:
            raise StoreError(f"{place}: {error}") from error
        tell(f"{study.name} {run.row} seed {run.seed}: goes on from step {training.step} of {training.steps}")
    last = time.monotonic()

    def save() -> None:
        nonlocal last
        state = training.state()
        if ranks.first:
            plain = io.BytesIO()
            torch.save(state, plain)
            files.write(place, plain.getvalue())
        last = time.monotonic()

    def on_look() -> None:
        if ranks.agree(time.monotonic() - last >= how.checkpoint_seconds):
            save()

    def on_epoch() -> None:
        line = training.history[-1]
        loss = "no number" if line["train_loss"] is None else f"{line['train_loss']:.4f}"
        speed = training.step * training.recipe.batch / max(training.seconds, 1e-9)
        tell(
            f"{study.name} {run.row} seed {run.seed} epoch {training.epoch} of {training.recipe.epochs}: loss {loss}, "
            f"training {line['train_accuracy']:.2f}%, test {line['test_accuracy']:.2f}%, {speed:,.0f} pictures a second"
        )

    if training.advance(over, on_look, on_epoch):
        return True
    save()
    tell(f"{study.name} {run.row} seed {run.seed}: time is up at step {training.step}; the same call goes on")
    return False


def _load(place: Path) -> dict[str, Any] | None:
    if not place.is_file():
        return None
    try:
        return torch.load(place, map_location="cpu", weights_only=True)
    except Exception as error:
        raise StoreError(
            f"{place}: cannot be resumed from ({type(error).__name__}); move it away to start this run anew"
        ) from error


def _append(path: Path, *lines: Mapping[str, Any]) -> None:
    """Add lines; the file is replaced at once, so that a kill leaves no half of it."""
    before = path.read_bytes() if path.is_file() else b""
    files.write(path, before + _text(lines))


def _text(lines: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines).encode()


def _settings(study: Study, run: Run, data: Data, how: How, ranks: Ranks) -> dict[str, Any]:
    """What makes two runs the same."""
    return json.loads(
        json.dumps(
            {
                "optimizer": run.optimizer,
                "options": dict(run.options),
                "seed": run.seed,
                "recipe": asdict(study.recipe),
                "images": len(data.train),
                "test_images": len(data.test),
                "classes": data.classes,
                "digest": data.digest,
                "precision": how.precision,
                "processes": ranks.world,
            }
        )
    )


def own(path: Path) -> list[dict[str, Any]]:
    """The lines of a file, all of them ImageNet's: other data sets have studies of the same name."""
    found = records(path)
    for line in found:
        if "stem" not in line.get("recipe", {"stem": ""}):
            raise StoreError(
                f"{path}: holds runs on another data set ({line['row']} seed {line['seed']}); choose another folder, "
                "or move the file away"
            )
    return found


def _differences(line: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Where a line is of a run with other settings: {name: (the line's, the one asked for)}."""
    asked = {**wanted, **wanted["recipe"]}
    del asked["recipe"], asked["processes"]  # a run may go on with another number of processes
    held = {**line, **line["recipe"]}
    return {key: (held.get(key), value) for key, value in asked.items() if held.get(key) != value}


def _refuse_others(lines: Path, study: Study, run: Run, data: Data, how: How, ranks: Ranks) -> None:
    """An error when the line of this row and seed is of a run with other settings: a shorter one, say."""
    wanted = _settings(study, run, data, how, ranks)
    for line in own(lines):
        if (line["row"], line["seed"]) != (run.row, run.seed):
            continue
        for key, (held, value) in _differences(line, wanted).items():
            raise StoreError(
                f"{lines}: {run.row} seed {run.seed} was run with {key} {held!r}, {value!r} is asked "
                "for; choose another folder for these runs, or move the file away"
            )


def _only_lr(held: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether two runs' options differ in lr and in nothing else."""
    return held != wanted and {**held, "lr": None} == {**wanted, "lr": None}


def _set_aside(lines: Path, study: Study, data: Data, how: How, ranks: Ranks, tell: Say) -> None:
    """Runs that differ in lr alone from what tuning now chooses go to STUDY.jsonl.old."""
    rows = {row.name: row for row in study.rows}
    kept: list[dict[str, Any]] = []
    old: list[dict[str, Any]] = []
    for line in own(lines):
        row = rows.get(line["row"])
        other = False
        if row:
            run = Run(row.name, row.optimizer, row.options, line["seed"])
            found = _differences(line, _settings(study, run, data, how, ranks))
            other = list(found) == ["options"] and _only_lr(*found["options"])
        (old if other else kept).append(line)
    if old and ranks.first:
        aside = lines.with_suffix(".jsonl.old")
        _append(aside, *old)  # first: killed in between, a line stands twice and none is lost
        files.write(lines, _text(kept))
        tell(f"{study.name}: {len(old)} runs at an lr that tuning does not choose were set aside in {aside}")
    ranks.agree(True)  # nobody looks at the lines before that


def _other_rate(saved: Mapping[str, Any], training: Training) -> bool:
    """Whether a checkpoint is of the same run at another lr."""
    wanted = training._identity()
    (*held, options, seed), (*asked, others, same) = saved["run"], wanted["run"]
    rest = all(saved.get(key) == value for key, value in wanted.items() if key != "run")
    return rest and (held, seed) == (asked, same) and _only_lr(options, others)


def _copied(study: Study, run: Run, data: Data, out: Path, how: How, ranks: Ranks) -> dict[str, Any] | None:
    """The line of the same run in another study of this folder."""
    wanted = _settings(study, run, data, how, ranks)
    for path in sorted(out.glob("*.jsonl")):
        for line in records(path):
            if path.stem != study.name and all(line.get(k) == v for k, v in wanted.items()):
                return {**line, "study": study.name, "row": run.row, "copied_from": line["study"]}
    return None


def _record(study: Study, training: Training, data: Data, how: How) -> dict[str, Any]:
    """One run's line: what it was, how it ended, its curves, and where it ran."""
    run, curve = training.run, training.history
    b2 = run.options.get("betas", (0.9, 1e-4))[1] if run.optimizer.startswith("adax") else None
    done = len(data.train) * training.epoch
    return {
        "study": study.name,
        "row": run.row,
        **_settings(study, run, data, how, training.ranks),
        "steps": training.steps,
        "b2_steps": None if b2 is None else round(b2 * training.steps, 4),
        "test_accuracy": curve[-1]["test_accuracy"],
        "train_accuracy": curve[-1]["train_accuracy"],
        "train_loss": curve[-1]["train_loss"],
        "curve": {key: [point[key] for point in curve] for key in curve[0]},
        "layout": "channels_last" if training.layout is torch.channels_last else "contiguous",
        "graph": training.graph,
        "compiled": how.compiled,
        "seconds": round(training.seconds, 1),
        "images_per_second": round(done / max(training.seconds, 1e-9), 1),
        "environment": environment.describe(training.ranks.device, torch.get_num_threads()),
    }
