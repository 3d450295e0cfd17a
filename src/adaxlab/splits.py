"""Training and evaluation data of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from adaxlab import batches, randomness
from adaxlab import task as tasks
from adaxlab.errors import LabError


def sources(
    spec: Mapping[str, Any], task: tasks.Task, device: torch.device
) -> tuple[batches.Source, batches.Source, str]:
    """Return the training source, the evaluation source, and the name of the latter.

    Tuning runs are evaluated on held-out data ('valid', or a fifth of 'train' that is then not trained on). Final runs
    train on all of 'train' and are evaluated on 'test', which is never used for tuning.
    """
    name, size = spec["task"], spec["batch_size"]
    eval_size = getattr(task, "eval_batch_size", 4 * size)
    data = data_of(task, name, device)

    def make(split: str, batch_size: int, rows: torch.Tensor | None = None) -> batches.Source:
        return batches.source(data[split], batch_size, device, _where(name, split), rows)

    if spec["purpose"] == "final":
        return make("train", size), make("test", eval_size), "test"
    if "valid" in data:
        return make("train", size), make("valid", eval_size), "valid"
    train = data["train"]
    form = batches.kind(train, _where(name, "train"))
    n = len(train[0]) if form == "tensors" else len(train)
    if n == 1:
        raise LabError(
            f"{_where(name, 'train')} has 1 example, and a fifth is held out for tuning; give more, or a 'valid' split"
        )
    keep, held = batches.holdout(n)
    return make("train", size, keep), make("train", eval_size, held), "valid"


def data_of(task: tasks.Task, name: str, device: torch.device) -> Mapping[str, Any]:
    """The result of `data()`, which is called with the same random numbers in every run."""
    with randomness.seeded(tasks.DATA_SEED, device):
        return tasks.check_data(task.data(), name)


def check(data: Any, name: str) -> None:
    """Raise unless `data()` has the splits of a task in a form that a run accepts, those it does not use included."""
    for split, given in tasks.check_data(data, name).items():
        batches.kind(given, _where(name, split))


def own_batches(data: Mapping[str, Any]) -> bool:
    """Whether 'train' gives batches, so that the size of a batch is the task's."""
    return batches.kind(data["train"], "train") == "batches"


def _where(name: str, split: str) -> str:
    return f"task {name}: data()[{split!r}]"
