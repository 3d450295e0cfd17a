"""DTensors: where a part stands in the whole tensor, which parts cannot be stepped, norms over all parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from adaxopt.torch import private, state


def refuse(states: Mapping[Tensor, Any], group: Mapping[str, Any], among: list[Tensor]) -> None:
    """Raise for a parameter that cannot be stepped as it is placed, before anything has changed."""
    kind = state.dtensor_type()
    if kind is None:
        return
    for p in among:
        if p.grad is None:
            continue
        if isinstance(p, kind) != isinstance(p.grad, kind):
            names = ("DTensor", "plain") if isinstance(p, kind) else ("plain", "DTensor")
            raise TypeError(
                f"a {names[0]} parameter of shape {tuple(p.shape)} has a {names[1]} gradient: both must be of one "
                "kind; distribute the gradient as its parameter is, or call full_tensor() on it"
            )
        placed = not_in_rows(p)
        if placed is not None and draws(p, group, states.get(p, {})):
            if _rounds_parameter(p, group):
                what, instead = f"rounding={group['rounding']!r}", "take rounding='nearest' or 'kahan'"
            else:
                what, instead = "state in 16 or 8 bits", "leave state_dtype=None"
            raise ValueError(
                f"{what}, a parameter of shape {tuple(p.shape)} placed as {placed}: stochastic rounding needs parts "
                f"that are consecutive rows, so that no result depends on the sharding; use Shard(0), or {instead}"
            )


def draws(p: Tensor, group: Mapping[str, Any], entry: Mapping[str, Any]) -> bool:
    """Whether a step of this parameter rounds anything stochastically: the parameter, or 16-bit moments."""
    if _rounds_parameter(p, group):
        return True
    kept = [entry[name].dtype for name in state.STATE[:3] if isinstance(entry.get(name), Tensor)]
    return any(
        dtype in (*state.LOW, torch.int8, torch.uint8) for dtype in kept or [state.moment_dtype(p, group)]
    )


def _rounds_parameter(p: Tensor, group: Mapping[str, Any]) -> bool:
    return p.dtype in state.LOW and group["rounding"] in ("stochastic", "24bit")


def first_element(p: Tensor) -> int:
    """The global index of this part's first element, which stochastic rounding draws from; see `not_in_rows`."""
    kind = state.dtensor_type()
    if kind is None or not isinstance(p, kind) or not p.dim():
        return 0
    return private.first_row(p) * int(p.shape[1:].numel())


def not_in_rows(p: Tensor) -> str | None:
    """The placements of a DTensor whose parts are not consecutive rows of it, or None.

    The answer is the same on every rank: a rank that refused a step alone would leave the others waiting for it.
    """
    kind = state.dtensor_type()
    if kind is None or not isinstance(p, kind):
        return None
    for size, placement in zip(p.device_mesh.shape, p.placements, strict=True):  # type: ignore[attr-defined]
        dim = getattr(placement, "dim", None)
        if dim is not None and dim % p.dim() != 0 and size > 1:
            return str(p.placements)  # type: ignore[attr-defined]
    return None


def with_norm_of(g: Tensor, norm_type: float) -> Tensor:
    """A plain, dense, non-empty tensor with the norm of this gradient, whatever its kind; the same on every process."""
    if g.is_sparse:
        return _not_empty(g.values())
    kind = state.dtensor_type()
    if kind is None or not isinstance(g, kind):
        return g
    from torch.distributed.tensor import Replicate, Shard

    summed = [Replicate() if place.is_partial() else place for place in g.placements]  # type: ignore[attr-defined]
    part = _not_empty(private.local_part(g.redistribute(placements=summed)))  # type: ignore[attr-defined]
    norm = torch.linalg.vector_norm(part, norm_type).reshape(1)
    places = [place if place.is_replicate() else Shard(0) for place in summed]
    total: Tensor = kind.from_local(norm, g.device_mesh, places, run_check=False).full_tensor()  # type: ignore[attr-defined]
    return total


def on_mesh(value: Tensor, mesh: Any) -> Tensor:
    """A number that every process of a mesh has, as a DTensor; without a mesh the number itself."""
    if mesh is None:
        return value
    from torch.distributed.tensor import DTensor, Replicate

    return DTensor.from_local(value, mesh, [Replicate()] * mesh.ndim, run_check=False)


def _not_empty(t: Tensor) -> Tensor:
    return t if t.numel() else t.new_zeros(1)  # the inf norm of nothing is an error in torch
