"""Batches of a task's splits, in an order that depends only on the seed and the epoch.

A run that resumes in the middle of an epoch therefore computes the order again. Iterables that shuffle themselves draw
from the global generators, whose state at the start of the epoch is in the checkpoint, or from generators of their own,
which are seeded at the start of the epoch.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from adaxlab.errors import LabError

SPLIT_SEED = 20260101  # the held-out part is the same for every optimizer, seed and study
WHOLE = 64 * 2**20  # largest size in bytes of a data set that is shuffled once per epoch and then sliced


def order(n: int, seed: int, epoch: int) -> torch.Tensor:
    """Return the permutation of n examples for one epoch: a function of (seed, epoch)."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(epoch_seed(seed, epoch)))


def epoch_seed(seed: int, epoch: int) -> int:
    """The seed of an epoch's order."""
    return (seed * 1_000_003 + epoch) * 2 + 1


class Tensors:
    """Examples as rows of tensors, resident on the device."""

    def __init__(self, tensors: Sequence[torch.Tensor], batch_size: int) -> None:
        self.tensors, self.batch_size = tuple(tensors), batch_size
        self.n = len(self.tensors[0])
        self.whole = sum(t.numel() * t.element_size() for t in self.tensors) <= WHOLE

    def __len__(self) -> int:
        return math.ceil(self.n / self.batch_size)

    def batches(self, index: torch.Tensor | None, skip: int = 0) -> Iterator[tuple[Any, int]]:
        """Yield (batch, number of examples) for the examples in `index` (None: all in order), without the first
        `skip` batches."""
        tensors, size = self.tensors, self.batch_size
        if index is not None and self.whole:
            index = index.to(tensors[0].device)
            tensors, index = tuple(t[index] for t in tensors), None
        for start in range(skip * size, self.n, size):
            if index is None:
                batch = tuple(t[start : start + size] for t in tensors)
            else:
                rows = index[start : start + size].to(tensors[0].device)
                batch = tuple(t[rows] for t in tensors)
            yield batch, len(batch[0])


class Examples:
    """A map-style Dataset (`len(d)` and `d[i]`), collated as in torch's DataLoader."""

    def __init__(
        self, dataset: Any, batch_size: int, device: torch.device, rows: Sequence[int] | None = None
    ):
        self.dataset, self.batch_size, self.device = dataset, batch_size, device
        self.rows = rows if rows is not None else range(len(dataset))
        self.n = len(self.rows)

    def __len__(self) -> int:
        return math.ceil(self.n / self.batch_size)

    def batches(self, index: torch.Tensor | None, skip: int = 0) -> Iterator[tuple[Any, int]]:
        from torch.utils.data import default_collate

        chosen = index.tolist() if index is not None else range(self.n)
        for start in range(skip * self.batch_size, self.n, self.batch_size):
            rows = chosen[start : start + self.batch_size]
            batch = default_collate([self.dataset[self.rows[i]] for i in rows])
            yield to_device(batch, self.device), len(rows)


class Batches:
    """A sized iterable of batches, such as a DataLoader or a list; shuffling is up to the iterable.

    `batches` consumes the batches to skip before it returns, so that the caller can then restore the state of the
    random generators.
    """

    def __init__(self, iterable: Any, device: torch.device) -> None:
        self.iterable, self.device = iterable, device
        self.n = len(iterable)
        self.listeners = _listeners(iterable)
        own = (getattr(one, "generator", None) for one in _places(iterable).values())
        self.generators = [each for each in own if isinstance(each, torch.Generator)]

    def __len__(self) -> int:
        return self.n

    def set_epoch(self, epoch: int, seed: int) -> None:
        """Call `set_epoch` of the iterable, and of a DataLoader's samplers and dataset, where it exists, and seed the
        generators that they keep."""
        for generator in self.generators:
            generator.manual_seed(epoch_seed(seed, epoch))
        for set_epoch in self.listeners:
            set_epoch(epoch)

    def batches(self, index: torch.Tensor | None, skip: int = 0) -> Iterator[tuple[Any, int]]:
        ready = iter(self.iterable)
        for _ in range(skip):
            next(ready)
        return ((to_device(batch, self.device), rows_of(batch)) for batch in ready)


def _places(iterable: Any) -> dict[str, Any]:
    """The iterable and, for a DataLoader, its samplers and its dataset."""
    inner = getattr(iterable, "batch_sampler", None)
    return {
        "": iterable,
        ".sampler": getattr(iterable, "sampler", None),
        ".batch_sampler": inner,
        ".batch_sampler.sampler": getattr(inner, "sampler", None),
        ".dataset": getattr(iterable, "dataset", None),
    }


def _listeners(iterable: Any) -> list[Callable[[int], object]]:
    """Return `set_epoch` of the iterable and, for a DataLoader, of its samplers and its dataset; each once."""
    found: dict[int, Callable[[int], object]] = {}
    for place, one in _places(iterable).items():
        set_epoch = getattr(one, "set_epoch", None)
        if not callable(set_epoch) or id(one) in found:
            continue
        try:
            inspect.signature(set_epoch).bind(0)
        except TypeError:
            raise LabError(
                f"{type(one).__name__}.set_epoch{inspect.signature(set_epoch)}: the iterable of batches{place} must "
                "take the epoch alone, set_epoch(epoch); change it, or give it another name"
            ) from None
        found[id(one)] = set_epoch
    return list(found.values())


Source = Tensors | Examples | Batches


class Split:
    """The evaluation batches that a task's `evaluate` receives, in order, on the run's device; iterable repeatedly."""

    def __init__(self, source: Source, name: str) -> None:
        self.source, self.name = source, name

    def __len__(self) -> int:
        return len(self.source)

    def __iter__(self) -> Iterator[Any]:
        return (batch for batch, _ in self.source.batches(None))


def rows_of(batch: Any) -> int:
    """Return the number of examples in a batch: the first dimension of its first tensor, else 1."""
    if isinstance(batch, torch.Tensor):
        return len(batch) if batch.dim() else 1
    if isinstance(batch, dict):
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)):
        for part in batch:
            if isinstance(part, torch.Tensor):
                return rows_of(part)
    return 1


def to_device(batch: Any, device: torch.device) -> Any:
    """Return the batch with its tensors on `device`; lists, tuples and dicts keep their structure."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return {key: to_device(value, device) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return type(batch)(to_device(part, device) for part in batch)
    return batch


def kind(split: Any, where: str) -> str:
    """Return 'tensors', 'dataset' or 'batches'; raise LabError for anything else."""
    if isinstance(split, torch.Tensor):
        raise LabError(f"{where}: a single tensor; give a tuple of tensors, (x, y) or (x,)")
    if isinstance(split, (tuple, list)) and split and all(isinstance(t, torch.Tensor) for t in split):
        lengths = [len(t) if t.dim() else 0 for t in split]
        if len(set(lengths)) != 1 or not lengths[0]:
            raise LabError(
                f"{where}: tensors of {lengths} rows; each must have the same number, at least one"
            )
        return "tensors"
    if isinstance(split, (tuple, list)) and any(isinstance(t, np.ndarray) for t in split):
        raise LabError(f"{where}: NumPy arrays; give tensors (torch.from_numpy)")
    if not hasattr(split, "__len__"):
        once = " (it can be read only once)" if hasattr(split, "__next__") else ""
        raise LabError(
            f"{where}: {type(split).__name__} has no length{once}; give tensors, a Dataset, or sized batches"
        )
    if not len(split):
        raise LabError(f"{where}: is empty")
    if hasattr(split, "__getitem__") and not isinstance(split, (list, tuple, dict)):
        return "dataset"
    if hasattr(split, "__iter__") and not isinstance(split, dict):
        return "batches"
    raise LabError(
        f"{where}: {type(split).__name__}; give a tuple of tensors, a Dataset, or batches with len()"
    )


def source(
    split: Any, batch_size: int, device: torch.device, where: str, rows: torch.Tensor | None = None
) -> Source:
    """Return the split as a source of batches; `rows` selects some of its examples."""
    form = kind(split, where)
    if form == "tensors":
        chosen = split if rows is None else [t[rows.to(t.device)] for t in split]
        return Tensors([t.to(device) for t in chosen], batch_size)
    if form == "dataset":
        return Examples(split, batch_size, device, None if rows is None else rows.tolist())
    if rows is not None:
        raise LabError(
            f"{where}: batches cannot be split for tuning; data() must also return a 'valid' split"
        )
    return Batches(split, device)


def holdout(n: int, share: float = 0.2) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the indices to train on and the indices held out for tuning, out of n; the same for every run.

    >>> train, valid = holdout(10)
    >>> len(train), len(valid), sorted((*train.tolist(), *valid.tolist())) == list(range(10))
    (8, 2, True)
    """
    cut = max(1, round(n * share))
    shuffled = torch.randperm(n, generator=torch.Generator().manual_seed(SPLIT_SEED))
    return shuffled[cut:], shuffled[:cut]
