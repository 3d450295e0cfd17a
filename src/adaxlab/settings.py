"""Execution settings of runs, which are not part of their identity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

import torch

from adaxlab import option_types
from adaxlab.errors import LabError, check_known


@dataclass(frozen=True)
class ExecutionConfig:
    """How the executor `torchrun` uses a machine; with None, the executor chooses."""

    channels_last: bool | None = None
    """Memory layout of the network (None: on a GPU)."""
    graph: bool | None = None
    """The step as a CUDA graph (None: on one GPU)."""
    compiled: bool = False
    """The network by torch.compile: a minute at the start, then fewer passes over memory."""
    resident: bool | None = None
    """All images on the device (None: up to 8 GB)."""

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> ExecutionConfig:
        """From words of the command line, checked.

        >>> ExecutionConfig.parse({"compiled": True}).compiled
        True
        """
        known = [f.name for f in fields(cls)]
        check_known("execution option", known, *given)
        option_types.check(cls.__init__, given, "--execution")
        return cls(**given)


@dataclass(frozen=True)
class Settings:
    """Device, CPU threads of one run, and seconds between two checkpoints (0: after every step).

    `per_stack` is how many networks train together at most, where the executor trains several. `alone` is for studies
    that measure times: no run is taken from another study, and each has the device to itself.

    None of it is part of a run's specification. `threads` can change the last bits of a sum, so a resumed run keeps
    those it started with.
    """

    device: str = "cpu"
    threads: int = 1
    checkpoint_seconds: float = 30.0
    per_stack: int = 25
    alone: bool = False
    execution: ExecutionConfig = field(default_factory=ExecutionConfig)

    def __post_init__(self) -> None:
        if isinstance(self.execution, Mapping):  # from JSON
            object.__setattr__(self, "execution", ExecutionConfig(**self.execution))
        if self.threads < 1:
            raise LabError(f"threads={self.threads}: must be >= 1")
        if self.per_stack < 1:
            raise LabError(f"per-stack={self.per_stack}: must be >= 1")
        if not self.checkpoint_seconds >= 0:
            raise LabError(
                f"checkpoint-seconds={self.checkpoint_seconds}: must be >= 0 (0: after every step)"
            )


def choose_device(name: str) -> torch.device:
    """The device of that name; 'auto' is a CUDA device when there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise LabError(f"device={name!r}: must be auto, cpu, cuda or cuda:N") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise LabError(
            f"device={name!r}: this machine has {torch.cuda.device_count()} CUDA devices; try --device cpu"
        )
    return device


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Use `count` CPU threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
