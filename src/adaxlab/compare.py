"""`adax compare` as a function: complete the study, run what is missing, judge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from adaxlab import optimizers, spec
from adaxlab import task as tasks
from adaxlab.driver import Executor, Watcher, carry_out
from adaxlab.errors import RunError, unknown
from adaxlab.failures import guarded
from adaxlab.settings import Settings
from adaxlab.signals import Stop
from adaxlab.study import B2_STEPS, Row, Study
from adaxlab.summary import Comparison, summarise

__all__ = ["Comparison", "compare", "rows"]


def rows(names: Iterable[str], options: Mapping[str, Mapping[str, Any]] | None = None) -> tuple[Row, ...]:
    """A row for each optimizer, with the options that are set for it.

    >>> [row.b2_steps for row in rows(["adamw", "adaxw", "adaxw@own"], {"adaxw@own": {"betas": (0.9, 1e-4)}})]
    [None, 3.0, None]
    """
    names, given = tuple(names), dict(options or {})
    for name in given:
        if name not in names:
            raise unknown("optimizer in --set", name, names)
    return tuple(_row(name, given.get(name, {})) for name in names)


def _row(name: str, options: Mapping[str, Any]) -> Row:
    return Row(
        name,
        options=options,
        b2_steps=B2_STEPS if optimizers.grows(name) and optimizers.betas_of(name) not in options else None,
    )


def check(study: Study) -> None:
    """Build every optimizer over the task's own model, so that what it does not accept is found before any run."""
    if study.executor != "process":
        return
    made: dict[str, Any] = {}
    for row in study.rows:
        options = study.options_of(row)
        key = spec.canonical(options)
        if key not in made:
            task = tasks.load(study.task, options)
            with guarded(f"task {study.task}", RunError), torch.random.fork_rng(devices=[]):
                tasks.check_data(task.data(), study.task)  # model() may need what data() finds out
                torch.manual_seed(study.first_seed)
                made[key] = task, tasks.check_model(task.model(), study.task)
        task, model = made[key]
        given = optimizers.options(row.method, row.options)
        groups = getattr(task, "groups", None)
        params = groups(model, given) if groups else model.parameters()
        optimizers.build(row.method, params, given, model)


def compare(
    study: Study,
    root: Path | str = "runs",
    settings: Settings | None = None,
    watcher: Watcher | None = None,
    stop: Stop | None = None,
    execute: Executor | None = None,
    first: int = 0,
) -> Comparison:
    """Run what is missing of the study and summarise it; `first` is the row to begin with (for workers)."""
    study = study.complete()
    check(study)
    records = carry_out(study, root, settings, watcher, stop, execute=execute, first=first)
    assert records is not None, "only a limit in seconds ends without records"
    return summarise(study, records, study.history(root))
