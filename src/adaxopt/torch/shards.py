"""DTensors: this process's part, its position in the whole tensor, norms over all parts."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

from adaxopt.torch import private


def is_dtensor(t: Any) -> bool:
    """Whether `t` is a DTensor. None exist before their module has been imported."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(t, module.DTensor)


def many_processes() -> bool:
    """Whether this process trains together with others."""
    dist = torch.distributed
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def local(t: Tensor) -> Tensor:
    """This process's part of a DTensor; any other tensor unchanged. The rule is element-wise, so parts suffice."""
    return private.local_part(t) if is_dtensor(t) else t


def local_gradient(p: Tensor, g: Tensor) -> Tensor:
    """The part of the gradient that belongs to this process's part of the parameter."""
    if is_dtensor(p) and g.placements != p.placements:  # type: ignore[attr-defined]
        g = g.redistribute(p.device_mesh, p.placements)  # type: ignore[attr-defined]
    return local(g)


def distributed_as(p: Tensor, value: Tensor) -> Tensor:
    """Distribute a whole tensor, as saved by a single process, like its DTensor parameter. Otherwise return `value`."""
    if not is_dtensor(p) or is_dtensor(value):
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value, p.device_mesh, p.placements, src_data_rank=None)  # type: ignore[attr-defined]


def first_element(p: Tensor) -> int:
    """The global index of this part's first element, an input of stochastic rounding; see `not_in_rows`."""
    if not (is_dtensor(p) and p.dim()):
        return 0
    return private.first_row(p) * int(p.shape[1:].numel())


def not_in_rows(p: Tensor) -> str | None:
    """The placements of a DTensor, as text, if its parts are not consecutive rows; else None.

    The result is the same on every rank: if only one rank raised, the others would wait for it.
    """
    if not is_dtensor(p):
        return None
    for size, placement in zip(p.device_mesh.shape, p.placements, strict=True):  # type: ignore[attr-defined]
        dim = getattr(placement, "dim", None)
        if dim is not None and dim % p.dim() != 0 and size > 1:
            return str(p.placements)  # type: ignore[attr-defined]
    return None


def with_norm_of(g: Tensor, norm_type: float) -> Tensor:
    """A plain, dense, non-empty tensor with the norm of a gradient of any kind; the same on every process."""
    if g.is_sparse:
        return _not_empty(g.values())
    if not is_dtensor(g):
        return g
    from torch.distributed.tensor import DTensor, Replicate, Shard

    summed = [Replicate() if place.is_partial() else place for place in g.placements]  # type: ignore[attr-defined]
    part = _not_empty(local(g.redistribute(placements=summed)))  # type: ignore[attr-defined]
    norm = torch.linalg.vector_norm(part, norm_type).reshape(1)
    places = [place if place.is_replicate() else Shard(0) for place in summed]
    return DTensor.from_local(norm, g.device_mesh, places, run_check=False).full_tensor()  # type: ignore[attr-defined]


def on_mesh(value: Tensor, mesh: Any) -> Tensor:
    """A replicated value as a DTensor on the mesh; without a mesh, the value unchanged."""
    if mesh is None:
        return value
    from torch.distributed.tensor import DTensor, Replicate

    return DTensor.from_local(value, mesh, [Replicate()] * mesh.ndim, run_check=False)


def _not_empty(t: Tensor) -> Tensor:
    return t if t.numel() else t.new_zeros(1)  # torch raises for the inf norm of an empty tensor
