"""Execute runs in this process, one after the other; `run` turns one specification into its record.

    spec = make(study="mine", task="digits", optimizer="adaxw", options={}, epochs=5, batch_size=64, seed=0)
    record = run(spec, "runs")

A finished run is read from the store. An interrupted run resumes from its last checkpoint when `run` is called again;
on a CPU the result is bit-identical to that of an uninterrupted run.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from adaxlab import environment, failures, optimizers, randomness, signals
from adaxlab import task as tasks
from adaxlab.errors import Busy, Interrupted, RunError
from adaxlab.loop import Loop, OnProgress
from adaxlab.settings import Settings, choose_device
from adaxlab.store import RunFolder, RunRecord

__all__ = ["OnProgress", "Settings", "execute", "run"]


def execute(
    specs: Sequence[dict[str, Any]], root: Path, settings: Settings, watcher: Any, stop: signals.Stop
) -> Iterator[RunRecord]:
    """Yield the records of the runs in order, including failed ones; runs locked by another process are skipped."""
    for spec in specs:
        if stop.signum:
            raise Interrupted("stopped between two runs", stop.signum)
        try:
            yield run(spec, root, settings, functools.partial(watcher.running, spec), stop)
        except Busy:
            continue
        except RunError:
            yield RunFolder(root, spec).record()


def run(
    spec: dict[str, Any],
    root: Path | str,
    settings: Settings | None = None,
    on_progress: OnProgress | None = None,
    stop: signals.Stop | None = None,
) -> RunRecord:
    """Execute or resume the run in the store at `root`, and return its record.

    Raises Busy if another process has locked it, Interrupted after a signal (with a checkpoint on disk), RunError if
    the task fails, StoreError if the folder cannot be read or written.
    """
    settings = settings or Settings()
    folder = RunFolder(root, spec)
    if folder.finished() or (not settings.alone and folder.borrow()):
        folder.checkpoint.unlink(missing_ok=True)  # left by a process that was killed at its last write
        return folder.record()
    if stop is None:
        with signals.listening() as stop:
            return run(spec, root, settings, on_progress, stop)
    device = choose_device(settings.device)
    task = tasks.load(spec["task"], spec["task_options"])
    optimizers.warm_up()
    with folder.lock():
        if folder.finished():
            return folder.record()
        where = environment.describe(device, settings.threads)
        precision = getattr(task, "precision", "fp32")
        env = folder.begin({**where, **tasks.data_digest(task), "precision": precision})
        threads = env.get("threads", settings.threads)
        with randomness.controlled(spec["seed"], device, threads), failures.kept(folder):
            loop = Loop(spec, task, folder, device, settings, on_progress, stop)
            folder.finish(loop.run())
    return folder.record()
