"""Which parameters of a group the CUDA kernel serves, remembered from step to step.

A plan is made once and asked at every step whether it still fits; what it cannot serve (no state yet, a layout that is
not flat memory) is handed back to the engine, sparse gradients after the rows' own kernel (`fused_rows`) was asked.
"""

from __future__ import annotations

from itertools import chain
from operator import is_, itemgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from adaxopt.torch import shards, state

if TYPE_CHECKING:
    from adaxopt.torch.engine import Engine


class GroupPlan:
    """The kernel's share of one group: a launch table per device, and the parameters it leaves alone."""

    def __init__(self, optimizer: Engine, group: dict[str, Any]) -> None:
        from adaxopt.torch import fused_cuda

        self.group = group
        self.params = list(group["params"])
        reason = self._impossible(optimizer, fused_cuda)
        if reason is not None and group["fused"]:
            raise ValueError(f"fused=True: {reason}; leave fused=None to take the fastest path there is")
        by_device: dict[torch.device, list[int]] = {}
        self.others: list[Tensor] = []
        self.waiting: list[Tensor] = []
        for i, p in enumerate(self.params):
            if reason is not None or not state.kernel_may_serve(p):
                self.others.append(p)
                continue
            if p.grad is None and not optimizer.state.get(p):
                self.waiting.append(p)
                continue
            entry = optimizer.state[p]
            if len(entry) == 0:
                entry.update(state.create(p, group, optimizer.method.rule))
            state.keep_compensation(p, group, entry)
            why = "row_step" in entry or fused_cuda.unsupported(_real(p), None, _real_state(entry))
            if why:
                self.others.append(p)
                if group["fused"] and isinstance(why, str):
                    optimizer._warn_once(f"fused=True: a parameter takes the foreach path, because {why}")
            else:
                by_device.setdefault(p.device, []).append(i)
        self.plans = []
        for members in by_device.values():
            params = [self.params[i] for i in members]
            plain = all(state.local(p) is p and not p.is_complex() for p in params)
            kernel = fused_cuda.Plan(
                optimizer.method.rule.using(group.get("memory")),
                [_real(p) for p in params] if not plain else params,
                [_real_state(optimizer.state[p]) for p in params],
                maximize=group["maximize"],
                wake=group["wake"],
                rounding=group["rounding"],
                seed=group["seed"],
                indices=[optimizer._place(p) for p in params],
                offsets=[_offset(p, group, optimizer.state[p]) for p in params],
                capturable=group["capturable"],
                cautious=bool(group.get("cautious")),
            )
            self.plans.append((params, plain, kernel))
        self.options = _options(group)
        self.state = optimizer.state
        self.entries = [optimizer.state[p] for params, _, _ in self.plans for p in params]
        self.held = [entry.values() for entry in self.entries]  # they follow the entries
        self.kept = list(chain.from_iterable(self.held))  # alive, so that nothing else can lie where these do
        self.plain = all(plain for _, plain, _ in self.plans) and all(
            isinstance(t, Tensor) for t in self.kept
        )
        self.places = self._places()
        self.rows: Any = None

    @staticmethod
    def _impossible(optimizer: Engine, fused_cuda: Any) -> str | None:
        if optimizer.method.rule.mean == "window":
            return "the CUDA kernel keeps no window of gradients"
        if optimizer._project is not None:
            return "the CUDA kernel does not project"
        missing: str | None = fused_cuda.missing()
        return missing

    def fits(self, optimizer: Engine, group: dict[str, Any]) -> bool:
        """Whether nothing has changed but gradients and hyper-parameters."""
        if self.group is not group or self.options != _options(group):
            return False
        if len(group["params"]) != len(self.params) or not all(map(is_, group["params"], self.params)):
            return False
        if self.waiting and any(p.grad is not None for p in self.waiting):
            return False
        if optimizer.state is not self.state:
            return False
        if len(self.entries) == 1 and self.state.get(self.plans[0][0][0]) is not self.entries[0]:
            return False  # an entry of many that was replaced is seen by `Engine.step`, once for all groups
        if not self.plain:
            now = list(chain.from_iterable(self.held))
            if len(now) != len(self.kept) or not all(map(is_, now, self.kept)):
                return False
        try:
            return self._places() == self.places
        except (TypeError, RuntimeError):  # what was put into the state is no tensor, or has no address
            return False

    def _places(self) -> list[int]:
        """Where parameters and state lie: a step must not go on writing to a tensor that was moved or replaced."""
        mine = (params for params, _, _ in self.plans)
        every = chain(*mine, chain.from_iterable(self.held))
        if self.plain:
            return list(map(Tensor.data_ptr, every))
        # the kernel knows them by views, which would not see them move
        return [state.local(t).data_ptr() for t in every if isinstance(t, Tensor)]

    def step(self, optimizer: Engine, group: dict[str, Any], scale: Any, found_inf: Any) -> list[Tensor]:
        """Step the kernel's share; return the parameters that still need a step."""
        rest = list(self.others)
        for params, plain, kernel in self.plans:
            grads = None if plain else [_real_gradient(p) for p in params]
            for i in kernel.step(group, scale, found_inf, grads=grads):
                rest.append(params[i])
        if group["fused"] and len(rest) > len(self.others):
            why = "its gradient is not laid out as itself"
            optimizer._warn_once(f"fused=True: a parameter takes the foreach path, because {why}")
        return rest

    def step_rows(
        self, optimizer: Engine, group: dict[str, Any], rest: list[Tensor], scale: Any, found_inf: Any
    ) -> list[Tensor]:
        """Step rows of sparse gradients where their kernel may; return what still needs a step."""
        from adaxopt.torch import fused_rows

        if not fused_rows.ROWS or group.get("cautious"):
            return rest
        if self.rows is None:
            self.rows = fused_rows.GroupRows()
        left: list[Tensor] = self.rows.step(optimizer, group, rest, scale, found_inf)
        return left


def _offset(p: Tensor, group: dict[str, Any], entry: dict[str, Tensor]) -> int:
    return shards.first_element(p) if shards.draws(p, group, entry) else 0


_fixed = itemgetter("maximize", "wake", "rounding", "seed", "capturable", "state_dtype")


def _options(group: dict[str, Any]) -> tuple[Any, ...]:
    """What the tables and kernels of a group were made for."""
    return _fixed(group), group.get("memory"), group.get("cautious")


def _real(t: Tensor) -> Tensor:
    t = state.local(t)
    return torch.view_as_real(t) if t.is_complex() and t.layout is torch.strided else t


def _real_state(entry: dict[str, Tensor]) -> dict[str, Tensor]:
    return {k: _real(v) for k, v in entry.items() if isinstance(v, Tensor)}  # others may keep their own there


def _real_gradient(p: Tensor) -> Tensor | None:
    return None if p.grad is None else _real(state.local_gradient(p, p.grad))
