"""Parameters that no backend supports: dense gradients are stepped in foreach form, sparse gradients by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from adaxopt import memories
from adaxopt.rule import StepCoefficients
from adaxopt.torch import hyper, operators, precision, private, state, wake_guard
from adaxopt.torch.state import Lists

if TYPE_CHECKING:
    from adaxopt.torch.engine import Engine

Group = dict[str, Any]


def step(optimizer: Engine, group: Group, among: list[Tensor], scale: Tensor | None) -> None:
    """Step parameters that no backend supports."""
    dense = []
    for p in among:
        if state.in_rows(optimizer, p):
            _step_rows(optimizer, group, p, scale)
        else:
            dense.append(p)
    lists = Lists.empty()
    optimizer._init_group(group, *lists, dense)  # type: ignore[misc]
    if scale is not None:
        lists.grads[:] = [state.unscaled(g, scale) for g in lists.grads]
    kinds = {(type(t), t.is_meta): t for t in lists.steps}
    if group["capturable"] or not (hyper.readable(group) and all(map(state.readable, kinds.values()))):
        _update_on_device(optimizer, group, lists)
    elif lists.params:
        _update_on_host(optimizer, group, lists)


def step_compiled(optimizer: Engine, group: Group) -> None:
    """Step all parameters of a group while the step is being compiled."""
    lists = Lists.empty()
    optimizer._init_group(group, *lists)  # the compiler recognises this call: it runs it without tracing
    _update_on_device(optimizer, group, lists)


def _update_on_device(optimizer: Engine, group: Group, lists: Lists) -> None:
    """Update with every coefficient that depends on the step as a device scalar, for CUDA graphs and the compiler."""
    for (_, device, *_), members in _buckets(lists).items():
        taken = lists.pick(members)
        private.foreach_add_(taken.steps, 1)
        time = torch.stack(taken.steps).flatten()  # a count written by the user may have the shape (1,)
        settings = hyper.pointlike(group)
        if torch.compiler.is_compiling():
            settings = hyper.traced(settings, time)
        else:  # with fake tensors, the step count may be on another device than the parameter
            time = time.to(device)
        work = _arithmetic(taken)
        n = optimizer.method.numbers(time, {**settings, "dtype": _name(work)}, torch)
        scalars: list[Any] = [
            list(x.to(work).unbind()) if isinstance(x, Tensor) and x.dim() == 1 else x for x in n
        ]
        precision.update(optimizer, group, taken, StepCoefficients(*scalars), range(len(members)))


def _update_on_host(optimizer: Engine, group: Group, lists: Lists) -> None:
    """Update with StepCoefficients as Python floats, one call for all parameters of the same step, device and dtype."""
    params, times = lists.params, _advance(lists.steps)
    inactive: Sequence[wake_guard.Inactive | None] = [None] * len(params)
    if memories.guarded(group) and lists.vs:
        inactive = wake_guard.look(optimizer._inactive, params, lists.vs, times, optimizer.method.rule)
    settings = hyper.floats(group)
    for (time, *_), members in _buckets(lists, times).items():
        work = _arithmetic(lists.pick(members[:1]))
        n = optimizer.method.numbers(time, {**settings, "dtype": _name(work)})
        for some in [members] if group["foreach"] is not False else [[i] for i in members]:
            taken = lists if len(some) == len(params) else lists.pick(some)
            guarded = wake_guard.guarded([inactive[i] for i in some])
            precision.update(optimizer, group, taken, n, guarded)
        for i in members:
            known = inactive[i]
            if known is not None:
                known.settle(lists.vs[i], n.k)


def _buckets(lists: Lists, times: Sequence[float] = ()) -> dict[tuple[Any, ...], list[int]]:
    """Indices of parameters that are stepped together: same step count (if known on the host), device and dtypes."""
    found: dict[tuple[Any, ...], list[int]] = {}
    for i, (p, g) in enumerate(zip(lists.params, lists.grads, strict=True)):
        alike = (times[i] if times else 0.0, p.device, p.dtype, g.dtype, lists.moment(i).dtype, type(p))
        found.setdefault(alike, []).append(i)
    return found


def _advance(steps: list[Tensor]) -> list[float]:
    private.foreach_add_(steps, 1.0)
    if all(t.is_cpu for t in steps):
        return [t.item() for t in steps]
    return torch.stack([t.to(steps[0].device) for t in steps]).tolist()


def _step_rows(optimizer: Engine, group: Group, p: Tensor, scale: Tensor | None) -> None:
    entry = state.ready(optimizer, group, p)
    g = p.grad
    assert g is not None
    if scale is not None:
        g = state.unscaled(g, scale)
    operators.row_step(p, g, entry, optimizer.method, hyper.floats(group), optimizer._place(p))


def _arithmetic(taken: Lists) -> torch.dtype:
    """The dtype in which these parameters are computed, from the dtypes of parameters and state."""
    first = (taken.params[0], taken.moment(0))
    return precision.compute_dtype(*map(state.real, first))


def _name(dtype: torch.dtype) -> str:
    return "float64" if dtype == torch.float64 else "float32"
