"""The foreach form on tensors of any floating dtype: stored in fewer bits than they are computed in, or not.

Everything is computed in float32 (float64 where a parameter or its state is); what is stored in 16 bits is read up,
updated, and rounded down: parameters as `rounding` says, 16-bit state always stochastically, because rounding to
nearest makes v ratchet upward (3.4x too large by 20k steps under decaying gradients).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from adaxopt.rule import StepCoefficients
from adaxopt.torch import foreach, private, shards, state
from adaxopt.torch.rounding import stochastic_
from adaxopt.torch.state import LOW, Lists, real

if TYPE_CHECKING:
    from adaxopt.torch.engine import Engine


def compute_dtype(*tensors: Tensor) -> torch.dtype:
    """float64 if any tensor is, else float32."""
    return torch.float64 if any(t.dtype == torch.float64 for t in tensors) else torch.float32


def update(
    optimizer: Engine, group: dict[str, Any], taken: Lists, n: StepCoefficients, wake: Sequence[int]
) -> None:
    """One step of parameters of one device and the same dtypes; `wake` are positions to be guarded."""
    xs, gs, ms, vs, tops = state.real_lists(taken)
    work = compute_dtype(*(some[0] for some in (xs, ms, vs) if some))

    def fits(tensors: list[Tensor]) -> bool:
        return all(t.dtype == work for t in tensors)

    def up(tensors: list[Tensor]) -> list[Tensor]:
        return tensors if fits(tensors) else [t.to(work) for t in tensors]

    own = [fits(some) for some in (xs, ms, vs, tops)]  # torch 2.6 cannot compile `narrow is full` of lists
    wide = [up(some) for some in (xs, ms, vs, tops)]
    compensations = [real(c) for c in taken.compensations] if xs[0].dtype in LOW else []
    if compensations:
        own[0] = False
        wide[0] = list(private.foreach_add(wide[0], up(compensations)))
    gs, maximize, olds = up(gs), group["maximize"], None
    if taken.windows:
        if maximize:
            gs, maximize = list(private.foreach_neg(gs)), False
        if group["weight_decay"] and group["decay"] == "l2":
            gs = [g + group["weight_decay"] * x for g, x in zip(gs, wide[0], strict=True)]
            n = n._replace(l2=0.0)
        olds = up([_shifted(real(w), t, g) for w, t, g in zip(taken.windows, taken.steps, gs, strict=True)])
    guard = wake if group["wake"] and vs else ()
    project = optimizer._project
    x, m, v, top = wide
    foreach.update(x, gs, m, v, top, n, maximize=maximize, olds=olds, wake=guard, project=project)
    for stream, (narrow, full) in enumerate(zip((xs, ms, vs, tops), wide, strict=True)):
        if own[stream]:
            continue
        drawn = stream > 0 or group["rounding"] == "stochastic"
        nearest = []
        for i, (low, high) in enumerate(zip(narrow, full, strict=True)):
            if drawn and low.dtype in LOW:
                p = taken.params[i]
                place, first = optimizer._place(p), shards.first_element(p)
                seed, step = group["seed"], taken.steps[i]
                stochastic_(low, high, seed=seed, index=place, step=step, stream=min(stream, 2), offset=first)
            else:
                nearest.append(i)
        if nearest:
            private.foreach_copy_([narrow[i] for i in nearest], [full[i] for i in nearest])
    if compensations:
        private.foreach_copy_(compensations, private.foreach_sub(wide[0], up(xs)))


def _shifted(window: Tensor, step: Tensor, g: Tensor) -> Tensor:
    """The gradient that leaves the window; g takes its place."""
    slot = ((step - 1) % window.shape[0]).long().reshape(1).to(window.device)
    old = window.index_select(0, slot).squeeze(0)
    window.index_copy_(0, slot, g.to(window.dtype).unsqueeze(0))
    return old
