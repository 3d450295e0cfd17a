"""The wake guard: coordinates whose v is still exactly 0, and an ordinary first step for those activated late.

    v <- g^2 where v = 0, before v <- v + k*(g^2 - v)

An ordinary net has no such coordinate after its first steps, and pays for one look at each v. Where a v has some, a
step guards the pieces that hold one. Masks are the slow part on a CPU (torch compares into bytes one by one), so the
mask is made of floats there.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from adaxopt.rule import Rule
from adaxopt.torch import private, state
from adaxopt.torch.layout import beside

PIECE = 2**18
"""Elements that are guarded at a time: the temporaries stay small, and a piece without a 0 is read once."""
FADES = 0.49999
"""From a gain of one half on, the smallest number that v can hold is rounded to 0, and an active coordinate may become
inactive again; a little less, because a gain is rounded too."""


class Inactive:
    """Whether one v has inactive coordinates (`awake`: none).

    It is believed while nobody else has written to v, and looked up anew then. v does not return to 0 by steps whose
    gain is below `FADES`. Writes are seen by torch's count of changes in place, which `v.data[...] = 0` and numpy's
    view of v pass by. Zeros that come so, or by `torch.set_flush_denormal(True)` from a v below the smallest normal
    number, are found at the next look, if there is one: a tensor that is awake has none. Tensors that count no changes
    (sharded, of inference mode) are believed too, and so is a v of 16 bits, which is rounded stochastically, also to 0.
    """

    __slots__ = ("_place", "_v", "_version", "awake")

    def __init__(self, v: Tensor) -> None:
        real = state.real(v)
        self.awake = int(real.count_nonzero()) == real.numel()
        self._version: int | None = None
        counted = private.versions([v]) if type(v) is Tensor else None
        if counted is not None:
            self._v, self._place, self._version = weakref.ref(v), v.data_ptr(), counted[0]

    def holds(self, v: Tensor) -> bool:
        """Whether v is as we left it."""
        return self._version is None or (
            [self._version] == private.versions([v]) and self._place == v.data_ptr() and self._v() is v
        )

    def settle(self, v: Tensor, k: float) -> None:
        """What is in v now is our own writing, by a step of gain k."""
        if self._version is not None:
            (now,) = private.versions([v]) or (-1,)
            self._version = now if k < FADES else -1  # -1: to be looked up anew


def look(
    kept: dict[Tensor, Inactive],
    params: Sequence[Tensor],
    vs: Sequence[Tensor],
    times: Sequence[float],
    rule: Rule,
) -> list[Inactive | None]:
    """What is known of each v; `kept` remembers it between steps.

    None in the first step of a normalised memory, whose k_1 = 1 takes every square whole.

    Looked up after the first step, after foreign writes, and at powers of two where some were still inactive: v does
    not return to 0 while time goes on, so an ordinary net pays for one look.
    """
    found: list[Inactive | None] = []
    normalised = rule.memory is not None and rule.memory.kind != "unnormalised"
    for p, v, time in zip(params, vs, times, strict=True):
        known = kept.get(p)
        if (time <= 1 and normalised) or v.is_meta:  # a tensor on the meta device has no values to look at
            known = None
            kept.pop(p, None)
        elif known is None or not known.holds(v) or (not known.awake and _power_of_two(int(time) - 1)):
            known = kept[p] = Inactive(v)
        found.append(known)
    return found


def forget(kept: dict[Tensor, Inactive], groups: Sequence[Mapping[str, Any]]) -> None:
    """Let go of parameters that are in no group any more, once there are more than the groups have."""
    if len(kept) > sum(len(group["params"]) for group in groups):
        there = {p for group in groups for p in group["params"]}
        for p in [p for p in kept if p not in there]:
            del kept[p]


def guarded(known: Sequence[Inactive | None]) -> list[int]:
    """The positions that have to be guarded."""
    return [at for at, one in enumerate(known) if one is not None and not one.awake]


def wake(v: Tensor, g: Tensor, *, x: Tensor | None = None, l2: float = 0.0, read: bool = True) -> None:
    """v <- g^2 where v is 0, in place; the gradient is g + l2*x. `read=False` reads no number to the host."""
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
