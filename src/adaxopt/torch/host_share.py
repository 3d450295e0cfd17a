"""The common base of the fused CPU and foreach backends: shares whose coefficients are Python floats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from adaxopt import memories
from adaxopt.rule import StepCoefficients
from adaxopt.torch import hyper, private, state, wake_guard
from adaxopt.torch.layout import LOWEST, without_memory
from adaxopt.torch.share import Part, Share


def unsuitable(p: Tensor, entry: Mapping[str, Tensor], g: Tensor | None) -> str | None:
    """Why neither backend supports this parameter and its state (as real tensors), or None."""
    m, v, step = (entry.get(k) for k in ("exp_avg", "exp_avg_sq", "step"))
    if m is None or v is None or step is None:
        return "its state is incomplete"
    if "row_step" in entry or (g is not None and g.is_sparse):
        return "its rows have their own step counts"
    if not step.is_cpu or type(step) is not Tensor:
        return f"its step is on {step.device}"
    return "it has no memory" if any(map(without_memory, (p, *entry.values()))) else None


class HostShare(Share):
    """Parameters of one dtype and device with m and v, and step counts on the host. Equal step counts share a call."""

    on_host = True
    least_gain = 0.0
    """Steps with a smaller gain k are refused, and take another path."""
    unfit: ClassVar[Callable[..., str | None]]
    """Why a dense gradient is not supported, as a function of (x, g, m, v), or None."""
    update: ClassVar[Callable[..., None]]
    """One step in place, with the signature of `foreach.update`. Gradients are not modified."""

    def __init__(self, part: Part) -> None:
        super().__init__(part)
        self.xs = part.xs
        self.name = "float64" if self.xs[0].dtype == torch.float64 else "float32"
        self.steps, self.ms, self.vs = (
            [e[k] for e in part.states] for k in ("step", "exp_avg", "exp_avg_sq")
        )
        self.v_maxes = [e["max_exp_avg_sq"] for e in part.states] if part.method.rule.maximum else []
        self.raw = [entry["exp_avg_sq"] for entry in part.entries]
        self.watched = wake_guard.watched(self.raw)
        self.awake: list[int] | None = None
        """The version counter of every v after the last step, if no coordinate was inactive."""

    def _refuses(self, x: Tensor, g: Tensor, m: Tensor, v: Tensor) -> str | None:
        if g.is_sparse:
            return "its gradient is sparse"
        return "its gradient has no memory" if without_memory(g) else self.unfit(x, g, m, v)

    def step(
        self,
        group: dict[str, Any],
        grads: Sequence[Tensor | None],
        scale: Tensor | None,
        found: Tensor | None,
        known: bool,
    ) -> dict[int, str | None]:
        if not hyper.readable(group):
            return {i: None for i, g in enumerate(grads) if g is not None}
        refused: dict[int, str | None] = {}
        gs: list[Any] = list(grads)
        members: Sequence[int] = range(len(gs))
        if not known or min(map(Tensor.data_ptr, gs)) < LOWEST:  # a low address: perhaps freed memory
            gs = [g if g is None or g.is_sparse else state.resolved(g) for g in gs]
            for i, (x, g, m, v) in enumerate(zip(self.xs, gs, self.ms, self.vs, strict=True)):
                why = None if g is None else self._refuses(x, g, m, v)
                if why is not None:
                    refused[i] = why
            members = [i for i, g in enumerate(gs) if g is not None and i not in refused]
            if len(members) == len(gs):
                self.alike = private.alike(gs)
        if scale is not None:
            gs = [g if g is None or i in refused else state.unscaled(g, scale) for i, g in enumerate(gs)]
        steps = self.steps if len(members) == len(gs) else [self.steps[i] for i in members]
        times = [t.item() + 1.0 for t in steps]
        by_time: dict[float, list[int]] = {}
        if times and times.count(times[0]) == len(times):
            by_time[times[0]] = list(members)
        else:
            for i, time in zip(members, times, strict=True):
                by_time.setdefault(time, []).append(i)
        settings = {**hyper.floats(group), "dtype": self.name}
        for time, some in by_time.items():
            n = self.part.method.numbers(time, settings)
            if n.k < self.least_gain:
                refused |= dict.fromkeys(some)
            else:
                self._update(group, some, gs, time, n)
        return refused

    def _update(
        self, group: dict[str, Any], some: Sequence[int], gs: list[Any], time: float, n: StepCoefficients
    ) -> None:
        whole = len(some) == len(self.xs)

        def pick(items: list[Any]) -> list[Any]:
            return items if whole or not items else [items[i] for i in some]

        private.foreach_add_(pick(self.steps), 1.0)
        raw, wake, inactive = pick(self.raw), [], []
        guard = memories.guarded(group)
        if guard and not (whole and self.awake is not None and self.awake == private.versions(self.watched)):
            part, times = self.part, [time] * len(raw)
            inactive = wake_guard.look(part.inactive, pick(part.owners), raw, times, part.method.rule)
            wake = wake_guard.guarded(inactive)
        xs, ms, vs, v_maxes = map(pick, (self.xs, self.ms, self.vs, self.v_maxes))
        self.update(xs, pick(gs), ms, vs, v_maxes, n, maximize=group["maximize"], wake=wake)
        for v, found in zip(raw, inactive, strict=False):
            if found is not None:
                found.settle(v, n.k)
        quiet = whole and guard and n.k < wake_guard.FADES
        self.awake = private.versions(self.watched) if quiet and not wake and None not in inactive else None
