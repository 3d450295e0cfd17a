"""What no backend of `plan.backends_of` serves: sorted by what goes together, stepped in foreach form or by rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from adaxopt.rule import StepCoefficients
from adaxopt.torch import hyper, operators, precision, private, state, wake_guard
from adaxopt.torch.state import Lists

if TYPE_CHECKING:
    from adaxopt.torch.engine import Engine

Group = dict[str, Any]


def step(optimizer: Engine, group: Group, among: list[Tensor], scale: Tensor | None) -> None:
    """Step parameters that no backend serves."""
    if group["capturable"] and not any(state.in_rows(optimizer, p) for p in among):
        on_device(optimizer, group, among, scale)
    else:
        _on_host(optimizer, group, among, scale)


def _empty() -> Lists:
    return Lists([], [], [], [], [], [], [], [])


def on_device(optimizer: Engine, group: Group, among: list[Tensor] | None, scale: Tensor | None) -> None:
    """Every number that depends on time is a device scalar: for graphs and the compiler."""
    lists = _empty()
    if among is None:  # the compiler knows this call, and runs it instead of tracing it
        optimizer._init_group(group, *lists)
    else:
        optimizer._init_group(group, *lists, among)  # type: ignore[misc]
    _update_on_device(optimizer, group, lists, scale)


def _update_on_device(optimizer: Engine, group: Group, lists: Lists, scale: Tensor | None) -> None:
    if not lists.params:
        return
    if scale is not None:
        lists.grads[:] = [state.unscaled(g, scale) for g in lists.grads]
    buckets: dict[tuple[Any, ...], list[int]] = {}
    for i, (p, g) in enumerate(zip(lists.params, lists.grads, strict=True)):
        buckets.setdefault((p.device, p.dtype, g.dtype, lists.moment(i).dtype), []).append(i)
    for (device, *_), members in buckets.items():
        taken = lists.pick(members)
        private.foreach_add_(taken.steps, 1)
        time = torch.stack(taken.steps)
        if not torch.compiler.is_compiling():  # fake tensors count on the host for parameters elsewhere
            time = time.to(device)
        settings = hyper.pointlike(group)
        if torch.compiler.is_compiling():
            settings = hyper.traced(settings, time)
        work = _arithmetic(taken)
        n = optimizer.method.numbers(time, {**settings, "dtype": _name(work)}, torch)
        scalars: list[Any] = [
            list(x.to(work).unbind()) if isinstance(x, Tensor) and x.dim() == 1 else x for x in n
        ]
        n = StepCoefficients(*scalars)
        precision.update(optimizer, group, taken, n, range(len(members)))


def _on_host(optimizer: Engine, group: Group, among: list[Tensor], scale: Tensor | None) -> None:
    """StepCoefficients are Python floats: parameters of one time, device and dtype go together."""
    rows = [p for p in among if state.in_rows(optimizer, p)]
    for p in rows:
        _step_rows(optimizer, group, p, scale)
    if rows:
        among = [p for p in among if not state.in_rows(optimizer, p)]
    lists = _empty()
    optimizer._init_group(group, *lists, among)  # type: ignore[misc]
    params, grads = lists.params, lists.grads
    if not params:
        return
    kinds = {(type(t), t.is_meta): t for t in lists.steps}
    if not (hyper.readable(group) and all(map(state.readable, kinds.values()))):
        return _update_on_device(optimizer, group, lists, scale)
    if scale is not None:
        grads[:] = [state.unscaled(g, scale) for g in grads]
    times = _advance(lists.steps)
    inactive: Sequence[wake_guard.Inactive | None] = [None] * len(params)
    if group["wake"] and lists.vs:
        memory = optimizer.method.rule.memory
        normalised = memory is not None and memory.kind != "unnormalised"
        inactive = wake_guard.look(optimizer._inactive, params, lists.vs, times, normalised)
    buckets: dict[tuple[Any, ...], list[int]] = {}
    for i, (p, g) in enumerate(zip(params, grads, strict=True)):
        key = (times[i], p.device, p.dtype, g.dtype, lists.moment(i).dtype, type(p))
        buckets.setdefault(key, []).append(i)
    settings = hyper.floats(group)
    for (time, *_), members in buckets.items():
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


def _advance(steps: list[Tensor]) -> list[float]:
    if all(t.is_cpu for t in steps):
        private.foreach_add_(steps, 1.0)
        return [t.item() for t in steps]
    private.foreach_add_(steps, 1)
    return torch.stack([t.to(steps[0].device) for t in steps]).tolist()


def _step_rows(optimizer: Engine, group: Group, p: Tensor, scale: Tensor | None) -> None:
    entry = state.ready(optimizer, group, p)
    g = p.grad
    assert g is not None
    if scale is not None:
        g = state.unscaled(g, scale)
    operators.row_step(p, g, entry, optimizer.method, hyper.floats(group), optimizer._place(p))


def _arithmetic(taken: Lists) -> torch.dtype:
    """What these parameters are computed in: their own dtype and their state's decide."""
    first = (taken.params[0], taken.moment(0))
    return precision.compute_dtype(*map(state.real, first))


def _name(dtype: torch.dtype) -> str:
    return "float64" if dtype == torch.float64 else "float32"
