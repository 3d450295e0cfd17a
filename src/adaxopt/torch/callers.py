"""Which of torch's own functions called `step`: two of them need something else than a training loop does.

Both are recognised on the call stack, because neither passes anything that says so. A torch release that renames them
falls back to an ordinary step.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from adaxopt.torch.engine import Engine

CHECKPOINT = "torch.distributed.checkpoint.state_dict"
ZERO = "torch.distributed.optim.zero_redundancy_optimizer"


def asks_for_state_only() -> bool:
    """Whether torch.distributed.checkpoint calls `step` to create the state of an optimizer that has never stepped.

    It sets lr and all gradients to 0 for that call. Neither identifies it: the first step of a warm-up from 0 has lr 0
    too, and a rank may hold a part of the parameters whose gradients are all zero, or no elements at all. Such a rank
    must count the step as the others do.
    """
    return any(frame.f_code.co_name == "_init_optim_state" for frame in _frames_of(CHECKPOINT))


def whole_param_groups(optimizer: Engine) -> list[dict[str, Any]]:
    """The groups of all parameters: those of the ZeroRedundancyOptimizer that gave this one a part, or its own."""
    if not torch.compiler.is_compiling():
        for frame in _frames_of(ZERO):
            owner = frame.f_locals.get("self")
            if getattr(owner, "optim", None) is optimizer:
                groups: list[dict[str, Any]] = owner.param_groups  # type: ignore[union-attr]
                return groups
    return optimizer.param_groups


def _frames_of(module: str) -> Iterator[FrameType]:
    frame = sys._getframe(1) if module in sys.modules else None
    while frame is not None:
        if frame.f_globals.get("__name__") == module:
            yield frame
        frame = frame.f_back
