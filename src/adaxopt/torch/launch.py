"""Launches with low host overhead: changed values are passed through slots, kernels are launched with plain integers.

Values for the device are written to a *slot* in pinned host memory. The kernel `advance` copies the slot to the device
if the slot's mark differs from the last one; a step with unchanged gradient addresses and lr writes no slot. A slot is
rewritten only after the device has confirmed, by its answer in the first word, that the last launch that used the slot
has read it. A slot of a captured CUDA graph is never rewritten. A dropped ring of slots is freed only after the device
has answered every launch that used one of them.

This module can be imported without Triton.
"""

from __future__ import annotations

import ctypes
import struct
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from adaxopt.torch import private

SLOTS = 32
DROPPED = 64
"""The number of dropped rings that may wait for an answer. If there are more, the next ring synchronises and frees
them."""

_Ring = list[tuple[Tensor, Any]]
"""Slots: a row of a tensor, and its words as a ctypes array. The first word is the device's answer."""
_dropped: dict[int, tuple[_Ring, list[int], torch.device]] = {}


def _answered(ring: _Ring, last: list[int]) -> bool:
    """Whether the device has answered the last launch of each slot."""
    return all(words[0] >= ticket for (_, words), ticket in zip(ring, last, strict=True))


def _drop(ring: _Ring, last: list[int], device: torch.device) -> None:
    """Keep the memory of a ring while a launch may still read or answer: a launch by address holds no reference."""
    if not _answered(ring, last):
        _dropped[id(ring)] = (ring, last, device)


def _sweep() -> None:
    """Free dropped rings that have been answered.

    Garbage collection may drop other rings meanwhile (up to Python 3.11 even while a tuple is built from the items), so
    the loop runs over a copy.
    """
    for key, (ring, last, _) in _dropped.copy().items():
        if _answered(ring, last):
            _dropped.pop(key, None)
    if len(_dropped) <= DROPPED or (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()):
        return
    waiting = _dropped.copy()  # a failed launch never answers
    for device in {device for *_, device in waiting.values() if device.type == "cuda"}:
        torch.cuda.synchronize(device)
    for key in waiting:
        _dropped.pop(key, None)


class Slots:
    """A ring of slots in pinned host memory: head words (the first is the device's answer), then addresses."""

    def __init__(self, head: int, count: int, device: torch.device) -> None:
        self.count, self.device = count, device
        self.width = head + count
        self.pack = struct.Struct(f"{head - 1}d{count}q").pack_into
        self.ring: _Ring = []
        self.last: list[int] = []  # per slot, the last launch that used it
        self.kept: set[int] = set()
        self.current = -1
        self.mark = self.ticket = 0
        self.addresses: list[int] = []
        _sweep()
        self._more()
        weakref.finalize(self, _drop, self.ring, self.last, device).atexit = False

    def _more(self) -> None:
        pinned = self.device.type == "cuda"
        slab = torch.zeros((SLOTS, self.width), dtype=torch.int64, device="cpu", pin_memory=pinned)
        words = ctypes.c_int64 * self.width
        self.ring += [(line, words.from_address(line.data_ptr())) for line in slab]
        self.last += [0] * SLOTS

    def tell(self, told: tuple[float, ...], addresses: list[int], capturing: bool) -> None:
        """Write changed values to a slot that no pending launch will read."""
        self.current = self._free(capturing)
        self.mark += 1
        self.pack(self.ring[self.current][1], 8, *told, *addresses)
        self.addresses = addresses

    def _free(self, capturing: bool) -> int:
        while True:
            for waited in (False, True):
                for k in range(1, len(self.last) + 1):
                    slot = (self.current + k) % len(self.last)
                    read = self.ring[slot][1][0] >= self.last[slot]
                    if read and slot != self.current and slot not in self.kept:
                        return slot
                if waited or capturing or len(self.kept) > len(self.last) // 2:
                    break
                torch.cuda.synchronize(self.device)  # the host is a whole ring ahead: let the device catch up
            self._more()

    def use(self) -> tuple[int, int, int, int]:
        """(slot, number of tensors, mark, ticket) of the next launch."""
        self.ticket += 1
        self.last[self.current] = self.ticket
        return self.current, self.count, self.mark, self.ticket

    def keep(self) -> None:
        """Reserve the current slot for a captured graph."""
        self.kept.add(self.current)

    def address(self, slot: int) -> int:
        return ctypes.addressof(self.ring[slot][1])

    def tensor(self, slot: int) -> Tensor:
        return self.ring[slot][0]


class Launch:
    """A kernel compiled for these tables and launched with plain integers, without the overhead of Triton's launcher.

    `run` takes the arguments that Triton's launcher passes to a compiled kernel, with addresses as integers. It is None
    if kernels are interpreted, or if this Triton has another interface, which the first launch detects; `plainly` is
    used then. `how` holds Triton's compile options, and is empty if kernels are interpreted.
    """

    def __init__(
        self,
        function: Any,
        tables: Sequence[Tensor],
        example: Sequence[Any],
        options: dict[str, Any],
        how: dict[str, Any],
    ) -> None:
        self.function, self.tables, self.how = function, tables, how
        names = function.arg_names[len(tables) + len(example) :]
        self.constants = tuple(options[name] for name in names)
        self.run: Any = None
        self.proven = False
        if not how:
            return
        named = dict(zip(names, self.constants, strict=True))
        found = private.bare_launch(function, tables, example, named, self.how)
        if found is not None:
            self.run, self.head, self.compiled = found

    def __call__(self, programs: int, stream: int, *arguments: int) -> bool:
        """Launch the kernel; return whether it was launched. A failure of the first launch disables `run`; later ones
        raise."""
        if self.run is None:
            return False
        try:
            self.run(programs, 1, 1, stream, *self.head, *arguments, *self.constants)
        except Exception:
            if self.proven:
                raise
            self.run = None
            return False
        self.proven = True
        return True

    def plainly(self, programs: int, *arguments: Any) -> None:
        self.function[(programs,)](*self.tables, *arguments, *self.constants, **self.how)
