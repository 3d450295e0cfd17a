"""The training loop: forward, backward, step; an evaluation per epoch; periodic checkpoints.

The checkpoint holds model, optimizer, random generators and the position, including metrics; lines of metrics written
after it are removed when a run resumes. The order of the data is a function of seed and epoch, the schedule a function
of the step.
"""

from __future__ import annotations

import functools
import hashlib
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from adaxlab import batches, checkpoint, optimizers, randomness, schedule, signals
from adaxlab import task as tasks
from adaxlab.errors import Interrupted, LabError, RunError
from adaxlab.messages import say
from adaxlab.settings import Settings
from adaxlab.spec import SCHEMA
from adaxlab.splits import sources

if TYPE_CHECKING:
    from adaxlab.store import RunFolder

FLUSH = 64  # steps between two checks of the losses, each of which synchronises with the device
SAMPLE = 16  # on a GPU, one step in so many is timed, never the first, which compiles
CHECK_SECONDS = 0.1  # between two checks of progress, signals and the age of the checkpoint
OnProgress = Callable[[int, int, float | None], None]


@dataclass
class Position:
    """The progress of a run; stored in the checkpoint."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    loss: float = 0.0  # sums over the epoch so far
    value: float = 0.0
    rows: int = 0
    lone: bool = False  # whether `loss` returns no metric
    best: float | None = None
    last: dict[str, Any] | None = None
    metrics_bytes: int = 0
    seconds: float = 0.0
    step_seconds: float = 0.0
    useful_seconds: float = 0.0  # forward, backward and step
    sessions: int = 0


class Loop:
    """One run in progress, in the process that holds the lock of its folder."""

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
        params = tasks.parameters(task, self.model, spec["options"])
        try:
            self.optimizer = optimizers.build(spec["optimizer"], params, spec["options"], self.model)
        except LabError as error:  # a failure of this optimizer: other rows of the study continue
            raise RunError(str(error)) from error
        for group in self.optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        made_for = optimizers.parts(spec["optimizer"])
        self.grouped = hasattr(task, "groups") and not any(map(optimizers.is_factory, made_for))
        self.outside = checkpoint.kept_outside(self.optimizer)
        self.obstacle: str | None = None
        self.base = [float(group["lr"]) for group in self.optimizer.param_groups]
        self.total = spec["epochs"] * len(self.train_source)
        self.factor = schedule.factor(spec["schedule"], self.total)
        self.before_step: Callable[[Any], Any] | None = getattr(task, "before_step", None)
        self.corpus: Callable[[Any, Any], Any] | None = getattr(task, "evaluate", None)
        self.at = Position()
        self.why = ""  # why the run diverged, if not because of its loss
        self.pending: list[tuple[torch.Tensor, torch.Tensor, int]] = []
        self.epoch_rng = randomness.state(device)
        self.resumed_rng: dict[str, Any] | None = None
        if folder.checkpoint.exists():
            self.load()
        self.at.sessions += 1
        self.seconds_before = self.at.seconds

    def run(self) -> dict[str, Any]:
        """Train to the end, or until the run diverges; return the contents of done.json."""
        self.started = self.last_checkpoint = time.perf_counter()
        self.metrics = self.folder.metrics(self.at.metrics_bytes)
        try:
            while self.at.epoch < self.spec["epochs"]:
                if not (self.epoch() and self.evaluate()):
                    return self.done("diverged")
            return self.done("finished")
        finally:
            self.metrics.close()

    def epoch(self) -> bool:
        """Train one epoch, or the rest of it; return False if the run has diverged."""
        at, model, optimizer, task = self.at, self.model, self.optimizer, self.task
        on_cpu, clock = self.device.type == "cpu", time.perf_counter
        self.switch(training=True)
        pause = min(CHECK_SECONDS, self.settings.checkpoint_seconds)
        next_check = clock() + pause
        for batch, rows in self.batches():
            scale = self.factor(at.step)
            for group, base in zip(optimizer.param_groups, self.base, strict=True):
                set_lr(group, base * scale)
            timed = (
                on_cpu or at.step % SAMPLE == SAMPLE - 1
            )  # on a GPU only a sample, because each measurement synchronises
            begin = clock() if on_cpu else self.now(timed)
            result = task.loss(model, batch)
            if at.step == 0:
                self.check_first(result, rows)
            loss, values = result if isinstance(result, tuple) else (result, result)
            loss.backward()
            if self.before_step:
                self.before_step(model)
            middle = clock() if on_cpu else self.now(timed)
            optimizer.step()
            end = clock() if on_cpu else self.now(timed)
            optimizer.zero_grad(set_to_none=True)
            if timed:
                weight = 1 if on_cpu else SAMPLE
                at.step_seconds += weight * (end - middle)
                at.useful_seconds += weight * (end - begin)
            self.pending.append((loss.detach(), mean_of(values), rows))
            at.step += 1
            at.batch += 1
            if at.step % FLUSH == 0 and not self.flush():
                return False
            if end >= next_check or self.stop.signum:
                next_check = end + pause
                self.check()
        if at.batch != len(self.train_source):
            raise RunError(
                f"task {self.spec['task']}: 'train' has length {len(self.train_source)} but gave {at.batch} batches"
            )
        return self.flush()

    def batches(self) -> Any:
        """The remaining batches of this epoch. The generators end up as they were when the run stopped."""
        resumed, self.resumed_rng = self.resumed_rng, None
        within = resumed is not None and self.at.batch > 0  # else nothing of this epoch has been drawn yet
        if resumed is not None:
            randomness.restore(self.epoch_rng if within else resumed, self.device)
        if not within:
            self.epoch_rng = randomness.state(self.device)
        index = None
        if isinstance(self.train_source, batches.Batches):
            self.train_source.set_epoch(self.at.epoch, self.spec["seed"])  # a sampler may draw here
        else:
            index = batches.order(self.train_source.n, self.spec["seed"], self.at.epoch)
        left = self.train_source.batches(index, self.at.batch)
        if within and resumed is not None:
            randomness.restore(resumed, self.device)
        return left

    def now(self, wait: bool) -> float:
        """The current time, after a synchronisation with the GPU if `wait`."""
        if wait and self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def check_first(self, result: Any, rows: int) -> None:
        """Raise RunError for an invalid result before the first step: it is caused by the task, not the optimizer."""
        name = self.spec["task"]
        tasks.check_loss(result, self.task, name)
        loss, values = result if isinstance(result, tuple) else (result, result)
        if isinstance(values, torch.Tensor) and (values.dim() > 1 or values.numel() not in (1, rows)):
            raise RunError(
                f"task {name}: the {self.task.metric} of the first batch has shape {tuple(values.shape)}; it must be "
                f"one number, or one for each of the batch's {rows} examples"
            )
        first, value = loss.item(), mean_of(values).item()
        for what, number in (("loss", first), (self.task.metric, value)):
            if not math.isfinite(number):
                raise RunError(
                    f"task {name}: the {what} is {number} on the first batch, before any step; check its data"
                )
        self.at.lone = not isinstance(result, tuple)

    def flush(self) -> bool:
        """Add the losses since the last flush; return False if one is not finite.

        Losses are added one by one in float64, so the sum does not depend on when flushes happen.
        """
        if not self.pending:
            return True
        at = self.at
        losses = torch.stack([loss.reshape(()) for loss, _, _ in self.pending]).tolist()
        values = torch.stack([value for _, value, _ in self.pending]).tolist()
        for loss, value, (_, _, rows) in zip(losses, values, self.pending, strict=True):
            at.loss += loss * rows
            at.value += value * rows
            at.rows += rows
        self.pending.clear()
        return all(map(math.isfinite, losses))

    def switch(self, *, training: bool) -> None:
        """Switch the model, and an optimizer that averages its weights (schedule-free), to training or evaluation mode.

        Checkpoints are written in training mode: switching to the averaged weights and back would change the last bits.
        """
        self.model.train(training)
        if callable(mode := getattr(self.optimizer, "train" if training else "eval", None)):
            mode()

    def evaluate(self) -> bool:
        """Evaluate on the held-out split and write a line of metrics; return False if the loss there is not finite."""
        at = self.at
        self.switch(training=False)
        loss, metric, found = self.measured()
        self.switch(training=True)
        if not math.isfinite(loss):
            return False
        if not math.isfinite(metric):  # a perplexity that overflows, the correlation of a constant prediction
            self.why = f"the {self.task.metric} is {metric} though the loss is a number"
            if metric != (-math.inf if self.task.higher_is_better else math.inf):
                self.check_metric()
            return False
        better = max if self.task.higher_is_better else min
        at.best = metric if at.best is None else better(at.best, metric)
        at.epoch += 1
        at.last = {
            "step": at.step,
            "epoch": at.epoch,
            "train_loss": at.loss / at.rows,
            "train_metric": None if found and at.lone else finite(at.value / at.rows),
            "valid_loss": loss,
            "metric": metric,
            "lr": self.base[0] * self.factor(at.step - 1),
            "seconds": round(self.seconds(), 6),
        }
        if found:
            at.last["metrics"] = {k: finite(v) for k, v in found.items()}
        if getattr(self.task, "watch", False):
            at.last["update_rms"] = self.update_rms()
        self.metrics.add(at.last)
        at.batch, at.loss, at.value, at.rows, at.metrics_bytes = 0, 0.0, 0.0, 0, self.metrics.size
        self.epoch_rng = randomness.state(self.device)
        if at.epoch < self.spec["epochs"]:
            self.check()
        return True

    def update_rms(self) -> float | None:
        """RMS of the last update in units of lr; None if the optimizer does not report it (those of `adaxopt` do)."""
        if not (stats := getattr(self.optimizer, "stats", None)):
            return None
        groups = [group["update_rms"] for group in stats() if "update_rms" in group]
        return math.fsum(groups) / len(groups) if groups else None

    def measured(self) -> tuple[float, float, dict[str, float]]:
        """Loss, judged metric and all metrics of the task's `evaluate` on the held-out split."""
        with torch.no_grad():
            loss, metric = self.mean_loss()
            found = self.corpus_metrics() if math.isfinite(loss) else {}
        return loss, found.get(self.task.metric, metric), found

    def check_metric(self) -> None:
        """Raise RunError if the metric is not a number for an untrained model either: that is the task's fault."""
        trained, self.model = self.model, self.task.model().to(self.device).eval()
        loss, metric, _ = self.measured()
        self.model = trained
        if math.isfinite(loss) and not math.isfinite(metric):
            raise RunError(f"task {self.spec['task']}: {self.why}, also before any step")

    def mean_loss(self) -> tuple[float, float]:
        """Loss and metric on the held-out split: means over its examples."""
        loss_sum = value_sum = 0.0
        rows_sum = 0
        for batch, rows in self.eval_source.batches(None):
            begin = time.perf_counter()
            result = self.task.loss(self.model, batch)
            loss, values = result if isinstance(result, tuple) else (result, result)
            loss_sum += loss.item() * rows
            self.at.useful_seconds += time.perf_counter() - begin
            value_sum += mean_of(values).item() * rows
            rows_sum += rows
        return loss_sum / rows_sum, value_sum / rows_sum

    def corpus_metrics(self) -> dict[str, float]:
        """The metrics of the task's `evaluate` on the whole held-out split, the judged metric first; {} without it."""
        if self.corpus is None:
            return {}
        begin = time.perf_counter()
        given = self.corpus(self.model, batches.Split(self.eval_source, self.split))
        self.at.useful_seconds += time.perf_counter() - begin
        return tasks.check_metrics(given, self.task, self.spec["task"])

    def check(self) -> None:
        """Periodically report the progress, write a checkpoint if one is due, and stop if requested."""
        self.tell(self.at.step)
        due = time.perf_counter() - self.last_checkpoint >= self.settings.checkpoint_seconds
        if due or self.stop.signum:
            self.save()
        if self.stop.signum:
            raise Interrupted(
                f"stopped {self.folder.path} at step {self.at.step} of {self.total}", self.stop.signum
            )

    def tell(self, step: int) -> None:
        if self.on_progress:
            self.on_progress(step, self.total, self.at.last["metric"] if self.at.last else None)

    def seconds(self) -> float:
        """Time spent on the run, in all sessions."""
        return self.seconds_before + time.perf_counter() - self.started

    def done(self, status: str) -> dict[str, Any]:
        """The contents of done.json. A diverged run has no metric; `best` is its best value before."""
        self.metrics.sync()
        self.tell(self.total)
        self.switch(training=False)  # the weights that were evaluated
        at, last = self.at, self.at.last if status == "finished" else None
        seconds = self.seconds()
        return {
            "schema": SCHEMA,
            "status": status,
            **({"why": self.why} if self.why else {}),
            "metric": last["metric"] if last else None,
            "best": at.best,
            **({"metrics": last["metrics"]} if last and "metrics" in last else {}),
            "train_loss": last["train_loss"] if last else None,
            "valid_loss": last["valid_loss"] if last else None,
            "seconds": round(seconds, 6),
            "step_seconds": round(at.step_seconds, 6),
            "loop_seconds": round(max(0.0, seconds - at.useful_seconds), 6),
            "metric_name": self.task.metric,
            "higher_is_better": self.task.higher_is_better,
            "split": self.split,
            "steps": at.step,
            "parameters": sum(p.numel() for p in self.model.parameters()),
            **({"groups": True} if self.grouped else {}),
            "sessions": at.sessions,
            "model_sha256": fingerprint(self.model),
        }

    def resumable(self) -> bool:
        """Whether a checkpoint restores the optimizer, checked after some steps. If not, the run has none, and starts
        again after an interruption."""
        if self.obstacle is None:
            self.obstacle = checkpoint.obstacle(self.optimizer, self.outside)
            if self.obstacle:
                _once(
                    f"{self.spec['row']}: its runs have no checkpoints, because {self.obstacle}; one that is "
                    "interrupted starts again"
                )
        return not self.obstacle

    def save(self) -> None:
        """Flush the metrics to disk, then replace the checkpoint atomically."""
        self.last_checkpoint = time.perf_counter()
        if self.at.step and not self.resumable():
            return
        self.metrics.sync()
        content = {
            "at": {**asdict(self.at), "seconds": self.seconds()},
            "pending": [(loss.cpu(), value.cpu(), rows) for loss, value, rows in self.pending],
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "rng": randomness.state(self.device),
            "epoch_rng": self.epoch_rng,
        }
        checkpoint.write(self.folder.checkpoint, content)

    def load(self) -> None:
        """Restore the checkpoint. One that cannot be read is reported and not deleted."""
        device = self.device
        with checkpoint.opened(self.folder.checkpoint) as saved:
            self.model.load_state_dict(saved["model"])
            self.optimizer.load_state_dict(saved["optimizer"])
            self.at = Position(**saved["at"])
            self.pending = [
                (loss.to(device), value.to(device), rows) for loss, value, rows in saved["pending"]
            ]
            self.epoch_rng, self.resumed_rng = saved["epoch_rng"], saved["rng"]


@functools.lru_cache(64)
def _once(text: str) -> None:
    say(text)


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def set_lr(group: dict[str, Any], lr: float) -> None:
    """Write a group's lr, keeping a tensor a tensor."""
    if isinstance(group["lr"], torch.Tensor):
        group["lr"].fill_(lr)
    else:
        group["lr"] = lr


def mean_of(values: Any) -> torch.Tensor:
    """A batch's metric as one number on its device: the mean of the task's values."""
    if not isinstance(values, torch.Tensor):
        return torch.tensor(float(values), dtype=torch.float64)
    values = values.detach().to(torch.float32 if values.device.type == "mps" else torch.float64)
    return values.mean() if values.dim() else values


def fingerprint(model: torch.nn.Module) -> str:
    """SHA-256 of all parameters and buffers; equal for two runs with bitwise equal results."""
    digest = hashlib.sha256()
    for name, value in model.state_dict().items():
        digest.update(name.encode())
        digest.update(checkpoint.bits(value))
    return digest.hexdigest()
