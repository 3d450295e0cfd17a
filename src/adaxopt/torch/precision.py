"""The rule where parameters or state are stored in fewer bits than it is computed in.

Everything is computed in float32 (float64 where a parameter or its state is); what is stored in 16 bits is read up,
updated, and rounded down: parameters as `rounding` says, 16-bit state always stochastically, because rounding to
nearest makes v ratchet upward (3.4x too large by 20k steps under decaying gradients).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from adaxopt.rule import StepCoefficients
from adaxopt.torch import foreach, wake_guard
from adaxopt.torch.rounding import stochastic_
from adaxopt.torch.state import LOW


@dataclass(frozen=True)
class Rounding:
    """How stored numbers are rounded, and what the random bits are drawn from."""

    mode: str
    seed: int
    indices: Sequence[int]
    """Each parameter's place in the optimizer."""
    offsets: Sequence[int]
    """Where each tensor's first element stands in the whole parameter (a shard of a DTensor begins later)."""
    steps: Sequence[float | Tensor]


def compute_dtype(*tensors: Tensor) -> torch.dtype:
    """float64 if any tensor is, else float32."""
    return torch.float64 if any(t.dtype == torch.float64 for t in tensors) else torch.float32


def update(
    xs: list[Tensor],
    gs: list[Tensor],
    ms: list[Tensor],
    vs: list[Tensor],
    tops: list[Tensor],
    compensations: list[Tensor],
    n: StepCoefficients,
    rounding: Rounding,
    *,
    maximize: bool = False,
    olds: list[Tensor] | None = None,
    wake: wake_guard.Guarded,
    project: foreach.Project | None = None,
) -> None:
    """`foreach.update` on tensors of any floating dtype."""
    work = compute_dtype(*(some[0] for some in (xs, ms, vs) if some))

    def fits(tensors: list[Tensor]) -> bool:
        return all(t.dtype == work for t in tensors)

    def up(tensors: list[Tensor]) -> list[Tensor]:
        return tensors if fits(tensors) else [t.to(work) for t in tensors]

    own = [fits(some) for some in (xs, ms, vs, tops)]  # torch 2.6 cannot compile `narrow is full` of lists
    wide = [up(some) for some in (xs, ms, vs, tops)]
    if compensations:
        own[0] = False
        wide[0] = list(torch._foreach_add(wide[0], up(compensations)))
    foreach.update(
        wide[0],
        up(gs),
        wide[1],
        wide[2],
        wide[3],
        n,
        maximize=maximize,
        olds=olds if olds is None else up(olds),
        wake=wake,
        project=project,
    )
    for stream, (narrow, full) in enumerate(zip((xs, ms, vs, tops), wide, strict=True)):
        if own[stream]:
            continue
        drawn = stream > 0 or rounding.mode == "stochastic"
        nearest = []
        for i, (low, high) in enumerate(zip(narrow, full, strict=True)):
            if drawn and low.dtype in LOW:
                stochastic_(
                    low,
                    high,
                    seed=rounding.seed,
                    index=rounding.indices[i],
                    step=rounding.steps[i],
                    stream=min(stream, 2),
                    offset=rounding.offsets[i],
                )
            else:
                nearest.append(i)
        if nearest:
            torch._foreach_copy_([narrow[i] for i in nearest], [full[i] for i in nearest])
    if compensations:
        torch._foreach_copy_(compensations, torch._foreach_sub(wide[0], up(xs)))
