"""A study: what is compared, how it is tuned, and the rule that decides. Frozen, and written before the first run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from adaxlab import files, optimizers, schedule, spec, task
from adaxlab.errors import LabError, StoreError, unknown
from adaxlab.stats import Rule

TUNE_SEED = 10_000  # tuning runs take seeds from here on, final runs from 0: no seed is used for both
GROWS = ("optimizers", "seeds")  # may differ between two calls of one study; everything else is fixed


@dataclass(frozen=True)
class Study:
    """Task x optimizers x tuning budget x seeds.

    `options` holds what the user sets per optimizer; `tune` is the number of learning rates each of them may try
    (0: its documented default), judged on a held-out split with `tune_seeds` runs each; `seeds` final runs
    follow, on seeds that tuning has not seen. `claims` are "each optimizer is better than `baseline`".
    """

    task: str
    optimizers: tuple[str, ...]
    seeds: int = 3
    tune: int = 0
    tune_seeds: int = 1
    name: str = ""
    task_options: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    epochs: int = 0
    batch_size: int = 0
    schedule: Mapping[str, Any] | str = ""
    baseline: str = ""
    rule: Rule = field(default_factory=Rule)

    def complete(self) -> Study:
        """The study with the task's own defaults filled in and every name checked; bad input is an error of
        one line."""
        made = task.load(self.task, self.task_options)
        if not self.optimizers:
            raise LabError(f"no optimizer given; known are {', '.join(optimizers.names())}")
        if len(set(self.optimizers)) != len(self.optimizers):
            raise LabError(f"optimizers={' '.join(self.optimizers)}: one is named twice")
        for name in self.options:
            if name not in self.optimizers:
                raise unknown("optimizer in --set", name, self.optimizers)
        for name in self.optimizers:
            optimizers.check_options(name, optimizers.options(name, self.options.get(name)))
        for key, least in {"seeds": 1, "tune": 0, "tune_seeds": 1}.items():
            if getattr(self, key) < least:
                raise LabError(f"{key}={getattr(self, key)!r}: must be >= {least}")
        baseline = self.baseline or ("adamw" if "adamw" in self.optimizers else self.optimizers[0])
        if baseline not in self.optimizers:
            raise unknown("baseline", baseline, self.optimizers)
        full = replace(
            self,
            epochs=self.epochs or getattr(made, "epochs", 10),
            batch_size=self.batch_size or getattr(made, "batch_size", 64),
            schedule=schedule.complete(self.schedule or getattr(made, "schedule", "constant")),
            baseline=baseline,
        )
        full = replace(full, name=self.name or full._default_name())
        full.final(full.optimizers[0], {}, 0)  # checks the rest
        return full

    def _default_name(self) -> str:
        """Task, and a few digits of everything that must not differ within a study."""
        short = self.task.rpartition(":")[2] if ":" in self.task else self.task
        fixed = {k: v for k, v in self.data().items() if k not in (*GROWS, "name", "baseline")}
        digits = hashlib.sha256(spec.canonical([fixed, task.source_digest(self.task)]).encode()).hexdigest()[
            :6
        ]
        return f"{short}-{'tuned-' if self.tune else ''}{digits}"

    def data(self) -> dict[str, Any]:
        """The study as JSON has it."""
        return json.loads(spec.canonical(asdict(self)))

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Study:
        """What `data` gave, back."""
        return cls(**{**data, "optimizers": tuple(data["optimizers"]), "rule": Rule(**data["rule"])})

    def claims(self) -> list[dict[str, str]]:
        """What the rule will judge, fixed with the study."""
        return [
            {"id": f"{name}>{self.baseline}", "better": name, "than": self.baseline}
            for name in self.optimizers
            if name != self.baseline
        ]

    def default_lr(self, optimizer: str) -> float:
        """Where its search starts: the documented default, or what the user set."""
        return optimizers.options(optimizer, self.options.get(optimizer))["lr"]

    def _spec(self, optimizer: str, options: Mapping[str, Any], **rest: Any) -> dict[str, Any]:
        return spec.make(
            study=self.name,
            task=self.task,
            task_options=self.task_options,
            optimizer=optimizer,
            options={**self.options.get(optimizer, {}), **options},
            schedule=self.schedule,
            epochs=self.epochs,
            batch_size=self.batch_size,
            **rest,
        )

    def trial(self, optimizer: str, lr: float, number: int, seed: int) -> dict[str, Any]:
        """The specification of a tuning run."""
        return self._spec(optimizer, {"lr": lr}, seed=TUNE_SEED + seed, purpose="tune", trial=number)

    def final(self, optimizer: str, options: Mapping[str, Any], seed: int) -> dict[str, Any]:
        """The specification of a final run."""
        return self._spec(optimizer, options, seed=seed, purpose="final")

    def write(self, root: Path | str) -> Path:
        """Put study.json beside the runs, before any of them. A study of that name with other settings is an error."""
        path = Path(root) / self.name / "study.json"
        content = {"schema": spec.SCHEMA, **self.data(), "claims": self.claims()}
        if path.exists():
            before = files.read_json(path)
            if not isinstance(before, dict) or before.get("schema") != spec.SCHEMA:
                raise StoreError(
                    f"{path}: study of another version; left untouched, choose another --study or --out"
                )
            for key, value in content.items():
                if key not in (*GROWS, "claims", "baseline") and before.get(key) != value:
                    raise LabError(
                        f"study {self.name}: {key} was {before.get(key)!r} and cannot become {value!r}; "
                        "choose another --study"
                    )
            if before == content:
                return path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise files.failed(path, error) from error
        files.write_json(path, content)
        return path
