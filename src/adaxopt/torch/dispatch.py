"""From a group's parameters to a backend: sort what goes together, compute its numbers, choose who steps it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from adaxopt.rule import StepCoefficients
from adaxopt.torch import fused_cpu, operators, precision, shards, state, wake_guard
from adaxopt.torch.options import check_parameter

if TYPE_CHECKING:
    from adaxopt.torch.engine import Engine

Group = dict[str, Any]


class Lists(NamedTuple):
    """Parallel lists, one entry per parameter; empty where a method keeps no such thing."""

    params: list[Tensor]
    grads: list[Tensor]
    ms: list[Tensor]
    vs: list[Tensor]
    tops: list[Tensor]
    compensations: list[Tensor]
    windows: list[Tensor]
    steps: list[Tensor]

    def pick(self, some: Sequence[int]) -> Lists:
        return Lists(*([items[i] for i in some] if items else items for items in self))

    def moment(self, i: int) -> Tensor:
        """The tensor whose dtype is the state's."""
        return self.vs[i] if self.vs else self.ms[i] if self.ms else self.params[i]


def empty() -> Lists:
    return Lists([], [], [], [], [], [], [], [])


def on_device(optimizer: Engine, group: Group, among: list[Tensor] | None, scale: Tensor | None) -> None:
    """Every number that depends on time is a device scalar: for graphs and the compiler."""
    lists = empty()
    if among is None:  # the compiler knows this call, and runs it instead of tracing it
        optimizer._init_group(group, *lists)
    else:
        optimizer._init_group(group, *lists, among)  # type: ignore[misc]
    _update_on_device(optimizer, group, lists, scale)


def _update_on_device(optimizer: Engine, group: Group, lists: Lists, scale: Tensor | None) -> None:
    if not lists.params:
        return
    if scale is not None:
        lists.grads[:] = [unscaled(g, scale) for g in lists.grads]
    buckets: dict[tuple[Any, ...], list[int]] = {}
    for i, (p, g) in enumerate(zip(lists.params, lists.grads, strict=True)):
        buckets.setdefault((p.device, p.dtype, g.dtype, lists.moment(i).dtype), []).append(i)
    for (device, *_), members in buckets.items():
        taken = lists.pick(members)
        torch._foreach_add_(taken.steps, 1)
        time = torch.stack(taken.steps)
        if not torch.compiler.is_compiling():  # fake tensors count on the host for parameters elsewhere
            time = time.to(device)
        settings = pointlike(group)
        if torch.compiler.is_compiling():
            settings = traced(settings, time)
        work = _arithmetic(taken)
        n = optimizer.method.numbers(time, {**settings, "dtype": _name(work)}, torch)
        scalars: list[Any] = [
            list(x.to(work).unbind()) if isinstance(x, Tensor) and x.dim() == 1 else x for x in n
        ]
        n = StepCoefficients(*scalars)
        update(optimizer, group, taken, n, dict.fromkeys(range(len(members))))


def on_host(optimizer: Engine, group: Group, among: list[Tensor], scale: Tensor | None) -> None:
    """StepCoefficients are Python floats: parameters of one time, device and dtype go together."""
    rows = [p for p in among if in_rows(optimizer, p)]
    for p in rows:
        _step_rows(optimizer, group, p, scale)
    if rows:
        among = [p for p in among if not in_rows(optimizer, p)]
    lists = empty()
    optimizer._init_group(group, *lists, among)  # type: ignore[misc]
    params, grads = lists.params, lists.grads
    if not params:
        return
    if not _readable(group, lists.steps):
        return _update_on_device(optimizer, group, lists, scale)
    if scale is not None:
        grads[:] = [unscaled(g, scale) for g in grads]
    times = _advance(lists.steps)
    inactive: Sequence[wake_guard.Inactive | None] = [None] * len(params)
    if group["wake"] and lists.vs:
        memory = optimizer.method.rule.memory
        normalised = memory is not None and memory.kind != "unnormalised"
        inactive = wake_guard.look(optimizer._inactive, params, lists.vs, times, plain, normalised)
        wake_guard.forget(optimizer._inactive, optimizer.param_groups)
    buckets: dict[tuple[Any, ...], list[int]] = {}
    for i, (p, g) in enumerate(zip(params, grads, strict=True)):
        key = (times[i], p.device, p.dtype, g.dtype, lists.moment(i).dtype, type(p))
        buckets.setdefault(key, []).append(i)
    settings = floats(group)
    for (time, *_), members in buckets.items():
        work = _arithmetic(lists.pick(members[:1]))
        n = optimizer.method.numbers(time, {**settings, "dtype": _name(work)})
        for some in [members] if group["foreach"] is not False else [[i] for i in members]:
            taken = lists if len(some) == len(params) else lists.pick(some)
            if state.may_fuse(group):
                left = _update_fused(optimizer, group, taken, n, [inactive[i] for i in some])
                if not left:
                    continue
                taken, some = taken.pick(left), [some[i] for i in left]
            update(optimizer, group, taken, n, wake_guard.guarded([inactive[i] for i in some]))
        for i in members:
            known = inactive[i]
            if known is not None:
                known.settle(lists.vs[i], n.k)


def refuse(optimizer: Engine, group: Group, among: list[Tensor]) -> None:
    """Say what cannot be done before anything is."""
    name, rule, projected = type(optimizer).__name__, optimizer.method.rule, optimizer._project is not None
    shards.refuse(optimizer.state, group, among)
    rows = [p for p in among if in_rows(optimizer, p)]
    for p in rows:
        g = p.grad
        assert g is not None
        if g.is_sparse and (rule.memory is None or rule.mean == "window"):
            raise ValueError(f"{name} does not support sparse gradients: make them dense (sparse=False)")
        if g.is_sparse and projected:
            raise ValueError("project: a sparse gradient changes rows, a projection needs the whole tensor")
        counted = optimizer.state.get(p, {}).get("row_step")
        if g.is_sparse and counted is not None and counted.dim() != g.sparse_dim():
            raise ValueError(
                f"gradient with sparse_dim={g.sparse_dim()}: this parameter's rows were counted with "
                f"sparse_dim={counted.dim()}; it must stay the same"
            )
    if group["state_dtype"] is torch.bfloat16:
        for p in among:
            check_parameter(p, torch.bfloat16)
    if rows and group["capturable"]:
        raise ValueError("capturable=True: sparse gradients cannot be captured in a graph")
    whole = projected or rule.mean == "window" or group.get("cautious")
    if whole and any(state.local(p) is not p for p in among):
        what = "project" if projected else "cautious=True" if group.get("cautious") else name
        raise ValueError(f"{what}: a sharded DTensor holds a part of the tensor, and the whole is needed")
    if group["fused"]:
        if rows:
            raise ValueError("fused=True: sparse gradients have their own path; leave fused=None")
        if any(p.is_cpu for p in among):
            reason = fused_cpu.impossible(
                rule, group["p"], group["clip_update"], projected, bool(group.get("cautious"))
            )
            if reason is not None:
                raise ValueError(f"fused=True: {reason}; leave fused=None to take the fastest path there is")
        other = next((p.device for p in among if p.device.type not in ("cpu", "cuda")), None)
        if other is not None:
            raise ValueError(f"fused=True: there is no kernel for {other.type}; leave fused=None")


def _readable(group: Group, steps: list[Tensor]) -> bool:
    """Whether the host can read the time and every hyper-parameter; fake tensors (FakeTensorMode) have no values."""
    given = [
        t
        for t in (group["lr"], *group["betas"], group["eps"], group["weight_decay"])
        if isinstance(t, Tensor)
    ]
    if not given and set(map(type, steps)) == {Tensor} and not steps[0].is_meta:
        return True
    return all(map(state.readable, (*steps, *given)))


def _advance(steps: list[Tensor]) -> list[float]:
    if all(t.is_cpu for t in steps):
        torch._foreach_add_(steps, 1.0)
        return [t.item() for t in steps]
    torch._foreach_add_(steps, 1)
    return torch.stack([t.to(steps[0].device) for t in steps]).tolist()


def in_rows(optimizer: Engine, p: Tensor) -> bool:
    """Whether this parameter's rows live in their own time: its gradient is sparse now, or was before."""
    g = p.grad
    return g is not None and (g.is_sparse or "row_step" in optimizer.state.get(p, ()))


def _step_rows(optimizer: Engine, group: Group, p: Tensor, scale: Tensor | None) -> None:
    entry = optimizer.state[p]
    if len(entry) == 0:
        entry.update(state.create(p, group, optimizer.method.rule))
    state.keep_compensation(p, group, entry)
    g = p.grad
    assert g is not None
    if scale is not None:
        g = unscaled(g, scale)
    operators.row_step(p, g, entry, optimizer.method, floats(group), optimizer._place(p))


def _update_fused(
    optimizer: Engine,
    group: Group,
    taken: Lists,
    n: StepCoefficients,
    inactive: Sequence[wake_guard.Inactive | None],
) -> list[int]:
    """Step what torch's CPU kernel can serve; return the positions that it cannot."""
    everything = list(range(len(taken.params)))
    impossible = fused_cpu.impossible(
        optimizer.method.rule, n.p, n.clip, optimizer._project is not None, n.cautious
    )
    if impossible or n.k < fused_cpu.LEAST_GAIN or not taken.params[0].is_cpu:
        return everything
    xs, gs, ms, vs, tops = plain_lists(taken)
    left = []
    for i in everything:
        # a parameter that was resized: the kernel knows memory alone, and would write past the end of its state
        if not xs[i].shape == gs[i].shape == ms[i].shape == vs[i].shape:
            reason: str | None = "its gradient or state has another shape"
        else:
            reason = fused_cpu.unsuitable(xs[i], gs[i], ms[i], vs[i])
        if reason is None and tops and (tops[i].stride(), tops[i].dtype) != (vs[i].stride(), vs[i].dtype):
            reason = "its running maximum is laid out or stored otherwise"
        if reason is not None:
            left.append(i)
            if group["fused"]:
                optimizer._warn_once(f"fused=True: a parameter takes the foreach path, because {reason}")
    keep = sorted(set(everything) - set(left))
    if left:
        xs, gs, ms, vs, tops = (
            [items[i] for i in keep] if items else items for items in (xs, gs, ms, vs, tops)
        )
    if xs:
        fused_cpu.update(
            xs,
            gs,
            ms,
            vs,
            tops,
            n,
            maximize=group["maximize"],
            wake=wake_guard.guarded([inactive[i] for i in keep]),
        )
    return left


def update(
    optimizer: Engine,
    group: Group,
    taken: Lists,
    n: StepCoefficients,
    wake: wake_guard.Guarded,
) -> None:
    """The foreach form on local, real-valued parts."""
    params, maximize, project = taken.params, group["maximize"], optimizer._project
    moments = (*taken.ms, *taken.vs, *taken.tops)
    stochastic = group["rounding"] == "stochastic" and params[0].dtype in state.LOW
    drawn = params if stochastic or any(t.dtype in state.LOW for t in moments) else ()
    rounding = precision.Rounding(
        group["rounding"],
        group["seed"],
        [optimizer._place(p) for p in drawn],
        [shards.first_element(p) for p in drawn],
        taken.steps,
    )
    xs, gs, ms, vs, tops = plain_lists(taken)
    compensations = [plain(c) for c in taken.compensations] if params[0].dtype in state.LOW else []
    olds = None
    if taken.windows:
        if maximize:
            gs, maximize = list(torch._foreach_neg(gs)), False
        if group["weight_decay"] and group["decay"] == "l2":
            work = precision.compute_dtype(xs[0], ms[0])
            wide = [x.to(work) for x in xs]
            if compensations:
                wide = [x + c.to(work) for x, c in zip(wide, compensations, strict=True)]
            gs = [g.to(work) + group["weight_decay"] * x for g, x in zip(gs, wide, strict=True)]
            n = n._replace(l2=0.0)
        windows = [plain(w) for w in taken.windows]
        olds = []
        for w, t, g in zip(windows, taken.steps, gs, strict=True):
            slot = ((t - 1) % group["window"]).long().reshape(1).to(w.device)
            olds.append(w.index_select(0, slot).squeeze(0))
            w.index_copy_(0, slot, g.to(w.dtype).unsqueeze(0))
    precision.update(
        xs,
        gs,
        ms,
        vs,
        tops,
        compensations,
        n,
        rounding,
        maximize=maximize,
        olds=olds,
        wake=wake if group["wake"] and vs else {},
        project=project,
    )


def _arithmetic(taken: Lists) -> torch.dtype:
    """What these parameters are computed in: their own dtype and their state's decide."""
    first = (taken.params[0], taken.moment(0))
    return precision.compute_dtype(*(plain(t) for t in first))


def unscaled(g: Tensor, scale: Tensor) -> Tensor:
    """The gradient without GradScaler's factor, in the arithmetic of the step: float16 would lose what it saved."""
    return (g.float() if g.dtype in state.LOW else g) / scale.to(g.device)


def plain_lists(taken: Lists) -> tuple[list[Tensor], ...]:
    """Parameters, gradients, m, v and maxima as local, real-valued tensors; most are, and then the lists stand."""
    params, grads = taken.params, taken.grads
    own = set(map(type, params)) <= {Tensor, Parameter} and not any(map(Tensor.is_complex, params))
    if own and (torch.compiler.is_compiling() or not any(map(Tensor.is_neg, grads))):
        return params, grads, taken.ms, taken.vs, taken.tops
    gs = [state.local_gradient(p, g) for p, g in zip(params, grads, strict=True)]
    return tuple([plain(t) for t in items] for items in (params, gs, taken.ms, taken.vs, taken.tops))


def plain(t: Tensor) -> Tensor:
    """This process's part, complex numbers as pairs of reals."""
    t = state.local(t)
    return torch.view_as_real(t) if t.is_complex() else t


def _name(dtype: torch.dtype) -> str:
    return "float64" if dtype == torch.float64 else "float32"


def traced(group: Group, time: Tensor) -> Group:
    """The group with lr and b1 as tensors: a compiled step then serves every value that a scheduler writes."""
    one = time.new_ones(())
    return {**group, "lr": one * group["lr"], "betas": (one * group["betas"][0], group["betas"][1])}


def pointlike(group: Group) -> Group:
    """The group with tensor hyper-parameters of no dimension: one element in any shape is allowed, and broadcasts."""
    names = ("lr", "eps", "weight_decay", "reference_lr")
    read = {k: group[k].reshape(()) for k in names if isinstance(group[k], Tensor)}
    betas = tuple(b.reshape(()) if isinstance(b, Tensor) else b for b in group["betas"])
    return {**group, **read, "betas": betas}


def floats(group: Group) -> Group:
    """The group with tensor hyper-parameters read to the host, once a step."""
    names = ("lr", "eps", "weight_decay", "reference_lr")
    read = {k: group[k].item() for k in names if isinstance(group[k], Tensor)}
    betas = tuple(b.item() if isinstance(b, Tensor) else b for b in group["betas"])
    return {**group, **read, "betas": betas}
