"""The commands that repeat a study exactly or approximately, derived from its specifications."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from adaxlab import memory_text
from adaxlab.report.series import Series, StudyRuns, flat
from adaxlab.space import BETAS, NAMED
from adaxlab.study import Study, Tuning
from adaxlab.variants import SEEDS_APART
from adaxopt.zoo import METHODS


def commands(study: StudyRuns, planned: Study | None = None) -> list[str]:
    """The recorded command of the runs; otherwise one `adax compare`, or one per variant if an optimizer has several.

    `planned` is the study from study.json, if available; it contains the tuned ranges.
    """
    tuning = planned.tuning if planned else None
    return _given(study) or [_compare(chosen, tuning) for chosen in _groups(study)]


def differing(study: StudyRuns) -> list[str]:
    """The settings that differ between the runs of one command although `adax compare` uses one value for all runs."""
    if _given(study):
        return []
    specs = [[r.spec for s in chosen for r in (*s.final, *s.tune)] for chosen in _groups(study)]
    return [
        key
        for key in ("task", "task_options", "epochs", "batch_size", "schedule")
        if any(
            len({json.dumps(s.get(key), sort_keys=True, default=str) for s in group}) > 1 for group in specs
        )
    ]


def _given(study: StudyRuns) -> list[str]:
    return list(dict.fromkeys(r.env["command"] for r in study.records if r.env and r.env.get("command")))


def _groups(study: StudyRuns) -> list[Sequence[Series]]:
    """The series of each command."""
    optimizers = [s.optimizer for s in study.series]
    if len(set(optimizers)) == len(optimizers):
        return [study.series]
    return [[s] for s in study.series]


def _compare(chosen: Sequence[Series], tuning: Tuning | None) -> str:
    runs = [r for s in chosen for r in (s.final or s.tune)]
    first = runs[0].spec
    words = ["adax", "compare", str(first.get("task")), "--optimizers", *(s.optimizer for s in chosen)]
    seeds = {r.spec.get("seed") for s in chosen for r in s.final}
    words += ["--seeds", str(max(1, len(seeds)))]
    first_seed = min((seed for seed in seeds if isinstance(seed, int)), default=0)
    words += ["--base-seed", str(first_seed // SEEDS_APART)] if first_seed >= SEEDS_APART else []
    trials = max(len({_trial(r.spec) for r in s.tune}) for s in chosen)
    over = tuning.over if tuning else _tuned(chosen)
    words += ["--tune", str(trials)]
    words += ["--tune-over", *over] if over != ("lr",) else []
    words += ["--sampler", tuning.sampler] if tuning and tuning.sampler else []
    words += ["--epochs", str(first.get("epochs")), "--batch-size", str(first.get("batch_size"))]
    words += (
        ["--schedule", _schedule(first["schedule"])] if isinstance(first.get("schedule"), Mapping) else []
    )
    task_options = first.get("task_options") or {}
    words += ["--task-option", *(f"{k}={_value(v)}" for k, v in task_options.items())] if task_options else []
    found = {word.partition("=")[0] for word in over} if trials else set()
    changed = [word for s in chosen for word in _changed(s, found)]
    words += ["--set", *changed] if changed else []
    return " ".join(shlex.quote(w) for w in words)


def _schedule(given: Mapping[str, Any]) -> str:
    """
    >>> _schedule({"gamma": 0.1, "milestones": [0.5, 0.75], "name": "step"})
    'step,gamma=0.1,milestones=0.5/0.75'
    """
    rest = [
        f"{k}={'/'.join(map(str, v)) if isinstance(v, list) else v}" for k, v in given.items() if k != "name"
    ]
    return ",".join([str(given.get("name")), *rest])


def _trial(spec: Mapping[str, Any]) -> Any:
    lr = (spec.get("options") or {}).get("lr")
    return lr if spec.get("trial") is None else spec["trial"]


def _tuned(chosen: Sequence[Series]) -> tuple[str, ...]:
    """The settings that differ between the trials of an optimizer, in the form of `--tune-over`; lr if none differs.
    For a setting without a default range, the range is that of the trials."""
    found: dict[str, list[float]] = {}
    for s in chosen:
        trials = [flat({"options": r.spec.get("options")}) for r in s.tune]
        for name in dict.fromkeys(name for trial in trials for name in trial):
            values = {float(x) for trial in trials if isinstance(x := trial.get(name), int | float)}
            if len(values) > 1:
                found[name] = [*found.get(name, ()), *values]
    return tuple(n if n in NAMED else f"{n}={min(v):g}:{max(v):g}" for n, v in found.items()) or ("lr",)


def _changed(series: Series, tuned: Collection[str]) -> list[str]:
    """Options that differ from the documented defaults, without those that tuning chose."""
    spec = (series.final or series.tune)[0].spec
    defaults = METHODS[series.optimizer].defaults if series.optimizer in METHODS else {}
    chosen = {name.replace(beta, "betas") for name in tuned for beta in BETAS if name.endswith(beta)} | set(
        tuned
    )
    options = dict(spec.get("options") or {})
    if "betas" in chosen and series.optimizer in METHODS and options.get("memory"):  # betas hold its number
        options["memory"] = memory_text.made(options["memory"], options["betas"][1])
    return [
        f"{series.optimizer}.{k}={_value(v)}"
        for k, v in options.items()
        if k not in chosen and _plain(v) != _plain(defaults.get(k, ...))
    ]


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _value(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
