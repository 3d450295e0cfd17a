"""How a step reaches the device cheaply: what is new goes through slots, kernels are launched with bare numbers.

What the device must be told lies in a *slot* in pinned host memory, which the kernel `advance` copies to the
device when the slot's mark is new to it: a step whose gradients lie where they lay and whose lr is the same
tells nothing. A slot is written again only after the device has said that the last launch given it has read
it; a slot that a CUDA graph was captured with is never written again. A ring that is dropped goes back to the
host's allocator when the device has answered every launch that was given a slot of it, not before.

Importing this module needs no Triton.
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
"""Dropped rings that may wait for an answer; with more, the next ring waits for the device and lets them go."""

_Ring = list[tuple[Tensor, Any]]
"""Slots: a line of memory, and its words as numbers of Python. The first word is the device's answer."""
_dropped: dict[int, tuple[_Ring, list[int], torch.device]] = {}


def _answered(ring: _Ring, last: list[int]) -> bool:
    """Whether the device has read the last launch given to each slot."""
    return all(words[0] >= ticket for (_, words), ticket in zip(ring, last, strict=True))


def _drop(ring: _Ring, last: list[int], device: torch.device) -> None:
    """A launch by bare address does not keep its memory: hold it while one may still read or answer there."""
    if not _answered(ring, last):
        _dropped[id(ring)] = (ring, last, device)


def _sweep() -> None:
    """Let go of dropped rings that have been answered.

    A collection may drop others meanwhile, up to Python 3.11 even while a tuple is made of the items: hence `copy`.
    """
    for key, (ring, last, _) in _dropped.copy().items():
        if _answered(ring, last):
            _dropped.pop(key, None)
    if len(_dropped) <= DROPPED or (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()):
        return
    waiting = _dropped.copy()  # a launch that failed never answers
    for device in {device for *_, device in waiting.values() if device.type == "cuda"}:
        torch.cuda.synchronize(device)
    for key in waiting:
        _dropped.pop(key, None)


class Slots:
    """A ring of tables in pinned host memory: head words (the first is the device's answer), then addresses."""

    def __init__(self, head: int, count: int, device: torch.device) -> None:
        self.count, self.device = count, device
        self.width = head + count
        self.pack = struct.Struct(f"{head - 1}d{count}q").pack_into
        self.ring: _Ring = []
        self.last: list[int] = []  # per slot, the last launch that was given it
        self.kept: set[int] = set()
        self.current = -1
        self.mark = self.ticket = 0
        self.addresses: list[int] = []
        _sweep()
        self._more()
        weakref.finalize(self, _drop, self.ring, self.last, device).atexit = False

    def _more(self) -> None:
        slab = torch.zeros((SLOTS, self.width), dtype=torch.int64, pin_memory=self.device.type == "cuda")
        words = ctypes.c_int64 * self.width
        self.ring += [(line, words.from_address(line.data_ptr())) for line in slab]
        self.last += [0] * SLOTS

    def tell(self, told: tuple[float, ...], addresses: list[int], capturing: bool) -> None:
        """Write what is new where no launch still to run will read."""
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
        """(slot, tensors, mark, ticket) of the next launch."""
        self.ticket += 1
        self.last[self.current] = self.ticket
        return self.current, self.count, self.mark, self.ticket

    def keep(self) -> None:
        """The current slot belongs to a graph from now on."""
        self.kept.add(self.current)

    def address(self, slot: int) -> int:
        return ctypes.addressof(self.ring[slot][1])

    def tensor(self, slot: int) -> Tensor:
        return self.ring[slot][0]


class Launch:
    """A kernel compiled for these tables and launched with bare numbers, past what Triton's own call does each time.

    `run` takes what Triton's own launch passes to a compiled kernel, addresses as integers. It is None where kernels
    are interpreted, or where Triton has changed what a compiled kernel offers or takes, as its first use shows: then
    `plainly` is the way. `how` are Triton's options of compilation, none where kernels are interpreted.
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
        """Whether the kernel was launched. A failure at the first use is remembered; a later one is an error."""
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
