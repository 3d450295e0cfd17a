"""The commands of `adax`. Each command is a dataclass: its fields are the arguments, and `run` executes it.

Results go to standard output; progress and errors go to standard error.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import Positional, arg, subcommand

from adaxlab import compare, files, options, reproduce, store, table
from adaxlab.errors import LabError, RunError, StoreError, unknown
from adaxlab.messages import show, show_place
from adaxlab.settings import Settings
from adaxlab.stats import DecisionRule
from adaxlab.study import Study, Tuning
from adaxlab.summary import Comparison
from adaxlab.task import BUILT_IN, plain
from adaxlab.variants import with_base_seed
from adaxopt.extras import LAB

TASKS = f"{', '.join(BUILT_IN)}, or your own: path/to/file.py:Class or module:Class"


def complain(problem: StoreError) -> None:
    print(f"adax: {problem}", file=sys.stderr)


@dataclass
class Compare:
    """Compare optimizers on a task, with equal tuning budgets, new seeds for the final runs, intervals and verdicts.

    To resume an interrupted study, run the same command again.
    """

    task: Annotated[Positional[str], arg(help=TASKS)]
    more_tasks: Positional[tuple[str, ...]] = ()
    """additional tasks; each task has its own verdicts, and a summary over all tasks follows"""
    optimizers: tuple[str, ...] = ("sgdm", "adamw", "amsgradw", "adaxw")
    """optimizers to compare: a method of this package (adamw, adaxw, sgdm, ...), torch:AdamW, module:Class,
    file.py:Class, file.py:function (a factory that takes the model), or a split such as muon+adamw; adaxw@slow is a
    second adaxw with its own options"""
    seeds: int = 5
    """number of final runs per optimizer; a verdict from 3 or 4 runs is provisional, fewer give no verdict"""
    tune: int = 8
    """number of settings to try per optimizer on held-out data; with 0 or 1, no verdict is given unless every lr is
    set"""
    tune_over: tuple[str, ...] = ("lr",)
    """settings to tune: lr weight_decay b1 b2, or option=low:high; tuning more than lr requires optuna"""
    sampler: Literal["", "qmc", "random", "tpe"] = ""
    """qmc (quasi-random), random or tpe (Bayesian); if not given, a log grid for lr alone, qmc for several settings"""
    budget: str = ""
    """time budget such as 2h; the numbers of trials and seeds are reduced to fit it, once, before the first run"""
    base_seed: int = 0
    """all seeds of the study are derived from it; another value repeats the study, including tuning, on other seeds"""
    epochs: int | None = None
    """number of epochs; if not given, the task's"""
    batch_size: int | None = None
    """examples per batch; if not given, the task's"""
    schedule: str | None = None
    """constant, step, cosine, poly or linear, with options such as cosine,warmup=0.05; if not given, the task's"""
    set: tuple[str, ...] = ()
    """options of the optimizers, such as adaxw.weight_decay=0.1 adaxw@slow.betas=0.9,1e-5 'adaxw.memory=LogTime(8)'"""
    task_option: tuple[str, ...] = ()
    """options of the task, such as width=32"""
    baseline: str | None = None
    """the optimizer that the others are compared with; if not given, adamw or else the first one"""
    confidence: float = 0.95
    """confidence level of each interval, and of all verdicts together; another value makes another study"""
    margin: float = 0.0
    """difference from the baseline that counts as better or worse if exceeded; another value makes another study"""
    target: float | None = None
    """report when each run reaches this result; if not given, the baseline's median final result"""
    study: str | None = None
    """name of the study and its folder in --out; if not given, derived from task and settings, not from optimizers"""
    out: str = "runs"
    """the folder in which runs are stored"""
    report: str = ""
    """also write an HTML report here"""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N"""
    threads: int = 1
    """CPU threads per run"""
    jobs: int = 1
    """number of worker processes; on a machine with several GPUs, process i uses GPU i modulo the number of GPUs"""
    on: str = ""
    """execute each run on a Ray cluster: ray, or ray,address=host:6379,cpus=1,gpus=0,retries=3,shared=true"""
    checkpoint_seconds: float = 30.0
    """seconds between two checkpoints of a run; a killed process loses at most this much of each run in progress"""
    log: str = ""
    """also log the curves of runs to tensorboard, wandb or trackio; with a folder or project: tensorboard=FOLDER"""
    json: bool = False
    """print the whole result as JSON instead of tables"""
    quiet: bool = False
    """show no progress"""

    def run(self) -> None:
        tasks = tuple(map(plain, (self.task, *self.more_tasks)))
        if len(tasks) > 1 and self.task_option:
            raise LabError(f"--task-option {self.task_option[0]}: is for one task, {len(tasks)} are given")
        if len(set(tasks)) < len(tasks):
            raise LabError(f"{', '.join(tasks)}: name each task once")
        settings = Settings(self.device, self.threads, self.checkpoint_seconds)
        studies = [self.of(task, len(tasks) > 1) for task in tasks]
        names = [study.name for study in studies if study.name]
        if len(set(names)) < len(names):
            raise LabError(
                f"--study {self.study}: {', '.join(tasks)} would share the name {names[0]}; rename a class"
            )
        compare.run_and_show(
            studies,
            self.out,
            settings,
            self.jobs,
            self.quiet,
            self.report,
            self.on,
            self.log,
            self.budget,
            self.json,
        )

    def of(self, task: str, several: bool) -> Study:
        """The study of one of the tasks."""
        short = "".join(c if c.isalnum() or c in "-_." else "-" for c in task.rpartition(":")[2])
        if self.tune < 0:
            raise LabError(f"--tune {self.tune}: must be >= 0")
        tuning = Tuning(self.tune, over=tuple(self.tune_over), sampler=self.sampler) if self.tune else None
        if not self.tune and (self.tune_over != ("lr",) or self.sampler):
            raise LabError("--tune-over, --sampler: there is nothing to tune with --tune 0")
        study = Study(
            task=task,
            rows=compare.rows(self.optimizers, options.per_optimizer(self.set)),
            seeds=options.positive("seeds", self.seeds),
            tuning=tuning,
            name=f"{self.study}-{short}" if self.study and several else self.study or "",
            task_options=options.pairs(self.task_option),
            epochs=options.positive("epochs", self.epochs),
            batch_size=options.positive("batch-size", self.batch_size),
            schedule=self.schedule or "",
            baseline=self.baseline or "",
            rule=DecisionRule(confidence=self.confidence, margin=self.margin),
            target=self.target,
        )
        return with_base_seed(study, self.base_seed)


@dataclass
class Demo:
    """Compare four optimizers on 1,797 handwritten digits, with equal tuning: an answer, tables and report.html."""

    out: str = "runs"
    """the folder in which runs are stored"""
    report: str = "report.html"
    """the HTML report to write"""
    seeds: int = 5
    """number of final runs per optimizer"""
    tune: int = 5
    """number of learning rates to try per optimizer"""
    jobs: int = 2
    """number of worker processes"""
    quiet: bool = False
    """show no progress"""

    def run(self) -> None:
        study = Study(
            task="digits",
            rows=compare.rows(("sgdm", "adamw", "amsgradw", "adaxw")),
            seeds=options.positive("seeds", self.seeds),
            tuning=Tuning(self.tune) if self.tune else None,
            epochs=15,
            name="demo" if self.tune == Demo.tune else f"demo-tune{self.tune}",
        )
        compare.run_and_show([study], self.out, Settings(), self.jobs, self.quiet, self.report)


@dataclass
class RunsList:
    """List runs; the options filter the list."""

    path: Positional[str] = "runs"
    """a store, a study, or exported records"""
    study: str | None = None
    """only this study"""
    optimizer: str | None = None
    """only this optimizer"""
    status: Literal["finished", "diverged", "failed", "unfinished"] | None = None
    """only runs with this status"""
    purpose: Literal["tune", "final"] | None = None
    """only tuning or final runs"""
    json: bool = False
    """print one JSON object per line instead of a table"""

    def chosen(self) -> list[store.RunRecord]:
        wanted = {"study": self.study, "optimizer": self.optimizer, "purpose": self.purpose}
        records = store.load_runs(self.path, complain)
        for key, value in wanted.items():
            known = sorted({r.spec[key] for r in records})
            if value is not None and key != "purpose" and records and value not in known:
                raise unknown(f"{key} in {self.path}", value, known)
            records = [r for r in records if value in (None, r.spec[key])]
        return [r for r in records if self.status in (None, r.status)]

    def run(self) -> None:
        records = self.chosen()
        if self.json:
            for r in records:
                why = {"error": r.error} if r.error else {}
                print(json.dumps({"run": r.name, "status": r.status, "spec": r.spec, "done": r.done, **why}))
        else:
            show(table.runs(records))


@dataclass
class RunsShow:
    """Show the specification, environment and results of one run."""

    run_name: Annotated[Positional[str], arg(metavar="RUN")]
    """the first characters of the run's name (see `adax runs list`)"""
    path: str = "runs"
    """a store, a study, or exported records"""

    def run(self) -> None:
        records = store.load_runs(self.path, complain)
        found = [r for r in records if r.name.startswith(self.run_name)]
        names = {r.name for r in found}
        if len(names) != 1:
            what = f"names {len(names)} runs" if names else "names no run"
            raise LabError(f"run {self.run_name!r}: {what} in {self.path}; `adax runs list` shows them")
        r = min(found, key=lambda run: run.done is None)  # several studies or rows may use one run
        print(json.dumps({"path": str(r.path), "status": r.status, "spec": r.spec, "env": r.env}, indent=1))
        print(json.dumps({"metrics": r.metrics[-3:], "done": r.done}, indent=1))
        if r.error:
            print(files.read(r.path / store.ERROR).decode(errors="replace"), end="")


@dataclass
class RunsExport:
    """Export runs to one file of records. The commands that read a store also read such a file."""

    out: Positional[str]
    """the file to write, such as records/digits.jsonl"""
    path: str = "runs"
    """a store or a study"""
    study: str | None = None
    """only this study"""

    def run(self) -> None:
        records = RunsList(self.path, study=self.study).chosen()
        if not records:
            raise LabError(f"{self.path}: no run to export")
        store.export(records, self.out)
        show_place(f"{len(records)} runs: {self.out}", self.out)


@dataclass
class RunsImport:
    """Copy runs that have ended from another store or a file of records into a store: a study resumes from them."""

    path: Positional[str]
    """a store, a study, or exported records"""
    out: str = "runs"
    """the store to copy them to"""

    def run(self) -> None:
        show(f"{store.bring(self.path, self.out)} runs: {self.out}")


@dataclass
class Report:
    """Write a self-contained HTML report of runs or exported records."""

    path: Positional[str] = "runs"
    """a store, a study, exported records (a file, or a folder such as records/imagenet), or records/cifar10"""
    out: str = "report.html"
    """the HTML report to write"""

    def run(self) -> None:
        files.check_place(Path(self.out))
        compare.write_report(store.load_runs(self.path, complain), self.out)


@dataclass
class Reproduce:
    """Run one of the paper's experiments and judge its claims. Without a name, list the experiments.

    To resume an interrupted study, run the same command again.
    """

    name: Positional[str] = ""
    """name of the experiment: theory, cifar10/table2, language/ptb, gpt, ..."""
    request: Annotated[reproduce.Request, arg(name="")] = field(default_factory=reproduce.Request)
    set: tuple[str, ...] = ()
    """options of the study's task, such as steps=1000"""

    def run(self) -> None:
        from adaxlab.paper import catalogue

        if not self.name:
            show(catalogue.table())
            return
        result = reproduce.run(self.name, self.request, options.pairs(self.set))
        if result is False:
            raise RunError(f"study {self.name}: not complete yet; the same command resumes")
        if isinstance(result, Comparison):
            show(table.comparison(result))
            compare.show_runs(result, self.request.out)
        elif isinstance(result, Path):
            show(f"record: {result}")
        if not isinstance(result, bool):
            print(reproduce.verdicts(self.name, result, Path(self.request.out)))


@dataclass
class Claims:
    """Judge the paper's claims from the records, print the verdicts, and write docs/claims*.md and records/claims."""

    check: bool = False
    """write nothing; fail if a written file does not match the records"""
    records: str = "records"
    """the folder of records, next to docs/"""
    study: str = ""
    """only print the verdicts of this study (such as cifar10/table2) or family of studies (such as cifar10)"""

    def run(self) -> None:
        from adaxlab.paper import claims

        root = Path(self.records)
        if not root.is_dir():
            raise LabError(f"{root}: no such folder; give the repository's records/ with --records")
        if self.check:
            stale = claims.update(root, check=True)
            if stale:
                raise StoreError(f"stale: {', '.join(map(str, stale))}; run `adax claims` to rewrite them")
            return
        print(claims.show(claims.rows_of(root, self.study)))
        if not self.study:
            claims.update(root)


@dataclass
class DataGet:
    """Download a data set, verify it, and prepare it."""

    name: Positional[str]
    """name of the data set: cifar10, enwik8, ... (see `adax data list`)"""
    root: str | None = None
    """the folder in which data sets are stored"""

    def run(self) -> None:
        try:
            from adaxlab import data
        except ImportError as error:
            raise LabError(f"data sets need {error.name}; {LAB}") from error
        print(data.get(self.name, self.root))


@dataclass
class DataList:
    """List the data sets that can be downloaded."""

    def run(self) -> None:
        from adaxlab import data

        show("\n".join(f"{name}: {what}" for name, what in data.NAMES.items()))


@dataclass
class Runs:
    """List, show, export or import runs."""

    action: (
        Annotated[RunsList, subcommand("list")]
        | Annotated[RunsShow, subcommand("show")]
        | Annotated[RunsExport, subcommand("export")]
        | Annotated[RunsImport, subcommand("import")]
    ) = field(default_factory=RunsList)

    def run(self) -> None:
        self.action.run()


@dataclass
class Data:
    """Download data sets, or list them."""

    action: Annotated[DataGet, subcommand("get")] | Annotated[DataList, subcommand("list")]

    def run(self) -> None:
        self.action.run()


Command = (
    Annotated[Demo, subcommand("demo")]
    | Annotated[Compare, subcommand("compare")]
    | Annotated[Runs, subcommand("runs")]
    | Annotated[Report, subcommand("report")]
    | Annotated[Reproduce, subcommand("reproduce")]
    | Annotated[Claims, subcommand("claims")]
    | Annotated[Data, subcommand("data")]
)


def parse(arguments: list[str]) -> Any:
    """Parse the arguments into a command. Help and invalid arguments end the process as in tyro (exit code 0 or 2)."""
    options.check_flags(arguments)
    return tyro.cli(
        Command,  # type: ignore[arg-type]
        prog="adax",
        args=options.gathered(arguments),
        description="Compare optimizers with equal tuning budgets, and check the claims of the AdaX paper. `adax "
        "--version` prints the version.",
        config=(tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes),
    )
