"""The wake guard: coordinates whose v is still exactly 0, and an ordinary first step for those activated late.

    v <- g^2 where v = 0, before v <- v + k*(g^2 - v)

On a CPU masks are the slow part: torch compares into bytes one by one, and a guard over all of v took two and a half
times as long as the whole fused step. So where few coordinates are inactive, their positions are listed, and a step
reads these alone; where many are, the mask is made of floats.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from adaxopt.torch.layout import beside
from adaxopt.torch.state import LOW

FEW = 1 / 16
"""The share of a tensor up to which inactive coordinates are listed: beyond it, reading all of it takes no longer, even
where one of them becomes active at every step. A list is at most half a byte per element."""
PIECE = 2**18
"""Elements that are guarded at a time where all are: the temporaries stay small."""
FADES = 0.49999
"""From a gain of one half on, the smallest number that v can hold is rounded to 0, and an active coordinate may become
inactive again; a little less, because a gain is rounded too."""


class Inactive:
    """What is known of the inactive coordinates of one v: none (`awake`), their positions, or only that there are some.

    It is believed while nobody else has written to v, and looked up anew then. v does not return to 0 by steps whose
    gain is below `FADES`, so a list can only be too long, which costs time and changes nothing. Writes are seen by
    torch's count of changes in place, which `v.data[...] = 0` and numpy's view of v pass by. Zeros that come so, or by
    `torch.set_flush_denormal(True)` from a v below the smallest normal number, are found at the next look, if there
    is one: a tensor that is awake has none. Tensors that count no changes (sharded, of inference mode) are believed
    too, and so is a v of 16 bits, which is rounded stochastically, also to 0.
    """

    __slots__ = ("_place", "_v", "_version", "awake", "places")

    def __init__(self, p: Tensor, v: Tensor, mask: Tensor) -> None:
        """`mask` says where v, or its real view, is 0."""
        count = mask.count_nonzero().item()
        self.awake = count == 0
        self.places: Tensor | None = None
        if count and count <= FEW * mask.numel() and _listable(p, v):
            self.places = mask.reshape(-1).nonzero().squeeze(1)
        self._version: int | None = None
        if type(v) is Tensor and not v.is_inference():
            self._v, self._place, self._version = weakref.ref(v), v.data_ptr(), v._version

    def holds(self, v: Tensor) -> bool:
        """Whether v is as we left it."""
        return self._version is None or (
            self._version == v._version and self._place == v.data_ptr() and self._v() is v
        )

    def settle(self, v: Tensor, k: float) -> None:
        """What is in v now is our own writing, by a step of gain k."""
        if self._version is not None:
            self._version = v._version if k < FADES else -1  # -1: to be looked up anew


Guarded = Mapping[int, Inactive | None]
"""Positions to be guarded, with what is known of each; None: nothing."""


def look(
    kept: dict[Tensor, Inactive],
    params: list[Tensor],
    vs: list[Tensor],
    times: list[float],
    plain: Callable[[Tensor], Tensor],
    normalised: bool,
) -> list[Inactive | None]:
    """What is known of each v; `kept` remembers it between steps.

    None in the first step of a `normalised` memory, whose k_1 = 1 takes every square whole.

    Looked up after the first step, after foreign writes, and at powers of two where some were still inactive: v does
    not return to 0 while time goes on, so an ordinary net pays for one look.
    """
    found: list[Inactive | None] = []
    for p, v, time in zip(params, vs, times, strict=True):
        known = kept.get(p)
        if (time <= 1 and normalised) or v.is_meta:  # a tensor on the meta device has no values to look at
            known = None
            kept.pop(p, None)
        elif known is None or not known.holds(v) or (not known.awake and _power_of_two(int(time) - 1)):
            known = kept[p] = Inactive(p, v, plain(v) == 0)
        found.append(known)
    return found


def forget(kept: dict[Tensor, Inactive], groups: list[dict[str, Any]]) -> None:
    """Let go of parameters that are in no group any more, once there are more than the groups have."""
    if len(kept) > sum(len(group["params"]) for group in groups):
        there = {p for group in groups for p in group["params"]}
        for p in [p for p in kept if p not in there]:
            del kept[p]


def guarded(known: Sequence[Inactive | None]) -> Guarded:
    """Those of a list that have to be guarded, by position."""
    return {at: one for at, one in enumerate(known) if one is not None and not one.awake}


def wake(v: Tensor, g: Tensor, known: Inactive | None, *, x: Tensor | None = None, l2: float = 0.0) -> None:
    """v <- g^2 where v is 0, in place; the gradient is g + l2*x.

    If the gradients of all listed coordinates are 0, nothing else is read. A coordinate that is activated leaves the
    list.
    """
    if known is None or known.places is None:
        _wake_anywhere(v, g, x, l2)
        return
    first = g.take(known.places)
    if l2:
        assert x is not None
        first.add_(x.take(known.places), alpha=l2)
    if not first.any():
        return
    kept = v.take(known.places)
    woken = torch.where(kept == 0, first * first, 0.0)
    v.put_(known.places, woken, accumulate=True)  # the only way that torch takes for deterministic
    known.places = known.places[(kept == 0) & (woken == 0)]
    known.awake = not len(known.places)


def _wake_anywhere(v: Tensor, g: Tensor, x: Tensor | None, l2: float) -> None:
    if v.numel() > PIECE and all(beside(t, v) for t in (g, x) if t is not None):
        given = [t for t in (v, g, x) if t is not None]
        for part in zip(*(t.as_strided((t.numel(),), (1,)).split(PIECE) for t in given), strict=True):
            _wake_anywhere(part[0], part[1], part[2] if x is not None else None, l2)
        return
    if l2:
        assert x is not None
        g = g.add(x, alpha=l2)
    inactive = v.sign()
    # g where the sign is 0, else 0: the derivative of a clamp, which no inf or NaN of g passes
    torch.ops.aten.hardtanh_backward.grad_input(g, inactive, -0.5, 0.5, grad_input=inactive)
    v.addcmul_(inactive, inactive)


def served(v: Tensor) -> bool:
    """Whether `wake` is for this tensor: to list coordinates elsewhere, a step would wait for its device."""
    return v.is_cpu and type(v) is Tensor


def _listable(p: Tensor, v: Tensor) -> bool:
    """Whether a list stays true. Not where v is stored in fewer bits than it is computed in: who wakes by a small
    gradient may be stored as 0."""
    narrow = torch.finfo(v.dtype).bits < torch.finfo(p.dtype).bits
    return served(v) and v.dtype not in LOW and not narrow and not v.is_inference()


def _power_of_two(t: int) -> bool:
    return t & (t - 1) == 0
