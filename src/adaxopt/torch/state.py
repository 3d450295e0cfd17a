"""The state of a parameter, under torch's names."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import compress
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from adaxopt.rule import Rule
from adaxopt.torch import codes, private, shards
from adaxopt.torch.rounding import joined

if TYPE_CHECKING:
    from adaxopt.torch.engine import Engine

LOW = (torch.bfloat16, torch.float16)
STATE = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "compensation")
"""State tensors of the parameter's shape."""
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


class Lists(NamedTuple):
    """Parallel lists, one entry per parameter. A list is empty if the method has no such state."""

    params: list[Tensor]
    grads: list[Tensor]
    ms: list[Tensor]
    vs: list[Tensor]
    v_maxes: list[Tensor]
    compensations: list[Tensor]
    windows: list[Tensor]
    steps: list[Tensor]

    @classmethod
    def empty(cls) -> Lists:
        return cls([], [], [], [], [], [], [], [])

    def pick(self, some: Sequence[int]) -> Lists:
        return Lists(*([items[i] for i in some] if items else items for items in self))

    def moment(self, i: int) -> Tensor:
        """A tensor with the dtype of the moments: v, else m, else the parameter."""
        return self.vs[i] if self.vs else self.ms[i] if self.ms else self.params[i]


def kept(rule: Rule) -> list[str]:
    """The names of the moments that a method uses."""
    return list(compress(STATE, (rule.mean != "none", rule.memory is not None, rule.maximum)))


def may_fuse(group: Mapping[str, Any]) -> bool:
    """Whether fused kernels may be used: `fused` is True, or neither `fused` nor `foreach` is set."""
    return bool(group["fused"]) or (group["fused"] is None and group["foreach"] is None)


def kernel_may_serve(p: Tensor) -> bool:
    """Whether `p` is on CUDA, or on the CPU if Triton kernels are interpreted, as in tests without a GPU."""
    return (p.is_cuda or (INTERPRETED and p.is_cpu)) and not _fake(p)


def readable(t: Tensor) -> bool:
    """Whether the host can read a tensor's values: tensors on the meta device and fake tensors have none."""
    return not (t.is_meta or _fake(t))


def _fake(t: Tensor) -> bool:
    return private.is_fake(shards.local(t))


def on_device(p: Tensor, group: Mapping[str, Any]) -> bool:
    """Whether the step count is stored on the parameter's device (a captured step, the CUDA kernel) or on the host."""
    if group["capturable"] or not (kernel_may_serve(p) and may_fuse(group)):
        return bool(group["capturable"])
    from adaxopt.torch import fused_cuda  # here, because Triton takes a while to import

    return fused_cuda.missing() is None


def step_device(p: Tensor, group: Mapping[str, Any]) -> torch.device:
    return p.device if on_device(p, group) else torch.device("cpu")


def moment_dtype(p: Tensor, group: Mapping[str, Any]) -> torch.dtype:
    """`state_dtype` if given, else float32 for 16-bit parameters; complex state for complex parameters."""
    asked: torch.dtype | None = group["state_dtype"]
    if p.is_complex():
        if asked is torch.float64:
            return torch.complex128
        return p.dtype if p.dtype in (torch.complex64, torch.complex128) else torch.complex64
    if asked is not None and not (asked is torch.uint8 and cuts_groups(p)):
        return asked
    return torch.float32 if p.dtype in LOW else p.dtype


def cuts_groups(p: Tensor) -> bool:
    """Whether shards of a DTensor may split a group of 8-bit codes. Its state then has the default dtype."""
    return shards.is_dtensor(p) and (p.dim() < 2 or p.shape[1:].numel() % codes.GROUP != 0)


def coded_zeros(p: Tensor, name: str) -> dict[str, Tensor]:
    """Codes and exponents of zeros.

    For a DTensor both have its placements. Exponents have one row per row of the parameter, so that shards hold whole
    groups and a checkpoint can be loaded with another number of processes.
    """
    if not shards.is_dtensor(p):
        return codes.create(p, name)
    from torch.distributed.tensor import zeros

    rows = (p.shape[0], p.shape[1:].numel() // codes.GROUP)
    mesh, places = p.device_mesh, p.placements  # type: ignore[attr-defined]
    scales = zeros(rows, dtype=torch.uint8, device_mesh=mesh, placements=places)
    return {
        name: torch.zeros_like(p, dtype=codes.kind_of(name), requires_grad=False),
        codes.scale_name(name): scales,
    }


def expanded(entry: Mapping[str, Any], name: str) -> Tensor:
    """A moment in floating point, decoded if it is 8-bit state. DTensors stay DTensors."""
    t: Tensor = entry[name]
    if not (shards.is_dtensor(t) and codes.is_coded(t)):
        return codes.expanded(entry, name)
    from torch.distributed.tensor import DTensor

    value = codes.decode(shards.local(t), shards.local(entry[codes.scale_name(name)]))
    mesh, places = t.device_mesh, t.placements  # type: ignore[attr-defined]
    return DTensor.from_local(value, mesh, places, run_check=False, shape=t.shape, stride=t.stride())


def create(p: Tensor, group: Mapping[str, Any], rule: Rule) -> dict[str, Tensor]:
    """The initial state of a parameter.

    `step` is float64, because a float32 counter stops at 16,777,216. `exp_avg_sq` holds the normalised v.
    """
    dtype = moment_dtype(p, group)

    def zeros(dtype: torch.dtype) -> Tensor:
        return torch.zeros_like(p, dtype=dtype, memory_format=torch.preserve_format)

    state = {"step": torch.zeros((), dtype=torch.float64, device=step_device(p, group))}
    for name in kept(rule):
        state.update(coded_zeros(p, name) if dtype is torch.uint8 else {name: zeros(dtype)})
    if rule.mean == "window":
        state["window"] = torch.zeros((group["window"], *p.shape), dtype=dtype, device=p.device)
    rest = rest_dtype(p, group["rounding"])
    if rest is not None:
        state["compensation"] = zeros(rest)
    return state


def ready(optimizer: Engine, group: Mapping[str, Any], p: Tensor) -> dict[str, Any]:
    """A parameter's state, created if missing, with the compensation that the group's `rounding` needs."""
    entry: dict[str, Any] = optimizer.state[p]
    if len(entry) == 0:
        entry.update(create(p, group, optimizer.method.rule))
    _keep_compensation(p, group, entry)
    return entry


def rest_dtype(p: Tensor, rounding: str) -> torch.dtype | None:
    """The dtype of the rounding compensation of a 16-bit parameter: its own dtype or int8; None if there is none."""
    if rounding == "kahan" and p.dtype in LOW:
        return p.dtype
    return torch.int8 if rounding == "24bit" and p.dtype == torch.bfloat16 else None


def full_value(p: Tensor, entry: Mapping[str, Any]) -> Tensor:
    """A parameter in float32 (float64 if the parameter is float64), including its rounding compensation."""
    x, rest = real(p.detach()), entry.get("compensation")
    if rest is None or p.dtype not in LOW:
        return x if x.dtype == torch.float64 else x.float()
    return with_rest(x, real(rest), torch.float32)


def with_rest(x: Tensor, rest: Tensor, dtype: torch.dtype) -> Tensor:
    """16-bit values plus their rounding compensation."""
    return joined(x, rest).to(dtype) if rest.dtype == torch.int8 else x.to(dtype) + rest.to(dtype)


def _keep_compensation(p: Tensor, group: Mapping[str, Any], entry: dict[str, Tensor]) -> None:
    """Create, cast or delete the compensation, as `rounding` requires."""
    rest, needed = entry.get("compensation"), rest_dtype(p, group["rounding"])
    if needed is None:
        if rest is not None:
            del entry["compensation"]
    elif rest is None or (rest.dtype != needed and torch.int8 in (rest.dtype, needed)):
        entry["compensation"] = torch.zeros_like(p, dtype=needed)
    elif rest.dtype != needed:
        entry["compensation"] = rest.to(needed)


def draws(p: Tensor, group: Mapping[str, Any], entry: Mapping[str, Any]) -> bool:
    """Whether a step of this parameter rounds stochastically: the parameter itself, or 16-bit or 8-bit moments."""
    if rounds_parameter(p, group):
        return True
    kept = [entry[name].dtype for name in STATE[:3] if isinstance(entry.get(name), Tensor)]
    return any(dtype in (*LOW, torch.int8, torch.uint8) for dtype in kept or [moment_dtype(p, group)])


def rounds_parameter(p: Tensor, group: Mapping[str, Any]) -> bool:
    return p.dtype in LOW and group["rounding"] in ("stochastic", "24bit")


def in_rows(optimizer: Engine, p: Tensor) -> bool:
    """Whether each row of this parameter has its own step count: its gradient is sparse, or was in an earlier step."""
    g = p.grad
    return g is not None and (g.is_sparse or "row_step" in optimizer.state.get(p, ()))


def resolved(g: Tensor) -> Tensor:
    """Resolve lazy conjugation and negation of a gradient."""
    if torch.compiler.is_compiling():  # the compiler resolves them itself, and cannot trace is_conj or is_neg
        return g
    return g.resolve_conj().resolve_neg() if g.is_conj() or g.is_neg() else g


def pairs(t: Tensor) -> Tensor:
    """A complex tensor as pairs of real numbers; any other tensor unchanged."""
    if not t.is_complex() or t.layout is not torch.strided:
        return t
    return torch.view_as_real(t if torch.compiler.is_compiling() else t.resolve_conj())


def real(t: Tensor) -> Tensor:
    """The local part of a tensor as a real view of the same memory.

    torch raises for a lazily conjugated tensor. Resolving it here would make a copy, and the copy would be stepped.
    """
    t = shards.local(t)
    return torch.view_as_real(t) if t.is_complex() and t.layout is torch.strided else t


def real_state(entry: Mapping[str, Any]) -> dict[str, Tensor]:
    return {k: real(v) for k, v in entry.items() if isinstance(v, Tensor)}  # others may store non-tensors


def real_gradient(p: Tensor) -> Tensor | None:
    return None if p.grad is None else real(resolved(shards.local_gradient(p, p.grad)))


def is_plain(p: Tensor) -> bool:
    """Whether a parameter is real and not a DTensor, so that `real` returns it unchanged."""
    return not p.is_complex() and (type(p) is Parameter or not shards.is_dtensor(p))


def real_lists(taken: Lists) -> tuple[list[Tensor], ...]:
    """Parameters, gradients, m, v and maxima as local real tensors. If all are plain, the lists are returned as is."""
    params, grads = taken.params, taken.grads
    if all(map(is_plain, params)) and (torch.compiler.is_compiling() or not any(map(Tensor.is_neg, grads))):
        return params, grads, taken.ms, taken.vs, taken.v_maxes
    gs = [resolved(shards.local_gradient(p, g)) for p, g in zip(params, grads, strict=True)]
    return tuple([real(t) for t in items] for items in (params, gs, taken.ms, taken.vs, taken.v_maxes))


def unscaled(g: Tensor, scale: Tensor) -> Tensor:
    """The gradient divided by GradScaler's scale, in the dtype of the step: in float16 it would underflow again."""
    return (g.float() if g.dtype in LOW else g) / scale.to(g.device)


def refuse_broken(names: AbstractSet[str], p: Tensor, entry: Mapping[str, Any]) -> None:
    """Raise ValueError if a state entry is incomplete or inconsistent. `names` are the required keys."""
    missing = [] if names <= entry.keys() else sorted(names - entry.keys())
    wrong = f"no {missing[0]} in its state: must have all or nothing" if missing else wrong_codes(entry)
    if not missing and not isinstance(entry["step"], Tensor):
        wrong = f"step={entry['step']!r} in its state: must be a tensor of one element"
    if wrong is not None:
        raise ValueError(
            f"a parameter of shape {tuple(p.shape)} has {wrong}; clear the entry to reset its state"
        )


def wrong_codes(entry: Mapping[str, Any]) -> str | None:
    """An error text for invalid 8-bit moments, or None if they are valid."""
    coded = [name for name in codes.CODED if name in entry and codes.is_coded(entry[name])]
    if coded and coded != [name for name in codes.CODED if name in entry]:
        return f"only {coded} in 8 bits: must be all moments or none"
    for name in coded:
        value: Tensor = entry[name]
        scale: Any = entry.get(codes.scale_name(name))
        if not codes.fits(name, shards.local(value), shards.local(scale)):
            shown = f"{scale.dtype} of shape {tuple(scale.shape)}" if isinstance(scale, Tensor) else scale
            return (
                f"{name!r} in {value.dtype} and {codes.scale_name(name)!r} as {shown}: must be {codes.kind_of(name)} "
                f"and torch.uint8 of shape ({codes.groups(value.numel())},)"
            )
    return None
