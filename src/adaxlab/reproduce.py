"""`adax reproduce NAME`: run a study of the paper (or of this project) and judge its claims.

python -m adaxlab.reproduce NAME ... --data FOLDER --out FOLDER     the same on a machine with torch and numpy only
torchrun --nproc_per_node 8 -m adaxlab.reproduce NAME ...           each run in 8 processes (imagenet/...)
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from adaxlab import (
    distributed,
    driver,
    environment,
    messages,
    option_types,
    options,
    progress,
    records,
    spec,
    store,
    table,
    workers,
)
from adaxlab.errors import LabError, RunError, StoreError, check_known
from adaxlab.paper import catalogue, claims
from adaxlab.paper.catalogue import Computation
from adaxlab.settings import ExecutionConfig, Settings, choose_device
from adaxlab.study import Study
from adaxlab.summary import Comparison, summarise
from adaxlab.variants import changed
from adaxopt.extras import LAB


@dataclass(frozen=True)
class Request:
    """Options of `adax reproduce`. The values 0 and "" keep the study's setting."""

    out: str = "runs"
    """the folder in which runs are stored"""
    records: str = ""
    """also write the study to this folder, such as records; an incomplete study is stored in, and resumed from, its
    subfolder unfinished"""
    data: str = ""
    """the folder of the data; if not given, the one that `adax data get` writes to"""
    weights: str = ""
    """the file or folder of pretrained weights, for studies that fine-tune a model"""
    seeds: int = 0
    """number of final runs per row (0: the study's)"""
    epochs: int = 0
    """number of epochs per run (0: the study's)"""
    batch_size: int = 0
    """examples per batch (0: the study's)"""
    tune: int = 0
    """number of learning rates to try per row (0: the study's)"""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N"""
    threads: int = 1
    """CPU threads per run"""
    jobs: int = 1
    """number of worker processes"""
    seconds: float = 0.0
    """stop after this many seconds (0: no limit); the same command resumes the study"""
    checkpoint_seconds: float = 60.0
    """seconds between two checkpoints of a run"""
    per_stack: int = 25
    """maximum number of networks to train together, in studies that train several at once"""
    execution: str = ""
    """for imagenet/..., separated by commas: compiled=true, graph=false, channels_last=false, resident=false"""
    quiet: bool = False
    """show no progress"""


def run(name: str, request: Request, more: Mapping[str, Any]) -> Comparison | Path | bool:
    """Run the study and return its result, or False if the time ran out first. `more` are options of its task."""
    found = catalogue.find(name)
    if not request.seconds >= 0:
        raise LabError(f"seconds={request.seconds}: must be >= 0 (0: no limit)")
    try:
        if isinstance(found, Computation):
            return _compute(found, request, more)
        return _carry_out(found, request, more)
    except ModuleNotFoundError as error:
        raise LabError(f"study {name}: needs {error.name}; {LAB}") from error


def _carry_out(found: Study, request: Request, more: Mapping[str, Any]) -> Comparison | bool:
    if request.records:
        environment.check_clean()
    sizes = {key: getattr(request, key) for key in ("seeds", "epochs", "batch_size", "tune")}
    places = {key: value for key in ("data", "weights") if (value := getattr(request, key))}
    given = {**sizes, **places, **more}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="betas")  # b2*T was chosen: a short run has a large b2
        study = changed(found, **given).complete()
    settings = Settings(
        str(choose_device(request.device)),
        request.threads,
        request.checkpoint_seconds,
        request.per_stack,
        execution=_execution(study, request),
    )
    rates = None
    if study.follows:
        study, rates = followed(study, Path(request.out), given)
    if request.records and study.name != found.name:
        raise LabError(
            f"{study.name} has changed settings; records are written only for {found.name} as planned"
        )
    with ExitStack() as open_:
        first = open_.enter_context(distributed.joined(request.device)).first
        kept = Path(request.records) / records.unfinished(study)
        if request.records and distributed.world_size() == 1:
            open_.enter_context(records.resumed(kept, Path(request.out), study))
        open_.enter_context(workers.helpers(study, request.out, settings, request.jobs, rates))
        watcher = open_.enter_context(progress.watcher(request.quiet or not first))
        made = driver.carry_out(study, request.out, settings, watcher, rates=rates, seconds=request.seconds)
    if made is None:
        return False
    if failed := [r for r in made if r.status == "failed"]:
        why = "; ".join(f"{r.row}: {r.error} (traceback: {r.path / store.ERROR})" for r in failed)
        raise RunError(f"study {study.name}: {len(failed)} of {len(study.rows)} rows failed: {why}")
    if request.records and first:
        if unclean := [run for run in made if not environment.is_clean(run.env.get("commit"))]:
            raise LabError(
                f"records={request.records}: {len(unclean)} of {len(made)} runs in {request.out} are by code that "
                "was not committed; choose another --out to make them again"
            )
        store.export(made, Path(request.records) / f"{study.name}.jsonl")
        kept.unlink(missing_ok=True)
    return summarise(study, made)


def _execution(study: Study, request: Request) -> ExecutionConfig:
    """The options of the study's executor, if it has any."""
    together = study.executor == "torchrun"
    if request.execution and not together:
        raise LabError(
            f"study {study.name}: execution={request.execution}: is for studies such as imagenet/tiny"
        )
    if distributed.world_size() > 1 and (not together or request.jobs > 1):
        raise LabError(
            f"study {study.name}: torchrun is for studies such as imagenet/tiny, and with --jobs 1"
        )
    return ExecutionConfig.parse(options.pairs(request.execution.split(",") if request.execution else ()))


def followed(
    study: Study, out: Path, given: Mapping[str, Any] | None = None
) -> tuple[Study, dict[str, float]]:
    """The study with the settings that it takes from the study it follows, and its learning rates (`driver.follow`).

    They come from the runs of the followed study in `out` (with the changed settings `given`, if there are such runs,
    otherwise with its own), or from the committed records if `out` has none. A learning rate at an end of those that
    were tried is reported.
    """
    before = catalogue.study(study.follows)
    source = changed(before, **(given or {}))
    if not (out / spec.folder(source.name)).is_dir():
        source = before
    folder = out / spec.folder(source.name)
    runs = store.load_runs(folder) if folder.is_dir() else records.load(records.FOLDER, before.name)
    made, rates = driver.follow(study, source, runs)
    for row in before.rows:
        if len(row.rates) > 1 and rates.get(row.name) in (min(row.rates), max(row.rates)):
            messages.say(
                f"{study.name}: {row.name} is best at lr {rates[row.name]:g}, an end of the rates that {before.name} "
                f"tried ({min(row.rates):g} to {max(row.rates):g})"
            )
    return made, rates


def verdicts(name: str, result: Comparison | Path, out: Path) -> str:
    """The verdicts on the study's claims, as text; empty if the study has no claims.

    A claim may compare with a row of another study. The runs of that study are read from `out`, or from the committed
    records if `out` has none.
    """
    if isinstance(result, Path):
        content = json.loads(result.read_text()) if result.suffix == ".json" else {}
        return claims.show(content.get("claims", []))
    asked = claims.claims_of(name)
    made = [replace(run, spec={**run.spec, "study": name}) for run in result.records]
    for other in sorted({study for claim in asked for study in claim.studies} - {name}):
        folder = out / spec.folder(other)
        made += store.load_runs(folder) if folder.is_dir() else records.load(records.FOLDER, other)
    text = claims.show(claims.verdicts(name, made))
    if text and result.study.name != name:
        return f"With settings that differ from the study's own ({result.study.name}):\n{text}"
    return text


def _compute(found: Computation, request: Request, more: Mapping[str, Any]) -> Any:
    """Call the function of the computation with the options that it accepts."""
    function = found.function()
    parameters = inspect.signature(function).parameters
    known = [key for key in parameters if key not in ("name", "out", "tell")]
    ours = {"out"} if "quiet" in known else {"out", "quiet"}  # some show no progress at all
    asked = {k: v for k, v in vars(request).items() if k not in ours and v != getattr(Request, k)}
    given = {**asked, **more}
    free = ("records", "quiet", "jobs", "device", "data")  # these do not change the result
    if given.get("records") and (other := [key for key in given if key not in free]):
        raise LabError(
            f"{found.name} has changed settings ({', '.join(other)}); records are written only for it as planned"
        )
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        check_known(f"setting of study {found.name}", known or ["(none)"], *given)
    option_types.check(function, {key: value for key, value in given.items() if key in known}, "--set")
    return function(found.name, Path(request.out), **given)


def main(arguments: list[str] | None = None, show: Callable[[str], None] = print) -> int:
    """Run studies one after the other, with torch and numpy only. The exit code is 3 if the time runs out first."""
    parser = argparse.ArgumentParser(prog="python -m adaxlab.reproduce", description=main.__doc__)
    parser.add_argument("studies", nargs="+", metavar="STUDY")
    for key, default in vars(Request()).items():
        flag = f"--{key.replace('_', '-')}"
        if isinstance(default, bool):
            parser.add_argument(flag, action="store_true")
        else:
            parser.add_argument(flag, type=type(default), default=default)
    parser.add_argument("--set", nargs="*", default=[], metavar="OPTION=VALUE", help="options of the task")
    given = vars(parser.parse_args(arguments))
    names, more = given.pop("studies"), options.pairs(given.pop("set"))
    clock = progress.Countdown(given.pop("seconds"))
    first = distributed.is_first()
    try:
        check_known("study", sorted(catalogue.studies()), *names)
        with distributed.joined(given["device"]):
            for name in names:
                limit = 0.0 if isinstance(catalogue.find(name), Computation) else clock.left()
                made = False if clock.over() else run(name, Request(**given, seconds=limit), more)
                if isinstance(made, bool):
                    raise TimeUp(f"time ran out before {name} was complete; the same command resumes")
                if first:
                    shown = table.plain(made) if isinstance(made, Comparison) else f"{name}: complete"
                    show(f"{shown}\n\n{verdicts(name, made, Path(given['out']))}".rstrip())
    except LabError as error:
        if first or isinstance(error, RunError | StoreError):
            print(f"adax reproduce: {error}", file=sys.stderr)
        return error.exit_code
    return 0


class TimeUp(LabError):
    """The time ran out before the studies were complete."""

    exit_code = 3


if __name__ == "__main__":
    sys.exit(main())
