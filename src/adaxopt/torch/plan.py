"""Which backend steps which parameters of a group, remembered from step to step until something changes.

A backend is a module with four names:

    impossible(optimizer, group)    why it can serve no parameter under these options, in words, or None
    unsuitable(p, entry, g)         why it cannot serve this parameter, its state and the kind of its gradient, or None
    key(p, entry, g, scaled)        what parameters must have in common to be stepped together
    Share(part)                     such parameters, and their step: a subclass of `share.Share`

A plan asks the backends of `backends_of` in their order, then `foreach_share`, and gives each its shares. What none
serves, or what a share leaves alone because of its gradient, takes the foreach form or operators through `dispatch.py`,
which serves everything and is not asked. What `impossible` reads of a group must be in `_options`, or a change of it is
not noticed.
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
    """What the choice of a backend and its tables depend on; every other option may change from step to step.

    Of p and clip_update `fused_cpu` asks no more than this: a schedule of either makes no new plan.
    """
    chosen = _fixed(group), group.get("memory"), group.get("cautious")
    return *chosen, fused_cpu.is_half(group["p"]), group["clip_update"] is None


def backends_of(p: Tensor) -> tuple[Any, ...]:
    """The backends for a parameter's device, in the order in which they are asked."""
    found: tuple[Any, ...] = (fused_cpu,) if p.is_cpu else ()
    if state.kernel_may_serve(p):
        from adaxopt.torch import fused_cuda, fused_rows  # here, because Triton takes a while to import

        found = (fused_cuda, fused_rows, *found)
    return found


class Plan:
    """One group's shares, and what they were made from."""

    def __init__(self, optimizer: Engine, group: Group, scaled: bool) -> None:
        self.group, self.options, self.state = group, _options(group), optimizer.state
        self.params = list(group["params"])
        self.others: list[Tensor] = []
        """Parameters that no backend serves."""
        self.waiting: list[Tensor] = []
        """Parameters that have had no gradient yet, and no state."""
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
                for p in fresh:  # under capture it lies in the graph's memory, which goes with the graph
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
                    _say(optimizer, reasons[0])
                return
            reasons.append(why)
        if g is not None and any(map(without_memory, (x, *entry.values()))):
            # torch's operations would write there
            raise _freed(p, "its storage, or its state's,")
        self.others.append(p)
        if self.group["fused"]:
            _say(optimizer, reasons[0])

    # -- staleness: here, and nowhere else -----------------------------------------------------------------------

    def _remember(self) -> None:
        self.owners = [p for _, owners, _ in self.shares for p in owners]
        self.entries = [self.state[p] for p in self.owners]
        self.held = [entry.values() for entry in self.entries]  # they follow the entries
        self.kept = list(chain.from_iterable(self.held))  # alive, so that nothing else can lie where these do
        every = list(self.state.values())
        first = (
            next((i for i, entry in enumerate(every) if entry is self.entries[0]), 0) if self.entries else 0
        )
        here = every[first : first + len(self.entries)]
        together = len(here) == len(self.entries) and all(map(is_, here, self.entries))
        self.first = first if together and first <= 2 * len(here) else None
        """Where the entries lie in the optimizer's state, if one after the other and not far from its beginning: to get
        there, every entry before is passed."""
        tensors = all(isinstance(t, Tensor) and t.layout is torch.strided for t in self.kept)
        self.plain = tensors and all(plain for _, _, plain in self.shares)
        self.by_address = self.plain and all(share.by_address for share, _, _ in self.shares)
        self.alike = private.alike((*self.owners, *self.kept)) if self.plain and not self.by_address else None
        self.places = self._places()
        self.grads: list[Any] = []
        self.dense = self.plain and not self.others and not any("row_step" in entry for entry in self.entries)
        self.usual = False

    def holds(self, optimizer: Engine, group: Group, scaled: bool) -> bool:
        """Whether nothing has changed but gradients and hyper-parameters. Collects the gradients for `step`."""
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
        except (TypeError, RuntimeError):  # what was put into the state is no tensor, or has no address
            return False
        return self._gather(scaled)

    def _has_entries(self) -> bool:
        """Whether the optimizer's state of these parameters is in the same dicts: `state[p] = {...}` replaces one."""
        if self.first is None or len(self.owners) == 1:
            return all(map(is_, map(self.state.get, self.owners), self.entries))
        first, last = self.first, self.first + len(self.owners)
        return (
            len(self.state) >= last
            and all(map(is_, islice(self.state, first, last), self.owners))
            and all(map(is_, islice(self.state.values(), first, last), self.entries))
        )

    def _places(self) -> list[int]:
        """Where parameters and state lie: a step must not go on writing to a tensor that was moved or replaced."""
        every = chain(self.owners, chain.from_iterable(self.held))
        if self.plain:
            return list(map(Tensor.data_ptr, every))
        # a share knows them by views, which would not see them move
        local = (shards.local(t) for t in every if isinstance(t, Tensor))
        return [t.data_ptr() for t in local if t.layout is torch.strided]

    def _gather(self, scaled: bool) -> bool:
        """Collect gradients; False where one belongs into another share. `usual`: none is of a kind to be refused."""
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
                    _say(optimizer, why)
        if rest and not _overflow(found):
            dispatch.step(optimizer, group, rest, scale)


def _ordinary(g: Tensor | None) -> bool:
    return g is None or (type(g) is Tensor and g.layout is torch.strided)


def _overflow(found: Tensor | None) -> bool:
    return found is not None and state.readable(found) and bool(found.item())


def _freed(p: Tensor, what: str) -> RuntimeError:
    return RuntimeError(f"a parameter of shape {tuple(p.shape)}: {what} was freed")


def _say(optimizer: Engine, why: str) -> None:
    optimizer._warn_once(f"fused=True: a parameter takes the foreach path, because {why}")


def _offset(p: Tensor, group: Group, entry: dict[str, Any]) -> int:
    return shards.first_element(p) if state.draws(p, group, entry) else 0
