"""One process or many: which process this is, and the few things that processes tell each other.

Started by `torchrun --nproc_per_node N -m adaxlab.reproduce ...`, each process has its share of every batch; in a
single process the same calls do nothing.
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
"""How long processes wait for each other: the first may have ImageNet to decode, an hour on four cores."""


@dataclass(frozen=True)
class Ranks:
    """This process's number, how many there are, and its device."""

    device: torch.device
    rank: int = 0
    world: int = 1

    @property
    def first(self) -> bool:
        """Whether this process writes and prints for all."""
        return self.rank == 0

    def share(self, count: int) -> tuple[int, int]:
        """This process's part of `count` things: neighbours, sizes differing by one at most.

        >>> [Ranks(torch.device("cpu"), r, 3).share(8) for r in range(3)]
        [(0, 3), (3, 6), (6, 8)]
        """
        each, more = divmod(count, self.world)
        begin = self.rank * each + min(self.rank, more)
        return begin, begin + each + (self.rank < more)

    def agree(self, value: int) -> int:
        """The first process's value, in every process."""
        if self.world == 1:
            return value
        told = torch.tensor(int(value), device=self.device)
        dist.broadcast(told, 0)
        return int(told)

    def first_does(self, work: Callable[[], int | None]) -> int:
        """Call `work` in the first process alone: its result, in every process. A LabError is one everywhere."""
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
        """[world, k]: every process's vector."""
        if self.world == 1:
            return values[None]
        out = [torch.empty_like(values) for _ in range(self.world)]
        dist.all_gather(out, values)
        return torch.stack(out)


def world_size() -> int:
    """How many processes torchrun started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Whether this process prints for all, as far as its environment says."""
    return os.environ.get("RANK", "0") == "0"


def current(device: str = "cpu") -> Ranks:
    """This process inside `joined`; outside, and without torchrun, one process on `device`."""
    if not dist.is_initialized():
        return Ranks(choose_device(device))
    on_gpu = dist.get_backend() == "nccl"
    where = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
    return Ranks(where, dist.get_rank(), dist.get_world_size())


@contextmanager
def joined(device: str) -> Iterator[Ranks]:
    """The processes that torchrun started, or this one alone; a group that is made here is left at the end.

    Nothing may hold that group then: its threads would meet the end of the interpreter, which can abort the process.
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
    # imported before there is a group: these functions would keep it as the default value of their arguments
    importlib.import_module("torch.distributed.nn")
    dist.init_process_group("nccl" if kind == "cuda" else "gloo", timeout=WAIT)
    try:
        yield current(device)
    finally:
        gc.collect()  # networks in cycles hold the group
        dist.destroy_process_group()
