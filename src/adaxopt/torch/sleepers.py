"""Coordinates whose v is still exactly 0, and the guard that gives a late waker an ordinary first step.

    v <- g^2 where v = 0, before v <- v + k*(g^2 - v)

On a CPU masks are the slow part: torch compares into bytes one by one, and a guard over all of v took two and a half
times as long as the whole fused step. So where few coordinates sleep, their places are listed, and a step looks at
these alone; where many do, the mask is made of floats.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from adaxopt.torch.state import LOW

FEW = 1 / 16
"""The share of a tensor up to which sleepers are listed: beyond it, looking at all of it takes no longer, even where
one of them wakes at every step. A list is at most half a byte per element."""
PIECE = 2**18
"""Elements that are guarded at a time where all are: the temporaries stay small."""
FADES = 0.5
"""From this gain on, the smallest number that v can hold is rounded to 0, and who was awake may sleep again."""


class Sleepers:
    """What is known of the sleepers in one v.

    A list of places is believed while nobody else has written to v. v does not return to 0 by steps whose gain is below
    `FADES`, so a list can only be too long, which costs time and changes nothing. Writes are seen by torch's count of
    changes in place, which `v.data[...] = 0` and numpy's view of v pass by. Zeros that come so, or by
    `torch.set_flush_denormal(True)` from a v below the smallest normal number, are found at the next look (in a tensor
    without sleepers, never). `Engine.restart_memory` forgets everything.
    """

    __slots__ = ("_place", "_v", "_version", "places")

    def __init__(self, v: Tensor, mask: Tensor | None) -> None:
        """`mask` says where v, or its real view, is 0; None where it is not to be listed."""
        self.places: Tensor | None = None
        if mask is not None and mask.count_nonzero().item() <= FEW * mask.numel():
            self.places = mask.reshape(-1).nonzero().squeeze(1)
        self.settle(v, 0.0)

    def settle(self, v: Tensor, k: float) -> None:
        """What is in v now is our own writing, by a step of gain k."""
        if k >= FADES:
            self.places = None
        if self.places is not None:
            self._v, self._place, self._version = weakref.ref(v), v.data_ptr(), v._version

    def check(self, v: Tensor) -> None:
        """Give the list up if v is not as we left it."""
        if self.places is not None and not (
            self._v() is v and self._place == v.data_ptr() and self._version == v._version
        ):
            self.places = None


Guarded = Mapping[int, Sleepers | None]
"""Positions to be guarded, with what is known of each; None: nothing."""


def look(
    guarded: dict[Tensor, Sleepers | None],
    params: list[Tensor],
    vs: list[Tensor],
    times: list[float],
    plain: Callable[[Tensor], Tensor],
) -> list[Sleepers | None]:
    """Which parameters still hold a v of exactly 0, and so need the guard. `guarded` remembers it between steps.

    Looked up after the first step and at powers of two, and only for those that still held one: v does not return
    to 0 while time goes on, so an ordinary net pays for one look.
    """
    found = []
    for p, v, time in zip(params, vs, times, strict=True):
        known = guarded.get(p)
        if time <= 1:
            known = None  # k_1 = 1 wakes everything
            guarded.pop(p, None)
        elif p not in guarded or (known and _power_of_two(int(time) - 1)):
            mask = plain(v) == 0
            known = guarded[p] = Sleepers(v, mask if _listable(v) else None) if bool(mask.any()) else None
        elif known:
            known.check(v)
        found.append(known)
    return found


def wake(
    v: Tensor, g: Tensor, known: Sleepers | None, *, square: bool, x: Tensor | None = None, l2: float = 0.0
) -> None:
    """v <- g^2 where v is 0, in place; the gradient is g + l2*x. Without `square`, g is the square already.

    Known sleepers whose gradients are all 0 sleep on: nothing else is read. Who wakes leaves the list.
    """
    if known is None or known.places is None:
        _wake_anywhere(v, g, square, x, l2)
        return
    first = g.take(known.places)
    if l2:
        assert x is not None
        first.add_(x.take(known.places), alpha=l2)
    if not first.any():
        return
    kept = v.take(known.places)
    now = torch.where(kept == 0, first * first if square else first, kept)
    v.put_(known.places, now)
    known.places = known.places[now == 0]


def _wake_anywhere(v: Tensor, g: Tensor, square: bool, x: Tensor | None, l2: float) -> None:
    if v.numel() > PIECE and all(_flat(t, v) for t in (g, x) if t is not None):
        given = [t for t in (v, g, x) if t is not None]
        for part in zip(*(t.as_strided((t.numel(),), (1,)).split(PIECE) for t in given), strict=True):
            _wake_anywhere(part[0], part[1], square, part[2] if x is not None else None, l2)
        return
    if l2:
        assert x is not None
        g = g.add(x, alpha=l2)
    asleep = v.sign()
    # g where the sign is 0, else 0: the derivative of a clamp, which no inf or NaN of g passes
    torch.ops.aten.hardtanh_backward.grad_input(g, asleep, -0.5, 0.5, grad_input=asleep)
    if square:
        v.addcmul_(asleep, asleep)
    else:
        v.add_(asleep)


def _flat(t: Tensor, v: Tensor) -> bool:
    """Whether both are the same memory order without gaps."""
    return (t.is_contiguous() and v.is_contiguous()) or (t.stride() == v.stride() and dense(t))


def dense(t: Tensor) -> bool:
    """Whether t fills its memory, in whatever order."""
    expected = 1
    for size, stride in sorted(zip(t.shape, t.stride(), strict=True), key=lambda s: s[1]):
        if size > 1:
            if stride != expected:
                return False
            expected *= size
    return True


def served(v: Tensor) -> bool:
    """Whether `wake` is for this tensor: to list sleepers elsewhere, a step would wait for its device."""
    return v.is_cpu and type(v) is Tensor


def _listable(v: Tensor) -> bool:
    """Whether a list stays true: 16 bits are rounded by chance, also to 0, and some tensors count no changes."""
    return served(v) and v.dtype not in LOW and not v.is_inference()


def _power_of_two(t: int) -> bool:
    return t & (t - 1) == 0
