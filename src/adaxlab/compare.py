"""`adax compare`. `compare` executes the missing runs of a study and summarises it; `run_and_show` is the command."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import torch

from adaxlab import (
    as_data,
    cross_task,
    estimate,
    files,
    logs,
    optimizer_options,
    optimizers,
    progress,
    spec,
    splits,
    store,
    study_file,
    table,
    workers,
)
from adaxlab import budget as time_budget
from adaxlab import task as tasks
from adaxlab.answer import answer
from adaxlab.driver import Executor, Watcher, carry_out
from adaxlab.errors import LabError, RunError, check_known
from adaxlab.failures import guarded
from adaxlab.messages import passing, show, show_place
from adaxlab.settings import Settings, choose_device
from adaxlab.signals import Stop
from adaxlab.study import B2_STEPS, BATCH_SIZE, Row, Study
from adaxlab.summary import Comparison, summarise
from adaxopt.extras import LAB

__all__ = ["Comparison", "compare", "rows"]


def rows(names: Iterable[str], options: Mapping[str, Mapping[str, Any]] | None = None) -> tuple[Row, ...]:
    """Return one row per optimizer, with the options that are set for it.

    >>> [row.b2_steps for row in rows(["adamw", "adaxw", "adaxw@own"], {"adaxw@own": {"betas": (0.9, 1e-4)}})]
    [None, 3.0, None]
    """
    names, given = tuple(names), dict(options or {})
    check_known("optimizer in --set", names, *given)
    return tuple(_row(name, given.get(name, {})) for name in names)


def _row(name: str, options: Mapping[str, Any]) -> Row:
    options = optimizer_options.settled(name, options)
    follows = optimizer_options.grows(name, options) and optimizer_options.betas_of(name) not in options
    return Row(name, options=options, b2_steps=B2_STEPS if follows else None)


def check(study: Study, batch_size: int = 0) -> None:
    """Construct every optimizer with the task's model, so that invalid options are reported before the first run.
    `batch_size` is that of the command, if it was given. It must have an effect, or be what it is without it."""
    if study.executor != "process":
        return
    made: dict[str, Any] = {}
    for row in study.rows:
        options = study.options_of(row)
        key = spec.canonical(options)
        if key not in made:
            task = tasks.load(study.task, options)
            with guarded(f"task {study.task}", RunError), torch.random.fork_rng(devices=[]):
                data = splits.data_of(task, study.task, torch.device("cpu"))
                splits.check(data, study.task)  # model() may depend on what data() has computed
                other = batch_size and batch_size != getattr(task, "batch_size", BATCH_SIZE)
                if other and splits.own_batches(data):
                    raise LabError(
                        f"--batch-size {batch_size}: 'train' of {study.task} gives batches; set their size in the task"
                        + (
                            f" (--task-option batch={batch_size})"
                            if "batch" in inspect.signature(tasks.find(study.task)).parameters
                            else ""
                        )
                    )
                torch.manual_seed(study.first_seed)
                made[key] = task, tasks.check_model(task.model(), study.task)
        task, model = made[key]
        given = optimizer_options.complete(row.method, row.options)
        optimizers.build(row.method, tasks.parameters(task, model, given), given, model)


def compare(
    study: Study,
    root: Path | str = "runs",
    settings: Settings | None = None,
    watcher: Watcher | None = None,
    stop: Stop | None = None,
    execute: Executor | None = None,
) -> Comparison:
    """Execute the missing runs of the study and summarise it."""
    study = study.complete()
    check(study)
    study_file.write(study, root, look_around=True)
    return _finish(study, root, settings, watcher, stop, execute)


def _finish(
    study: Study,
    root: Path | str,
    settings: Settings | None,
    watcher: Watcher | None,
    stop: Stop | None = None,
    execute: Executor | None = None,
) -> Comparison:
    records = carry_out(study, root, settings, watcher, stop, execute=execute)
    assert records is not None, "only a limit in seconds ends without records"
    _, changes = study_file.read(study_file.place(root, study))
    return summarise(study, records, changes)


# -- the command ----------------------------------------------------------------------------------------------------


def run_and_show(
    studies: Sequence[Study],
    out: str,
    settings: Settings,
    n_jobs: int,
    quiet: bool,
    report: str,
    on: str = "",
    log: str = "",
    budget: str = "",
    as_json: bool = False,
) -> None:
    """Run the studies on this machine or on a cluster, print their answers and tables, and write the report.

    `log` is the destination of the curves, `budget` the time that all studies together may take; `as_json` prints data
    instead of tables. If optimizers failed, an error is raised after the results of the others have been printed.

    Every study is checked before the first one is stored, so that a misspelled option leaves no trace. What the user's
    code prints goes to standard error: standard output has the results alone.
    """
    if report:
        files.check_place(Path(report))
    done = []
    if n_jobs < 1:
        raise LabError(f"jobs={n_jobs!r}: must be >= 1")
    if not on:
        choose_device(settings.device)
    with redirect_stdout(sys.stderr):
        for study in studies:
            check(study.complete(), study.batch_size)
    if budget:
        if on:
            raise LabError("--budget: not available with --on ray; set --tune and --seeds instead")
        share = 1 / len(studies)
        studies = [time_budget.settle(each, budget, out, settings, n_jobs, share) for each in studies]
    for study in [each.complete() for each in studies]:
        with redirect_stdout(sys.stderr):
            done.append(run_study(study, out, settings, n_jobs, quiet, on, log))
        if not as_json:
            present(done[-1], out)
    if as_json:
        found = [as_data.data(result) for result in done]
        print(json.dumps(found[0] if len(found) == 1 else found, indent=1, allow_nan=False))
    elif len(done) > 1:
        for each in cross_task.tables(done):
            show(each)
    if report and any(record.done for result in done for record in result.records):
        with redirect_stdout(sys.stderr if as_json else sys.stdout):
            title = f"{', '.join(each.task for each in studies)}: {', '.join(row.name for row in studies[0].rows)}"
            write_report([record for result in done for record in result.records], report, title=title)
    failed = [(result, row) for result in done for row in result.rows if row.error]
    if failed:
        why = "; ".join(row.failure() for _, row in failed)
        every = f"{len(failed)} of {sum(len(result.rows) for result in done)} optimizers failed"
        lost = all(not record.done for result in done for record in result.records)
        raise RunError(f"every optimizer failed; {failed[0][1].failure()}" if lost else f"{every}: {why}")


def run_study(
    study: Study, out: str, settings: Settings, n_jobs: int, quiet: bool, on: str = "", log: str = ""
) -> Comparison:
    """Execute the missing runs of a checked study, on this machine (after an estimate of the time) or on a cluster."""
    logged = logs.beside(log)
    study_file.write(study, out, look_around=True)
    if on:
        from adaxlab.execute import cluster

        with progress.watcher(quiet) as watcher, cluster.executor(cluster.parse(on)) as execute:
            return _finish(study, out, settings, logs.Several(watcher, *logged), execute=execute)
    if not quiet:
        print(f"estimate: {estimate.measure(study, out, settings).sentence(n_jobs)}", file=sys.stderr)
    with progress.watcher(quiet) as watcher, workers.helpers(study, out, settings, n_jobs):
        return _finish(study, out, settings, logs.Several(watcher, *logged))


def present(result: Comparison, out: str) -> None:
    """Print the answer, the tables, and the folder of the runs."""
    if not any(record.done for record in result.records):
        return
    found = answer(result)
    print(*filter(None, (found.text, found.code)), sep="\n")  # print: a line of code must not be wrapped
    show(table.comparison(result))
    show(table.details(result))
    show_runs(result, out)


def show_runs(result: Comparison, out: str) -> None:
    show(f"runs: {Path(out) / spec.folder(result.study.name)}")


def write_report(records: list[store.RunRecord], out: str, **how: Any) -> None:
    """Write the HTML report and print its path."""
    from adaxlab import report

    if not records:
        raise LabError("no runs to report; create some with `adax compare` or `adax demo`")
    try:
        with passing("drawing the report"):
            report.write_report(records, out, **how)
    except ModuleNotFoundError as error:
        raise LabError(f"the report needs {error.name}; {LAB}") from error
    show_place(f"report: {out}", out)
