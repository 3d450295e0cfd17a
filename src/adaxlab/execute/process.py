"""Runs in this process, one after the other; `run` is one run, from its specification to its record.

    spec = make(study="mine", task="digits", optimizer="adaxw", options={}, epochs=5, batch_size=64, seed=0)
    record = run(spec, "runs")

A finished run is read, not repeated. Killed at any moment, it resumes from its last checkpoint when `run` is called
again, and ends with the same bits (on CPU).
"""

from __future__ import annotations

import functools
import sysconfig
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from adaxlab import environment, optimizers, randomness, signals
from adaxlab import task as tasks
from adaxlab.errors import Busy, Interrupted, LabError, RunError
from adaxlab.loop import Loop, OnProgress
from adaxlab.settings import Settings, choose_device
from adaxlab.store import RunFolder, RunRecord

__all__ = ["OnProgress", "Settings", "execute", "run"]


def execute(
    specs: Sequence[dict[str, Any]], root: Path, settings: Settings, watcher: Any, stop: signals.Stop
) -> Iterator[RunRecord]:
    """The runs in their order; one that another process holds is left out."""
    for spec in specs:
        if stop.signum:
            raise Interrupted("stopped between two runs", stop.signum)
        try:
            yield run(spec, root, settings, functools.partial(watcher.running, spec), stop)
        except Busy:
            continue


def run(
    spec: dict[str, Any],
    root: Path | str,
    settings: Settings | None = None,
    on_progress: OnProgress | None = None,
    stop: signals.Stop | None = None,
) -> RunRecord:
    """Carry out the run, or what is left of it, in the store at `root`, and return its record.

    Raises Busy when another process has it, Interrupted after a signal (the state is then on disk), RunError when
    the task fails, StoreError when the folder cannot be read or written.
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
        env = begin(folder, device, {**where, **tasks.data_digest(task), "precision": precision})
        with randomness.controlled(spec["seed"], device, env.get("threads", settings.threads)):
            try:
                loop = Loop(spec, task, folder, device, settings, on_progress, stop)
                folder.finish(loop.run())
            except LabError:
                raise
            except Exception as error:
                raise failure(folder, error) from error
    return folder.record()


def begin(folder: RunFolder, device: torch.device, env: dict[str, Any]) -> dict[str, Any]:
    """The environment that the run began in, if it is resumed: `env` otherwise. A run stays on its kind of device."""
    found = folder.begin(env)
    if found.get("device", str(device)).partition(":")[0] != device.type:
        raise LabError(
            f"run {folder.path} was started on {found['device']}; resume with --device {found['device']}"
        )
    return found


def failure(folder: RunFolder, error: Exception) -> RunError:
    """What is said of a run whose task or optimizer raised."""
    return RunError(
        f"run {folder.path} failed: {type(error).__name__}: {tasks.first_line(error)} (at {_where(error)})"
    )


def _where(error: BaseException) -> str:
    """The innermost line outside torch and other installed packages: a wrong shape is found in the task's own file."""
    frames = traceback.extract_tb(error.__traceback__)
    installed = (
        sysconfig.get_path("stdlib"),
        sysconfig.get_path("purelib"),
        str(Path(torch.__file__).parent),
        "<",  # code without a file
    )
    own = [frame for frame in frames if not frame.filename.startswith(installed)] or frames
    return f"{Path(own[-1].filename).name}:{own[-1].lineno}"
