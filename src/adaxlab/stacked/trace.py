"""The paper's Figure 3b: the mean of sqrt(v-hat) over the parameters of a network, during training.

Values are computed on the device at every step and kept at iterations that are evenly spaced on a log scale, 40 per
decade. torch's second moments are bias-corrected here (v / (1 - b2^t)); adaxopt's are stored normalised.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from adaxlab.models import make

PER_DECADE = 40


class Trace:
    """A buffer [steps, runs] of the values of one epoch, and the kept points of all epochs.

    `wanted` says which runs of the stack are traced; the optimizers of other runs need no second moment.
    """

    def __init__(self, steps: int, wanted: Sequence[bool], recipe: Any, device: torch.device) -> None:
        self.steps = steps
        self.wanted = list(wanted)
        self.kept: list[list[tuple[int, float]]] = [[] for _ in self.wanted]
        self._values = torch.zeros(steps, len(self.wanted), device=device)
        self._place = torch.zeros(1, dtype=torch.int64, device=device)
        self._parameters = sum(p.numel() for p in make(recipe.model, 0).parameters())
        total = steps * recipe.epochs
        self._iterations = {
            round(10 ** (i / PER_DECADE)) for i in range(1000) if 10 ** (i / PER_DECADE) <= total
        }
        self._iterations |= {1000, total}

    def start(self) -> None:
        """Start an epoch."""
        self._place.zero_()

    def note(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """Write the values of this step. Padding in a flat row is zero, so sums may include it."""
        for first, last, optimizer in self._traced(optimizers):
            row = _second_moment(optimizer).sqrt().sum(1) / self._parameters
            self._values[:, first:last].index_copy_(0, self._place, row[None].float())
        self._place.add_(1)

    def finish(self, epoch: int, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """Keep the selected iterations of the epoch that has just ended."""
        values = self._values.cpu()
        for first, last, optimizer in self._traced(optimizers):
            corrected = type(optimizer).__module__.startswith("torch.")
            b2 = optimizer.param_groups[0]["betas"][1] if corrected else 0.0
            for run in (run for run in range(first, last) if self.wanted[run]):
                for step in range(self.steps):
                    t = epoch * self.steps + step + 1
                    if t in self._iterations:
                        self.kept[run].append((t, values[step, run].item() / (1 - b2**t) ** 0.5))

    def _traced(
        self, optimizers: Sequence[torch.optim.Optimizer]
    ) -> Iterator[tuple[int, int, torch.optim.Optimizer]]:
        """Yield (first run, end, optimizer) of the optimizers that have traced runs."""
        first = 0
        for optimizer in optimizers:
            one, *others = optimizer.param_groups[0]["params"]
            last = first + (1 if others else len(one))  # the tensors of one run, or the rows of several
            if any(self.wanted[first:last]):
                if others:
                    raise ValueError(
                        f"run {first}: only element-wise optimizers are traced, without state_dtype"
                    )
                yield first, last, optimizer
            first = last

    def of(self, run: int) -> dict[str, list[float]]:
        """Return the trace of one run in the format of its record."""
        iterations, values = zip(*self.kept[run], strict=True)
        return {"iteration": list(iterations), "value": [float(f"{v:.6g}") for v in values]}


def _second_moment(optimizer: torch.optim.Optimizer) -> Tensor:
    (p,) = optimizer.param_groups[0]["params"]
    state = optimizer.state[p]
    if "exp_avg_sq" not in state:
        raise ValueError(f"{type(optimizer).__name__} keeps no second moment: it has no trace")
    return state["exp_avg_sq"]
