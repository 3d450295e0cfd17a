"""The wake guard: an ordinary first step for coordinates whose first gradient comes late.

    v <- g^2 where v = 0, before v <- v + k*(g^2 - v)

A coordinate with v exactly 0 is called inactive. Most networks have none after the first steps; the cost is then one
check of each v. If a v has inactive coordinates, a step guards only the pieces that contain one. Boolean masks are slow
on a CPU (torch compares into bytes one by one), so the CPU path uses a floating-point mask.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from adaxopt.rule import Rule
from adaxopt.torch import private, shards, state
from adaxopt.torch.layout import beside

PIECE = 2**18
"""Number of elements guarded at a time. Temporaries stay small, and a piece without a 0 is read only once."""
FADES = 0.49999
"""A step with a gain of 1/2 or more can round the smallest positive v to 0, so that an active coordinate becomes
inactive again. The value is slightly below 1/2, because the gain is rounded too."""


class Inactive:
    """Whether one v has inactive coordinates (`awake` is True if it has none).

    The result is cached until a modification of v by other code is detected. Steps with a gain below `FADES` do not set
    v to 0. Modifications are detected by torch's version counter, which `v.data[...] = 0` and writes through a numpy
    view do not change. Zeros written in these ways, or produced by `torch.set_flush_denormal(True)` from a subnormal v,
    are found only by the next check, if there is one; a tensor that is awake has none. The cached result is also used
    for tensors without a version counter (inference mode) and for 16-bit v, which stochastic rounding may set to 0.
    A DTensor and its local part have a counter each: operations on one do not change that of the other.
    """

    __slots__ = ("_place", "_v", "_versions", "awake")

    def __init__(self, v: Tensor) -> None:
        real, counted = state.real(v), watched([v])
        self.awake = int(real.count_nonzero()) == real.numel()
        self._versions = private.versions(counted) if type(counted[-1]) is Tensor else None
        if self._versions is not None:
            self._v, self._place = weakref.ref(v), counted[-1].data_ptr()

    def holds(self, v: Tensor) -> bool:
        """Whether v has not been modified since the last step."""
        if self._versions is None:
            return True
        counted = watched([v])
        here = self._place == counted[-1].data_ptr() and self._v() is v
        return here and self._versions == private.versions(counted)

    def settle(self, v: Tensor, k: float) -> None:
        """Record that v was written by a step of gain k."""
        if self._versions is not None:
            now = private.versions(watched([v])) if k < FADES else None
            self._versions = now or []  # without versions: check again


def watched(vs: Sequence[Tensor]) -> list[Tensor]:
    """The tensors whose version counters show a modification of v: each v and, for a DTensor, also its local part."""
    return [t for v in vs for t in ((v,) if type(v) is Tensor else dict.fromkeys((v, shards.local(v))))]


def look(
    kept: dict[Tensor, Inactive],
    params: Sequence[Tensor],
    vs: Sequence[Tensor],
    times: Sequence[float],
    rule: Rule,
) -> list[Inactive | None]:
    """Whether each v has inactive coordinates; `kept` is the cache between steps.

    An entry is None in the first step of a normalised memory, where k_1 = 1 makes the guard unnecessary.

    v is checked after the first step, after modifications by other code, and, while some coordinates are inactive, at
    powers of two. v does not return to 0 during training, so most networks need one check.
    """
    found: list[Inactive | None] = []
    normalised = rule.memory is not None and rule.memory.kind != "unnormalised"
    for p, v, time in zip(params, vs, times, strict=True):
        known = kept.get(p)
        if (time <= 1 and normalised) or v.is_meta:  # a tensor on the meta device has no values
            known = None
            kept.pop(p, None)
        elif known is None or not known.holds(v) or (not known.awake and _power_of_two(int(time) - 1)):
            known = kept[p] = Inactive(v)
        found.append(known)
    return found


def forget(kept: dict[Tensor, Inactive], groups: Sequence[Mapping[str, Any]]) -> None:
    """Drop cached entries of parameters that are no longer in a group, if there are more entries than parameters."""
    if len(kept) > sum(len(group["params"]) for group in groups):
        there = {p for group in groups for p in group["params"]}
        for p in [p for p in kept if p not in there]:
            del kept[p]


def guarded(known: Sequence[Inactive | None]) -> list[int]:
    """The indices of tensors that have inactive coordinates."""
    return [at for at, one in enumerate(known) if one is not None and not one.awake]


def wake(v: Tensor, g: Tensor, *, x: Tensor | None = None, l2: float = 0.0, read: bool = True) -> None:
    """v <- g^2 where v is 0, in place; the gradient is g + l2*x. `read=False` avoids reading a value on the host."""
    if x is not None and not l2:
        x = None
    if torch.compiler.is_compiling():
        v.copy_(torch.where(v == 0, g * g, v))
        return
    if not v.is_cpu or type(v) is not Tensor:
        torch.where(v == 0, g * g, v, out=v)
        return
    given = [t for t in (v, g, x) if t is not None]
    if v.numel() > PIECE and all(beside(t, v) for t in given):
        parts = zip(*(t.as_strided((t.numel(),), (1,)).split(PIECE) for t in given), strict=True)
    else:
        parts = zip(*([t] for t in given), strict=True)
    for part in parts:
        if part[0].numel() and not (read and part[0].amin() > 0):  # a 0, or a NaN
            first = private.where_zero(part[1] if x is None else part[1].add(part[2], alpha=l2), part[0])
            part[0].addcmul_(first, first)


def _power_of_two(t: int) -> bool:
    return t & (t - 1) == 0
