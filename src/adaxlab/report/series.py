"""Group run records into series: one per optimizer, or per variant of an optimizer, in a study.

A record has `spec`, `env`, `metrics`, `done` and `path`, as loaded from the store. This module does not draw.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from adaxlab import optimizer_options, study_file, task
from adaxlab.report.names import parts, titles
from adaxlab.report.palette import Look, looks
from adaxlab.run_faults import number
from adaxopt.zoo import METHODS

MAX_POINTS = 200
_SETTINGS = ("options", "schedule", "epochs", "batch_size", "task_options")


@dataclass(frozen=True)
class Series:
    """Final runs that differ only in their seed, and the tuning runs of the same optimizer."""

    label: str
    optimizer: str
    final: tuple[Any, ...]
    tune: tuple[Any, ...]
    row: str = ""

    @cached_property
    def finished(self) -> list[Any]:
        """Final runs that finished, by seed. Means and intervals are over these runs."""
        return sorted(
            (r for r in self.final if status(r) == "finished"), key=lambda r: _order(r.spec.get("seed"))
        )

    @cached_property
    def diverged(self) -> list[Any]:
        return [r for r in self.final if status(r) == "diverged"]

    @cached_property
    def failed(self) -> list[Any]:
        """Runs whose task or optimizer raised an exception, including tuning runs."""
        return [r for r in (*self.final, *self.tune) if status(r) == "failed"]

    @property
    def b2_steps(self) -> float | None:
        """b2*T of the final runs, if b2 is a growth rate."""
        steps = max((r.done.get("steps") or 0 for r in self.finished), default=0)
        return optimizer_options.b2_steps(self.optimizer, self.options, steps)

    @cached_property
    def unfinished(self) -> list[Any]:
        return [r for r in self.final if status(r) == "unfinished"]

    @cached_property
    def others(self) -> dict[str, list[float]]:
        """Further metrics of the task's `evaluate`, one number per finished run."""
        found: dict[str, list[float]] = {}
        for run in self.finished:
            for name, value in run.done.get("metrics", {}).items():
                if name != run.done.get("metric_name") and value is not None:
                    found.setdefault(name, []).append(value)
        return found

    @cached_property
    def scores(self) -> dict[Any, float]:
        """Seed -> final metric, finished runs only."""
        return {r.spec.get("seed"): float(r.done["metric"]) for r in self.finished}

    @property
    def values(self) -> list[float]:
        return list(self.scores.values())

    @property
    def options(self) -> dict[str, Any]:
        """The options that the final runs share."""
        return dict(self.final[0].spec.get("options") or {}) if self.final else {}

    @property
    def paper(self) -> tuple[float, float] | None:
        """The published mean and its margin for the same setting, if the records contain them."""
        given = next((r.done["paper"] for r in self.final if r.done and r.done.get("paper")), None)
        return (float(given[0]), float(given[1])) if given else None

    def seconds(self, key: str = "seconds") -> list[float]:
        return [float(r.done[key]) for r in self.finished if number(r.done.get(key))]


@dataclass(frozen=True)
class StudyRuns:
    """All runs of one study: the metric, and one series per optimizer or variant.

    The planned study is `adaxlab.study.Study`.
    """

    name: str
    records: tuple[Any, ...]
    series: tuple[Series, ...]
    metric_name: str
    higher_is_better: bool
    looks: Mapping[str, Look] = field(default_factory=dict)
    written: Mapping[str, str] = field(default_factory=dict)
    """The text of a label in titles and captions, if it differs from the label."""
    replaced: int = 0
    """The number of runs of earlier versions of the task's or an optimizer's file, which are left out."""

    def says(self, label: str) -> str:
        """The text of a label in titles and captions."""
        return self.written.get(label, label)

    @property
    def labels(self) -> list[str]:
        return [s.label for s in self.series]

    @property
    def names(self) -> list[str]:
        """All names in charts: the labels, and optimizers whose tuning or sweep belongs to several variants."""
        found = swept(self)
        shared = [*(self.tuned(s) for s in self.series if s.tune), *(found[1] if found else ())]
        return list(dict.fromkeys([*self.labels, *shared]))

    def tuned(self, one: Series) -> str:
        """The name of a series' tuning runs: its label, or its row if several settings of the row share these runs."""
        shared = sum(other.row == one.row for other in self.series) > 1
        return one.row if shared else one.label

    @cached_property
    def titles(self) -> dict[str, str]:
        """The titles of these names in the legends of image files."""
        given = {s.label: s.options or dict(s.tune[0].spec["options"] if s.tune else {}) for s in self.series}
        return titles(self.names, given)

    @cached_property
    def ranked(self) -> list[Series]:
        """Series with finished final runs, the best mean first."""
        sign = -1 if self.higher_is_better else 1
        return sorted(
            (s for s in self.series if s.scores), key=lambda s: sign * math.fsum(s.values) / len(s.values)
        )

    @property
    def metric_title(self) -> str:
        return f"{self.metric_name} ({self.direction} is better)"

    @property
    def direction(self) -> str:
        return "higher" if self.higher_is_better else "lower"


def swept(study: StudyRuns) -> tuple[str, dict[str, list[Series]]] | None:
    """The numerical setting in which the variants of an optimizer differ, and the variants; None if there is none."""
    found: dict[str, dict[str, list[Series]]] = {}
    for optimizer in dict.fromkeys(s.optimizer for s in study.series):
        variants = [s for s in study.series if s.optimizer == optimizer and s.final]
        settings = [flat(s.final[0].spec) for s in variants]
        names = _differing(settings)
        if len(variants) > 2 and len(names) == 1 and all(number(s.get(names[0])) for s in settings):
            found.setdefault(names[0], {})[optimizer] = variants
    return next(iter(found.items()), None)


def status(record: Any) -> str:
    """`finished`, `diverged`, `failed` or `unfinished`; a finished run without a finite metric counts as diverged."""
    if not record.done:
        return "failed" if reason(record) else "unfinished"
    if record.done.get("status") == "finished":
        return "finished" if number(record.done.get("metric")) else "diverged"
    return str(record.done.get("status", "unfinished"))


def reason(record: Any) -> str:
    """The reason why a run failed; empty if it did not."""
    return getattr(record, "error", "") or ""


def studies(records: Iterable[Any]) -> list[StudyRuns]:
    """The records by study, in order of first appearance; a label has the same look in all studies."""
    by_study: dict[str, list[Any]] = defaultdict(list)
    for record in records:
        by_study[str(record.spec.get("study") or record.spec.get("task") or "study")].append(record)
    found = []
    for name, runs in by_study.items():
        current = _current(runs)
        found.append(replace(_study(name, current), replaced=len(runs) - len(current)))
    known = looks(name for study in found for name in study.names)
    return [replace(study, looks=known) for study in found]


def _current(records: Sequence[Any]) -> list[Any]:
    """The runs of the versions of the task's and the optimizers' files that study.json names, else of the newest ones.
    A named study (`--study`) that is run again after an edit has runs of both versions, which are not of one
    experiment."""

    def versions(run: Any) -> dict[Any, Any]:
        row, source, data = (run.spec.get(key) for key in ("row", "task_source", "data"))
        version = f"{source}+{data}" if source and data else source
        return {
            run.spec.get("task"): version,
            row or run.spec.get("optimizer"): run.spec.get("optimizer_source"),
        }

    newest: dict[Any, Any] = {}
    for run in sorted(records, key=lambda run: str((run.env or {}).get("time", ""))):
        newest |= versions(run)
    named = newest | study_file.sources(records[0].path.parent / "study.json")
    current = [run for run in records if versions(run).items() <= named.items()]
    return current or [run for run in records if versions(run).items() <= newest.items()]


def _study(name: str, records: Sequence[Any]) -> StudyRuns:
    rows: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for record in records:
        optimizer = str(record.spec.get("optimizer", "?"))
        rows[optimizer, str(record.spec.get("row") or optimizer)].append(record)
    by_optimizer: dict[str, list[Series]] = defaultdict(list)
    for (optimizer, row), runs in rows.items():
        by_optimizer[optimizer] += _of_row(row, optimizer, runs)
    out: list[Series] = []
    for optimizer in sorted(by_optimizer, key=_place):
        each = by_optimizer[optimizer]
        if _by_rows(each):
            out += sorted(each, key=lambda one: _natural(one.label))
        else:
            labels = _variant_labels(optimizer, each)
            out += [replace(one, label=label) for one, label in zip(each, labels, strict=True)]
    done = [r.done for r in records if r.done]
    return StudyRuns(
        name,
        tuple(records),
        tuple(out),
        str(next((d["metric_name"] for d in done if d.get("metric_name")), "metric")),
        bool(next((d["higher_is_better"] for d in done if "higher_is_better" in d), True)),
    )


def _of_row(row: str, optimizer: str, runs: Sequence[Any]) -> list[Series]:
    """The series of a row: one, or one per setting of its final runs."""
    tune = tuple(r for r in runs if r.spec.get("purpose") == "tune")
    groups: dict[str, list[Any]] = defaultdict(list)
    for run in runs:
        if run.spec.get("purpose") != "tune":
            groups[_key(run.spec)].append(run)
    return [Series(row, optimizer, tuple(final), tune, row) for final in groups.values() or [[]]]


def _place(optimizer: str) -> tuple[int, list[Any]]:
    """Sort key: the methods of the zoo first, in its order, each followed by its variants; numbers sort numerically.

    >>> sorted(["mine.py:A", "adaxw@b2T=10", "adaxw@b2T=3", "adaxw", "torch:SGD"], key=_place)
    ['torch:SGD', 'adaxw', 'adaxw@b2T=3', 'adaxw@b2T=10', 'mine.py:A']
    """
    method, rest = parts(optimizer)
    if method not in METHODS:
        return len(METHODS), []
    return list(METHODS).index(method), _natural(rest)


def _natural(text: str) -> list[Any]:
    """A sort key by which numbers sort numerically."""
    return [int(w) if w.isdecimal() else w for w in re.split(r"(\d+)", text)]


def flat(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run as a flat dict: options by name, task options with a prefix.

    >>> flat({"options": {"lr": 0.1, "betas": [0.9, 0.99]}, "schedule": {"name": "cosine"}, "epochs": 3, "seed": 7})
    {'lr': 0.1, 'b1': 0.9, 'b2': 0.99, 'schedule': 'cosine', 'epochs': 3}
    """
    out: dict[str, Any] = {}
    for name in _SETTINGS:
        value = spec.get(name)
        if name == "options":
            for k, v in (value or {}).items():
                pair = k == "betas" and isinstance(v, (list, tuple)) and len(v) == 2
                out.update({"b1": v[0], "b2": v[1]} if pair else {k: v})
        elif name == "schedule" and isinstance(value, Mapping):
            rest = [f"{k} {show(v)}" for k, v in value.items() if k != "name"]
            out[name] = show(value.get("name")) + (f" ({', '.join(rest)})" if rest else "")
        elif isinstance(value, Mapping):
            out.update({f"task.{k}": v for k, v in value.items()})
        elif value is not None:
            out[name] = value
    return out


def show(value: Any) -> str:
    """A setting as text: 0.001, (0.9, 0.0001), cosine."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, (list, tuple)):
        return "(" + ", ".join(show(v) for v in value) + ")"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k}={show(v)}" for k, v in value.items()) + "}"
    return str(value)


def _differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of the settings that differ."""
    names = dict.fromkeys(name for one in settings for name in one)
    return [name for name in names if len({show(one.get(name)) for one in settings}) > 1]


def _key(spec: Mapping[str, Any]) -> str:
    return json.dumps([spec.get(k) for k in _SETTINGS], sort_keys=True, default=str)


def _settings_of(each: Sequence[Series]) -> list[dict[str, Any]]:
    return [flat(one.final[0].spec) if one.final else {} for one in each]


def _by_rows(each: Sequence[Series]) -> bool:
    """Whether the series of an optimizer have the names of their rows: if they were tuned, or differ in several
    settings."""
    rows = {one.label for one in each}
    if len(rows) < max(2, len(each)):
        return False
    return any(one.tune for one in each) or len(_differing(_settings_of(each))) != 1


def _variant_labels(optimizer: str, each: Sequence[Series]) -> list[str]:
    """The optimizer's name, with the settings that distinguish its variants if there are several."""
    if len(each) < 2:
        return [optimizer] * len(each)
    settings = _settings_of(each)
    names = _differing(settings)
    short = {n: {"weight_decay": "wd", "batch_size": "batch"}.get(n, n) for n in names}
    return [", ".join([optimizer, *(f"{short[n]}={show(s.get(n))}" for n in names)]) for s in settings]


@dataclass(frozen=True)
class Curve:
    """One quantity of a series during training: at each x, the values of the finished runs."""

    x: list[float]
    values: list[list[float]]


def curve(runs: Sequence[Any], quantity: str, axis: str, most: int = MAX_POINTS) -> Curve:
    """`quantity` against `axis`, with at most `most` points including both ends; values are in the order of `runs`."""
    at: dict[float, list[float]] = defaultdict(list)
    for run in runs:
        for line in run.metrics:
            if number(line.get(quantity)) and number(line.get(axis)):
                at[float(line[axis])].append(float(line[quantity]))
    xs = thin(sorted(at), most)
    return Curve(xs, [at[x] for x in xs])


def thin(xs: Sequence[float], most: int = MAX_POINTS) -> list[float]:
    """At most `most` of `xs`, evenly spaced, with both ends.

    >>> thin([0, 1, 2, 3, 4, 5, 6], 3)
    [0, 3, 6]
    """
    if len(xs) <= most:
        return list(xs)
    return [xs[round(i * (len(xs) - 1) / (most - 1))] for i in range(most)]


def axis_of(study: StudyRuns) -> str:
    """`epoch` if an epoch is a pass over the data with at most one evaluation, otherwise `step`."""
    if any(_pieces(run.spec) for run in study.records):
        return "step"
    for run in study.records:
        epochs = [line.get("epoch") for line in run.metrics]
        if len(set(epochs)) < len(epochs) or any(e is None for e in epochs):
            return "step"
    return "epoch"


def _pieces(spec: Mapping[str, Any]) -> bool:
    """Whether an epoch is a fixed number of steps: the task draws random batches and has an option `steps`, or it reads
    a text in `parts`. A user's task is not imported; its options decide."""
    name, options = str(spec.get("task")), spec.get("task_options") or {}
    if "steps" in options or options.get("parts", 1) != 1:
        return True
    return name in task.BUILT_IN and _takes_steps(name)


@functools.cache
def _takes_steps(name: str) -> bool:
    return "steps" in inspect.signature(task.find(name)).parameters


def _order(seed: Any) -> tuple[int, Any]:
    return (0, seed) if isinstance(seed, (int, float)) else (1, str(seed))
