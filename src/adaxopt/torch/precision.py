"""The foreach form for tensors of any floating-point dtype.

Everything is computed in float32 (float64 if a parameter or its state is float64). 16-bit tensors are cast up, updated
and rounded: parameters as `rounding` says, 16-bit state always stochastically, because rounding to nearest biases v
upward (3.4x too large after 20k steps with decaying gradients). 8-bit state is decoded and encoded (`codes.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from adaxopt import memories
from adaxopt.rule import StepCoefficients
from adaxopt.torch import codes, foreach, private, shards, state
from adaxopt.torch.rounding import joined, split_, stochastic_
from adaxopt.torch.state import LOW, Lists, real

if TYPE_CHECKING:
    from adaxopt.torch.engine import Engine


def compute_dtype(*tensors: Tensor) -> torch.dtype:
    """float64 if any tensor is float64, else float32."""
    return torch.float64 if any(t.dtype == torch.float64 for t in tensors) else torch.float32


def update(
    optimizer: Engine, group: dict[str, Any], taken: Lists, n: StepCoefficients, wake: Sequence[int]
) -> None:
    """One step of parameters of one device and the same dtypes. `wake` lists parameters with inactive coordinates."""
    xs, gs, ms, vs, v_maxes = state.real_lists(taken)
    work = compute_dtype(*(some[0] for some in (xs, ms, vs) if some))

    def fits(tensors: list[Tensor]) -> bool:
        return all(t.dtype == work for t in tensors)

    def up(tensors: list[Tensor]) -> list[Tensor]:
        return tensors if fits(tensors) else [t.to(work) for t in tensors]

    own = [fits(some) for some in (xs, ms, vs, v_maxes)]  # torch 2.6 cannot compile `narrow is full` of lists
    wide = [up(some) for some in (xs, ms, vs, v_maxes)]
    coded = len(vs) > 0 and codes.is_coded(vs[0])  # torch 2.6 cannot compile `bool` of a list
    entries = [state.real_state(optimizer.state[p]) for p in taken.params] if coded else []
    moments = [(at, name) for at, name in enumerate(codes.CODED, start=1) if coded and len(wide[at]) > 0]
    for at, name in moments:
        wide[at] = [codes.expanded(entry, name).to(work) for entry in entries]
    compensations = [real(c) for c in taken.compensations] if xs[0].dtype in LOW else []
    split = len(compensations) > 0 and compensations[0].dtype == torch.int8
    if compensations:
        own[0] = False
        if split:
            wide[0] = [joined(x, rest).to(work) for x, rest in zip(xs, compensations, strict=True)]
        else:
            wide[0] = list(private.foreach_add(wide[0], up(compensations)))
    gs, maximize, olds = up(gs), group["maximize"], None
    if taken.windows:
        if maximize:
            gs, maximize = list(private.foreach_neg(gs)), False
        if group["weight_decay"] and group["decay"] == "l2":
            gs = [g + group["weight_decay"] * x for g, x in zip(gs, wide[0], strict=True)]
            n = n._replace(l2=0.0)
        olds = up([_shifted(real(w), t, g) for w, t, g in zip(taken.windows, taken.steps, gs, strict=True)])
    guard = wake if memories.guarded(group) and vs else ()
    project = optimizer._project
    x, m, v, v_max = wide
    foreach.update(x, gs, m, v, v_max, n, maximize=maximize, olds=olds, wake=guard, project=project)

    def keys(i: int) -> dict[str, Any]:
        p = taken.params[i]
        drawn_from = {"seed": group["seed"], "index": optimizer._place(p), "step": taken.steps[i]}
        return {**drawn_from, "offset": shards.first_element(p)}

    for stream, (narrow, full) in enumerate(zip((xs, ms, vs, v_maxes), wide, strict=True)):
        if own[stream] or (coded and stream > 0):
            continue
        drawn, nearest = stream > 0 or group["rounding"] == "stochastic", []
        for i, (low, high) in enumerate(zip(narrow, full, strict=True)):
            if split and stream == 0:
                split_(low, compensations[i], high, **keys(i))
            elif drawn and low.dtype in LOW:
                stochastic_(low, high, stream=min(stream, 2), **keys(i))
            else:
                nearest.append(i)
        if nearest:
            private.foreach_copy_([narrow[i] for i in nearest], [full[i] for i in nearest])
    for i, entry in enumerate(entries):
        codes.store_(entry, {name: wide[at][i] for at, name in moments}, **keys(i))
    if compensations and not split:
        private.foreach_copy_(compensations, private.foreach_sub(wide[0], up(xs)))


def _shifted(window: Tensor, step: Tensor, g: Tensor) -> Tensor:
    """Replace the oldest gradient of the window by g, and return it."""
    slot = ((step - 1) % window.shape[0]).long().reshape(1).to(window.device)
    old = window.index_select(0, slot).squeeze(0)
    window.index_copy_(0, slot, g.to(window.dtype).unsqueeze(0))
    return old
