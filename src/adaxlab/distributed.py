"""Ranks and collective operations of the processes that torchrun started.

With `torchrun --nproc_per_node N -m adaxlab.reproduce ...` each process computes its share of every batch; in a single
process the same calls do nothing.
"""

from __future__ import annotations

import gc
import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from adaxlab.errors import LabError
from adaxlab.settings import choose_device

WAIT = timedelta(hours=4)
"""Timeout of collective operations: the first process may decode ImageNet, which takes an hour on four cores."""


@dataclass(frozen=True)
class Ranks:
    """Rank and device of this process, and the number of processes."""

    device: torch.device
    rank: int = 0
    world: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and prints."""
        return self.rank == 0

    def share(self, count: int) -> tuple[int, int]:
        """Return (start, end) of this process's contiguous part of `count` items; sizes differ by at most one.

        >>> [Ranks(torch.device("cpu"), r, 3).share(8) for r in range(3)]
        [(0, 3), (3, 6), (6, 8)]
        """
        each, more = divmod(count, self.world)
        begin = self.rank * each + min(self.rank, more)
        return begin, begin + each + (self.rank < more)

    def agree(self, value: int) -> int:
        """Return the value of the first process in every process (a broadcast)."""
        if self.world == 1:
            return value
        reported = torch.tensor(int(value), device=self.device)
        dist.broadcast(reported, 0)
        return int(reported)

    def first_does(self, work: Callable[[], int | None]) -> int:
        """Call `work` in the first process only and return its result in every process; a LabError is raised in all."""
        result: int | None = 0
        failed: LabError | None = None
        if self.first:
            try:
                result = work()
            except LabError as error:
                failed = error
        if self.agree(failed is not None):
            raise failed or LabError("the first process failed; its message says why")
        return self.agree(result or 0)

    def gather(self, values: Tensor) -> Tensor:
        """Return [world, k]: the vectors of all processes."""
        if self.world == 1:
            return values[None]
        out = [torch.empty_like(values) for _ in range(self.world)]
        dist.all_gather(out, values)
        return torch.stack(out)


def world_size() -> int:
    """Return the number of processes that torchrun started; 1 without torchrun."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Whether this is the process that prints, according to its environment variables."""
    return os.environ.get("RANK", "0") == "0"


def current(device: str = "cpu") -> Ranks:
    """Return the ranks of the process group; without a group, a single process on `device`."""
    if not dist.is_initialized():
        return Ranks(choose_device(device))
    on_gpu = dist.get_backend() == "nccl"
    where = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
    return Ranks(where, dist.get_rank(), dist.get_world_size())


@contextmanager
def joined(device: str) -> Iterator[Ranks]:
    """Join the process group of torchrun, or yield a single process; a group created here is destroyed at the end.

    No reference to the group may remain: its threads can abort the process at interpreter shutdown.
    """
    world = world_size()
    if world == 1 or dist.is_initialized():
        yield current(device)
        return
    try:
        local = int(os.environ["LOCAL_RANK"])
        os.environ["RANK"]
    except KeyError as error:
        raise LabError(
            f"WORLD_SIZE={world} without {error.args[0]}: start the processes with torchrun"
        ) from error
    kind = choose_device(device).type
    if kind == "cuda":
        torch.cuda.set_device(choose_device(f"cuda:{local}"))
    # import before a group exists: these functions would keep it as the default value of their arguments
    importlib.import_module("torch.distributed.nn")
    dist.init_process_group("nccl" if kind == "cuda" else "gloo", timeout=WAIT)
    try:
        yield current(device)
    finally:
        gc.collect()  # networks in reference cycles keep the group alive
        dist.destroy_process_group()
