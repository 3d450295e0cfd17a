"""Runs a study: find the missing runs, let an executor make them, choose learning rates, and repeat.

    study -> specifications that can be run now -> executor -> records -> the next specifications -> ... -> records

Work is shared through the store: a run that another process has locked is skipped and checked again later. The same
command in two terminals (or `--jobs`) therefore divides the work and gives the same result. After an interruption, the
same call resumes.
"""

from __future__ import annotations

import signal
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from adaxlab import search, space, study_file
from adaxlab.errors import Interrupted, LabError, check_known, unknown
from adaxlab.execute import process, stack, torchrun
from adaxlab.settings import Settings
from adaxlab.signals import Stop, listening
from adaxlab.store import RunRecord
from adaxlab.study import Row, Study

Spec = dict[str, Any]
Plan = Generator[list[Spec], list[RunRecord], None]


class Watcher(Protocol):
    """Callbacks for the progress of a study (see adaxlab.progress)."""

    def start(self, study: Study, runs: int) -> None: ...

    def running(self, spec: Mapping[str, Any], step: int, total: int, metric: float | None) -> None: ...

    def finished(self, record: RunRecord) -> None:
        """A run has ended or failed; see `record.status`."""


class Silent:
    """A watcher that does nothing."""

    def start(self, study: Study, runs: int) -> None: ...

    def running(self, spec: Mapping[str, Any], step: int, total: int, metric: float | None) -> None: ...

    def finished(self, record: RunRecord) -> None: ...


Executor = Callable[[Sequence[Spec], Path, Settings, Watcher, Stop], Iterator[RunRecord]]
"""Yields the records of runs as they end or fail; runs locked by another process are skipped. Raises Interrupted before
a run, or at its next step, once `stop` requests it."""


def plan(study: Study, row: Row, chosen: float | None = None) -> Plan:
    """Yield the runs that can be made now and receive their records, until the row is complete.

    `chosen` is the learning rate that another study chose for this row.
    """
    lr = row.lr() if chosen is None else chosen
    if study.tuning and row.rates:
        trials = [study.trials(row, rate, number) for number, rate in enumerate(row.rates)]
        records = yield [spec for trial in trials for spec in trial]
        n = study.tuning.seeds
        scores = [_score(records[i : i + n]) for i in range(0, len(records), n)]
        lr = search.best(row.rates, scores)
    elif study.tuning and not study.tuning.walks:
        row, lr = yield from _sampled(study, row, lr)
    elif study.tuning:
        given = "lr" in row.options or not study.tuning.tunes_lr
        walk = search.walk(lr if given else search.start(lr), study.tuning.trials)
        lr = next(walk)
        for number in range(study.tuning.trials):
            records = yield study.trials(row, lr, number)
            try:
                lr = walk.send(_score(records))
            except StopIteration as end:
                lr = end.value
    if study.seeds:
        yield study.finals(row, lr)


def _sampled(study: Study, row: Row, lr: float) -> Generator[list[Spec], list[RunRecord], tuple[Row, float]]:
    """Tune the row over the settings of the study; return the best row and its lr."""
    assert study.tuning is not None
    how = study.tuning
    ranges = row.space(how.over)
    inner = {name: (*span.inner(), span.log) for name, span in ranges.items()}
    own = space.point(row.method, row.options, ranges)
    first = {name: ranges[name].drawn(value) for name, value in own.items()}
    asking = search.sampled(inner, first, how.trials, how.first_seed, how.sampler or "qmc")
    points: list[search.Point] = []
    scores: list[search.Score] = []
    asked = next(asking, None)
    while asked is not None:
        new = [{name: ranges[name].outer(x) for name, x in point.items()} for point in asked]
        begun = len(points)
        trials = [
            study.trials(row.tuned(point), point.get("lr", lr), begun + i) for i, point in enumerate(new)
        ]
        records = yield [spec for trial in trials for spec in trial]
        got = [_score(records[i : i + how.seeds]) for i in range(0, len(records), how.seeds)]
        points, scores = points + new, scores + got
        try:
            asked = asking.send(got)
        except StopIteration:
            asked = None
    chosen = points[max(range(len(points)), key=lambda i: scores[i])]
    return row.tuned(chosen), chosen.get("lr", lr)


def _score(records: Sequence[RunRecord]) -> search.Score:
    return search.score([r.done for r in records if r.done])


def rates_of(study: Study, records: Sequence[RunRecord]) -> dict[str, float]:
    """Each row's best learning rate among the tuning runs of `records`, for a study that follows this one."""
    found: dict[str, float] = {}
    for row in study.rows:
        trials = _trials(records, row.name)
        missing = [lr for lr in row.rates if lr not in trials]
        if missing or not trials:
            at = f" at lr {', '.join(f'{lr:g}' for lr in missing)}" if missing else ""
            raise LabError(
                f"study {study.name}: {row.name} was not tuned{at}; run `adax reproduce {study.name}` first"
            )
        rates = row.rates or tuple(trials)
        found[row.name] = search.best(rates, [_score(trials[lr]) for lr in rates])
    return found


def follow(study: Study, before: Study, records: Sequence[RunRecord]) -> tuple[Study, dict[str, float]]:
    """The study with the settings chosen by the study `before`, and each row's learning rate.

    A row takes the lr of the row of the same name. If `before` also varied another setting (rows such as
    `adaxw wd 0.1`), the row `adaxw` takes the settings and the lr of the best of them.
    """
    study.check_apart(before)
    rates, rows, chosen = rates_of(before, records), [], {}
    for row in study.rows:
        same = before.variants(row.name)
        if not same:
            raise unknown(f"row of study {before.name}", row.name, [each.name for each in before.rows])
        best = max(same, key=lambda each: _score(_trials(records, each.name).get(rates[each.name], [])))
        chosen[row.name] = rates[best.name]
        rows.append(row if best.name == row.name else replace(row, options={**row.options, **best.options}))
    return replace(study, rows=tuple(rows)), chosen


def _trials(records: Sequence[RunRecord], row: str) -> dict[float, list[RunRecord]]:
    """The tuning runs of a row that have ended, by learning rate."""
    trials: dict[float, list[RunRecord]] = {}
    for r in records:
        if r.row == row and r.spec["purpose"] == "tune" and r.done:
            trials.setdefault(r.spec["options"]["lr"], []).append(r)
    return trials


def carry_out(
    study: Study,
    root: Path | str = "runs",
    settings: Settings | None = None,
    watcher: Watcher | None = None,
    stop: Stop | None = None,
    *,
    execute: Executor | None = None,
    rates: Mapping[str, float] | None = None,
    seconds: float = 0.0,
    first: int = 0,
) -> list[RunRecord] | None:
    """Make the missing runs of the study and return all runs, or None if `seconds` (0: no limit) ran out first.

    If a run fails, its row stops there: the record has the reason (`status` is "failed"), and other rows continue.
    `rates` are learning rates chosen by another study. `first` is the row to start with.
    """
    if stop is None:
        with listening() as stop, _deadline(stop, seconds):
            try:
                return carry_out(
                    study, root, settings, watcher, stop, execute=execute, rates=rates, first=first
                )
            except Interrupted:
                if stop.over:
                    return None
                raise
    watcher = watcher or Silent()
    shift = first % len(study.rows)
    rows = study.rows[shift:] + study.rows[:shift]
    plans = [plan(study, row, (rates or {}).get(row.name)) for row in rows]
    asked = [next(each) for each in plans]  # errors in the data are raised before the first run
    study_file.write(study, root)
    watcher.start(study, study.runs())
    with warnings.catch_warnings():
        tuned = study.tuning.over if study.tuning else ()
        if "b2" in tuned or any(row.b2_steps is not None for row in study.rows):
            warnings.filterwarnings(
                "ignore", message="betas"
            )  # b2*T was chosen, so a short run has a large b2
        how = replace(settings or Settings(), alone=not study.share)
        return _drain(plans, asked, Path(root), how, watcher, stop, execute or executor(study.executor))


def executor(name: str) -> Executor:
    """The executor that a study names; `cluster` is given to `carry_out` instead."""
    known: dict[str, Executor] = {
        "process": process.execute,
        "stack": stack.Executor(),
        "torchrun": torchrun.execute,
    }
    check_known("executor", known, name)
    return known[name]


def _drain(
    plans: Sequence[Plan],
    asked: Sequence[list[Spec]],
    root: Path,
    settings: Settings,
    watcher: Watcher,
    stop: Stop,
    execute: Executor,
) -> list[RunRecord]:
    """Complete all plans, the first runs of every plan before the second ones, so that an interrupted study is balanced
    over its rows. The first failed run ends its plan."""
    everything: list[RunRecord] = []
    specs = dict(enumerate(asked))
    got: dict[int, dict[int, RunRecord]] = {i: {} for i in specs}
    while specs:
        queue = sorted((j, i) for i, asked in specs.items() for j in range(len(asked)) if j not in got[i])
        moved = False
        work = execute([specs[i][j] for j, i in queue], root, settings, watcher, stop)
        for record in work:
            moved = True
            for j, i in queue:
                if j not in got[i] and specs[i][j] == record.spec:
                    got[i][j] = record
                    watcher.finished(record)
            failed = [i for i in specs if any(r.status == "failed" for r in got[i].values())]
            for i in failed:
                everything += got[i].values()
                del specs[i], got[i]
            through = [i for i in specs if len(got[i]) == len(specs[i])]
            for i in through:
                records = [got[i][j] for j in range(len(specs[i]))]
                everything += records
                try:
                    specs[i], got[i] = plans[i].send(records), {}
                except StopIteration:
                    del specs[i], got[i]
            if through or failed:
                break  # start over: new runs may have priority
        if specs and not moved:
            time.sleep(0.2)
    return everything


@contextmanager
def _deadline(stop: Stop, seconds: float) -> Iterator[None]:
    """Stop the runs when the time is up, like a signal does; `stop.over` distinguishes the two."""

    def ring() -> None:
        stop.over = True
        stop.signum = signal.SIGTERM

    clock = threading.Timer(seconds, ring) if seconds else None
    if clock:
        clock.daemon = True
        clock.start()
    try:
        yield
    finally:
        if clock:
            clock.cancel()
