"""The command that repeats a study of `adax compare`, with the same seeds or others, from the study as data."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection
from typing import Any

from adaxlab import optimizer_options, schedule
from adaxlab.stats import DecisionRule
from adaxlab.study import B2_STEPS, Row, Study, Tuning
from adaxlab.variants import SEEDS_APART


def command(planned: Study, rows: Collection[str]) -> str:
    """The `adax compare` that repeats a study of which these rows have runs; empty if there is none."""
    return _repeated(planned) if _expressible(planned, rows) else ""


def _expressible(planned: Study, rows: Collection[str]) -> bool:
    """Whether `adax compare` can express the plan, and the runs are those of its rows."""
    tuning = planned.tuning or Tuning(1)
    return (
        {row.name for row in planned.rows} == set(rows)
        and all(_plain_row(row) for row in planned.rows)
        and (planned.executor, planned.follows, planned.end_lr) == ("process", "", None)
        and (tuning.seeds, tuning.epochs) == (1, 0)
        and planned.seeds > 0
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
    names, tuning = [row.name for row in planned.rows], planned.tuning
    words = ["adax", "compare", planned.task, "--optimizers", *names, "--seeds", str(planned.seeds)]
    if planned.first_seed >= SEEDS_APART:
        words += ["--base-seed", str(planned.first_seed // SEEDS_APART)]
    words += ["--tune", str(tuning.trials if tuning else 0)]
    words += ["--tune-over", *tuning.over] if tuning and tuning.over != ("lr",) else []
    words += ["--sampler", tuning.sampler] if tuning and tuning.sampler else []
    words += ["--epochs", str(planned.epochs)] if planned.epochs else []
    words += ["--batch-size", str(planned.batch_size)] if planned.batch_size else []
    words += ["--schedule", schedule.words(schedule.complete(planned.schedule))] if planned.schedule else []
    options = [f"{key}={_value(value)}" for key, value in planned.task_options.items()]
    words += ["--task-option", *options] if options else []
    changed = [f"{row.name}.{k}={_value(v)}" for row in planned.rows for k, v in row.options.items()]
    words += ["--set", *changed] if changed else []
    if planned.baseline not in ("", "adamw" if "adamw" in names else names[0]):
        words += ["--baseline", planned.baseline]
    for key in ("confidence", "margin"):
        if getattr(planned.rule, key) != getattr(DecisionRule(), key):
            words += [f"--{key}", str(getattr(planned.rule, key))]
    words += ["--target", str(planned.target)] if planned.target is not None else []
    words += ["--study", planned.name] if not re.fullmatch(r"(.*-[0-9a-f]{6})?", planned.name) else []
    return " ".join(shlex.quote(w) for w in words)


def _value(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
