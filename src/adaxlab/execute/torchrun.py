"""Execute one run at a time, in one process or in all processes of torchrun, for tasks with a method `training`.

    python -m adaxlab.reproduce imagenet/tiny --data FOLDER --out runs
    torchrun --nproc_per_node 8 -m adaxlab.reproduce imagenet/resnet50 --data FOLDER --out runs

Every process runs the driver, inside `distributed.joined`. The first one makes decisions, writes and prints; the others
receive decisions by `Ranks.agree`. All processes need access to the folders of the store and of the data.

A task's `training(spec, ranks, config)` returns an object with `advance`, `state`, `load`, `history` (lines of metrics)
and `done` (see adaxlab.imagenet.train). The checkpoint is the state in one file, so a run may resume with another
number of processes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from adaxlab import checkpoint, distributed, environment, failures, signals
from adaxlab import task as tasks
from adaxlab.distributed import Ranks
from adaxlab.errors import Busy, Interrupted, LabError, RunError
from adaxlab.settings import Settings, use_threads
from adaxlab.store import RunFolder, RunRecord

TO_RUN, FINISHED, BUSY = range(3)


def execute(
    specs: Sequence[dict[str, Any]], root: Path, settings: Settings, watcher: Any, stop: signals.Stop
) -> Iterator[RunRecord]:
    """Yield the records of the runs in order, in every process; runs locked by another command are skipped.

    In one process a run that fails is yielded as such. Of several processes the others may be waiting for the one that
    failed, so the error ends the command, and torchrun ends them.
    """
    if distributed.world_size() > 1 and not torch.distributed.is_initialized():
        raise LabError("torchrun started several processes; call this inside adaxlab.distributed.joined")
    ranks = distributed.current(settings.device)
    for spec in specs:
        _raise_if_stopped(ranks, stop, "stopped between two runs")
        try:
            record = run(spec, root, settings, ranks, watcher, stop)
        except RunError:
            if ranks.world > 1:
                raise
            record = RunFolder(root, spec).record()
        if record is not None:
            yield record


def run(
    spec: dict[str, Any], root: Path, settings: Settings, ranks: Ranks, watcher: Any, stop: signals.Stop
) -> RunRecord | None:
    """Execute or resume the run and return its record; None if another command has locked it.

    Called by every process. Raises the errors of `process.run`.
    """
    folder = RunFolder(root, spec)
    with ExitStack() as held:
        found = ranks.first_does(lambda: _claim(folder, held, settings.alone))
        if found == BUSY:
            return None
        if found == TO_RUN:
            _carry_out(folder, settings, ranks, watcher, stop)
    return folder.record()


def _claim(folder: RunFolder, held: ExitStack, alone: bool) -> int:
    """Lock the run, unless it is finished or another process has locked it."""
    if folder.finished() or (not alone and folder.borrow()):
        return FINISHED
    try:
        held.enter_context(folder.lock())
    except Busy:
        return BUSY
    return FINISHED if folder.finished() else TO_RUN


def _carry_out(folder: RunFolder, settings: Settings, ranks: Ranks, watcher: Any, stop: signals.Stop) -> None:
    """Execute the run in every process; the first one holds its lock."""
    spec = folder.spec
    task: Any = tasks.load(spec["task"], spec["task_options"])
    if not hasattr(task, "training"):
        raise LabError(f"task {spec['task']}: has no `training`, which the executor torchrun needs")
    env = {**environment.describe(ranks.device, settings.threads), **tasks.data_digest(task)}
    env["precision"] = getattr(task, "precision", "fp32")
    threads = ranks.first_does(lambda: folder.begin(env).get("threads", settings.threads))
    with failures.kept(folder), use_threads(threads):
        training = task.training(spec, ranks, settings.execution)
        if ranks.agree(folder.checkpoint.exists()):
            with checkpoint.opened(folder.checkpoint) as saved:
                training.load(saved)
        _advance(training, folder, settings, watcher, stop)
    if ranks.first:
        folder.write_metrics(training.history)
        folder.finish(training.done())
    ranks.agree(True)  # no process reads the run before it is written


def _advance(training: Any, folder: RunFolder, settings: Settings, watcher: Any, stop: signals.Stop) -> None:
    """Train to the end, with checkpoints; raise Interrupted if the first process receives a request to stop."""
    ranks: Ranks = training.ranks
    last = time.monotonic()

    def save() -> None:
        nonlocal last
        state = training.state()
        if ranks.first:
            checkpoint.write(folder.checkpoint, state)
        last = time.monotonic()

    def report() -> None:
        metric = training.history[-1]["metric"] if training.history else None
        watcher.running(folder.spec, training.step, training.steps, metric)

    def on_check() -> None:
        report()
        if ranks.agree(time.monotonic() - last >= settings.checkpoint_seconds):
            save()

    def on_epoch() -> None:
        if ranks.first:
            folder.write_metrics(training.history)
        report()

    if not training.advance(lambda: bool(stop.signum), on_check, on_epoch):
        save()
        _raise_if_stopped(ranks, stop, f"stopped {folder.path} at step {training.step} of {training.steps}")


def _raise_if_stopped(ranks: Ranks, stop: signals.Stop, message: str) -> None:
    """Raise Interrupted in all processes if the first one received a signal: signals arrive at different steps."""
    signum, over = ranks.agree(stop.signum), ranks.agree(stop.over)
    if signum:
        stop.signum, stop.over = signum, bool(over)
        raise Interrupted(message, signum)
