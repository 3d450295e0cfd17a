"""A study with other settings: on other seeds (`adax compare --base-seed 1`), or with other sizes, under a name that
states the change (`adax reproduce NAME --epochs 2`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from adaxlab import spec
from adaxlab.errors import LabError
from adaxlab.study import TUNE_SEED, Study

SEEDS_APART = 100_000  # between the seeds of two base seeds


def with_base_seed(study: Study, base: int) -> Study:
    """The study on other seeds: the seeds of final runs, tuning and sampler are derived from the base seed.

    >>> from adaxlab.study import Row, Tuning
    >>> other = with_base_seed(Study("digits", (Row("adamw"),), tuning=Tuning(8)), 2)
    >>> other.first_seed, other.tuning.first_seed
    (200000, 210000)
    """
    if not 0 <= base < 10_000:
        raise LabError(f"base-seed={base}: must be from 0 to 9999")
    tuning = study.tuning and replace(study.tuning, first_seed=base * SEEDS_APART + TUNE_SEED)
    return replace(study, first_seed=base * SEEDS_APART, tuning=tuning)


def changed(study: Study, **given: Any) -> Study:
    """The study with other seeds, epochs, batch size, trials or task options, under a name that states the change.

    Runs of a changed study are never used for the original study. A value of 0 or None changes nothing. A study without
    final runs stays without them.
    """
    fields = ("seeds", "epochs", "batch_size")
    options = {k: v for k, v in given.items() if k not in (*fields, "tune") and v is not None}
    asked = {k: given[k] for k in fields if given.get(k) and given[k] != getattr(study, k)}
    if not study.seeds:
        asked.pop("seeds", None)
    new: dict[str, Any] = dict(asked)
    if options:
        new["task_options"] = {**study.task_options, **options}
    tune = given.get("tune") or 0
    if tune and study.tuning and tune != study.tuning.trials:
        if any(row.rates for row in study.rows):
            raise LabError(
                f"tune={tune}: study {study.name} has {study.tuning.trials} fixed learning rates a row; leave it out "
                "(seeds and epochs can be changed)"
            )
        asked["tune"] = tune
        new["tuning"] = replace(study.tuning, trials=tune)
    if "epochs" in asked and study.tuning and study.tuning.epochs:
        tuning = new.get("tuning", study.tuning)
        new["tuning"] = replace(tuning, epochs=max(1, asked["epochs"] * tuning.epochs // study.epochs))
    label = "-".join(
        f"{key}{value}" for key, value in sorted({**asked, **spec.without_places(options)}.items())
    )
    plain = "".join(c if c.isalnum() or c in "-_." else "_" for c in label)
    return replace(study, **new, name=f"{study.name}-{plain}" if plain else study.name)
