"""A study as data: what is compared, how it is tuned, and the decision rule. Claims name their study (`claim.py`).

    Row      one line of a table: an optimizer with its settings
    Tuning   how many learning rates every row may try, on data that final runs are not judged on
    Study    rows x seeds on a task; built by `adax compare` from its arguments and by adaxlab/paper/*.py as data

A study is immutable, and written to study.json before the first run (`study_file.py`). `adaxlab.driver` runs it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from adaxlab import optimizer_options, schedule, search, space, spec, splits, task
from adaxlab.errors import LabError, unknown
from adaxlab.failures import guarded
from adaxlab.stats import DecisionRule
from adaxopt.zoo import METHODS

B2_STEPS = 3.0
"""The default b2*T. AdaX's b2 is a growth rate, so it is set from the length of the run."""
BATCH_SIZE = 64
"""That of a task which names none."""
TUNE_SEED = 10_000  # the first seed of tuning runs; final runs start at 0, so no seed is used for both
SEEDS_SHARED = ("cifar10/tuned",)  # was run before sharing seeds was forbidden; its claims say so
GROWS = ("rows", "seeds")  # may differ between two calls of one study; everything else is fixed
WORDS = (
    "title",
    "asks",
    "where",
    "note",
    "stand_in",
    "target",
    "figures",
)  # descriptions: changing them does not change the study


@dataclass(frozen=True)
class Row:
    """One row of the table. `adax@dense` is adax under a second name."""

    name: str
    optimizer: str = ""
    """The name of the row, unless given."""
    options: Mapping[str, Any] = field(default_factory=dict)
    task_options: Mapping[str, Any] = field(default_factory=dict)
    rates: tuple[float, ...] = ()
    """The learning rates to try. If empty, a search starts at the row's own learning rate."""
    b2_steps: float | None = None
    """b2*T; converted to b2 when T is known."""
    lr_decay: float | None = None
    """lr*weight_decay; converted to weight_decay when lr is known."""
    paper: tuple[float, float] | None = None
    """The paper's result and margin, if it has one."""

    @property
    def method(self) -> str:
        """The name of the optimizer."""
        return self.optimizer or self.name

    def lr(self) -> float:
        """The row's own learning rate: as given, or the optimizer's documented default."""
        return optimizer_options.complete(self.method, self.options)["lr"]

    def at(self, lr: float, steps: int) -> dict[str, Any]:
        """The optimizer's options at this lr, in a run of `steps` steps.

        >>> Row("adaxw", b2_steps=3, lr_decay=1e-4).at(1e-3, 2000)
        {'lr': 0.001, 'betas': [0.9, 0.0015], 'weight_decay': 0.1}
        """
        found = {**self.options, "lr": lr}
        if self.b2_steps is not None:
            key = optimizer_options.betas_of(self.method)
            b1 = found[key][0] if key in found else 0.9
            b2 = min(self.b2_steps / steps, 0.99)  # below 1, however short the run
            found[key] = [b1, float(f"{b2:.6g}")]
        if self.lr_decay is not None:
            found["weight_decay"] = float(f"{self.lr_decay / lr:.6g}")
        return found

    def space(self, over: Iterable[str]) -> dict[str, space.Range]:
        """The ranges of those settings to tune that the optimizer has."""
        return space.of(self.method, self.options, space.parse(over))

    def tuned(self, chosen: Mapping[str, float]) -> Row:
        """The row with the settings that a search has chosen, except lr, which is passed to `at`."""
        b2_steps = chosen.get("b2") if optimizer_options.grows(self.method, self.options) else None
        rest = {name: value for name, value in chosen.items() if name != "lr"}
        options = space.options(self.method, self.options, rest)
        return replace(self, options=options, b2_steps=self.b2_steps if b2_steps is None else b2_steps)


@dataclass(frozen=True)
class Tuning:
    """The tuning budget of every row: `trials` settings, each with `seeds` runs of `epochs` epochs (0: the study's)."""

    trials: int
    seeds: int = 1
    epochs: int = 0
    first_seed: int = TUNE_SEED
    over: tuple[str, ...] = ("lr",)
    """What is tuned: lr, weight_decay, b1, b2, or option=low:high (adaxlab.space)."""
    sampler: str = ""
    """qmc, random or tpe. If empty: a search along the log grid if only lr is tuned, else qmc."""

    def __post_init__(self) -> None:
        for key, least in {"trials": 1, "seeds": 1, "epochs": 0, "first_seed": 0}.items():
            if getattr(self, key) < least:
                raise LabError(f"tuning {key}={getattr(self, key)!r}: must be >= {least}")
        if self.sampler and self.sampler not in search.SAMPLERS:
            raise unknown("sampler", self.sampler, search.SAMPLERS)
        space.parse(self.over)

    @property
    def walks(self) -> bool:
        """Whether only lr is tuned, by the search along the log grid."""
        return self.over == ("lr",) and not self.sampler

    @property
    def tunes_lr(self) -> bool:
        """Whether more than one lr is tried.

        >>> Tuning(8).tunes_lr, Tuning(1).tunes_lr, Tuning(8, over=("weight_decay",)).tunes_lr
        (True, False, False)
        """
        return self.trials > 1 and any(knob.name == "lr" for knob in space.parse(self.over))

    def data(self) -> dict[str, Any]:
        """The JSON form. The tuned settings are included only if there are others than lr."""
        full = asdict(self)
        return full if not self.walks else {k: v for k, v in full.items() if k not in ("over", "sampler")}

    @property
    def all_seeds(self) -> range:
        return range(self.first_seed, self.first_seed + self.seeds)


@dataclass(frozen=True)
class Study:
    """Rows x seeds on one task. Everything that affects the decision is fixed here, before the runs."""

    task: str
    rows: tuple[Row, ...]
    name: str = ""
    seeds: int = 5
    first_seed: int = 0
    tuning: Tuning | None = None
    follows: str = ""
    """The study whose records choose each row's learning rate."""
    task_options: Mapping[str, Any] = field(default_factory=dict)
    epochs: int = 0
    """0: the task's own. The same holds for `batch_size` and `schedule`."""
    batch_size: int = 0
    schedule: Mapping[str, Any] | str = ""
    end_lr: float | None = None
    """The final lr of a linear or cosine schedule."""
    baseline: str = ""
    rule: DecisionRule = field(default_factory=DecisionRule)
    target: float | None = None
    """The target value of the metric for `steps to`."""
    broken: float = 0.25
    """A run is broken if it diverged, or ended this far above the best of its row's trials."""
    budget: Mapping[str, Any] = field(default_factory=dict)
    """The time budget of the study, and the trials and seeds that were cut (adaxlab.budget)."""
    executor: str = "process"
    """The executor of the runs (adaxlab.execute)."""
    share: bool = True
    """Whether runs of other studies are reused. False if times are measured: each run then uses the device alone."""
    title: str = ""
    where: str = ""
    """The place in the paper."""
    asks: str = ""
    """The question, in one sentence."""
    stand_in: str = ""
    """The paper's own data, if this study uses other data."""
    note: str = ""
    figures: tuple[str, ...] = ()
    """Which figures the documentation shows (`paper.drawn.WORDS`)."""

    def __post_init__(self) -> None:
        names = [row.name for row in self.rows]
        if not names:
            raise LabError(f"no optimizer given; known are {', '.join(METHODS)}")
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise LabError(f"{', '.join(twice)}: named twice; adaxw@slow is adaxw under a second name")
        if self.baseline and self.baseline not in names:
            raise unknown("baseline", self.baseline, names)
        if self.target is not None and not math.isfinite(self.target):
            raise LabError(f"target={self.target}: must be a finite number")
        if self.seeds < 0 or (not self.seeds and not self.tuning):
            raise LabError(f"seeds={self.seeds!r}: must be >= 1")
        for row in self.rows:
            if row.rates and (not self.tuning or len(row.rates) != self.tuning.trials):
                trials = self.tuning.trials if self.tuning else 0
                raise LabError(
                    f"study {self.name}: {row.name} has {len(row.rates)} rates, each must have {trials}"
                )

        if self.tuning:
            self.check_apart(self)

    def check_apart(self, before: Study) -> None:
        """Raise LabError if a tuning seed of the study `before` is also a seed of this study's final runs."""
        used = set(before.tuning.all_seeds) if before.tuning else set()
        both = used & set(self.all_seeds)
        if both and not self.name.startswith(SEEDS_SHARED):
            if before is self and (most := min(used) - self.first_seed) > 0:
                raise LabError(
                    f"seeds={self.seeds}: seed {min(both)} is used for tuning; must be at most {most}"
                )
            seeds = ", ".join(str(seed) for seed in sorted(both))
            raise LabError(
                f"study {self.name}: seed {seeds} is used for tuning (study {before.name}) and for final runs; "
                "choose another first_seed"
            )

    @property
    def all_seeds(self) -> range:
        """The seeds of the final runs."""
        return range(self.first_seed, self.first_seed + self.seeds)

    def row(self, name: str) -> Row:
        """The row with the given name."""
        return next(row for row in self.rows if row.name == name)

    def variants(self, name: str) -> list[Row]:
        """The row with the given name, or else those that vary one of its settings, such as `adaxw wd 0.1`."""
        same = [row for row in self.rows if row.name == name]
        return same or [row for row in self.rows if row.name.startswith(f"{name} ")]

    @property
    def terms(self) -> str:
        """What a verdict is about: methods that were "tuned", settings that were "given", or defaults: "untuned".

        >>> Study("digits", (Row("adamw"), Row("adaxw", options={"lr": 1e-3}))).terms
        'untuned'
        >>> Study("digits", (Row("adamw"), Row("adaxw")), tuning=Tuning(1)).terms  # the first trial is the default
        'untuned'
        """
        if self.follows or (self.tuning and self.tuning.tunes_lr):
            return "tuned"
        return "given" if all("lr" in row.options for row in self.rows) else "untuned"

    def complete(self) -> Study:
        """The study with the task's defaults filled in and all options validated. Invalid input raises LabError."""
        made = task.load(self.task, self.task_options)
        for row in self.rows:
            optimizer_options.check(row.method, row.options)
        self._check_space()
        names = [row.name for row in self.rows]
        full = replace(
            self,
            task=task.plain(self.task),
            epochs=self.epochs or getattr(made, "epochs", 10),
            batch_size=self.batch_size or getattr(made, "batch_size", BATCH_SIZE),
            schedule=schedule.complete(self.schedule or getattr(made, "schedule", "constant")),
            baseline=self.baseline or ("adamw" if "adamw" in names else names[0]),
        )
        return replace(full, name=spec.check_study(self.name or full._default_name()))

    def _check_space(self) -> None:
        """Raise unless every tuned setting is an option of some optimizer, and every optimizer has at least one."""
        if not self.tuning or self.tuning.walks:
            return
        spaces = {row.name: row.space(self.tuning.over) for row in self.rows}
        for knob in space.parse(self.tuning.over):
            if not any(knob.name in found for found in spaces.values()):
                raise LabError(f"--tune-over {knob.name}: none of {', '.join(spaces)} has such an option")
        for name, found in spaces.items():
            if not found:
                raise LabError(f"--tune-over {' '.join(self.tuning.over)}: {name} has none of them; add lr")

    def _default_name(self) -> str:
        """The task, and a short hash of everything that is fixed within a study, including the rows' settings."""
        short = self.task.rpartition(":")[2] if ":" in self.task else self.task
        fixed = {k: v for k, v in self.data().items() if k not in (*GROWS, *WORDS, "name", "baseline")}
        given = sorted([row.name, row.options] for row in self.rows if row.options)
        text = spec.canonical([fixed, given, task.source_digest(self.task)])
        digits = hashlib.sha256(text.encode()).hexdigest()[:6]
        return f"{short}-{'tuned-' if self.tuning else ''}{digits}"

    def data(self) -> dict[str, Any]:
        """The JSON form of the study."""
        tuning = self.tuning.data() if self.tuning else None
        full = {**asdict(self), "tuning": tuning}
        if not self.budget:
            del full["budget"]
        return json.loads(spec.canonical(full))

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Study:
        """The study from its JSON form, the inverse of `data`."""
        rows = tuple(Row(**{**row, "rates": tuple(row["rates"])}) for row in data["rows"])
        how = data["tuning"]
        tuning = Tuning(**{**how, "over": tuple(how.get("over", ("lr",)))}) if how else None
        figures = tuple(data["figures"])
        return cls(
            **{
                **data,
                "task": task.plain(data["task"]),
                "rows": rows,
                "tuning": tuning,
                "rule": DecisionRule(**data["rule"]),
                "figures": figures,
            }
        )

    def version(self) -> str | None:
        """The digest of the user's task, of its file and of the data if it has a `digest()`; None if it is built in."""
        source = task.source_digest(self.task)
        data = source and _data_digest(self.task, spec.canonical(self.task_options))
        return f"{source}+{data}" if data else source

    # -- specifications of runs -----------------------------------------------------------------------------------

    def length(self, purpose: str) -> int:
        """The number of epochs of a run."""
        return (self.tuning.epochs if purpose == "tune" and self.tuning else 0) or self.epochs

    def options_of(self, row: Row) -> dict[str, Any]:
        """The task's options in runs of this row."""
        return {**self.task_options, **row.task_options}

    def spec(
        self, row: Row, lr: float, *, seed: int, purpose: str, trial: int | None = None
    ) -> dict[str, Any]:
        """The specification of one run."""
        options = self.options_of(row)
        schedule = self.schedule
        if self.end_lr is not None:
            named = {"name": schedule} if isinstance(schedule, str) else schedule
            schedule = {**named, "final": float(f"{self.end_lr / lr:.6g}")}
        steps = 1
        if row.b2_steps is not None:
            steps = _epoch_steps(self.task, spec.canonical(options), self.batch_size, purpose) * self.length(
                purpose
            )
        return spec.make(
            study=self.name,
            task=self.task,
            task_options=options,
            row=row.name,
            optimizer=row.method,
            options=row.at(lr, steps),
            schedule=schedule,
            epochs=self.length(purpose),
            batch_size=self.batch_size,
            seed=seed,
            purpose=purpose,
            trial=trial,
            data=_data_digest(self.task, spec.canonical(options)),
        )

    def trials(self, row: Row, lr: float, number: int) -> list[dict[str, Any]]:
        """The tuning runs of one learning rate."""
        assert self.tuning is not None
        return [self.spec(row, lr, seed=seed, purpose="tune", trial=number) for seed in self.tuning.all_seeds]

    def finals(self, row: Row, lr: float) -> list[dict[str, Any]]:
        """The final runs of a row at this learning rate."""
        return [self.spec(row, lr, seed=seed, purpose="final") for seed in self.all_seeds]

    def runs(self) -> int:
        """The number of runs of the study."""
        tuning = self.tuning.trials * self.tuning.seeds if self.tuning else 0
        return len(self.rows) * (tuning + self.seeds)


@functools.lru_cache(8)
def _made(name: str, options: str) -> Any:
    return task.load(name, json.loads(options))


@functools.lru_cache(8)
def _data_digest(name: str, options: str) -> str | None:
    return task.data_digest(_made(name, options)).get("data")


@functools.lru_cache(8)
def _epoch_steps(name: str, options: str, batch_size: int, purpose: str) -> int:
    """The number of steps of an epoch."""
    asked = {"task": name, "batch_size": batch_size, "purpose": purpose}
    with guarded(f"task {name}: data()"):
        return len(splits.sources(asked, _made(name, options), torch.device("cpu"))[0])
