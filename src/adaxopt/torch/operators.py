"""The operator form on torch tensors: differentiable steps, and sparse gradients (each row has its own step count)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from adaxopt import memories
from adaxopt.rule import StepCoefficients, step
from adaxopt.torch.precision import compute_dtype
from adaxopt.torch.project import Project, projected
from adaxopt.torch.rounding import split_, stochastic_
from adaxopt.torch.state import LOW, pairs, with_rest
from adaxopt.zoo import Method

State = dict[str, Tensor]


def cast(n: StepCoefficients, dtype: torch.dtype) -> StepCoefficients:
    """Cast array coefficients to the dtype of the step: float64 arrays would promote all other tensors."""
    wide = (x.to(dtype) if isinstance(x, Tensor) and x.dim() > 0 else x for x in n)
    return StepCoefficients._make(wide)


def differentiable_step(
    p: Tensor,
    g: Tensor,
    state: State,
    method: Method,
    group: Mapping[str, Any],
    project: Project | None = None,
) -> None:
    """One differentiable step: state tensors are replaced, and the parameter is written by one differentiable copy."""
    state["step"] = state["step"] + 1
    dtype = compute_dtype(*(pairs(state[k]) for k in ("exp_avg", "exp_avg_sq") if k in state), pairs(p))
    n = method.numbers(state["step"], {**group, "dtype": str(dtype).removeprefix("torch.")}, torch)
    if group["maximize"]:
        g = -g
    old = None
    if method.rule.mean == "window":
        slot = ((state["step"] - 1) % group["window"]).long().reshape(1).to(p.device)
        old = state["window"].index_select(0, slot).squeeze(0)
        wide = state["window"].dtype
        kept = g.to(wide) + n.l2 * p.clone().to(wide) if group["weight_decay"] else g.to(wide)
        state["window"] = state["window"].index_copy(0, slot, kept.to(wide).unsqueeze(0))
    m, v = state.get("exp_avg"), state.get("exp_avg_sq")
    x, m, v, v_max, d = step(
        pairs(p.clone()).to(dtype),  # a copy: the graph keeps it, and p is written below
        pairs(g).to(dtype),
        None if m is None else pairs(m),
        None if v is None else pairs(v),
        n,
        v_max=pairs(state["max_exp_avg_sq"]) if "max_exp_avg_sq" in state else None,
        old=None if old is None else pairs(old).to(dtype),
        wake=memories.guarded(group),
        xp=torch,
    )
    for key, value in (("exp_avg", m), ("exp_avg_sq", v), ("max_exp_avg_sq", v_max)):
        if value is not None:
            value = value.to(pairs(state[key]).dtype)  # coefficients of 0-d tensors are float64
            state[key] = torch.view_as_complex(value) if p.is_complex() else value
    if project is not None:
        x = projected(project, x, d if isinstance(d, Tensor) else torch.ones_like(x))
    p.copy_(torch.view_as_complex(x) if p.is_complex() else x)


def count_rows(p: Tensor, state: State, depth: int) -> None:
    """Create a step count for every row, starting at the parameter's step count, if there is none."""
    if "row_step" not in state:
        zeros = torch.zeros(p.shape[:depth], dtype=torch.float64, device=p.device)
        state["row_step"] = zeros + state["step"].to(p.device)


def row_step(
    p: Tensor,
    g: Tensor,
    state: State,
    method: Method,
    group: Mapping[str, Any],
    index: int,
) -> None:
    """One step in which every row has its own step count t: the number of gradients that the row has received.

    A sparse gradient with `sparse_dim` s contains rows p[i_1, ..., i_s]. All other rows keep their values, moments and
    step counts, and are not decayed. A dense gradient advances every row. A row that is in every gradient is updated
    exactly like a dense parameter.
    """
    p = pairs(p)
    if g.is_sparse:
        g = g.coalesce()
        values, depth = pairs(g.values()), g.sparse_dim()
        rows: Any = g.indices()[0] if depth == 1 else tuple(g.indices().unbind(0))
    else:
        rows, values, depth = ..., pairs(g), state["row_step"].dim()
    count_rows(p, state, depth)
    state["step"] += 1
    if values.numel() == 0:
        return
    t = _take(state["row_step"], rows) + 1
    _put(state["row_step"], rows, t)
    work = compute_dtype(p, *(pairs(state[k]) for k in ("exp_avg", "exp_avg_sq") if k in state))
    t = t.reshape(t.shape + (1,) * (values.dim() - t.dim()))
    n = cast(method.numbers(t, {**group, "dtype": str(work).removeprefix("torch.")}, torch), work)

    def take(key: str) -> Tensor | None:
        return _take(pairs(state[key]), rows).to(work) if key in state else None

    x, rest = _take(p, rows), state.get("compensation")
    x = x.to(work) if rest is None else with_rest(x, _take(rest, rows), work)
    split = rest is not None and rest.dtype == torch.int8
    values = values.to(work)
    x, m, v, v_max, _ = step(
        x,
        -values if group["maximize"] else values,
        take("exp_avg"),
        take("exp_avg_sq"),
        n,
        v_max=take("max_exp_avg_sq"),
        wake=memories.guarded(group),
        xp=torch,
    )
    keys = {"seed": group["seed"], "index": index, "step": state["step"]}
    news = {"": x, "exp_avg": m, "exp_avg_sq": v, "max_exp_avg_sq": v_max}
    for stream, (key, new) in enumerate(news.items()):
        if new is None:
            continue
        tensor = pairs(state[key]) if key else p
        if split and not key:
            high, low = torch.empty_like(new, dtype=p.dtype), torch.empty_like(new, dtype=torch.int8)
            split_(high, low, new, **keys)
            _put(state["compensation"], rows, low)
            low = high
        elif tensor.dtype in LOW and (stream or group["rounding"] == "stochastic"):
            low = torch.empty_like(new, dtype=tensor.dtype)
            stochastic_(low, new, stream=min(stream, 2), **keys)
        else:
            low = new.to(tensor.dtype)
        _put(tensor, rows, low)
    if rest is not None and not split:
        _put(state["compensation"], rows, (x - _take(p, rows).to(work)).to(p.dtype))


def _take(t: Tensor, rows: Any) -> Tensor:
    """t[rows], where `rows` is one index tensor, a tuple of index tensors, or an ellipsis."""
    return t.index_select(0, rows) if isinstance(rows, Tensor) else t[rows]


def _put(t: Tensor, rows: Any, new: Tensor) -> None:
    if isinstance(rows, Tensor):
        t.index_copy_(0, rows, new)
    else:
        t[rows] = new
