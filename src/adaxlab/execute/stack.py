"""Train many small networks at once: runs that differ only in optimizer and seed share one device.

    specifications -> stacks: whole seeds together, at most `per_stack` runs -> records

The checkpoint of a stack is stack-<hash of its members>.pt in the study's folder, written by torch.save with the
members' specifications. It is written at the end of an epoch, every `checkpoint_seconds`, and before an interruption. A
started stack resumes with the same members, even if other runs were added. Only the task cifar10 can be stacked; its
kernels are in adaxlab.stacked.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import math
import statistics
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import torch

from adaxlab import batches, environment, failures, schedule, signals
from adaxlab import checkpoint as checkpoints
from adaxlab import task as tasks
from adaxlab.errors import Busy, Interrupted, LabError
from adaxlab.settings import Settings, choose_device, use_threads
from adaxlab.spec import SCHEMA, canonical, digest
from adaxlab.stacked.loader import Images
from adaxlab.stacked.stack import Run, Stack, StackRecipe, make_stack
from adaxlab.store import RunFolder, RunRecord

Spec = dict[str, Any]
SHARED = ("task", "task_options", "schedule", "epochs", "batch_size", "purpose", "data")
"""Keys of the specification that are equal in all runs of a stack."""


class Executor:
    """Trains runs in stacks. A stack that fails is trained again optimizer by optimizer, so that the other optimizers'
    runs are completed. Runs of an optimizer that also fails alone are recorded as failed, and not tried again by this
    executor."""

    def __init__(self) -> None:
        self.failed: set[str] = set()
        """Names of the runs that failed."""
        self.divided: set[Path] = set()
        """Checkpoints of the stacks that failed; the next command resumes from them, perhaps on another device."""

    def __call__(
        self, specs: Sequence[Spec], root: Path, settings: Settings, watcher: Any, stop: signals.Stop
    ) -> Iterator[RunRecord]:
        """Yield the records in the store, then the others stack by stack; runs locked by another process are
        skipped."""
        left: dict[str, Spec] = {}
        for spec in specs:
            folder = RunFolder(root, spec)
            if folder.finished() or (not settings.alone and folder.borrow()) or digest(spec) in self.failed:
                yield folder.record()
            else:
                left.setdefault(digest(spec), spec)
        for members in plan(left, root, settings, self.divided):
            if stop.signum:
                raise Interrupted("stopped between two stacks", stop.signum)
            try:
                self._train(members, root, settings, watcher, stop)
            except Busy:
                continue
            folders = [RunFolder(root, spec) for spec in members if digest(spec) in left]
            yield from [f.record() for f in folders if f.finished() or digest(f.spec) in self.failed]

    def _train(
        self, members: list[Spec], root: Path, settings: Settings, watcher: Any, stop: signals.Stop
    ) -> None:
        try:
            train(members, root, settings, watcher, stop)
        except LabError:
            raise
        except Exception as error:
            parts = [list(part) for _, part in itertools.groupby(members, _method)]
            if len(parts) == 1:
                self._fail(members, root, error)
                return
            path = checkpoint(members, root)
            self.divided.add(path)
            for part in parts:
                self._train(part, root, settings, watcher, stop)
                checkpoint(part, root).unlink(missing_ok=True)  # that of all is kept
            if all(RunFolder(root, spec).finished() for spec in members):
                path.unlink(missing_ok=True)

    def _fail(self, members: Sequence[Spec], root: Path, error: Exception) -> None:
        for folder in (RunFolder(root, spec) for spec in members):
            with folder.lock():
                if not folder.finished():
                    folder.fail(failures.describe(error), failures.text(error))
                    self.failed.add(digest(folder.spec))


# -- which runs train together ----------------------------------------------------------------------------------------


def plan(
    left: Mapping[str, Spec], root: Path, settings: Settings, without: Collection[Path] = ()
) -> list[list[Spec]]:
    """Return the members of each stack to train: started stacks first (`without` these checkpoints), then new ones."""
    started: list[list[Spec]] = []
    for place in dict.fromkeys(RunFolder(root, spec).path.parent for spec in left.values()):
        for path in sorted(set(place.glob("stack-*.pt")) - set(without)):
            members = [left.get(digest(spec), spec) for spec in read(path)["specs"]]
            if any(digest(spec) in left for spec in members):
                started.append(members)
    taken = {digest(spec) for members in started for spec in members}
    return started + stacks([spec for name, spec in left.items() if name not in taken], settings)


def stacks(specs: Sequence[Spec], settings: Settings) -> list[list[Spec]]:
    """Return stacks of as many whole seeds as fit, so that an interrupted study has the same seeds in all rows.

    If the runs of one seed do not fit into a stack, stacks are filled in the order of seeds. Runs whose times are
    measured train one by one, in the given order.
    """
    groups: dict[str, list[Spec]] = {}
    for spec in specs:
        groups.setdefault(canonical([spec.get(key) for key in SHARED]), []).append(spec)
    size = 1 if settings.alone else settings.per_stack
    return [_side_by_side(part) for group in groups.values() for part in _cut(group, size)]


def _cut(group: Sequence[Spec], size: int) -> list[list[Spec]]:
    if size == 1:
        return [[spec] for spec in group]
    seeds = sorted({spec["seed"] for spec in group})
    parts = [[spec for spec in group if spec["seed"] == seed] for seed in seeds]
    if any(len(part) > size for part in parts):
        every = [spec for part in parts for spec in part]
        return [every[i : i + size] for i in range(0, len(every), size)]
    out: list[list[Spec]] = []
    for part in parts:
        if out and len(out[-1]) + len(part) <= size:
            out[-1] += part
        else:
            out.append(part)
    return out


def _side_by_side(part: Sequence[Spec]) -> list[Spec]:
    """Sort runs so that those with the same optimizer are adjacent: they share one optimizer object."""
    place: dict[str, int] = {}
    for spec in part:
        place.setdefault(_method(spec), len(place))
    return sorted(part, key=lambda spec: (place[_method(spec)], spec["seed"]))


def _method(spec: Spec) -> str:
    return canonical([spec["optimizer"], spec["options"]])


# -- creating a stack -------------------------------------------------------------------------------------------------


class Data(NamedTuple):
    """Training and evaluation data of a stack."""

    task: Any
    train: Images
    test: Images
    split: str


@functools.lru_cache(2)
def _data(name: str, options: str, purpose: str, device: torch.device) -> Data:
    """Return the task's images on the device: tuning is evaluated on held-out images, final runs on the test set."""
    if name != "cifar10":
        raise LabError(f"executor stack: task {name!r} cannot be stacked; only cifar10 can")
    task: Any = tasks.load(name, json.loads(options))
    if not task.augment:
        raise LabError("executor stack: augment=False: its networks always crop and flip; use `adax compare`")
    data = task.data()
    if purpose == "final":
        train, test, split = data["train"], data["test"], "test"
    elif "valid" in data:
        train, test, split = data["train"], data["valid"], "valid"
    else:
        rest, kept = batches.holdout(len(data["train"][1]))
        train, test = (tuple(x[rows] for x in data["train"]) for rows in (rest, kept))
        split = "valid"
    both = [Images.of(images.numpy(), labels.numpy(), device) for images, labels in (train, test)]
    return Data(task, both[0], both[1], split)


def recipe(spec: Spec, model: str, steps: int) -> StackRecipe:
    """Return the recipe of a run with `steps` steps per epoch; lr changes only between epochs."""
    given = schedule.complete(spec["schedule"])
    if given["name"] not in ("constant", "step") or given["warmup"]:
        raise LabError(
            f"executor stack: schedule {given['name']!r}, warmup {given['warmup']}: must be constant or step, without "
            "warmup; lr changes only between epochs"
        )
    total = steps * spec["epochs"]
    drops = tuple(math.ceil(schedule.step_of(m, total) / steps) for m in given.get("milestones", ()))
    return StackRecipe(model, spec["epochs"], drops, given.get("gamma", 1.0), spec["batch_size"])


def make(members: Sequence[Spec], data: Data, precision: str) -> Stack:
    """Return the stack of these runs, at epoch 0."""
    steps = math.ceil(len(data.train) / members[0]["batch_size"])
    return make_stack(
        recipe(members[0], data.task.name, steps),
        [Run(spec["row"], spec["optimizer"], spec["options"], spec["seed"]) for spec in members],
        data.train,
        data.test,
        precision,
        [data.task.trace] * len(members),
    )


# -- training ---------------------------------------------------------------------------------------------------------


def checkpoint(members: Sequence[Spec], root: Path) -> Path:
    """Return the path of the checkpoint of these runs."""
    names = canonical([digest(spec) for spec in members])
    return (
        RunFolder(root, members[0]).path.parent
        / f"stack-{hashlib.sha256(names.encode()).hexdigest()[:16]}.pt"
    )


def read(path: Path) -> dict[str, Any]:
    """Return a checkpoint with memory-mapped tensors."""
    with checkpoints.opened(path, "its runs", mmap=True) as saved:
        return saved


def train(members: Sequence[Spec], root: Path, settings: Settings, watcher: Any, stop: signals.Stop) -> None:
    """Train or resume the stack to its end, and write its runs to the store.

    Raises Busy if another process has locked one of the runs, Interrupted (after a checkpoint) on a request to stop.
    """
    folders, path = [RunFolder(root, spec) for spec in members], checkpoint(members, root)
    with ExitStack() as held:
        for folder in folders:
            held.enter_context(folder.lock())
        saved = read(path) if path.exists() else None
        if all(folder.finished() for folder in folders):
            path.unlink(missing_ok=True)
            return
        if saved is None and any(folder.finished() for folder in folders):
            return  # another process has just finished some of them: the driver asks for the others again
        lead = next(folder.spec for folder in folders if not folder.finished())
        device = choose_device(settings.device)
        data = _data(lead["task"], canonical(lead["task_options"]), lead["purpose"], device)
        precision = data.task.precision if device.type == "cuda" else "fp32"
        here = environment.describe(data.train.labels.device, settings.threads)
        here |= {"data": lead.get("data"), "precision": precision}
        env = (
            saved["env"] if saved else json.loads(canonical(here))
        )  # plain data, which a checkpoint may hold
        if env["device"].partition(":")[0] != device.type:
            raise LabError(f"{path} was started on {env['device']}; resume it with --device {env['device']}")
        with use_threads(env["threads"]):
            work = Work(make(members, data, precision), members, path, env)
            if saved:
                work.resume(saved)
            work.finish(settings.checkpoint_seconds, watcher, stop)
        for i, folder in enumerate(folders):
            if not folder.finished():
                folder.fill(env, work.metrics(i), work.done(i, data))
        path.unlink(missing_ok=True)


class Work:
    """A stack in training, with its times and its checkpoint."""

    def __init__(self, stack: Stack, members: Sequence[Spec], path: Path, env: Mapping[str, Any]) -> None:
        self.stack, self.members, self.path, self.env = stack, members, path, dict(env)
        self.times: list[float] = []
        """Seconds of each epoch."""
        self.steps = math.ceil(len(stack.train) / stack.recipe.batch)

    def resume(self, saved: Mapping[str, Any]) -> None:
        """Load the state of a checkpoint."""
        self.stack.load(saved["state"])
        self.times = list(saved["times"])

    def save(self) -> None:
        """Write the checkpoint atomically."""
        kept = {"specs": list(self.members), "env": self.env, "times": self.times}
        checkpoints.write(self.path, {**kept, "state": self.stack.state()})

    def finish(self, checkpoint_seconds: float, watcher: Any, stop: signals.Stop) -> None:
        """Train the remaining epochs."""
        stack, saved_at, saved_epoch = self.stack, time.monotonic(), self.stack.epoch
        while stack.epoch < stack.recipe.epochs:
            due = stop.signum or time.monotonic() - saved_at >= checkpoint_seconds
            if due and stack.epoch > saved_epoch:
                self.save()
                saved_at, saved_epoch = time.monotonic(), stack.epoch
            if stop.signum:
                raise Interrupted(
                    f"stopped {self.path} at epoch {stack.epoch} of {stack.recipe.epochs}", stop.signum
                )
            started = time.monotonic()
            stack.run_epoch()
            self.times.append(time.monotonic() - started)
            last = stack.history[0][-1]["metric"]
            watcher.running(self.members[0], stack.epoch * self.steps, stack.recipe.epochs * self.steps, last)

    def metrics(self, i: int) -> list[dict[str, Any]]:
        """Return the metrics of run i, one line per epoch."""
        spent = itertools.accumulate(self.times)
        return [
            {"step": epoch * self.steps, "epoch": epoch, **point, "seconds": round(seconds, 3)}
            for epoch, (point, seconds) in enumerate(zip(self.stack.history[i], spent, strict=True), 1)
        ]

    def done(self, i: int, data: Data) -> dict[str, Any]:
        """Return the result of run i; it diverged if the loss of some epoch was not finite. Times are of the stack."""
        stack, curve = self.stack, self.stack.history[i]
        lost = any(point["train_loss"] is None for point in curve)
        rows = (stack.network.parameters[i], stack.network.running[:, i].contiguous())
        weights = b"".join(row.cpu().numpy().tobytes() for row in rows)
        done = {
            "schema": SCHEMA,
            "status": "diverged" if lost else "finished",
            "metric": None if lost else curve[-1]["metric"],
            "best": max(point["metric"] or 0.0 for point in curve),
            "train_loss": None if lost else curve[-1]["train_loss"],
            "seconds": round(sum(self.times), 1),
            "epoch_seconds": round(
                statistics.median(self.times[1:] or self.times), 4
            ),  # the first one compiles
            "together": len(self.members),
            "metric_name": data.task.metric,
            "higher_is_better": data.task.higher_is_better,
            "split": data.split,
            "steps": stack.epoch * self.steps,
            "model_sha256": hashlib.sha256(weights).hexdigest(),
        }
        return done | ({"trace": stack.traces.of(i)} if stack.traces else {})
