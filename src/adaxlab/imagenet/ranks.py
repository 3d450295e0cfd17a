"""One process or many: who this one is, and the few things that processes tell each other.

Started by `torchrun --nproc_per_node N -m adaxlab.imagenet ...`, each process has its share of every batch; alone,
the same calls do nothing.
"""

from __future__ import annotations

import gc
import importlib
import os
from collections.abc import Iterator
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
        """Whether this process writes and speaks for all."""
        return self.rank == 0

    def share(self, count: int) -> tuple[int, int]:
        """This process's part of `count` things: a run of neighbours, sizes differing by one at most.

        >>> [Ranks(torch.device("cpu"), r, 3).share(8) for r in range(3)]
        [(0, 3), (3, 6), (6, 8)]
        """
        each, more = divmod(count, self.world)
        begin = self.rank * each + min(self.rank, more)
        return begin, begin + each + (self.rank < more)

    def agree(self, flag: bool) -> bool:
        """What the first process says, everywhere."""
        if self.world == 1:
            return flag
        told = torch.tensor(int(flag), device=self.device)
        dist.broadcast(told, 0)
        return bool(told)

    def gather(self, values: Tensor) -> Tensor:
        """[world, k]: every process's vector."""
        if self.world == 1:
            return values[None]
        out = [torch.empty_like(values) for _ in range(self.world)]
        dist.all_gather(out, values)
        return torch.stack(out)


@contextmanager
def joined(device: str) -> Iterator[Ranks]:
    """The processes that torchrun started, or this one alone; a group that is made here is left at the end.

    Nothing may hold that group then: its threads would meet the end of the interpreter, which can abort the process.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield Ranks(choose_device(device))
        return
    try:
        rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    except KeyError as error:
        raise LabError(
            f"WORLD_SIZE={world} without {error.args[0]}: start the processes with torchrun"
        ) from error
    kind = choose_device(device).type
    where = choose_device(f"cuda:{local}") if kind == "cuda" else torch.device("cpu")
    if kind == "cuda":
        torch.cuda.set_device(where)
    if dist.is_initialized():
        yield Ranks(where, rank, world)
        return
    # imported before there is a group: these functions would keep it as the default value of their arguments
    importlib.import_module("torch.distributed.nn")
    dist.init_process_group("nccl" if kind == "cuda" else "gloo", timeout=WAIT)
    try:
        yield Ranks(where, rank, world)
    finally:
        gc.collect()  # networks in cycles hold the group
        dist.destroy_process_group()
