"""The training of one run, with a state that can be saved and loaded at any step.

Every process computes its share of each batch; the loss is summed over the share and divided by the size of the whole
batch, so that gradients averaged by DistributedDataParallel are those of the whole batch, also for a smaller last
batch. Batch norms use the statistics of each process's share (see `ImageNetRecipe.groups`); running statistics are
averaged over processes before an evaluation.

On a GPU the step (crop, forward, backward, update) is a CUDA graph, captured after a few eager steps; the lr is a
tensor on the device, so a schedule needs no second capture.
"""

from __future__ import annotations

import inspect
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from adaxlab import optimizers, schedule
from adaxlab.data.images import augment
from adaxlab.data.images.loader import Batch, Loader
from adaxlab.distributed import Ranks
from adaxlab.errors import LabError
from adaxlab.imagenet.recipe import ImageNetRecipe
from adaxlab.loop import fingerprint, set_lr
from adaxlab.models.imagenet import seeded
from adaxlab.settings import ExecutionConfig
from adaxlab.spec import SCHEMA

CHECK_STEPS = 50
"""Steps between two synchronisations with the GPU, which check the time and the request to stop."""
WARM = 3
"""Number of eager steps before the graph is captured."""
TEST_BATCH = 1000
NARROW = 16
"""Number of channels below which torch 2.13 corrupts memory on a CPU (strided 1x1 convolution, channels_last)."""
_NEW = "forward_sync_buffers" in inspect.signature(DistributedDataParallel).parameters
_BUFFERS = "forward_sync_buffers" if _NEW else "broadcast_buffers"
"""The option that keeps buffers of processes separate; it was renamed in torch 2.13."""


class Training:
    """A run in progress: `advance` trains, `state` and `load` save and restore."""

    def __init__(
        self,
        spec: Mapping[str, Any],
        recipe: ImageNetRecipe,
        train: Loader,
        test: Loader,
        classes: int,
        ranks: Ranks,
        config: ExecutionConfig | None = None,
    ) -> None:
        config = config or ExecutionConfig()
        batch = spec["batch_size"]
        if config.graph and ranks.world > 1:
            raise LabError(f"graph=True with {ranks.world} processes: a CUDA graph needs a single process")
        if train.source.side != recipe.stored:
            raise LabError(f"images of {train.source.side} pixels; the recipe needs {recipe.stored}")
        least = (len(train) - 1) % batch + 1
        if least < recipe.groups * ranks.world:
            raise LabError(
                f"groups={recipe.groups}: the last batch of {len(train)} images has {least}, fewer than the parts in "
                f"{ranks.world} processes; choose another batch size"
            )
        self.spec, self.recipe, self.train, self.test, self.ranks = spec, recipe, train, test, ranks
        self.classes, self.config, self.precision = classes, config, recipe.precision
        self.epochs, self.batch_size, self.seed = spec["epochs"], batch, spec["seed"]
        device, cuda = ranks.device, ranks.device.type == "cuda"
        self.dtype = torch.float64 if self.precision == "fp64" else torch.float32
        if config.channels_last and not cuda and recipe.width < NARROW:
            raise LabError(
                f"channels_last on a CPU with width={recipe.width}: must be >= {NARROW}, because torch's strided 1x1 "
                "convolutions write out of bounds below it"
            )
        last = cuda if config.channels_last is None else config.channels_last
        self.layout = torch.channels_last if last else torch.contiguous_format
        network = seeded(self.seed, classes=classes, **recipe.network()).to(device, self.dtype)
        self.network: nn.Module = network.to(memory_format=self.layout)  # type: ignore[call-overload]
        if config.compiled:
            self.network.compile()
        self.model: nn.Module = self.network
        if ranks.world > 1:
            own: dict[str, Any] = {_BUFFERS: False}
            self.model = DistributedDataParallel(self.network, **own)
        self.optimizer = self._make_optimizer()
        self.steps = self.epochs * math.ceil(len(train) / batch)
        self.base = float(spec["options"]["lr"])
        self.factor = schedule.factor(spec["schedule"], self.steps)
        self.epoch = self.batch = self.step = 0
        self.seconds = 0.0
        self.history: list[dict[str, Any]] = []
        self.sums = torch.zeros(2, dtype=torch.float64, device=device)
        self.graph = (cuda and ranks.world == 1) if config.graph is None else config.graph and cuda
        self._graph: torch.cuda.CUDAGraph | None = None
        self._static: Batch | None = None
        self._eager = 0
        self._stream = torch.cuda.Stream(device) if cuda else None

    def _make_optimizer(self) -> torch.optim.Optimizer:
        """Return the optimizer of all parameters; on a GPU its lr is a tensor, as a CUDA graph needs it."""
        options = dict(self.spec["options"])
        if self.ranks.device.type == "cuda":
            options["lr"] = torch.tensor(float(options["lr"]), device=self.ranks.device)
            options |= optimizers.in_graph(self.spec["optimizer"])
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="betas")  # b2*T was chosen: a short run has a large b2
            return optimizers.build(self.spec["optimizer"], self.network.parameters(), options, self.network)

    @property
    def diverged(self) -> bool:
        """Whether the loss of the last epoch was not finite."""
        return bool(self.history) and self.history[-1]["train_loss"] is None

    @property
    def complete(self) -> bool:
        """Whether training has ended: all epochs are done, or the run diverged."""
        return self.epoch == self.epochs or self.diverged

    def advance(
        self,
        stop: Callable[[], bool] = lambda: False,
        on_check: Callable[[], None] = lambda: None,
        on_epoch: Callable[[], None] = lambda: None,
    ) -> bool:
        """Train until the run is complete (return True) or `stop()` is true (return False).

        `stop` is checked after each step on a CPU and every CHECK_STEPS steps on a GPU.
        """
        with self._on_stream():
            while not self.complete:
                if not self._epoch(stop, on_check):
                    return False
                on_epoch()
        return True

    @contextmanager
    def _on_stream(self) -> Iterator[None]:
        """Run all steps on one stream, as autograd requires for graphs, with this run's cuDNN and TF32 settings."""
        if self._stream is None:
            yield
            return
        matmul, cudnn, tf32 = torch.backends.cuda.matmul, torch.backends.cudnn, self.precision == "tf32"
        before = matmul.allow_tf32
        self._stream.wait_stream(torch.cuda.current_stream())
        try:
            matmul.allow_tf32 = tf32
            with (
                cudnn.flags(enabled=True, benchmark=True, deterministic=cudnn.deterministic, allow_tf32=tf32),
                torch.cuda.stream(self._stream),
            ):
                yield
        finally:
            matmul.allow_tf32 = before

    def _epoch(self, stop: Callable[[], bool], on_check: Callable[[], None]) -> bool:
        self.model.train()
        every = CHECK_STEPS if self._stream else 1
        before, began = self.seconds, time.perf_counter()
        batches = self.train.epoch(self.seed, self.epoch, self.batch_size, self.batch, self.ranks)
        for batch in batches:
            for group in self.optimizer.param_groups:
                set_lr(group, self.base * self.factor(self.step))
            self._launch(batch)
            self.batch += 1
            self.step += 1
            if self.step % every == 0:
                if self._stream:
                    self._stream.synchronize()
                self.seconds = before + time.perf_counter() - began
                on_check()
                if self.ranks.agree(stop()):
                    return False
        self._end_epoch()
        self.seconds = before + time.perf_counter() - began
        self.history[-1]["seconds"] = round(self.seconds, 3)
        return True

    # -- a step -------------------------------------------------------------------------------------------------

    def _launch(self, batch: Batch) -> None:
        """Run a step: from the CUDA graph if the batch has full size, else eagerly."""
        full = batch.total == self.batch_size
        if not (self.graph and full):
            self._compute(batch)
            return
        if self._graph is None:
            if self._eager < WARM:
                self._eager += 1
                self._compute(batch)
                return
            self._capture(batch)
        assert self._graph is not None
        assert self._static is not None
        self._static.raw.copy_(batch.raw)
        self._static.labels.copy_(batch.labels)
        self._static.span.copy_(batch.span)
        self._graph.replay()

    def _capture(self, batch: Batch) -> None:
        """Capture the step on static copies of the batch.

        `thread_local`: threads that read ahead allocate pinned memory, which must not invalidate the capture.
        """
        self._static = Batch(batch.raw.clone(), batch.labels.clone(), batch.span.clone(), batch.total)
        self.optimizer.zero_grad(set_to_none=True)
        self._graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(self._graph, stream=self._stream, capture_error_mode="thread_local"):
            self._compute(self._static)

    def _compute(self, batch: Batch) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        x = augment.crop_batch(batch.raw, batch.span, self.recipe.size, self.dtype)
        with self._autocast():
            scores = self.model(self._input(x))
        loss = F.cross_entropy(scores.to(self.dtype), batch.labels, reduction="sum")
        (loss * (self.ranks.world / batch.total)).backward()
        self.optimizer.step()
        correct = (scores.detach().argmax(1) == batch.labels).sum()
        self.sums += torch.stack((loss.detach().double(), correct.double()))

    def _input(self, x: Tensor) -> Tensor:
        """Return x in the dtype and memory format of the first layer, in one pass; autocast would need a second one."""
        dtype = torch.bfloat16 if self.precision == "bf16" else self.dtype
        return x.to(dtype, memory_format=self.layout)

    def _autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.ranks.device.type, dtype=torch.bfloat16, enabled=self.precision == "bf16")

    # -- the end of an epoch ------------------------------------------------------------------------------------

    def _end_epoch(self) -> None:
        loss, correct = (self.ranks.gather(self.sums).sum(0) / len(self.train)).tolist()
        self._average_buffers()
        tested = self.accuracy()
        self.sums.zero_()
        self.epoch, self.batch = self.epoch + 1, 0
        self.history.append(
            {
                "step": self.step,
                "epoch": self.epoch,
                "train_loss": round(loss, 6) if math.isfinite(loss) else None,
                "train_metric": round(correct, 8),
                "metric": round(tested, 8),
            }
        )

    @torch.no_grad()
    def accuracy(self) -> float:
        """Return the top-1 accuracy on the test images, a fraction of 1."""
        self.network.eval()
        correct = torch.zeros(1, dtype=torch.float64, device=self.ranks.device)
        for raw, labels in self.test.in_order(TEST_BATCH, self.ranks):
            x = augment.center_crop_batch(raw, self.recipe.size, self.dtype)
            with self._autocast():
                scores = self.network(self._input(x))
            correct += (scores.argmax(1) == labels).sum()
        self.network.train()
        return self.ranks.gather(correct).sum().item() / len(self.test)

    def _buffers(self) -> list[Tensor]:
        return [b for b in self.network.buffers() if b.is_floating_point()]

    @torch.no_grad()
    def _average_buffers(self) -> None:
        """Average the running statistics over the processes."""
        if self.ranks.world > 1:
            mine = torch.cat([b.double().flatten() for b in self._buffers()])
            self._put(self.ranks.gather(mine).mean(0))

    @torch.no_grad()
    def _put(self, values: Tensor) -> None:
        begin = 0
        for b in self._buffers():
            b.copy_(values[begin : begin + b.numel()].view_as(b))
            begin += b.numel()

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return everything needed to resume. Called by every process, because sums and statistics differ."""
        mine = torch.cat([*(b.double().flatten() for b in self._buffers()), self.sums])
        return {
            "at": [self.epoch, self.batch, self.step],
            "seconds": self.seconds,
            "history": self.history,
            "model": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "each": self.ranks.gather(mine).cpu(),
        }

    @torch.no_grad()
    def load(self, saved: Mapping[str, Any]) -> None:
        """Resume from `state` of the same run; bit for bit on a CPU with the same number of processes."""
        self.epoch, self.batch, self.step = saved["at"]
        self.seconds, self.history = saved["seconds"], [dict(line) for line in saved["history"]]
        self.network.load_state_dict(saved["model"])
        lrs = [group["lr"] for group in self.optimizer.param_groups]
        self.optimizer.load_state_dict(saved["optimizer"])
        for group, lr in zip(self.optimizer.param_groups, lrs, strict=True):
            group["lr"] = lr  # the tensor on the device, not a copy
        each = saved["each"].to(self.ranks.device)
        if len(each) == self.ranks.world:
            mine = each[self.ranks.rank]
        else:  # another number of processes: the mean of the statistics, and all sums in the first process
            mine = each.mean(0)
            mine[-2:] = each[:, -2:].sum(0) if self.ranks.first else 0.0
        self._put(mine[:-2])
        self.sums.copy_(mine[-2:])
        self._graph, self._static, self._eager = None, None, 0

    def done(self) -> dict[str, Any]:
        """Return the result of the run. A diverged run has no metric."""
        last = self.history[-1]
        images = len(self.train) * self.epoch
        return {
            "schema": SCHEMA,
            "status": "diverged" if self.diverged else "finished",
            "metric": None if self.diverged else last["metric"],
            "best": max(line["metric"] for line in self.history),
            "train_loss": last["train_loss"],
            "seconds": round(self.seconds, 1),
            "metric_name": "accuracy",
            "higher_is_better": True,
            "split": "valid" if self.spec["purpose"] == "tune" else "test",
            "steps": self.step,
            "images": len(self.train),
            "test_images": len(self.test),
            "classes": self.classes,
            "images_per_second": round(images / max(self.seconds, 1e-9), 1),
            "layout": "channels_last" if self.layout is torch.channels_last else "contiguous",
            "graph": self.graph,
            "compiled": self.config.compiled,
            "processes": self.ranks.world,
            "model_sha256": fingerprint(self.network),
        }
