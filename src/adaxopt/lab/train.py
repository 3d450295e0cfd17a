"""One run: a plain loop of forward, backward, step, with an evaluation per epoch and checkpoints now and
then.

Killed at any moment, `run` called again with the same specification goes on from the last checkpoint and
ends with the same bits (on CPU, with the same number of threads): the checkpoint holds model, optimizer,
generators and the position, and lines of metrics written after it are cut off.
"""

from __future__ import annotations

import hashlib
import io
import math
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from adaxopt.lab import batches, environment, files, optimizers, randomness, schedule, signals
from adaxopt.lab import task as tasks
from adaxopt.lab.errors import Interrupted, LabError, RunError, StoreError
from adaxopt.lab.spec import SCHEMA
from adaxopt.lab.store import RunFolder, RunRecord

FLUSH = 64  # steps between looks at the loss: one wait for the device in so many
DIVERGED = 1e3  # times the first loss (at least 1): above it a run is given up
OnProgress = Callable[[int, int, float | None], None]


@dataclass(frozen=True)
class Settings:
    """How a run is carried out, as opposed to what it is: nothing here changes what is computed on one
    device.

    `threads` does change the last bits; a resumed run therefore keeps those it started with.
    """

    device: str = "cpu"
    threads: int = 1
    checkpoint_seconds: float = 30.0


def choose_device(name: str) -> torch.device:
    """'auto' is a CUDA device when there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise LabError(f"device={name!r}: must be auto, cpu, cuda or cuda:N") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise LabError(f"device={name!r}: this machine has no CUDA device; use --device cpu")
    return device


def run(
    spec: dict[str, Any],
    root: Path | str,
    settings: Settings | None = None,
    on_progress: OnProgress | None = None,
    stop: signals.Stop | None = None,
) -> RunRecord:
    """Carry out the run, or what is left of it, and return its record. A finished run is read, not repeated.

    Raises Busy when another process has it, Interrupted after a signal (the state is then on disk), RunError
    when the task fails, StoreError when the folder cannot be written.
    """
    settings = settings or Settings()
    folder = RunFolder(root, spec)
    if folder.finished():
        return folder.record()
    if stop is None:
        with signals.listening() as stop:
            return run(spec, root, settings, on_progress, stop)
    device = choose_device(settings.device)
    task = tasks.load(spec["task"], spec["task_options"])
    optimizers.warm_up()
    with folder.lock():
        if folder.finished():
            return folder.record()
        folder.write_env(environment.describe(device, settings.threads))
        threads = folder.env().get("threads", settings.threads)
        with randomness.controlled(spec["seed"], device, threads):
            try:
                trainer = _Trainer(spec, task, folder, device, settings, on_progress, stop)
                folder.finish(trainer.train())
            except (LabError, KeyboardInterrupt):
                raise
            except Exception as error:
                where = traceback.extract_tb(error.__traceback__)[-1]
                raise RunError(
                    f"run {folder.path} failed: {type(error).__name__}: {tasks.first_line(error)} "
                    f"(at {Path(where.filename).name}:{where.lineno})"
                ) from error
    return folder.record()


class _Trainer:
    def __init__(
        self,
        spec: dict[str, Any],
        task: tasks.Task,
        folder: RunFolder,
        device: torch.device,
        settings: Settings,
        on_progress: OnProgress | None,
        stop: signals.Stop,
    ) -> None:
        self.spec, self.task, self.folder, self.device, self.stop = spec, task, folder, device, stop
        self.settings, self.on_progress = settings, on_progress
        self.train_source, self.eval_source, self.split = sources(spec, task, device)
        self.model = tasks.check_model(task.model(), spec["task"]).to(device)
        self.optimizer = optimizers.build(spec["optimizer"], self.model.parameters(), spec["options"])
        for group in self.optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        self.base = [float(group["lr"]) for group in self.optimizer.param_groups]
        self.total = spec["epochs"] * len(self.train_source)
        self.factor = schedule.factor(spec["schedule"], self.total)
        # position and sums, all of it in the checkpoint
        self.at: dict[str, Any] = {
            "epoch": 0, "batch": 0, "step": 0, "loss": 0.0, "value": 0.0, "rows": 0, "first": None,
            "best": None, "last": None, "metrics_bytes": 0, "seconds": 0.0, "step_seconds": 0.0, "useful_seconds": 0.0,
            "sessions": 0,
        }  # fmt: skip
        self.epoch_rng = randomness.state(device)
        self.pending: list[tuple[torch.Tensor, torch.Tensor, int]] = []
        self.resumed_rng: dict[str, Any] | None = None
        if folder.checkpoint.exists():
            self.load()
        self.at["sessions"] += 1
        self.seconds_before = self.at["seconds"]

    # -- the loop
    # ---------------------------------------------------------------------------------------------

    def train(self) -> dict[str, Any]:
        at, spec = self.at, self.spec
        self.metrics = self.folder.metrics(at["metrics_bytes"])
        self.started = self.last_checkpoint = time.perf_counter()
        try:
            while at["epoch"] < spec["epochs"]:
                if not self.epoch():
                    return self.done("diverged")
            return self.done("finished")
        finally:
            self.metrics.close()

    def epoch(self) -> bool:
        """One epoch, or the rest of it, and its evaluation; False when the run has diverged."""
        at, model, optimizer, task = self.at, self.model, self.optimizer, self.task
        index = None
        if not isinstance(self.train_source, batches.Batches):
            index = batches.order(self.train_source.n, self.spec["seed"], at["epoch"])
        if self.resumed_rng is not None:
            randomness.restore(self.epoch_rng, self.device)
        else:
            self.epoch_rng = randomness.state(self.device)
        todo = self.train_source.batches(index, at["batch"])
        if self.resumed_rng is not None:
            randomness.restore(self.resumed_rng, self.device)
            self.resumed_rng = None
        model.train()
        clock = time.perf_counter
        next_look = clock() + 0.1
        for batch, rows in todo:
            scale = self.factor(at["step"])
            for group, base in zip(optimizer.param_groups, self.base, strict=True):
                set_lr(group, base * scale)
            timed = self.device.type == "cpu" or at["step"] % FLUSH == 0
            begin = self.now(timed)
            result = task.loss(model, batch)
            if at["step"] == 0:
                self.check_first(result)
            loss, values = result if isinstance(result, tuple) else (result, result)
            loss.backward()
            middle = self.now(timed)
            optimizer.step()
            end = self.now(timed)
            optimizer.zero_grad(set_to_none=True)
            if timed:
                weight = 1 if self.device.type == "cpu" else FLUSH
                at["step_seconds"] += weight * (end - middle)
                at["useful_seconds"] += weight * (end - begin)
            self.pending.append((loss.detach(), mean_of(values), rows))
            at["step"] += 1
            at["batch"] += 1
            if at["step"] % FLUSH == 0 and not self.flush():
                return False
            if self.stop.signum or end > next_look or not self.settings.checkpoint_seconds:
                next_look = end + 0.1
                self.look()
        if not self.flush():
            return False
        if at["batch"] != len(self.train_source):
            raise RunError(
                f"task {self.spec['task']}: 'train' says {len(self.train_source)} batches, gave {at['batch']}"
            )
        return self.evaluate()

    def now(self, timed: bool) -> float:
        if timed and self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def check_first(self, result: Any) -> None:
        name = self.spec["task"]
        tasks.check_loss(result, self.task, name)
        loss, values = result if isinstance(result, tuple) else (result, result)
        first, value = loss.item(), mean_of(values).item()
        for what, number in (("loss", first), (self.task.metric, value)):
            if not math.isfinite(number):
                raise RunError(
                    f"task {name}: the {what} is {number} on the first batch, before any step; see to its data"
                )
        self.at["first"] = first

    def flush(self) -> bool:
        """Add up the losses since the last time; False when one shows that the run has diverged.

        One by one in float64, so that where the flushes fall changes no bit.
        """
        if not self.pending:
            return True
        at = self.at
        losses = torch.stack([loss.reshape(()) for loss, _, _ in self.pending]).tolist()
        values = torch.stack([value for _, value, _ in self.pending]).tolist()
        limit = DIVERGED * max(1.0, abs(at["first"]))
        fine = True
        for loss, value, (_, _, rows) in zip(losses, values, self.pending, strict=True):
            at["loss"] += loss * rows
            at["value"] += value * rows
            at["rows"] += rows
            fine = fine and abs(loss) <= limit  # False for NaN as well
        self.pending.clear()
        return fine

    def evaluate(self) -> bool:
        at = self.at
        loss_sum = value_sum = 0.0
        rows_sum = 0
        self.model.eval()
        with torch.no_grad():
            for batch, rows in self.eval_source.batches(None):
                begin = time.perf_counter()
                result = self.task.loss(self.model, batch)
                loss, values = result if isinstance(result, tuple) else (result, result)
                loss_sum += float(loss) * rows
                at["useful_seconds"] += time.perf_counter() - begin
                value_sum += float(mean_of(values)) * rows
                rows_sum += rows
        if not math.isfinite(loss_sum):
            return False
        metric = value_sum / rows_sum
        if not math.isfinite(metric):
            raise RunError(
                f"task {self.spec['task']}: the {self.task.metric} is {metric} while the loss is a number"
            )
        better = max if self.task.higher_is_better else min
        at["best"] = metric if at["best"] is None else better(at["best"], metric)
        at["epoch"] += 1
        at["last"] = {
            "step": at["step"],
            "epoch": at["epoch"],
            "train_loss": at["loss"] / at["rows"],
            "train_metric": at["value"] / at["rows"],
            "valid_loss": loss_sum / rows_sum,
            "metric": metric,
            "lr": self.base[0] * self.factor(at["step"] - 1),
            "seconds": round(self.seconds(), 6),
        }
        self.metrics.add(at["last"])
        at.update(batch=0, loss=0.0, value=0.0, rows=0, metrics_bytes=self.metrics.size)
        self.epoch_rng = randomness.state(self.device)
        self.look(between=True)
        return True

    def look(self, between: bool = False) -> None:
        """Now and then: tell the progress, write a checkpoint when it is time, stop when asked to."""
        if self.on_progress:
            self.on_progress(
                self.at["step"], self.total, self.at["last"]["metric"] if self.at["last"] else None
            )
        last = self.at["epoch"] == self.spec["epochs"]
        due = time.perf_counter() - self.last_checkpoint >= self.settings.checkpoint_seconds
        if self.stop.signum or (due and not last):
            self.save()
        if self.stop.signum:
            raise Interrupted(f"stopped at step {self.at['step']} of {self.total}", self.stop.signum)

    def seconds(self) -> float:
        return self.seconds_before + time.perf_counter() - self.started

    def done(self, status: str) -> dict[str, Any]:
        at, task = self.at, self.task
        self.metrics.sync()
        if self.on_progress:
            self.on_progress(self.total, self.total, at["last"]["metric"] if at["last"] else None)
        finished = status == "finished"
        seconds = self.seconds()
        return {
            "schema": SCHEMA,
            "status": status,
            "metric": at["last"]["metric"] if finished else None,
            "best": at["best"],
            "train_loss": at["last"]["train_loss"] if finished else None,
            "valid_loss": at["last"]["valid_loss"] if finished else None,
            "seconds": round(seconds, 6),
            "step_seconds": round(at["step_seconds"], 6),
            "loop_seconds": round(max(0.0, seconds - at["useful_seconds"]), 6),
            "metric_name": task.metric,
            "higher_is_better": task.higher_is_better,
            "split": self.split,
            "steps": at["step"],
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "sessions": at["sessions"],
            "model_sha256": fingerprint(self.model),
        }

    # -- checkpoints
    # ------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Flush the metrics to the disk, then replace the checkpoint at once."""
        self.metrics.sync()
        buffer = io.BytesIO()
        at = {**self.at, "seconds": self.seconds()}
        torch.save(
            {
                "schema": SCHEMA,
                "at": at,
                "pending": [(loss.cpu(), value.cpu(), rows) for loss, value, rows in self.pending],
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "rng": randomness.state(self.device),
                "epoch_rng": self.epoch_rng,
            },
            buffer,
        )
        files.write(self.folder.checkpoint, buffer.getvalue())
        self.last_checkpoint = time.perf_counter()

    def load(self) -> None:
        path = self.folder.checkpoint
        try:
            saved = torch.load(path, map_location="cpu", weights_only=True)
            if saved["schema"] != SCHEMA:
                raise StoreError(
                    f"{path}: checkpoint of schema {saved['schema']}, this version reads {SCHEMA}"
                )
            self.model.load_state_dict(saved["model"])
            self.optimizer.load_state_dict(saved["optimizer"])
            self.at.update(saved["at"])
            self.pending = [
                (loss.to(self.device), value.to(self.device), rows) for loss, value, rows in saved["pending"]
            ]
            self.epoch_rng, self.resumed_rng = saved["epoch_rng"], saved["rng"]
        except StoreError:
            raise
        except Exception as error:
            raise StoreError(
                f"{path}: cannot be resumed from ({type(error).__name__}); left untouched, "
                "move it away to start this run anew"
            ) from error


def sources(spec: dict[str, Any], task: tasks.Task, device: torch.device) -> tuple[Any, Any, str]:
    """What to train on, what to evaluate on, and the latter's name.

    Tuning trains without the held-out part ('valid', or a fifth of 'train') and is judged on it; final runs
    train on all of 'train' and are judged on 'test', which no choice has seen.
    """
    name = spec["task"]
    data = tasks.check_data(task.data(), name)
    size = spec["batch_size"]
    eval_size = getattr(task, "eval_batch_size", 4 * size)

    def make(split: str, n: int, rows: torch.Tensor | None = None) -> Any:
        return batches.source(data[split], n, device, f"task {name}: data()[{split!r}]", rows)

    if spec["purpose"] == "final":
        return make("train", size), make("test", eval_size), "test"
    if "valid" in data:
        return make("train", size), make("valid", eval_size), "valid"
    split = data["train"]
    form = batches.kind(split, f"task {name}: data()['train']")
    keep, held = batches.holdout(len(split[0]) if form == "tensors" else len(split))
    return make("train", size, keep), make("train", eval_size, held), "valid"


def set_lr(group: dict[str, Any], lr: float) -> None:
    """Write a group's lr, keeping a tensor a tensor."""
    if isinstance(group["lr"], torch.Tensor):
        group["lr"].fill_(lr)
    else:
        group["lr"] = lr


def mean_of(values: Any) -> torch.Tensor:
    """A batch's metric as one number on its device: the mean of what the task gave."""
    if not isinstance(values, torch.Tensor):
        return torch.tensor(float(values))
    values = values.detach()
    if values.dtype != torch.float32:
        values = values.to(torch.float32)
    return values.mean() if values.dim() else values


def fingerprint(model: torch.nn.Module) -> str:
    """SHA-256 of every parameter and buffer: two runs with the same one ended with the same bits."""
    digest = hashlib.sha256()
    for name, value in model.state_dict().items():
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
