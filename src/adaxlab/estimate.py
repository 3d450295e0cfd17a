"""Estimates the cost of a comparison before it starts: its runs, and their time from a few timed steps of the task."""

from __future__ import annotations

import contextlib
import io
import itertools
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from adaxlab import files, optimizers, randomness, spec, splits, task
from adaxlab.messages import duration
from adaxlab.settings import Settings, choose_device
from adaxlab.study import Study

STEPS, SECONDS = 20, 2.0
"""The number of steps that are timed, at most, and the time in which they are."""


@dataclass(frozen=True)
class Estimate:
    """`runs` of the study, of which `made` are in the store; seconds of one run, None if it was not measured."""

    runs: int
    made: int
    seconds: float | None

    def sentence(self, jobs: int = 1) -> str:
        """
        >>> Estimate(52, 0, 13.0).sentence(2), Estimate(52, 50, None).sentence()
        ('52 runs, about 6 minutes with 2 processes', '52 runs, 50 already made')
        """
        text = f"{self.runs} runs" + (f", {self.made} already made" if self.made else "")
        left = self.runs - self.made
        if self.seconds is None or not left:
            return text
        shared = f" with {jobs} processes" if jobs > 1 else ""
        return f"{text}, about {duration(left * self.seconds / jobs)}{shared}"


def made(study: Study, root: Path | str) -> int:
    """The number of runs in the study's folder that have ended, at most the number of runs of the study. Runs of other
    versions of the task's file or an optimizer's are not counted: the study does not use them."""
    folder, source = Path(root) / spec.folder(study.name), task.source_digest(study.task)
    versions = {row.method: optimizers.source_digest(row.method) for row in study.rows}
    paths = (done.with_name("spec.json") for done in folder.glob("*/done.json"))
    specs = [files.read_json(path) for path in paths if path.exists()]
    ended = sum(
        given.get("task_source") == source
        and given.get("optimizer_source") == versions.get(given.get("optimizer"))
        for given in specs
    )
    return min(study.runs(), ended)


def measure(study: Study, root: Path | str, settings: Settings) -> Estimate:
    """The estimate of a study: the first row's optimizer makes a few steps on the task, nothing is written.

    If that fails, the runs fail as well and report why; `seconds` is then None.
    """
    runs, done = study.runs(), made(study, root)
    seconds = None
    if runs > done and study.executor == "process":
        silent = contextlib.redirect_stdout(io.StringIO())
        with contextlib.suppress(Exception, SystemExit), silent, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the runs give them
            seconds = _run_seconds(study, settings)
    return Estimate(runs, done, seconds)


def _run_seconds(study: Study, settings: Settings) -> float:
    """Seconds of a final run: its steps and evaluations, extrapolated from the few that are timed."""
    device, row = choose_device(settings.device), study.rows[0]
    made = task.load(study.task, study.options_of(row))
    asked = study.spec(row, row.lr(), seed=study.first_seed, purpose="final")
    with randomness.controlled(asked["seed"], device, settings.threads):
        train, held_out, _ = splits.sources(asked, made, device)
        model = task.check_model(made.model(), study.task).to(device)
        params = task.parameters(made, model, asked["options"])
        optimizer = optimizers.build(row.method, params, asked["options"], model)
        step = _each(_steps(made, model, optimizer, train), device)
        model.eval()
        with torch.no_grad():
            test = _each((made.loss(model, batch) for batch, _ in held_out.batches(None)), device)
    return asked["epochs"] * (len(train) * step + len(held_out) * test)


def _steps(made: Any, model: Any, optimizer: Any, source: Any) -> Any:
    """One training step after the other, as the loop makes them."""
    model.train()
    getattr(optimizer, "train", lambda: None)()
    for batch, _ in source.batches(None):
        result = made.loss(model, batch)
        (result[0] if isinstance(result, tuple) else result).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield


def _each(work: Any, device: torch.device) -> float:
    """Mean seconds of a piece of work, without the first call, which warms up."""
    next(work, None)
    _wait(device)
    began, count = time.perf_counter(), 0
    for _ in itertools.islice(work, STEPS):
        count += 1
        if time.perf_counter() - began > SECONDS:
            break
    _wait(device)
    return (time.perf_counter() - began) / max(1, count)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
