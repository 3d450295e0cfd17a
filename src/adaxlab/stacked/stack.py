"""Several runs trained together: same model, data and length; seeds, optimizers and hyperparameters differ.

Each run is a row of one parameter matrix; runs with the same optimizer and options share one optimizer object over
their rows if the step is element-wise: the result is that of a run alone. Otherwise (8-bit state has scales for 32
coordinates and random bits that depend on a parameter's index) each run has its own optimizer, over the tensors of its
network. On a GPU the whole step (gather, augment, forward, backward, update) is a CUDA graph, captured again when the
learning rate changes; evaluation is a second graph.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Protocol

import torch
from torch import Tensor

from adaxlab import optimizers
from adaxlab.models import make
from adaxlab.stacked.layout import Flat, Layout
from adaxlab.stacked.loader import Images, StackLoader
from adaxlab.stacked.plain import PlainNetwork
from adaxlab.stacked.trace import Trace


@dataclass(frozen=True)
class Run:
    """One training run: row of the study, optimizer, options and seed."""

    row: str
    optimizer: str
    """A name for `adaxlab.optimizers.build`: a method of the zoo, or torch:AdamW."""
    options: Mapping[str, Any]
    seed: int


@dataclass(frozen=True)
class StackRecipe:
    """Settings shared by all runs of a stack: model, length, schedule, batch size. Defaults are the paper's."""

    model: str = "resnet20"
    epochs: int = 182
    milestones: tuple[int, ...] = (100, 150)
    gamma: float = 0.1
    batch: int = 128

    def factor(self, epoch: int) -> float:
        """Return the factor on every lr in this epoch (counted from 0).

        >>> [StackRecipe().factor(epoch) for epoch in (0, 99, 100, 149, 150)]
        [1.0, 1.0, 0.1, 0.1, 0.01]
        """
        return round(self.gamma ** sum(epoch >= m for m in self.milestones), 12)


class Network(Protocol):
    """The interface of `PlainNetwork` and `FusedNetwork`: parameters [M, size] and their gradients."""

    parameters: Tensor
    gradient: Tensor
    running: Tensor

    @property
    def layout(self) -> Layout | Flat: ...

    def gradients(self, loader: StackLoader, count: int) -> tuple[Tensor, Tensor]: ...

    def count_correct(self, data: Images, loader: StackLoader, start: int, count: int) -> Tensor: ...


@dataclass
class Stack:
    """Train `runs` together on `train`, with an evaluation on `test` after each epoch."""

    runs: Sequence[Run]
    train: Images
    test: Images
    recipe: StackRecipe = field(default_factory=StackRecipe)
    make_network: Callable[..., Network] = PlainNetwork
    test_batch: int = 1000
    graphs: bool | None = None
    """Capture steps in CUDA graphs; None: if the data are on a GPU."""
    trace: Sequence[bool] = ()
    """For each run, whether its second moment is traced (see `Trace`); empty: none."""

    def __post_init__(self) -> None:
        device = self.train.labels.device
        self.epoch = 0
        self.history: list[list[dict[str, float | None]]] = [[] for _ in self.runs]
        self.network = self.make_network([make(self.recipe.model, run.seed) for run in self.runs], device)
        self.loader = StackLoader(self.train, [run.seed for run in self.runs])
        self._capture = device.type == "cuda" if self.graphs is None else self.graphs
        self._graphs: dict[object, torch.cuda.CUDAGraph] = {}
        self._ran: set[object] = set()
        zeros = torch.zeros(len(self.runs), dtype=torch.float64, device=device)
        self._loss, self._correct, self._tested = zeros, zeros.clone(), zeros.clone()
        self.optimizers = self._make_optimizers(device)
        batches = math.ceil(len(self.train) / self.recipe.batch)
        self.traces = Trace(batches, self.trace, self.recipe, device) if any(self.trace) else None

    def _make_optimizers(self, device: torch.device) -> list[torch.optim.Optimizer]:
        out = []
        self._lr: list[float] = []
        first = 0
        for (name, options), group in groupby(self.runs, key=lambda r: (r.optimizer, dict(r.options))):
            last = first + len(list(group))
            extra = optimizers.in_graph(name) if device.type == "cuda" else {}
            for params in self._parameters(first, last, optimizers.elementwise(name, options)):
                out.append(optimizers.build(name, params, {**options, **extra}))
                self._lr.append(float(out[-1].param_groups[0]["lr"]))
            first = last
        return out

    def _parameters(self, first: int, last: int, together: bool) -> Iterator[list[torch.nn.Parameter]]:
        """Yield the parameters of each optimizer of the runs from `first` to `last`, with their gradients."""
        parameters, gradient = self.network.parameters, self.network.gradient
        if together:
            yield [_parameter(parameters[first:last], gradient[first:last])]
            return
        for run in range(first, last):
            parts = self.network.layout.slices()
            yield [_parameter(parameters[run, part], gradient[run, part]) for part in parts]

    def run_epoch(self) -> None:
        """Train for one epoch, evaluate, and append loss and accuracies (fractions of 1) to `history`."""
        factor = self.recipe.factor(self.epoch)
        for optimizer, lr in zip(self.optimizers, self._lr, strict=True):
            for group in optimizer.param_groups:
                if group["lr"] != lr * factor:
                    group["lr"] = lr * factor
                    self._graphs.clear()
        self.loader.start(self.epoch)
        self._loss.zero_()
        self._correct.zero_()
        if self.traces:
            self.traces.start()
        n, batch = len(self.train), self.recipe.batch
        for start in range(0, n, batch):
            count = min(batch, n - start)
            self._launch(count, lambda count=count: self._step(count))  # type: ignore[misc]
        self._launch("test", self._evaluate)
        if self.traces:
            self.traces.finish(self.epoch, self.optimizers)
        self.epoch += 1
        loss, correct = (self._loss / n).tolist(), (self._correct / n).tolist()
        tested = (self._tested / len(self.test)).tolist()
        for curve, a, b, c in zip(self.history, loss, correct, tested, strict=True):
            finite = round(a, 6) if math.isfinite(a) else None
            curve.append({"train_loss": finite, "train_metric": round(b, 6), "metric": round(c, 6)})

    def _step(self, count: int) -> None:
        loss, correct = self.network.gradients(self.loader, count)
        self._loss.add_(loss.double() * count)
        self._correct.add_(correct)
        for optimizer in self.optimizers:
            optimizer.step()
        if self.traces:
            self.traces.note(self.optimizers)
        self.loader.cursor.add_(count)

    def _evaluate(self) -> None:
        self._tested.zero_()
        n = len(self.test)
        for start in range(0, n, self.test_batch):
            count = min(self.test_batch, n - start)
            self._tested.add_(self.network.count_correct(self.test, self.loader, start, count))

    def _launch(self, key: object, work: Callable[[], None]) -> None:
        """Run `work`: eagerly the first time (compilation, optimizer state), from a CUDA graph after that."""
        if not self._capture or key not in self._ran:
            self._ran.add(key)
            work()
            return
        if key not in self._graphs:
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                work()
            self._graphs[key] = graph
        self._graphs[key].replay()

    def state(self) -> dict[str, Any]:
        """Return everything needed to resume. Data order and crops are functions of (seed, epoch)."""
        return {
            "runs": [(r.row, r.optimizer, dict(r.options), r.seed) for r in self.runs],
            "epoch": self.epoch,
            "history": self.history,
            "parameters": self.network.parameters.cpu(),
            "running": self.network.running.cpu(),
            "optimizers": [_to_cpu(o.state_dict()) for o in self.optimizers],
            "traces": self.traces.kept if self.traces else [],
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Resume from `state` of a stack with the same runs."""
        mine = [(r.row, r.optimizer, dict(r.options), r.seed) for r in self.runs]
        if [tuple(r) for r in state["runs"]] != mine:
            raise ValueError(f"checkpoint of other runs: {[r[0] for r in state['runs']]}; these are {mine}")
        self.epoch = state["epoch"]
        self.history = [list(curve) for curve in state["history"]]
        self.network.parameters.copy_(state["parameters"])
        self.network.running.copy_(state["running"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        if self.traces:
            self.traces.kept = [list(points) for points in state["traces"]]
        self._graphs.clear()
        self._ran.clear()


def _parameter(values: Tensor, gradient: Tensor) -> torch.nn.Parameter:
    """Return a parameter that is a view of the matrix, and so is its gradient."""
    p = torch.nn.Parameter(values)
    p.grad = gradient
    return p


def make_stack(
    recipe: StackRecipe,
    runs: Sequence[Run],
    train: Images,
    test: Images,
    precision: str,
    trace: Sequence[bool] = (),
) -> Stack:
    """Return a stack that uses the fused kernels for resnet20 on a GPU, and plain PyTorch otherwise."""
    network: Callable[..., Network] = PlainNetwork
    if recipe.model != "resnet20":
        network = functools.partial(PlainNetwork, autocast=train.labels.is_cuda and precision == "bf16")
    elif train.labels.is_cuda:
        from adaxlab.stacked.fused import FusedNetwork

        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        network = functools.partial(
            FusedNetwork,
            batch=recipe.batch,
            dtype=dtype,
            precision="tf32x3" if precision == "fp32" else "tf32",
            train_size=len(train),
            test_size=len(test),
        )
    return Stack(runs, train, test, recipe, network, trace=trace)


def _to_cpu(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.cpu()
    if isinstance(value, dict):
        return {k: _to_cpu(v) for k, v in value.items()}
    return [_to_cpu(v) for v in value] if isinstance(value, list) else value
