"""Progress of a study: live bars with the remaining time in a terminal, occasional lines otherwise."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

from adaxlab.messages import clock
from adaxlab.store import RunRecord
from adaxlab.study import Study


def label(spec: Mapping[str, Any]) -> str:
    """A short description of a run: `tuning adaxw lr 0.005`, `adaxw seed 2`."""
    if spec["purpose"] == "tune":
        return f"tuning {spec['row']}, lr {spec['options']['lr']:.3g}"
    return f"{spec['row']}, seed {spec['seed']}"


EVERY, LONG = 30.0, 60.0
"""Seconds between two lines; a remaining time longer than LONG is printed once, after the first run."""


def made_since(record: RunRecord, moment: float) -> bool:
    """Whether the run ended after `moment`; the duration of runs that were already in the store is not used."""
    return (record.path / "done.json").stat().st_mtime >= moment


class Lines:
    """For logs: one line when an optimizer is tuned or done, otherwise at most one line per `EVERY` seconds."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.runs = self.count = 0
        self.began = self.last = time.monotonic()
        self.began_at, self.timed = time.time(), False
        self.left: dict[tuple[str, str], int] = {}

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def start(self, study: Study, runs: int) -> None:
        self.runs = runs
        trials = study.tuning.trials * study.tuning.seeds if study.tuning else 0
        self.left = {(row.name, "tune"): trials for row in study.rows}
        self.left |= {(row.name, "final"): study.seeds for row in study.rows}
        tuning = (
            f", {study.tuning.trials} {'learning rates' if study.tuning.walks else 'settings'} each"
            if study.tuning
            else ""
        )
        self._say(f"{study.name}: {len(study.rows)} optimizers x {study.seeds} seeds{tuning}, {runs} runs")

    def running(self, spec: Mapping[str, Any], step: int, total: int, metric: float | None) -> None:
        if time.monotonic() - self.last > EVERY:
            self._say(f"[{self.count}/{self.runs}] {label(spec)}: step {step} of {total}")

    def finished(self, record: RunRecord) -> None:
        self.count += 1
        if record.status == "failed":
            self._say(f"[{self.count}/{self.runs}] {label(record.spec)} failed: {record.error}")
            return
        if not self.timed and made_since(record, self.began_at):
            self.timed, spent = True, time.monotonic() - self.began
            rest = spent * (self.runs - self.count)
            if rest > LONG:
                self._say(
                    f"[{self.count}/{self.runs}] the first run took {clock(spent)}: about {clock(rest)} left"
                )
        key = record.row, record.spec["purpose"]
        self.left[key] = self.left.get(key, 1) - 1
        if self.left[key] == 0:
            what = "tuned" if key[1] == "tune" else "done"
            self._say(f"[{self.count}/{self.runs}] {key[0]} {what}, {time.monotonic() - self.began:.0f} s")

    def _say(self, text: str) -> None:
        self.last = time.monotonic()
        print(text, file=self.stream, flush=True)


class Bars:
    """For a terminal: one bar for all runs with the remaining time, and one for the current run."""

    def __init__(self, stream: TextIO | None = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self.bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            console=Console(file=stream or sys.stderr, emoji=False, highlight=False),
            transient=True,
        )
        self.began, self.began_at = time.monotonic(), time.time()
        self.runs = self.count = self.fresh = 0
        self.inside = 0.0

    def __enter__(self) -> Bars:
        self.bars.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.bars.stop()

    def start(self, study: Study, runs: int) -> None:
        self.runs = runs
        self.all = self.bars.add_task(study.name, total=runs, note="")
        self.one = self.bars.add_task("", total=1, note="")

    def running(self, spec: Mapping[str, Any], step: int, total: int, metric: float | None) -> None:
        note = f"{metric:.4g}" if metric is not None else ""
        self.bars.update(self.one, description=label(spec), completed=step, total=total, note=note)
        self.inside = step / max(1, total)
        self._time_left()

    def finished(self, record: RunRecord) -> None:
        self.count += 1
        if record.status == "failed":
            self.bars.console.print(f"{label(record.spec)} failed: {record.error}", markup=False)
        else:
            self.fresh += made_since(record, self.began_at)
        self.inside = 0.0
        self.bars.update(self.all, completed=self.count)
        self._time_left()

    def _time_left(self) -> None:
        """Update the remaining time. Runs that were already in the store are not part of the estimate."""
        spent = time.monotonic() - self.began
        worth = self.fresh + self.inside
        note = clock(spent)
        if worth > 0.5:
            note += f", {clock(spent / worth * max(0.0, self.runs - self.count - self.inside))} left"
        self.bars.update(self.all, note=note)


class Countdown:
    """A time limit in seconds, shared by several studies; 0 means no limit."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds if seconds else math.inf

    def over(self) -> bool:
        return time.monotonic() >= self.end

    def left(self) -> float:
        """The remaining seconds, at least 0.01; 0 if there is no limit."""
        return 0.0 if math.isinf(self.end) else max(0.01, self.end - time.monotonic())


def watcher(quiet: bool = False, stream: TextIO | None = None) -> Any:
    """A context manager: bars in a terminal, lines otherwise, nothing if `quiet`."""
    from contextlib import nullcontext

    from adaxlab.driver import Silent

    if quiet:
        return nullcontext(Silent())
    stream = stream or sys.stderr
    if stream.isatty():
        try:
            return Bars(stream)
        except ImportError:
            pass
    return Lines(stream)
