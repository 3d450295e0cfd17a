"""A study of rows: like `adaxlab.study`, where rows differ in the task's options as well or follow a rule in lr.

Every row may try the same number of learning rates (a fixed grid, or the walk of `adaxlab.tune`; none with
tune = 0, which takes the row's own lr), judged on the validation split with one seed (runs of `tune_epochs`); the best
goes to `seeds` runs on fresh seeds, judged on the test split. `b2_steps` is b2*T, the natural size of AdaX's b2, and
`lr_decay` is lr*weight_decay; both are turned into options when T and lr are known. Runs are ordinary runs of the
store: several processes may work on one study, and a killed one goes on.
"""

from __future__ import annotations

import argparse
import json
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from adaxlab import compare, environment, files, handover, spec, stats, task, tune
from adaxlab.data.fetch import say
from adaxlab.errors import Interrupted, LabError, unknown
from adaxlab.settings import Settings, choose_device
from adaxlab.signals import listening
from adaxlab.store import RunRecord
from adaxlab.study import TUNE_SEED


@dataclass(frozen=True)
class Row:
    """One line of the table. `optimizer` is its name as well: `adax@dense` is adax under another one."""

    optimizer: str
    options: Mapping[str, Any] = field(default_factory=dict)
    task_options: Mapping[str, Any] = field(default_factory=dict)
    rates: tuple[float, ...] = ()
    b2_steps: float | None = None
    lr_decay: float | None = None

    def at(self, lr: float, steps: int) -> dict[str, Any]:
        """The optimizer's options at this lr in a run of so many steps.

        >>> Row("adaxw", b2_steps=3, lr_decay=1e-4).at(1e-3, 2000)
        {'lr': 0.001, 'betas': [0.9, 0.0015], 'weight_decay': 0.1}
        """
        found = {**self.options, "lr": lr}
        if self.b2_steps is not None:
            found["betas"] = [0.9, float(f"{self.b2_steps / steps:.6g}")]
        if self.lr_decay is not None:
            found["weight_decay"] = float(f"{self.lr_decay / lr:.6g}")
        return found


@dataclass(frozen=True)
class Grid:
    """Rows x learning rates x seeds under one recipe. Everything that decides is written here, before the run."""

    name: str
    task: str
    rows: tuple[Row, ...]
    baseline: str
    epochs: int
    tune: int = 5
    seeds: int = 3
    tune_epochs: int = 0
    """Length of the runs that choose lr, schedule and b2*T included; 0: that of the others."""
    task_options: Mapping[str, Any] = field(default_factory=dict)
    schedule: Mapping[str, Any] = field(default_factory=lambda: {"name": "constant"})
    end_lr: float | None = None
    """The lr that a linear schedule ends at."""
    target: float | None = None
    """The loss that `steps to` is counted to."""
    broken: float = 0.25
    """A run is broken when it diverged, or ended this far above the best of its row's trials."""
    rule: stats.Rule = field(default_factory=stats.Rule)
    title: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        names = [row.optimizer for row in self.rows]
        if self.baseline not in names or len(set(names)) != len(names):
            raise LabError(f"grid {self.name}: rows {', '.join(names)}; all different, with {self.baseline}")
        if not 0 <= self.tune_epochs <= self.epochs:
            raise LabError(
                f"grid {self.name}: tune_epochs={self.tune_epochs}; must be 0 to epochs={self.epochs}"
            )
        for row in self.rows:
            if row.rates and len(row.rates) != self.tune:
                raise LabError(
                    f"grid {self.name}: {row.optimizer} has {len(row.rates)} rates, each must have {self.tune}"
                )

    def data(self) -> dict[str, Any]:
        """The grid as JSON has it."""
        return json.loads(spec.canonical(asdict(self)))

    def length(self, purpose: str) -> int:
        """Epochs of a run."""
        return self.tune_epochs if purpose == "tune" and self.tune_epochs else self.epochs

    def epoch_steps(self, more: Mapping[str, Any]) -> int:
        """Steps of an epoch."""
        made = task.load(self.task, {**self.task_options, **more})
        return len(made.data()["train"])

    def spec(self, row: Row, lr: float, steps: int, *, purpose: str, **rest: Any) -> dict[str, Any]:
        """The specification of one run; `steps` are those of an epoch."""
        schedule = dict(self.schedule)
        if self.end_lr is not None:
            schedule["final"] = float(f"{self.end_lr / lr:.6g}")
        chosen = {**self.task_options, **row.task_options}
        made = task.load(self.task, chosen)
        return spec.make(
            study=self.name,
            task=self.task,
            task_options=chosen,
            optimizer=row.optimizer,
            options=row.at(lr, steps * self.length(purpose)),
            schedule=schedule,
            epochs=self.length(purpose),
            purpose=purpose,
            batch_size=getattr(made, "batch_size", 64),
            **rest,
        )


def plan(grid: Grid, row: Row, steps: int) -> compare.Plan:
    """Yield the runs that can be done now, take their records, until the row is through."""

    def trial(lr: float, number: int) -> dict[str, Any]:
        return grid.spec(row, lr, steps, seed=TUNE_SEED, purpose="tune", trial=number)

    def score(record: RunRecord) -> tune.Score:
        return tune.score([record.done] if record.done else [])

    if not grid.tune:
        lr = row.options["lr"]
    elif row.rates:
        records = yield [trial(lr, i) for i, lr in enumerate(row.rates)]
        lr = max(zip(row.rates, map(score, records), strict=True), key=lambda pair: pair[1])[0]
    else:
        search = tune.walk(row.options["lr"], grid.tune)
        lr = next(search)
        for number in range(grid.tune):
            records = yield [trial(lr, number)]
            try:
                lr = search.send(score(records[0]))
            except StopIteration as end:
                lr = end.value
    yield [grid.spec(row, lr, steps, seed=seed, purpose="final") for seed in range(grid.seeds)]


def carry_out(
    grid: Grid,
    out: Path | str,
    settings: Settings,
    seconds: float = 0.0,
    watcher: compare.Watcher | None = None,
) -> list[RunRecord] | None:
    """The runs of the grid; None when `seconds` (0: no limit) were over before. The same call goes on then."""
    steps = {row.optimizer: grid.epoch_steps(row.task_options) for row in grid.rows}
    with listening() as stop:
        over = threading.Event()

        def ring() -> None:
            over.set()
            stop.signum = signal.SIGTERM

        clock = threading.Timer(seconds, ring) if seconds else None
        if clock:
            clock.daemon = True
            clock.start()
        try:
            plans = [plan(grid, row, steps[row.optimizer]) for row in grid.rows]
            with warnings.catch_warnings():
                warnings.filterwarnings(
                    "ignore", message="betas"
                )  # b2*T was chosen, so a short run has a large b2
                return compare._drain(plans, out, settings, watcher or compare.Silent(), stop)
        except Interrupted:
            if over.is_set():
                return None
            raise
        finally:
            if clock:
                clock.cancel()


class Lines(compare.Silent):
    """Tells of each run that ended, in a line on the standard error, and has the clerk write it down."""

    def __init__(self, clerk: handover.Clerk | None = None) -> None:
        self.clerk = clerk

    def finished(self, record: RunRecord) -> None:
        if self.clerk:
            self.clerk.now_and_then()
        asked, done = record.spec, record.done or {}
        how = (
            f"{done['metric']:.4f} {done['metric_name']}"
            if done.get("metric") is not None
            else done.get("status")
        )
        lr = asked["options"]["lr"]
        say(f"{asked['study']} {asked['purpose']} {asked['optimizer']} lr {lr:g} seed {asked['seed']}: {how}")


# -- what the runs came to ------------------------------------------------------------------------------------


def steps_to(metrics: Iterable[Mapping[str, Any]], target: float) -> float | None:
    """The step at which the measured loss first is at or below `target`, by a line between two evaluations.

    >>> steps_to([{"step": 100, "metric": 3.0}, {"step": 200, "metric": 1.0}], 1.5)
    175.0
    """
    before: Mapping[str, Any] | None = None
    for line in metrics:
        if line["metric"] <= target:
            if before is None:
                return float(line["step"])
            share = (before["metric"] - target) / (before["metric"] - line["metric"])
            return float(before["step"] + share * (line["step"] - before["step"]))
        before = line
    return None


def largest_lr(trials: Mapping[float, float | None], broken: float) -> float | None:
    """The largest lr whose run is not broken: it ended at most `broken` above the best of the row.

    >>> largest_lr({1e-3: 1.10, 2e-3: 1.05, 4e-3: 1.21, 8e-3: 2.9, 1.6e-2: None}, 0.25)
    0.004
    """
    ended = [value for value in trials.values() if value is not None]
    if not ended:
        return None
    return max(lr for lr, value in trials.items() if value is not None and value <= min(ended) + broken)


def summary(grid: Grid, records: Iterable[RunRecord]) -> list[dict[str, Any]]:
    """A row for each optimizer: its trials, its best lr, n, mean, interval, verdict against the baseline."""
    ended = [r for r in records if r.done and r.spec["study"] == grid.name]

    def of(name: str, purpose: str) -> list[RunRecord]:
        return [r for r in ended if r.spec["optimizer"] == name and r.spec["purpose"] == purpose]

    def metric(name: str) -> dict[int, float | None]:
        return {r.spec["seed"]: r.done["metric"] for r in of(name, "final") if r.done}

    rows = []
    for row in grid.rows:
        name = row.optimizer
        trials = {r.spec["options"]["lr"]: r.done["metric"] for r in of(name, "tune") if r.done}
        finals = of(name, "final")
        values = [v for v in metric(name).values() if v is not None]
        diverged = sum(r.done["status"] == "diverged" for r in finals if r.done)
        found: dict[str, Any] = {
            "optimizer": name,
            "trials": [[lr, value] for lr, value in sorted(trials.items())],
            "largest_lr": largest_lr(trials, grid.broken),
            "options": finals[0].spec["options"] if finals else None,
            "n": len(values),
            "diverged": diverged,
            "values": values,
            "curves": {
                str(r.spec["seed"]): _curve(r) if r.done and r.done["metric"] is not None else []
                for r in finals
            },
        }
        if values:
            seen = stats.interval(values, grid.rule.confidence, grid.rule.interval)
            found |= {"mean": seen.mean, "low": seen.low, "high": seen.high}
        if grid.target is not None:
            found["steps_to"] = [steps_to(r.metrics, grid.target) for r in finals]
        if name != grid.baseline:
            pairs = stats.paired(metric(name), metric(grid.baseline), higher_is_better=False)
            judged = stats.verdict(pairs, grid.rule, diverged)
            found["verdict"] = judged.outcome
            if judged.difference:
                found["better_by"] = [judged.difference.mean, judged.difference.low, judged.difference.high]
        rows.append(found)
    return json.loads(json.dumps(rows).replace("NaN", "null"))


def _curve(record: RunRecord) -> list[list[float]]:
    """[step, training loss since the last evaluation, metric] of every evaluation, in six digits."""
    keys = ("step", "train_loss", "metric")
    return [[float(f"{line[key]:.6g}") for key in keys] for line in record.metrics]


def write(grid: Grid, records: list[RunRecord], path: Path, settings: Settings) -> Path:
    """The committed record: the grid as it was fixed, where it ran, and its rows; what the data were, not where."""
    digest = handover.data_digest(grid)
    kept = {key: value for key, value in grid.task_options.items() if key != "data"}
    grid = replace(grid, task_options=kept)
    content = {
        "study": grid.name,
        "title": grid.title,
        "grid": grid.data(),
        "data": digest,
        "environment": environment.describe(choose_device(settings.device), settings.threads),
        "runs_made_at": handover.environments(records),
        "rows": summary(grid, records),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_json(path, content)
    return path


def runner(grids: Mapping[str, Grid], default: str = "") -> Callable[..., Path | bool]:
    """The `run` of a module of grids; `default` is a name by which the first of them may be called as well."""

    def study(
        name: str,
        out: str | Path = "runs",
        *,
        data: str = "",
        record: str = "",
        device: str = "auto",
        threads: int = 1,
        seconds: float = 0.0,
        seeds: int = 0,
        tune: int = 0,
        epochs: int = 0,
        reuse: str = "",
    ) -> Path | bool:
        """Carry out the study `name`; its record, or False when `seconds` were over before.

        The same call goes on then. `record` is the file to write (OUT/STUDY.json unless said), with the runs beside
        it (.jsonl); those that have ended are in OUT/STUDY.jsonl, complete or not, and `reuse` names such a file to go
        on from (`adaxlab.handover`). `seeds`, `tune` and `epochs` other than 0 replace the study's own, and such
        a study has another name, so that its runs are not taken for the study's.
        """
        if record and not record.endswith(".json"):
            raise LabError(f"record={record}: must end in .json; the runs are written beside it, as .jsonl")
        known = {**({default: next(iter(grids.values()))} if default else {}), **grids}
        if name not in known:
            raise unknown("study", name, tuple(known))
        grid = _changed(known[name], {"seeds": seeds, "epochs": epochs, "tune": tune})
        if data:
            grid = replace(grid, task_options={**grid.task_options, "data": str(data)})
        settings = Settings(device=str(choose_device(device)), threads=threads)
        clerk = handover.Clerk(grid, out, reuse)
        try:
            records = carry_out(grid, out, settings, seconds, Lines(clerk))
        finally:
            clerk.write()
        if records is None:
            return False
        path = write(grid, records, Path(record) if record else Path(out) / f"{grid.name}.json", settings)
        if record:
            clerk.write(path.with_suffix(".jsonl"))
        return path

    return study


def _changed(grid: Grid, asked: Mapping[str, int]) -> Grid:
    changed: dict[str, Any] = {k: value for k, value in asked.items() if value and value != getattr(grid, k)}
    if "tune" in changed and any(row.rates for row in grid.rows):
        raise LabError(
            f"tune={changed['tune']}: study {grid.name} has {grid.tune} fixed learning rates a row; leave it out ("
            "seeds and epochs can be changed)"
        )
    label = "-".join(f"{key}{value}" for key, value in sorted(changed.items()))
    if "epochs" in changed and grid.tune_epochs:
        changed["tune_epochs"] = max(1, changed["epochs"] * grid.tune_epochs // grid.epochs)
    return replace(grid, name=f"{grid.name}-{label}", **changed) if changed else grid


def main(study: Callable[..., Path | bool], names: Iterable[str], program: str) -> int:
    """`python -m PROGRAM STUDY ... --data PLACE --out FOLDER`: studies on a bare machine, torch and numpy only.

    Several are carried out one after the other. Exits with 0 when all are complete, 3 when time was up before.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=main.__doc__)
    parser.add_argument("studies", nargs="+", choices=list(names), metavar="STUDY")
    parser.add_argument(
        "--data", default="", help="where the data lie (default: where `adax data get` puts them)"
    )
    parser.add_argument("--record", default="", help="the record to write, in the place of OUT/STUDY.json")
    parser.add_argument(
        "--reuse", default="", help="OUT/STUDY.jsonl of an earlier call, elsewhere, to go on from"
    )
    parser.add_argument("--out", default="runs")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seconds", type=float, default=0.0)
    for name in ("seeds", "tune", "epochs"):
        parser.add_argument(f"--{name}", type=int, default=0)
    given = vars(parser.parse_args())
    studies, out, seconds = (given.pop(key) for key in ("studies", "out", "seconds"))
    if given["record"] and len(studies) > 1:
        parser.error("--record names one file: give one study, or leave it out (OUT/STUDY.json)")
    if len(studies) > 1 and Path(given["reuse"]).is_file():
        parser.error("--reuse names one study's file: give one study, or a folder of such files")
    end = time.monotonic() + seconds
    for name in studies:
        left = end - time.monotonic() if seconds else 0.0
        try:
            done = (left > 0 or not seconds) and study(name, out, seconds=left, **given)
        except LabError as error:
            say(f"{program}: {error}")
            return error.exit_code
        if done is False:
            say(f"{program}: time is up before {name} is complete; the same command goes on with it")
            return 3
        say(f"record: {done}")
    return 0
