"""Carry out a study: tune every optimizer with the same budget, run the final seeds, judge by the study's rule.

Work is shared through the store. A run that another process holds is left to it and looked at again later, so the same
command in two terminals (or `jobs`) divides the work and ends with the same result.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from adaxlab import stats, train, tune
from adaxlab.errors import Busy, Interrupted
from adaxlab.signals import Stop, listening
from adaxlab.store import RunRecord
from adaxlab.study import Study

Plan = Generator[list[dict[str, Any]], list[RunRecord], None]


class Watcher(Protocol):
    """Who is told how the work goes (see adaxlab.progress)."""

    def start(self, study: Study, runs: int) -> None: ...

    def running(self, spec: Mapping[str, Any], step: int, total: int, metric: float | None) -> None: ...

    def finished(self, record: RunRecord) -> None: ...


class Silent:
    """Tells nobody."""

    def start(self, study: Study, runs: int) -> None: ...

    def running(self, spec: Mapping[str, Any], step: int, total: int, metric: float | None) -> None: ...

    def finished(self, record: RunRecord) -> None: ...


@dataclass(frozen=True)
class Row:
    """One optimizer's line in the table."""

    optimizer: str
    lr: float
    trials: int
    n: int
    diverged: int
    estimate: stats.Estimate | None
    train_loss: float | None
    seconds: float
    step_ms: float
    verdict: stats.Verdict | None
    edge: bool


@dataclass(frozen=True)
class Comparison:
    """What a study came to; `records` are its runs, tuning included."""

    study: Study
    records: list[RunRecord]
    rows: list[Row]
    metric_name: str
    higher_is_better: bool


def compare(
    study: Study,
    root: Path | str = "runs",
    settings: train.Settings | None = None,
    watcher: Watcher | None = None,
    stop: Stop | None = None,
    first: int = 0,
) -> Comparison:
    """Run what is missing of the study and summarise it. `first` is the optimizer to begin with (for workers)."""
    if stop is None:
        with listening() as stop:
            return compare(study, root, settings, watcher, stop, first)
    study = study.complete()
    watcher = watcher or Silent()
    study.write(root)
    watcher.start(study, len(study.optimizers) * (study.tune * study.tune_seeds + study.seeds))
    shift = first % len(study.optimizers)
    names = study.optimizers[shift:] + study.optimizers[:shift]
    records = _drain([plan(study, name) for name in names], root, settings, watcher, stop)
    return summarise(study, records)


def plan(study: Study, optimizer: str) -> Plan:
    """Yield the runs that can be done now, take their records, until the optimizer is through."""
    options: dict[str, Any] = {}
    if study.tune:
        search = tune.walk(study.default_lr(optimizer), study.tune)
        lr = next(search)
        for number in range(study.tune):
            records = yield [study.trial(optimizer, lr, number, seed) for seed in range(study.tune_seeds)]
            try:
                lr = search.send(tune.score([r.done for r in records if r.done]))
            except StopIteration as end:
                lr = end.value
        options = {"lr": lr}
    yield [study.final(optimizer, options, seed) for seed in range(study.seeds)]


def _drain(
    plans: Iterable[Plan], root: Path | str, settings: train.Settings | None, watcher: Watcher, stop: Stop
) -> list[RunRecord]:
    """Carry all plans to their end, leaving runs that another process holds for later."""
    everything: list[RunRecord] = []
    waiting = [(plan, next(plan), {}) for plan in plans]  # type: list[tuple[Plan, list[dict[str, Any]], dict[int, RunRecord]]]
    while waiting:
        moved = False
        again = []
        for plan, specs, got in waiting:
            while True:
                for i, spec in enumerate(specs):
                    if stop.signum:
                        raise Interrupted("stopped between two runs", stop.signum)
                    if i not in got:
                        try:
                            got[i] = train.run(spec, root, settings, _teller(watcher, spec), stop)
                        except Busy:
                            continue
                        moved = True
                        watcher.finished(got[i])
                if len(got) < len(specs):
                    again.append((plan, specs, got))
                    break
                records = [got[i] for i in range(len(specs))]
                everything += records
                try:
                    specs, got = plan.send(records), {}
                except StopIteration:
                    break
        waiting = again
        if waiting and not moved:
            time.sleep(0.2)
    return everything


def _teller(watcher: Watcher, spec: Mapping[str, Any]) -> train.OnProgress:
    return lambda step, total, metric: watcher.running(spec, step, total, metric)


def summarise(study: Study, records: Iterable[RunRecord]) -> Comparison:
    """The table of a study, from its records alone."""
    records = list(records)
    ended = [r for r in records if r.done]
    name = ended[0].done["metric_name"] if ended else ""  # type: ignore[index]
    higher = ended[0].done["higher_is_better"] if ended else True  # type: ignore[index]
    final = {
        o: {r.spec["seed"]: r for r in ended if r.spec["purpose"] == "final" and r.spec["optimizer"] == o}
        for o in study.optimizers
    }
    metric = {o: {s: r.done["metric"] for s, r in runs.items() if r.done} for o, runs in final.items()}
    rows = []
    for optimizer in study.optimizers:
        runs = list(final[optimizer].values())
        done = [r.done for r in runs if r.done]
        values = [v for v in metric[optimizer].values() if v is not None]
        losses = [d["train_loss"] for d in done if d["train_loss"] is not None]
        diverged = sum(d["status"] == "diverged" for d in done)
        verdict = None
        if optimizer != study.baseline:
            pairs = stats.paired(metric[optimizer], metric[study.baseline], higher)
            verdict = stats.verdict(pairs, study.rule, diverged)
        steps = sum(d["steps"] for d in done)
        tried = sorted(
            {
                r.spec["options"]["lr"]
                for r in ended
                if r.spec["purpose"] == "tune" and r.spec["optimizer"] == optimizer
            }
        )
        lr = runs[0].spec["options"]["lr"] if runs else study.default_lr(optimizer)
        rows.append(
            Row(
                optimizer=optimizer,
                lr=lr,
                trials=len(tried),
                n=len(done),
                diverged=diverged,
                estimate=stats.interval(values, study.rule.confidence, study.rule.interval)
                if values
                else None,
                train_loss=stats.mean(losses) if losses else None,
                seconds=stats.mean([d["seconds"] for d in done]) if done else 0.0,
                step_ms=1e3 * sum(d["step_seconds"] for d in done) / max(1, steps),
                verdict=verdict,
                edge=len(tried) > 1 and lr in (tried[0], tried[-1]),
            )
        )
    return Comparison(study, records, rows, name, higher)
