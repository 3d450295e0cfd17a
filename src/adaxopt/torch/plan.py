"""Which backend steps which parameters of a group. A plan is reused from step to step until something changes.

A backend is a module with four names:

    impossible(optimizer, group)    why it supports no parameter under these options, as text, or None
    unsuitable(p, entry, g)         why it does not support this parameter, state and kind of gradient, or None
    key(p, entry, g, scaled)        a key that is equal for parameters that are stepped together
    Share(part)                     such parameters and their step: a subclass of `share.Share`

A plan tries the backends of `backends_of` in order, then `foreach_share`, and creates the shares of each. Parameters
that no backend supports, or that a share skips because of their gradient, take the foreach form or operators through
`dispatch.py`, which supports everything. Every option that `impossible` reads must be part of `_options`; otherwise the
plan does not notice when it changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, islice
from operator import attrgetter, is_, itemgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from adaxopt.torch import dispatch, foreach_share, fused_cpu, private, shards, state
from adaxopt.torch.layout import without_memory
from adaxopt.torch.share import Part, Share

if TYPE_CHECKING:
    from adaxopt.torch.engine import Engine

Group = dict[str, Any]
_grad = attrgetter("grad")
_fixed = itemgetter("maximize", "wake", "rounding", "seed", "capturable", "state_dtype", "fused", "foreach")


def _options(group: Mapping[str, Any]) -> tuple[Any, ...]:
    """The options on which the choice of a backend and its tables depend. Other options may change at every step.

    For p and clip_update only the conditions of `fused_cpu` are included, so a schedule of either needs no new plan.
    """
    chosen = _fixed(group), group.get("memory"), group.get("cautious")
    return *chosen, fused_cpu.is_half(group["p"]), group["clip_update"] is None


def backends_of(p: Tensor) -> tuple[Any, ...]:
    """The backends for a parameter's device, in the order in which they are tried."""
    found: tuple[Any, ...] = (fused_cpu,) if p.is_cpu else ()
    if state.kernel_may_serve(p):
        from adaxopt.torch import fused_cuda, fused_rows  # here, because Triton takes a while to import

        found = (fused_cuda, fused_rows, *found)
    return found


class Plan:
    """The shares of one group, and the inputs they were created from."""

    def __init__(self, optimizer: Engine, group: Group, scaled: bool) -> None:
        self.group, self.options, self.state = group, _options(group), optimizer.state
        self.params = list(group["params"])
        self.others: list[Tensor] = []
        """Parameters that no backend supports."""
        self.waiting: list[Tensor] = []
        """Parameters that have no gradient so far, and no state."""
        fresh = [p for p in self.params if not optimizer.state.get(p)]
        chosen: dict[tuple[Any, ...], list[Tensor]] = {}
        able: dict[tuple[Any, ...], list[Any]] = {}
        for p in self.params:
            fused = backends_of(p) if state.may_fuse(group) else ()
            listed = (*fused, foreach_share) if state.readable(p) else ()
            if listed not in able:
                able[listed] = [
                    backend
                    for backend in listed
                    if backend.impossible(optimizer, group) is None
                    and not (backend is fused_cpu and group["capturable"])
                ]
            if p.grad is None and not optimizer.state.get(p):
                (self.waiting if able[listed] else self.others).append(p)
                continue
            self._choose(optimizer, p, able[listed], scaled, chosen)
        self.shares: list[tuple[Share, list[Tensor], bool]] = []
        for (backend, (dtype, *_)), owners in chosen.items():
            entries = [optimizer.state[p] for p in owners]
            plain = all(map(state.is_plain, owners))
            part = Part(
                optimizer.method,
                group,
                owners,
                entries,
                owners if plain else [state.real(p) for p in owners],
                [state.real_state(entry) for entry in entries],
                dtype,
                [optimizer._place(p) for p in owners],
                [_offset(p, group, entry) for p, entry in zip(owners, entries, strict=True)],
                optimizer._inactive,
            )
            try:
                self.shares.append((backend.Share(part), owners, plain))
            except BaseException:
                for p in fresh:  # under capture, new state is in memory that is freed with the graph
                    optimizer.state.pop(p, None)
                raise
        self._remember()

    def _choose(
        self, optimizer: Engine, p: Tensor, asked: list[Any], scaled: bool, chosen: dict[Any, Any]
    ) -> None:
        if not asked:
            self.others.append(p)
            return
        entry = state.real_state(state.ready(optimizer, self.group, p))
        x, g = state.real(p), p.grad
        reasons: list[str] = []
        for backend in asked:
            why = backend.unsuitable(x, entry, g)
            if why is None:
                chosen.setdefault((backend, backend.key(x, entry, g, scaled)), []).append(p)
                if reasons and backend is foreach_share and self.group["fused"]:
                    _warn_fused(optimizer, reasons[0])
                return
            reasons.append(why)
        if g is not None and any(map(without_memory, (x, *entry.values()))):
            # torch's operations would write to freed memory
            raise _freed(p, "its storage, or its state's,")
        self.others.append(p)
        if self.group["fused"]:
            _warn_fused(optimizer, reasons[0])

    # -- validity of a plan ----------------------------------------------------------------------------------------

    def _remember(self) -> None:
        self.owners = [p for _, owners, _ in self.shares for p in owners]
        self.entries = [self.state[p] for p in self.owners]
        self.held = [entry.values() for entry in self.entries]  # views of the dicts, always current
        self.kept = list(chain.from_iterable(self.held))  # references: no other tensor can get their address
        every = list(self.state.values())
        first = (
            next((i for i, entry in enumerate(every) if entry is self.entries[0]), 0) if self.entries else 0
        )
        here = every[first : first + len(self.entries)]
        together = len(here) == len(self.entries) and all(map(is_, here, self.entries))
        self.first = first if together and first <= 2 * len(here) else None
        """The position of the entries in the optimizer's state, if they are consecutive and near its start (reaching
        them iterates over all earlier entries), else None."""
        tensors = all(isinstance(t, Tensor) and t.layout is torch.strided for t in self.kept)
        self.plain = tensors and all(plain for _, _, plain in self.shares)
        self.by_address = self.plain and all(share.by_address for share, _, _ in self.shares)
        self.alike = private.alike((*self.owners, *self.kept)) if self.plain and not self.by_address else None
        self.places = self._places()
        self.grads: list[Any] = []
        self.dense = self.plain and not self.others and not any("row_step" in entry for entry in self.entries)
        self.usual = False

    def holds(self, optimizer: Engine, group: Group, scaled: bool) -> bool:
        """Whether only gradients and hyper-parameters have changed. Collects the gradients for `step`."""
        if self.group is not group or optimizer.state is not self.state or self.options != _options(group):
            return False
        if len(group["params"]) != len(self.params) or not all(map(is_, group["params"], self.params)):
            return False
        if self.waiting and any(p.grad is not None for p in self.waiting):
            return False
        if not self._has_entries():
            return False
        if not self.by_address:
            now = list(chain.from_iterable(self.held))
            if len(now) != len(self.kept) or not all(map(is_, now, self.kept)):
                return False
            if self.alike is not None and not self.alike(*self.owners, *now):
                return False
        try:
            if self._places() != self.places:
                return False
        except (TypeError, RuntimeError):  # a value in the state is not a tensor, or has no address
            return False
        return self._gather(scaled)

    def _has_entries(self) -> bool:
        """Whether the state entries are still the same dicts: `state[p] = {...}` replaces one."""
        if self.first is None or len(self.owners) == 1:
            return all(map(is_, map(self.state.get, self.owners), self.entries))
        first, last = self.first, self.first + len(self.owners)
        return (
            len(self.state) >= last
            and all(map(is_, islice(self.state, first, last), self.owners))
            and all(map(is_, islice(self.state.values(), first, last), self.entries))
        )

    def _places(self) -> list[int]:
        """Addresses of parameters and state: a step must not write to a tensor that was moved or replaced."""
        every = chain(self.owners, chain.from_iterable(self.held))
        if self.plain:
            return list(map(Tensor.data_ptr, every))
        # shares hold views of these tensors, which do not change when the tensor is moved
        local = (shards.local(t) for t in every if isinstance(t, Tensor))
        return [t.data_ptr() for t in local if t.layout is torch.strided]

    def _gather(self, scaled: bool) -> bool:
        """Collect gradients. Returns False if one requires another share.

        Sets `usual` to True if no gradient is of a kind that may raise.
        """
        self.usual = self.dense
        self.grads = []
        for share, owners, plain in self.shares:
            grads: Any = list(map(_grad, owners))
            known = plain and share.alike(*grads)
            if not known and share.moved(grads, scaled):
                return False
            self.usual = self.usual and (known or all(map(_ordinary, grads)))
            self.grads.append((grads if plain else None, known))
        return True

    # -- the step ------------------------------------------------------------------------------------------------

    def step(self, optimizer: Engine, group: Group, scale: Tensor | None, found: Tensor | None) -> None:
        rest = list(self.others)
        gathered, self.grads = self.grads or [(None, False)] * len(self.shares), []
        for (share, owners, plain), (grads, known) in zip(self.shares, gathered, strict=True):
            if share.on_host and _overflow(found):
                continue
            if grads is None:
                grads = list(map(_grad, owners)) if plain else [state.real_gradient(p) for p in owners]
                known = share.by_address and share.alike(*grads)
            for i, why in share.step(group, grads, scale, found, known).items():
                if without_memory(grads[i]):
                    raise _freed(owners[i], "its gradient's storage")
                rest.append(owners[i])
                if why is not None and group["fused"]:
                    _warn_fused(optimizer, why)
        if rest and not _overflow(found):
            dispatch.step(optimizer, group, rest, scale)


def _ordinary(g: Tensor | None) -> bool:
    return g is None or (type(g) is Tensor and g.layout is torch.strided)


def _overflow(found: Tensor | None) -> bool:
    return found is not None and state.readable(found) and bool(found.item())


def _freed(p: Tensor, what: str) -> RuntimeError:
    return RuntimeError(f"a parameter of shape {tuple(p.shape)}: {what} was freed")


def _warn_fused(optimizer: Engine, why: str) -> None:
    optimizer._warn_once(f"fused=True: a parameter takes the foreach path, because {why}")


def _offset(p: Tensor, group: Group, entry: dict[str, Any]) -> int:
    return shards.first_element(p) if state.draws(p, group, entry) else 0
