"""The results of a study: one result per row, computed from the records alone."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from adaxlab import optimizer_options, space, stats
from adaxlab.reach import reached
from adaxlab.store import ERROR, RunRecord
from adaxlab.study import Row, Study
from adaxlab.verdict import Verdict, verdicts

UNTUNED = "learning rates were not tuned, so a difference may be one of defaults"


@dataclass(frozen=True)
class RowResult:
    """One row of the table: its trials, its final runs, and the verdict on "better than the baseline"."""

    name: str
    options: Mapping[str, Any] | None
    """The options of the final runs; None before any has ended."""
    lr: float
    trials: Mapping[float, float | None]
    """The score of every learning rate tried, smallest first; None where the run diverged."""
    values: Mapping[int, float | None]
    """The final metric of every seed; None where the run diverged."""
    estimate: stats.Estimate | None
    verdict: Verdict | None
    train_loss: float | None
    seconds: float
    step_ms: float
    steps_to: tuple[float | None, ...] = ()
    """For each seed, the step at which the target was reached; None where it was not."""
    seconds_to: tuple[float | None, ...] = ()
    scores: tuple[float | None, ...] = ()
    """The validation score of every trial, in order; None if it diverged."""
    others: Mapping[str, stats.Estimate] = field(default_factory=dict)
    """Further metrics of the task's `evaluate`, over the seeds that finished."""
    tuned: Mapping[str, Any] = field(default_factory=dict)
    """The tuned settings except lr."""
    b2_steps: float | None = None
    """b2*T in the final runs, if b2 is a growth rate."""
    runs: tuple[RunRecord, ...] = field(default=(), repr=False)
    edge: tuple[str, ...] = ()
    """The tuned settings that may be better outside of what was tried: at an end of their range, or, for the search
    along the log grid, the smallest or the largest lr that was tried."""
    untrained: str = ""
    """Says that every tuning run diverged, if so; there is then no verdict."""
    error: str = ""
    """Why a run of this row failed; there is then no verdict."""
    error_file: str = ""
    """The file with the traceback."""

    def failure(self) -> str:
        """The failure in one line, with the file of the traceback."""
        return f"{self.name}: {self.error} (traceback: {self.error_file})" if self.error else ""

    @property
    def n(self) -> int:
        """The number of runs that ended, including diverged ones."""
        return len(self.values)

    @property
    def diverged(self) -> int:
        return sum(value is None for value in self.values.values())


@dataclass(frozen=True)
class Comparison:
    """The results of a study; `records` are its runs, including tuning runs."""

    study: Study
    records: list[RunRecord]
    rows: list[RowResult]
    metric_name: str
    higher_is_better: bool
    target: float | None = None
    """The target of `steps to`: the study's own target, else the baseline's median final result."""
    history: tuple[str, ...] = ()
    """Changes made after results had been seen, as sentences."""

    def row(self, name: str) -> RowResult:
        return next(row for row in self.rows if row.name == name)


def best_rate(trials: Mapping[float, float | None], higher: bool) -> float | None:
    """The lr with the best result; None if every run diverged.

    >>> best_rate({1e-3: 2.0, 1e-2: 1.5, 1e-1: None}, higher=False)
    0.01
    """
    ended = {lr: value for lr, value in trials.items() if value is not None}
    return (max if higher else min)(ended, key=lambda lr: ended[lr]) if ended else None


def largest_lr(trials: Mapping[float, float | None], broken: float) -> float | None:
    """The largest lr whose run is not broken: it ended at most `broken` above the best of the row.

    >>> largest_lr({1e-3: 1.10, 2e-3: 1.05, 4e-3: 1.21, 8e-3: 2.9, 1.6e-2: None}, 0.25)
    0.004
    """
    ended = [value for value in trials.values() if value is not None]
    if not ended:
        return None
    return max(lr for lr, value in trials.items() if value is not None and value <= min(ended) + broken)


def summarise(study: Study, records: Iterable[RunRecord], history: Iterable[str] = ()) -> Comparison:
    """The results of a study from its records. Records of rows or seeds that are not part of the study are ignored."""
    records = list(records)
    ended = [r for r in records if r.done]
    name = ended[0].done["metric_name"] if ended else ""  # type: ignore[index]
    higher = ended[0].done["higher_is_better"] if ended else True  # type: ignore[index]
    finals: dict[str, dict[int, RunRecord]] = {row.name: {} for row in study.rows}
    tried: dict[str, dict[float, list[RunRecord]]] = {row.name: {} for row in study.rows}
    for r in ended:
        row, seed = r.row, r.spec["seed"]
        if row in finals and r.spec["purpose"] == "final" and seed in study.all_seeds:
            finals[row][seed] = r
        elif row in tried and r.spec["purpose"] == "tune":
            tried[row].setdefault(r.spec["options"]["lr"], []).append(r)
    failed = {r.row: r for r in records if r.status == "failed"}
    values = {row: {seed: _metric(r) for seed, r in sorted(runs.items())} for row, runs in finals.items()}
    without = dict.fromkeys(values, UNTUNED) if study.terms == "untuned" else {}
    untrained = {row: _all_diverged(row, runs) for row, runs in tried.items()}
    without |= {row: lost for row, lost in untrained.items() if lost}
    without |= {row: f"{row} failed" for row in failed}
    judged = verdicts(values, study.baseline, study.rule, higher, without) if study.baseline else {}
    target = study.target
    if target is None and study.baseline:
        ended_well = [value for value in values[study.baseline].values() if value is not None]
        target = statistics.median(ended_well) if ended_well else None
    made = _Made(study, finals, tried, judged, failed, untrained, target, higher)
    rows = [made.row(row) for row in study.rows]
    return Comparison(study, records, rows, name, higher, target, tuple(history))


def _metric(record: RunRecord) -> float | None:
    assert record.done is not None
    return record.done["metric"] if record.done["status"] == "finished" else None


def _all_diverged(row: str, tried: Mapping[float, list[RunRecord]]) -> str:
    """Why a row whose tuning runs all diverged has no verdict: no setting that trains was found."""
    ends = [r.done for runs in tried.values() for r in runs if r.done]
    if not ends or any(end["status"] == "finished" for end in ends):
        return ""
    why = next((f": {end['why']}" for end in ends if end.get("why")), "")
    return f"every tuning run of {row} diverged (lr {min(tried):.3g} to {max(tried):.3g}){why}"


@dataclass(frozen=True)
class _Made:
    """The runs of a study, sorted."""

    study: Study
    finals: Mapping[str, Mapping[int, RunRecord]]
    tried: Mapping[str, Mapping[float, list[RunRecord]]]
    judged: Mapping[str, Verdict]
    failed: Mapping[str, RunRecord]
    untrained: Mapping[str, str]
    target: float | None
    higher: bool

    def row(self, row: Row) -> RowResult:
        """The result of a row."""
        finals, tried, failed = self.finals[row.name], self.tried[row.name], self.failed.get(row.name)
        runs = [finals[seed] for seed in sorted(finals)]
        done = [r.done for r in runs if r.done]
        values = {seed: _metric(r) for seed, r in sorted(finals.items())}
        ended = [value for value in values.values() if value is not None]
        losses = [d["train_loss"] for d in done if d.get("train_loss") is not None]
        options = runs[0].spec["options"] if runs else None
        steps = max((d["steps"] for d in done), default=0)
        b2_steps = optimizer_options.b2_steps(row.method, options or {}, steps)
        untrained = self.untrained[row.name]
        return RowResult(
            name=row.name,
            options=options,
            lr=options["lr"] if options else row.lr(),
            trials={lr: _mean([_metric(r) for r in tried[lr]]) for lr in sorted(tried)},
            values=values,
            estimate=stats.t_interval(ended, self.study.rule.confidence) if ended else None,
            verdict=self.judged.get(row.name),
            train_loss=stats.mean(losses) if losses else None,
            seconds=stats.mean([d["seconds"] for d in done]) if done else 0.0,
            step_ms=1e3
            * sum(d.get("step_seconds", 0.0) for d in done)
            / max(1, sum(d["steps"] for d in done)),
            steps_to=self.times(runs, "step"),
            seconds_to=self.times(runs, "seconds"),
            scores=_scores(r for each in tried.values() for r in each),
            others=self.others(done),
            tuned=_tuned(self.study, row, options),
            b2_steps=b2_steps,
            runs=tuple(runs),
            edge=() if untrained else _edge(self.study, row, options, sorted(tried), b2_steps),
            untrained=untrained,
            error=failed.error if failed else "",
            error_file=str(failed.path / ERROR) if failed else "",
        )

    def others(self, done: list[dict[str, Any]]) -> dict[str, stats.Estimate]:
        """The metrics that are shown in addition to the judged one."""
        found = [d["metrics"] for d in done if d["status"] == "finished" and "metrics" in d]
        names = [name for name in found[0] if name != done[0]["metric_name"]] if found else []
        confidence = self.study.rule.confidence
        values = {name: [each[name] for each in found if each.get(name) is not None] for name in names}
        return {name: stats.t_interval(numbers, confidence) for name, numbers in values.items() if numbers}

    def times(self, runs: list[RunRecord], key: str) -> tuple[float | None, ...]:
        """When each run reached the target."""
        if self.target is None:
            return ()
        return tuple(reached(r.metrics, self.target, self.higher, key) for r in runs)


def _scores(trials: Iterable[RunRecord]) -> tuple[float | None, ...]:
    """The mean score of every trial, in order."""
    numbered: dict[int, list[float | None]] = {}
    for r in trials:
        numbered.setdefault(r.spec.get("trial") or 0, []).append(_metric(r))
    return tuple(_mean(numbered[number]) for number in sorted(numbered))


def _tuned(study: Study, row: Row, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """The tuned settings except lr, by name."""
    if not study.tuning or study.tuning.walks or not options:
        return {}
    return {
        name: space.value(row.method, options, name) for name in row.space(study.tuning.over) if name != "lr"
    }


def _edge(
    study: Study, row: Row, options: Mapping[str, Any] | None, tried: list[float], b2_steps: float | None
) -> tuple[str, ...]:
    """The tuned settings that may be better outside of what was tried."""
    if not study.tuning or not options:
        return ()
    if study.tuning.walks:
        return ("lr",) if len(tried) > 1 and options["lr"] in (tried[0], tried[-1]) else ()
    if study.tuning.trials < 2:
        return ()
    ranges = row.space(study.tuning.over)
    chosen = {name: space.value(row.method, options, name) for name in ranges}
    if b2_steps is not None and "b2" in ranges:
        chosen["b2"] = b2_steps
    return tuple(name for name, x in chosen.items() if x is not None and ranges[name].at_end(x))


def _mean(values: list[float | None]) -> float | None:
    good = [value for value in values if value is not None]
    return stats.mean(good) if len(good) == len(values) else None
