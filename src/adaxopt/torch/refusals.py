"""Checks for unsupported cases, made before any group is stepped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from adaxopt.torch import codes, foreign, options, shards, state
from adaxopt.torch.plan import backends_of

if TYPE_CHECKING:
    from adaxopt.torch.engine import Engine

Group = dict[str, Any]


def refuse_options(optimizer: Engine, group: Group, among: list[Tensor]) -> None:
    """Raise for cases that no kind of step supports, including a differentiable one."""
    options.check_memory(group)
    names = {"step", *state.kept(optimizer.method.rule)}
    for p in among:
        entry = optimizer.state.get(p)
        if entry:
            state.refuse_broken(names, p, entry)
            if "amsgrad" in group and entry["step"].dtype == torch.float32:
                raise ValueError(_unconverted(optimizer))
    if group["differentiable"] and any(p.grad is not None and p.grad.is_sparse for p in among):
        raise ValueError("differentiable=True: sparse gradients are not differentiable; make them dense")


def _unconverted(optimizer: Engine) -> str:
    """An error text for state of torch's Adam or AdamW, which has a step count in float32 and another v."""
    name = type(optimizer).__name__
    load = "plain.load_state_dict(checkpoint)"
    if foreign.converts(optimizer.method):
        load = "adaxopt.load_adamw_state_dict(plain, checkpoint)"
    return (
        f"{name} has state of torch's Adam or AdamW, whose second moment is scaled differently: "
        f"ZeroRedundancyOptimizer.load_state_dict does not convert it. Build plain = {name}(model.parameters()), call "
        f"{load}, and load plain.state_dict() instead"
    )


def refuse(optimizer: Engine, group: Group, among: list[Tensor]) -> None:
    """Raise for cases that an eager step does not support, before anything is changed."""
    refuse_options(optimizer, group, among)
    name, rule, projected = type(optimizer).__name__, optimizer.method.rule, optimizer._project is not None
    _refuse_placement(optimizer.state, group, among)
    rows = [p for p in among if state.in_rows(optimizer, p)]
    for p in rows:
        g = p.grad
        assert g is not None
        if g.is_sparse and (rule.memory is None or rule.mean == "window"):
            raise ValueError(f"{name} does not support sparse gradients: make them dense (sparse=False)")
        if g.is_sparse and projected:
            raise ValueError(
                "project: a sparse gradient changes only some rows, and a projection needs the whole tensor"
            )
        counted = optimizer.state.get(p, {}).get("row_step")
        if g.is_sparse and counted is not None and counted.dim() != g.sparse_dim():
            raise ValueError(
                f"gradient with sparse_dim={g.sparse_dim()}: this parameter's rows were counted with "
                f"sparse_dim={counted.dim()}; it must stay the same"
            )
    if group["state_dtype"] in (torch.bfloat16, torch.uint8) or group["rounding"] in ("kahan", "24bit"):
        for p in among:
            options.check_parameter(p, group["state_dtype"], group["rounding"])
    if any(_coded(optimizer, group, p) for p in rows):
        raise ValueError(
            "state_dtype=torch.uint8: a sparse gradient steps rows, and 32 consecutive elements share an exponent; put "
            "this parameter into a group with state_dtype=None, or make its gradient dense (sparse=False)"
        )
    if rows and group["capturable"]:
        raise ValueError("capturable=True: sparse gradients cannot be captured in a graph")
    whole = projected or rule.mean == "window" or group.get("cautious")
    if whole and any(map(shards.is_dtensor, among)):
        what = "project" if projected else "cautious=True" if group.get("cautious") else name
        raise ValueError(
            f"{what}: a sharded DTensor holds only a part of the tensor, and the whole is needed"
        )
    if group["fused"]:
        if rows:
            raise ValueError("fused=True: sparse gradients have their own path; leave fused=None")
        reason = _no_kernel(optimizer, group, among)
        if reason is not None:
            raise ValueError(f"fused=True: {reason}; leave fused=None to use the fastest supported path")


def _refuse_placement(states: Mapping[Tensor, Any], group: Group, among: list[Tensor]) -> None:
    """Raise for a parameter whose placement is not supported, before anything is changed."""
    for p in among:
        if p.grad is None or not (shards.is_dtensor(p) or shards.is_dtensor(p.grad)):
            continue
        if shards.is_dtensor(p) != shards.is_dtensor(p.grad):
            names = ("DTensor", "plain") if shards.is_dtensor(p) else ("plain", "DTensor")
            raise TypeError(
                f"a {names[0]} parameter of shape {tuple(p.shape)} has a {names[1]} gradient: both must be of one "
                "kind; distribute the gradient as its parameter is, or call full_tensor() on it"
            )
        placed = shards.not_in_rows(p)
        if placed is not None and state.draws(p, group, states.get(p, {})):
            if state.rounds_parameter(p, group):
                what, instead = f"rounding={group['rounding']!r}", "take rounding='nearest' or 'kahan'"
            else:
                what, instead = "state in 16 or 8 bits", "leave state_dtype=None"
            raise ValueError(
                f"{what}, a parameter of shape {tuple(p.shape)} placed as {placed}: stochastic rounding needs parts "
                f"that are consecutive rows, so that no result depends on the sharding; use Shard(0), or {instead}"
            )


def _coded(optimizer: Engine, group: Group, p: Tensor) -> bool:
    entry = optimizer.state.get(p)
    return codes.is_coded(entry.get("exp_avg_sq")) if entry else group["state_dtype"] is torch.uint8


def _no_kernel(optimizer: Engine, group: Group, among: list[Tensor]) -> str | None:
    """Why fused=True is not supported in this group, or None."""
    for asked in dict.fromkeys(map(backends_of, among)):
        reasons: list[str | None] = [backend.impossible(optimizer, group) for backend in asked]
        if reasons and None not in reasons:
            return reasons[0]
    other = next((p.device for p in among if p.device.type not in ("cpu", "cuda")), None)
    return None if other is None else f"there is no kernel for {other.type}"
