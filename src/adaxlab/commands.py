"""The commands of `adax`, each a dataclass: its fields are the arguments, its `run` does the work.

Results go to standard output, progress and errors to standard error.
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
from adaxlab.study import Study, Tuning, with_base_seed
from adaxlab.summary import Comparison
from adaxlab.task import BUILT_IN
from adaxopt.extras import LAB

TASKS = f"{', '.join(BUILT_IN)}, or your own: path/to/file.py:Class or module:Class"


def complain(problem: StoreError) -> None:
    print(f"adax: {problem}", file=sys.stderr)


@dataclass
class Compare:
    """Compare optimizers on a task: equal tuning budgets, fresh seeds, intervals, a verdict.

    The same command resumes a study that was interrupted.
    """

    task: Annotated[Positional[str], arg(help=TASKS)]
    more_tasks: Positional[tuple[str, ...]] = ()
    """further tasks: each has its own verdicts, a summary over all of them follows"""
    optimizers: tuple[str, ...] = ("sgdm", "adamw", "amsgradw", "adaxw")
    """methods of this package (adamw, adaxw, sgdm, ...), torch:AdamW, module:Class, file.py:Class, a factory
    file.py:function that takes the model, a split such as muon+adamw; adaxw@slow is a second adaxw with other
    options"""
    seeds: int = 5
    """final runs of each optimizer; a verdict from 3 or 4 is provisional, fewer give none"""
    tune: int = 8
    """settings to try per optimizer on held-out data; 0: none, and no verdict unless every lr is set"""
    tune_over: tuple[str, ...] = ("lr",)
    """what is tuned: lr weight_decay b1 b2, or option=low:high; more than lr needs optuna"""
    sampler: Literal["", "qmc", "random", "tpe"] = ""
    """how settings are chosen: quasi-random, random or Bayesian (a walk along a log grid for lr alone, else qmc)"""
    budget: str = ""
    """a time such as 2h: trials and seeds are cut to what fits, once, before the first run"""
    base_seed: int = 0
    """all seeds of the study follow from it: another one repeats the study, tuning included, on other seeds"""
    epochs: int | None = None
    """the task's own unless given"""
    batch_size: int | None = None
    """the task's own unless given"""
    schedule: str | None = None
    """constant, step, cosine, poly or linear, with options: cosine,warmup=0.05 (the task's own unless given)"""
    set: tuple[str, ...] = ()
    """options of an optimizer: adaxw.weight_decay=0.1 adaxw@slow.betas=0.9,1e-5 'adaxw.memory=LogTime(8)'"""
    task_option: tuple[str, ...] = ()
    """options of the task: width=32"""
    baseline: str | None = None
    """the optimizer that the others are compared with (adamw if present, else the first)"""
    confidence: float = 0.95
    """confidence of the intervals and of all verdicts together; fixed with the study"""
    margin: float = 0.0
    """by how much an optimizer must be better or worse than the baseline for a verdict; fixed with the study"""
    target: float | None = None
    """report when each run reaches this result (the baseline's median final result unless given)"""
    study: str | None = None
    """name of the study, a folder in --out; derived from task and settings, not from the optimizers, unless given"""
    out: str = "runs"
    """the folder in which runs are stored"""
    report: str = ""
    """also write an HTML report here"""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N"""
    threads: int = 1
    """CPU threads per run"""
    jobs: int = 1
    """processes that share the work; on a machine with several GPUs, process i takes GPU i modulo their number"""
    on: str = ""
    """send each run to a Ray cluster: ray, or ray,address=host:6379,cpus=1,gpus=0,retries=3,shared=true"""
    checkpoint_seconds: float = 30.0
    """seconds between two checkpoints of a run: the most that a kill can lose of each run in progress"""
    log: str = ""
    """also send curves to tensorboard, wandb or trackio; tensorboard=folder, wandb=project"""
    json: bool = False
    """print the whole result as JSON instead of tables"""
    quiet: bool = False
    """show no progress"""

    def run(self) -> None:
        tasks = (self.task, *self.more_tasks)
        if len(tasks) > 1 and self.task_option:
            raise LabError(f"--task-option {self.task_option[0]}: is for one task, {len(tasks)} are given")
        if len(set(tasks)) < len(tasks):
            raise LabError(f"{', '.join(tasks)}: name each task once")
        settings = Settings(self.device, self.threads, self.checkpoint_seconds)
        studies = [self.of(task, len(tasks) > 1) for task in tasks]
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
            schedule=options.schedule(self.schedule) if self.schedule else "",
            baseline=self.baseline or "",
            rule=DecisionRule(confidence=self.confidence, margin=self.margin),
            target=self.target,
        )
        return with_base_seed(study, self.base_seed)


@dataclass
class Demo:
    """Four optimizers on 1,797 handwritten digits: equal tuning, five seeds each, an answer, tables and report.html."""

    out: str = "runs"
    """the folder in which runs are stored"""
    report: str = "report.html"
    """the page to write"""
    seeds: int = 5
    """final runs of each optimizer"""
    tune: int = 5
    """learning rates to try per optimizer"""
    jobs: int = 2
    """processes that share the work"""
    quiet: bool = False
    """show no progress"""

    def run(self) -> None:
        study = Study(
            task="digits",
            rows=compare.rows(("sgdm", "adamw", "amsgradw", "adaxw")),
            seeds=self.seeds,
            tuning=Tuning(self.tune) if self.tune else None,
            epochs=15,
            name="demo" if self.tune == Demo.tune else f"demo-tune{self.tune}",
        )
        compare.run_and_show([study], self.out, Settings(), self.jobs, self.quiet, self.report)


@dataclass
class RunsList:
    """List runs, filtered."""

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
    """one JSON object per line instead of a table"""

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
    """Show one run: specification, environment and results."""

    run_name: Annotated[Positional[str], arg(metavar="RUN")]
    """the first digits of its name (see `adax runs list`)"""
    path: str = "runs"
    """a store, a study, or exported records"""

    def run(self) -> None:
        records = store.load_runs(self.path, complain)
        found = [r for r in records if r.name.startswith(self.run_name)]
        if len(found) != 1:
            what = f"names {len(found)} runs" if found else "names no run"
            raise LabError(f"run {self.run_name!r}: {what} in {self.path}; `adax runs list` shows them")
        r = found[0]
        print(json.dumps({"path": str(r.path), "status": r.status, "spec": r.spec, "env": r.env}, indent=1))
        print(json.dumps({"metrics": r.metrics[-3:], "done": r.done}, indent=1))
        if r.error:
            print(files.read(r.path / store.ERROR).decode(errors="replace"), end="")


@dataclass
class RunsExport:
    """Write runs to one file of records, which every other command reads like a store."""

    out: Positional[str]
    """the file, such as records/digits.jsonl"""
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
    """Copy the finished runs of another store, or of a file of records, into a store; a study resumes from there."""

    path: Positional[str]
    """a store, a study, or exported records"""
    out: str = "runs"
    """the folder of runs to copy them to"""

    def run(self) -> None:
        show(f"{store.bring(self.path, self.out)} runs: {self.out}")


@dataclass
class Report:
    """Write one self-contained HTML page from runs or exported records."""

    path: Positional[str] = "runs"
    """a store, a study, exported records (a file, or a folder such as records/imagenet), or records/cifar10"""
    out: str = "report.html"
    """the page to write"""

    def run(self) -> None:
        path = Path(self.path)
        files.check_place(Path(self.out))
        if path.name == "cifar10" and not (path / "study.json").exists() and any(path.glob("*.jsonl")):
            from adaxlab.paper import cifar10_report

            show_place(f"report: {cifar10_report.write(path.parent, Path(self.out))}", self.out)
        else:
            compare.write_report(store.load_runs(self.path, complain), self.out)


@dataclass
class Reproduce:
    """Run one of the paper's experiments and judge its claims; without a name, list the experiments.

    The same command resumes a study that was interrupted.
    """

    name: Positional[str] = ""
    """theory, cifar10/table2, language/ptb, gpt, ..."""
    request: Annotated[reproduce.Request, arg(name="")] = field(default_factory=reproduce.Request)
    set: tuple[str, ...] = ()
    """options of the study's task: steps=1000"""

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
    """Judge the paper's claims from the records, print the verdicts, and write docs/claims.md and records/claims."""

    check: bool = False
    """write nothing; fail if a written file does not match the records"""
    records: str = "records"
    """the folder of records, next to docs/"""
    study: str = ""
    """only print the verdicts of a study (cifar10/table2) or of a family (cifar10)"""

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
    """cifar10, enwik8, ... (see `adax data list`)"""
    root: str | None = None
    """where data sets are kept"""

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
    """The command that the arguments ask for; help and wrong flags end the process as tyro does (0 and 2)."""
    options.check_flags(arguments)
    return tyro.cli(
        Command,  # type: ignore[arg-type]
        prog="adax",
        args=options.gathered(arguments),
        description="Compare optimizers with equal tuning budgets, and check the claims of the AdaX paper. `adax "
        "--version` prints the version.",
        config=(tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes),
    )
