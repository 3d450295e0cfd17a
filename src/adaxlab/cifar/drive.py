"""Carry studies out in stacks, over as many bookings of a GPU as it takes.

Each finished run is one JSON line at once, in the file of its study. What is unfinished is a checkpoint now and then
and when the time is up, and the next call goes on from it: the same call, here or on another machine, until every run
has its line.
"""

from __future__ import annotations

import functools
import json
import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from adaxlab import environment, files
from adaxlab.cifar import plan, shelf
from adaxlab.cifar.adopt import adopt
from adaxlab.cifar.book import Study
from adaxlab.cifar.feed import Images
from adaxlab.cifar.plain import PlainNetwork
from adaxlab.cifar.stack import Network, Recipe, Run, Stack
from adaxlab.errors import StoreError

Say = Callable[[str], None]


def records(path: Path) -> list[dict[str, Any]]:
    """The lines of a record file; none if it is not there. A last line that was cut off is none: it is run again."""
    text = path.read_text() if path.is_file() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def add(path: Path, found: Iterable[Mapping[str, Any]]) -> None:
    """Append lines: all of them, or none that count."""
    whole = "".join(json.dumps(line) + "\n" for line in [*records(path), *found])
    files.write(path, whole.encode())


def carry_out(
    studies: Sequence[Study],
    images: Callable[[int], tuple[Images, Images]],
    out: Path,
    *,
    per_stack: int = 25,
    seconds: float = math.inf,
    checkpoint_seconds: float = 120.0,
    precision: str = "bf16",
    network: Callable[..., Network] | None = None,
    reuse: Sequence[Path] = (),
    tell: Say = lambda text: None,
) -> bool:
    """Run what `out` does not hold yet; True when the studies are complete, False when the time was up before.

    `images(holdout)` gives what is trained on and tested with. Runs of studies with the same recipe and data train in
    common stacks of `per_stack`. `reuse` are record files of other studies: a run that is there under another name is
    taken from there.
    """
    out.mkdir(parents=True, exist_ok=True)
    data = {holdout: images(holdout) for holdout in dict.fromkeys(study.holdout for study in studies)}
    known = [line for path in reuse for line in records(path)]
    clock = Clock(seconds, checkpoint_seconds)
    _take(studies, data, out, known, precision, tell)
    jobs = [
        plan.Job(study, run) for study in studies for run in _left(study, out, len(data[study.holdout][0]))
    ]
    parts = [part for group in plan.groups(plan.leaders(jobs)) for part in plan.stacks(group, per_stack)]
    for part in parts:
        train, test = data[part[0].study.holdout]
        stack = make_stack(
            part[0].study.recipe,
            [job.run for job in part],
            train,
            test,
            precision,
            network,
            [job.study.trace for job in part],
        )
        lines = _train(part, stack, out, clock, _precision(precision, train), tell)
        if lines is None:
            return False
        _take(studies, data, out, lines, precision, tell)
    return True


class Clock:
    """What is left of the time, and when to write a checkpoint."""

    def __init__(self, seconds: float, checkpoint_seconds: float) -> None:
        self.seconds, self.checkpoint_seconds = seconds, checkpoint_seconds
        self.began = self.saved = time.monotonic()
        self.saving = 2.5
        """Seconds that the slowest checkpoint took."""

    def up(self, epoch: float) -> bool:
        """Is there no time for another `epoch` of so many seconds, and to write a checkpoint after it?"""
        return time.monotonic() - self.began + 1.2 * epoch + 2 * self.saving > self.seconds

    def due(self) -> bool:
        """Has the last checkpoint been long enough ago?"""
        return time.monotonic() - self.saved >= self.checkpoint_seconds

    def save(self, name: Path, state: dict[str, Any]) -> None:
        began = time.monotonic()
        shelf.save(name, state)
        self.saved = time.monotonic()
        self.saving = max(self.saving, self.saved - began)


def _train(
    part: Sequence[plan.Job], stack: Stack, out: Path, clock: Clock, precision: str, tell: Say
) -> list[dict[str, Any]] | None:
    """Train the stack to its end, and write its lines; None, and a checkpoint, when the time was up before."""
    images = len(stack.train)
    of, kept = plan.identity(part, images, precision), out / plan.name(part, images, precision)
    called = "+".join(dict.fromkeys(job.study.name for job in part))
    saved = shelf.load(kept)
    if saved:
        if saved["of"] != of:
            raise StoreError(f"{kept}.*.part: a checkpoint of other runs; move it away to start these anew")
        stack.load(saved)
        tell(f"{called}: {len(part)} runs go on from epoch {stack.epoch}")
    elif others := shelf.names(out):
        tell(
            f"{called}: {len(part)} runs start anew; {', '.join(others)} are checkpoints of other stacks, which go on "
            "when the call that left them is repeated"
        )
    spent, slowest = float((saved or {}).get("seconds", 0.0)), 0.0
    times: list[float] = []
    clock.saved = time.monotonic()
    while stack.epoch < stack.recipe.epochs:
        if clock.up(slowest):
            clock.save(kept, {**stack.state(), "seconds": spent, "of": of})
            tell(f"{called}: time is up at epoch {stack.epoch}; the same call goes on from here")
            return None
        started = time.monotonic()
        stack.run_epoch()
        took = time.monotonic() - started
        spent += took
        times.append(took)
        slowest = took if slowest == 0 else max(min(slowest, 2 * took), took)
        if stack.epoch % 10 == 0 or stack.epoch <= 2:
            tell(f"{called} {_summary(part, stack)} {took:.2f} s an epoch")
        if stack.epoch < stack.recipe.epochs and clock.due():
            clock.save(kept, {**stack.state(), "seconds": spent, "of": of})
    epoch = statistics.median(times[1:] or times)  # the first compiles and captures
    lines = [_record(job, stack, i, (spent, epoch), precision) for i, job in enumerate(part)]
    for study in dict.fromkeys(line["study"] for line in lines):
        add(out / f"{study}.jsonl", [line for line in lines if line["study"] == study])
    shelf.drop(kept)
    return lines


def _take(
    studies: Sequence[Study],
    data: Mapping[int, tuple[Images, Images]],
    out: Path,
    lines: Sequence[Mapping[str, Any]],
    precision: str,
    tell: Say,
) -> None:
    """Write what the studies can have from `lines` of others."""
    for study in studies:
        train = data[study.holdout][0]
        todo = _left(study, out, len(train))
        found = adopt(study, todo, lines, len(train), _precision(precision, train))
        if found:
            add(out / f"{study.name}.jsonl", found)
            whose = dict.fromkeys(line["same_run_as"].split(":")[0] for line in found)
            tell(f"{study.name}: {len(found)} runs are {' and '.join(whose)}'s own")


def _precision(asked: str, train: Images) -> str:
    """A CPU computes in float32, whatever is asked."""
    return asked if train.labels.is_cuda else "fp32"


def _left(study: Study, out: Path, images: int) -> list[Run]:
    """The runs that have no line yet; lines of other lengths or other data (imagenet/tuning's, say) are refused."""
    lines = out / f"{study.name}.jsonl"
    found = records(lines)
    wanted = json.loads(json.dumps({**asdict(study.recipe), "images": images}))
    for line in found:
        held = {**line["recipe"], "images": line["images"]}
        for key, value in wanted.items():
            if held.get(key) != value:
                raise StoreError(
                    f"{lines}: {line['row']} seed {line['seed']} was run with {key} {held.get(key)!r}, {value!r} is "
                    "asked for; choose another folder for these runs, or move the file away"
                )
    done = {(r["row"], r["seed"]) for r in found}
    return [run for run in study.runs() if (run.row, run.seed) not in done]


def make_stack(
    recipe: Recipe,
    runs: Sequence[Run],
    train: Images,
    test: Images,
    precision: str,
    network: Callable[..., Network] | None = None,
    trace: Sequence[bool] = (),
) -> Stack:
    """A stack with the fused kernels on a GPU, where the model has them, and in plain PyTorch elsewhere."""
    if network is None and recipe.model != "resnet20":
        network = functools.partial(PlainNetwork, autocast=train.labels.is_cuda and precision == "bf16")
    elif network is None and train.labels.is_cuda:
        from adaxlab.cifar.fused import FusedNetwork

        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        network = functools.partial(
            FusedNetwork, dtype=dtype, precision="tf32x3" if precision == "fp32" else "tf32"
        )
    extra: Mapping[str, Any] = {} if network is None else {"make_network": network}
    return Stack(runs, train, test, recipe, trace=trace, **extra)


def _summary(part: Sequence[plan.Job], stack: Stack) -> str:
    """Accuracies of the last epoch, a mean for each row; rows of several studies have their study before them."""
    several = len({job.study.name for job in part}) > 1
    tests: dict[str, list[float]] = {}
    for job, curve in zip(part, stack.history, strict=True):
        row = f"{job.study.name}/{job.run.row}" if several else job.run.row
        tests.setdefault(row, []).append(curve[-1]["test_accuracy"] or 0.0)
    means = (f"{row} {sum(found) / len(found):.2f}" for row, found in tests.items())
    return f"epoch {stack.epoch}: " + ", ".join(means)


def _record(
    job: plan.Job, stack: Stack, i: int, seconds: tuple[float, float], precision: str
) -> dict[str, Any]:
    """One run's line: what it was, how it ended, its curves, and where it ran."""
    study, run, curve = job.study, job.run, stack.history[i]
    line = {
        "study": study.name,
        "row": run.row,
        "seed": run.seed,
        "optimizer": run.optimizer,
        "options": dict(run.options),
        "recipe": asdict(study.recipe),
        "images": len(stack.train),
        "precision": precision,
        "test_accuracy": curve[-1]["test_accuracy"],
        "train_accuracy": curve[-1]["train_accuracy"],
        "train_loss": curve[-1]["train_loss"],
        "curve": {key: [point[key] for point in curve] for key in curve[0]},
        "seconds": round(seconds[0], 1),
        "epoch_seconds": round(seconds[1], 4),
        "together": len(stack.runs),
        "environment": environment.describe(stack.train.labels.device, torch.get_num_threads()),
    }
    return line | ({"trace": stack.traces.of(i)} if study.trace and stack.traces else {})
