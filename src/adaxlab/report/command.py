"""The commands that repeat a study exactly or approximately, derived from its specifications."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from adaxlab import memory_text, optimizer_options, schedule
from adaxlab.report.series import Series, StudyRuns, flat
from adaxlab.space import BETAS, NAMED
from adaxlab.stats import DecisionRule
from adaxlab.study import B2_STEPS, Row, Study, Tuning
from adaxlab.variants import SEEDS_APART
from adaxopt.zoo import METHODS

TRAINING = ("epochs", "batch_size", "schedule", "task_options")


def commands(study: StudyRuns, planned: Study | None = None) -> list[str]:
    """The recorded command of the runs; otherwise one `adax compare`, or one per variant if an optimizer has several.

    `planned` is the study from study.json, if available. It contains what runs do not show: the options as they were
    given, the tuned ranges, the baseline and the decision rule.
    """
    given = _given(study)
    if not given and planned and _expressible(planned, study):
        return [_repeated(planned)]
    tuning = planned.tuning if planned else None
    return given or [_compare(chosen, tuning) for chosen in _groups(study)]


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


def _expressible(planned: Study, study: StudyRuns) -> bool:
    """Whether `adax compare` can express the plan, and the runs are those of its rows."""
    tuning = planned.tuning or Tuning(1)
    return (
        {row.name for row in planned.rows} == {r.row for r in study.records}
        and all(_plain_row(row) for row in planned.rows)
        and (planned.executor, planned.follows, planned.end_lr) == ("process", "", None)
        and (tuning.seeds, tuning.epochs) == (1, 0)
        and planned.seeds > 0
        and isinstance(planned.schedule, Mapping)
    )


def _plain_row(row: Row) -> bool:
    """Whether --optimizers and --set can express the row."""
    if row.optimizer or row.task_options or row.rates or row.lr_decay:
        return False
    fixed = any(key.endswith("betas") for key in row.options) or not optimizer_options.grows(
        row.name, row.options
    )
    return row.b2_steps == B2_STEPS or (row.b2_steps is None and fixed)


def _repeated(planned: Study) -> str:
    """The command of a plan. The trials and seeds are those of the plan, so a time budget is not needed."""
    names = [row.name for row in planned.rows]
    words = _asked(planned.task, names, planned.seeds, planned.first_seed)
    words += _tuning(planned.tuning.trials if planned.tuning else 0, planned.tuning)
    words += _training({key: getattr(planned, key) for key in TRAINING})
    changed = [f"{row.name}.{k}={_value(v)}" for row in planned.rows for k, v in row.options.items()]
    words += ["--set", *changed] if changed else []
    usual = DecisionRule()
    if planned.baseline not in ("", "adamw" if "adamw" in names else names[0]):
        words += ["--baseline", planned.baseline]
    for key in ("confidence", "margin"):
        if getattr(planned.rule, key) != getattr(usual, key):
            words += [f"--{key}", str(getattr(planned.rule, key))]
    words += ["--target", str(planned.target)] if planned.target is not None else []
    words += ["--study", planned.name] if not re.fullmatch(r".*-[0-9a-f]{6}", planned.name) else []
    return " ".join(shlex.quote(w) for w in words)


def _compare(chosen: Sequence[Series], tuning: Tuning | None) -> str:
    runs = [r for s in chosen for r in (s.final or s.tune)]
    first = runs[0].spec
    seeds = {r.spec.get("seed") for s in chosen for r in s.final}
    first_seed = min((seed for seed in seeds if isinstance(seed, int)), default=0)
    names = [s.optimizer for s in chosen]
    words = _asked(str(first.get("task")), names, max(1, len(seeds)), first_seed)
    trials = max(len({_trial(r.spec) for r in s.tune}) for s in chosen)
    tuning = tuning or Tuning(1, over=_tuned(chosen))
    words += _tuning(trials, tuning)
    words += _training({key: first.get(key) for key in TRAINING})
    found = {word.partition("=")[0] for word in tuning.over} if trials else set()
    changed = [word for s in chosen for word in _changed(s, found)]
    words += ["--set", *changed] if changed else []
    return " ".join(shlex.quote(w) for w in words)


def _asked(task: str, names: Sequence[str], seeds: int, first_seed: int) -> list[str]:
    words = ["adax", "compare", task, "--optimizers", *names, "--seeds", str(seeds)]
    return [*words, "--base-seed", str(first_seed // SEEDS_APART)] if first_seed >= SEEDS_APART else words


def _tuning(trials: int, tuning: Tuning | None) -> list[str]:
    words = ["--tune", str(trials)]
    words += ["--tune-over", *tuning.over] if tuning and tuning.over != ("lr",) else []
    return [*words, "--sampler", tuning.sampler] if tuning and tuning.sampler else words


def _training(given: Mapping[str, Any]) -> list[str]:
    words = ["--epochs", str(given["epochs"]), "--batch-size", str(given["batch_size"])]
    words += (
        ["--schedule", schedule.words(given["schedule"])] if isinstance(given["schedule"], Mapping) else []
    )
    options = given["task_options"] or {}
    return [*words, "--task-option", *(f"{k}={_value(v)}" for k, v in options.items())] if options else words


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
