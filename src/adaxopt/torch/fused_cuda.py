"""The kernel's host side: one launch for all tensors of a bucket, from tables that stay on the device.

A bucket is tensors of one device and the same dtypes. Its tables hold the addresses of parameters and state, written
once; a step looks at gradient addresses and hyper-parameters only. What the device must be told goes through a *slot*
in pinned host memory, which the kernel `advance` copies to the device when the slot's mark is new to it: a step whose
gradients lie where they lay and whose lr is the same tells nothing. A slot is written again only after the device
has said that the last launch given it has read it; a slot that a CUDA graph was captured with is never written again.

Triton is optional: without it this module imports, and `missing()` says why there is no kernel.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Mapping, Sequence
from operator import attrgetter, is_, itemgetter
from typing import Any

import torch
from torch import Tensor

from adaxopt import memory
from adaxopt.rule import TINY, Rule
from adaxopt.torch.rounding import seeds

try:
    from adaxopt.torch import kernel
except ImportError:
    kernel = None  # type: ignore[assignment]

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
LOW = (torch.bfloat16, torch.float16)
STATE = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "compensation")
SLOTS = 32
LANES = 1024
"""Tensors that `advance` works on at a time, at most."""
PROGRAMS = 1 << 17
"""About the most programs of a launch: larger buckets take longer chunks, so that `owners` stays under 512 kB."""

_captured: list[Any] = []
"""Buckets that a CUDA graph may still replay: their tables live as long as the process."""

_data_ptr, _is_contiguous, _stride = Tensor.data_ptr, Tensor.is_contiguous, Tensor.stride
_grad, _dtype = attrgetter("grad"), attrgetter("dtype")


def missing() -> str | None:
    """Why no kernel can run in this install, or None."""
    if kernel is None:
        return "Triton is not installed"
    return "the kernel is written for NVIDIA GPUs" if torch.version.hip is not None else None


def interpreted() -> bool:
    """Whether Triton interprets kernels on the CPU (TRITON_INTERPRET=1), as the tests without a GPU do."""
    return kernel is not None and kernel.INTERPRETED


def unsupported(p: Tensor, g: Tensor | None, state: Mapping[str, Tensor]) -> str | None:
    """Why this parameter cannot be served as flat memory, or None. `g` is None where it is not known yet."""
    if missing() is not None:
        return missing()
    if not (p.is_cuda or (interpreted() and p.is_cpu)):
        return f"it is on {p.device}, not on a CUDA device"
    if p.numel() == 0:
        return "it is empty"
    if p.dtype not in FLOATS:
        return f"its dtype is {p.dtype}"
    if not (p.is_contiguous() or p.permute(_order(p)).is_contiguous()):
        return f"its strides {tuple(p.stride())} leave gaps or overlap"
    for name in STATE:
        if name in state and (state[name].device != p.device or not _same_layout(p, state[name])):
            return f"its {name} is not laid out as itself"
    step = state.get("step")
    if step is not None and (step.device != p.device or step.dtype != torch.float64):
        return f"its step is {step.dtype} on {step.device}: must be torch.float64 beside the parameter"
    return None if g is None else _unfit(p, g)


def _unfit(p: Tensor, g: Tensor) -> str | None:
    """Why a gradient cannot be read as flat memory beside its parameter, or None."""
    if g.layout != torch.strided:
        return f"its gradient is {g.layout}"
    if g.dtype not in FLOATS:
        return f"its gradient's dtype is {g.dtype}"
    if g.device != p.device:
        return f"its gradient is on {g.device}"
    return None if _same_layout(p, g) else f"its gradient's strides are {tuple(g.stride())}, not its own"


def _order(t: Tensor) -> list[int]:
    return sorted(range(t.dim()), key=t.stride, reverse=True)


def _same_layout(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and all(
        n == 1 or s == t for n, s, t in zip(a.shape, a.stride(), b.stride(), strict=True)
    )


def _capturing(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def tuning(total: int) -> tuple[int, int]:
    """(elements, warps) of one program, as measured on an H200 (`benchmarks/gpu.py`)."""
    return (1024, 4) if total < 1 << 22 else (2048, 8)


class Plan:
    """The parameters of a group, on one device or several, that the kernel serves.

    `params` are what has `.grad`, or real local views whose gradients are then given to `step`. `states[i]`
    holds "step" (0-d float64 on the device) and, where the rule keeps them, exp_avg, exp_avg_sq,
    max_exp_avg_sq, compensation. `indices` and `offsets` place a tensor in the optimizer and in its global
    tensor: chance is drawn from them. Parameters must pass `unsupported`.
    """

    def __init__(
        self,
        rule: Rule,
        params: Sequence[Tensor],
        states: Sequence[Mapping[str, Tensor]],
        *,
        maximize: bool,
        wake: bool,
        rounding: str,
        seed: int,
        indices: Sequence[int],
        offsets: Sequence[int],
        capturable: bool,
    ) -> None:
        if rule.mean == "window":
            raise ValueError("mean='window': the kernel keeps no window of gradients; take the foreach path")
        if kernel is None:
            raise RuntimeError("Triton is not installed: take the foreach path")
        if params and _capturing(params[0].device):
            raise RuntimeError(
                "fused step under CUDA graph capture: its tables do not exist yet; take a few steps before capturing"
            )
        self._rule, self._params, self._states = rule, list(params), list(states)
        self._options = (maximize, wake, rounding, capturable)
        self._chance = [(*seeds(seed, i), offset) for i, offset in zip(indices, offsets, strict=True)]
        self._expected = [p.dtype if p.grad is None else p.grad.dtype for p in self._params]
        self._addresses = list(map(_data_ptr, self._params))
        self._held = [
            (itemgetter(name), [state[name] for state in self._states])
            for name in ("step", *STATE)
            if all(name in state for state in self._states)
        ]
        self._sort()

    def _sort(self) -> None:
        groups: dict[tuple[Any, ...], list[int]] = {}
        for i, (p, state) in enumerate(zip(self._params, self._states, strict=True)):
            dtypes = tuple(state[name].dtype if name in state else None for name in STATE)
            groups.setdefault((p.device, p.dtype, self._expected[i], dtypes), []).append(i)
        self.buckets = [Bucket(self, members) for members in groups.values()]

    def valid(self) -> bool:
        """Whether parameters lie where they lay, and the state mappings given hold the tensors that they held."""
        return list(map(_data_ptr, self._params)) == self._addresses and all(
            all(map(is_, map(getter, self._states), tensors)) for getter, tensors in self._held
        )

    def step(
        self,
        hyper: Mapping[str, Any],
        grad_scale: Tensor | None = None,
        found_inf: Tensor | None = None,
        *,
        grads: Sequence[Tensor | None] | None = None,
    ) -> list[int]:
        """Step every parameter that has a gradient. Returns the positions whose gradient cannot be read as flat memory
        of the parameter's layout: they and their times were left alone.

        `hyper` is the param group: lr, betas, eps, p, weight_decay, decay and, where a method has them, reference_lr,
        eps_placement, correct, clip_update. lr and betas may be scalars on the device; they are read there.
        `grads` stands for `p.grad`.
        """
        left: list[int] = []
        for bucket in self.buckets:
            left += bucket.step(hyper, grad_scale, found_inf, grads)
        return self._reconsider(left, hyper, grad_scale, found_inf, grads) if left else left

    def _reconsider(
        self, left: list[int], hyper: Any, scale: Any, found: Any, grads: Sequence[Tensor | None] | None
    ) -> list[int]:
        """Gradients that came in another dtype than expected go to other buckets; the rest goes back."""
        now = [p.grad for p in self._params] if grads is None else list(grads)
        again = {i for i in left if _unfit(self._params[i], now[i]) is None}  # type: ignore[arg-type]
        if again:
            for i in again:
                self._expected[i] = now[i].dtype  # type: ignore[union-attr]
            self._sort()
            only = [g if i in again else None for i, g in enumerate(now)]
            for bucket in self.buckets:
                bucket.step(hyper, scale, found, only)
        return [i for i in left if i not in again]


class Bucket:
    """Tensors of one device and the same dtypes: their tables, and their two compiled kernels."""

    def __init__(self, plan: Plan, members: list[int]) -> None:
        rule, params, states = plan._rule, plan._params, plan._states
        maximize, wake, rounding, self.capturable = plan._options
        # in the plain order of memory first: one quick question is enough for those gradients
        self.positions = sorted(members, key=lambda i: not params[i].is_contiguous())
        self.whole = len(self.positions) == len(params) and self.positions == list(range(len(params)))
        self.params = [params[i] for i in self.positions]
        self.plain = sum(p.is_contiguous() for p in self.params)
        self.strides = [p.stride() for p in self.params[self.plain :]]
        self.dtypes = {plan._expected[members[0]]}
        self.rule = rule
        x, state = self.params[0], states[members[0]]
        self.device = x.device
        m_dtype, v_dtype = (state[name].dtype if name in state else x.dtype for name in STATE[:2])
        double = torch.float64 in (x.dtype, m_dtype, v_dtype)
        self.least = math.sqrt(TINY["float64" if double else "float32"])
        by_chance = x.dtype in LOW and rounding == "stochastic"
        drawn = by_chance or m_dtype in LOW or v_dtype in LOW
        self.block, self.warps = tuning(sum(p.numel() for p in self.params))
        self.options: dict[str, Any] = {
            "KIND": kernel.KINDS[None if rule.memory is None else rule.memory.kind],
            "MEAN": kernel.MEANS[rule.mean],
            "FLOOR": rule.floor,
            "MAXIMIZE": maximize,
            "KEYS": drawn,
            "LANES": min(LANES, max(64, 1 << (len(self.params) - 1).bit_length())),
            "X_TYPE": kernel.TYPES[x.dtype],
            "G_TYPE": kernel.TYPES[plan._expected[members[0]]],
            "M_TYPE": kernel.TYPES[m_dtype],
            "V_TYPE": kernel.TYPES[v_dtype],
            "SECOND": rule.memory is not None,
            "MAXIMUM": rule.maximum,
            "WAKE": wake,
            "ROUNDING": kernel.ROUNDINGS[
                "stochastic" if by_chance else "kahan" if "compensation" in state else "nearest"
            ],
            "BLOCK": self.block,
        }
        self._fill_tables([states[i] for i in self.positions], [plan._chance[i] for i in self.positions])
        n, device = len(self.params), self.device
        self.table = torch.zeros(kernel.HEAD.value + n, dtype=torch.int64, device=device)
        self.numbers = torch.zeros(
            n * kernel.NUMBERS.value, dtype=torch.float64 if double else torch.float32, device=device
        )
        self.keys = torch.zeros(n if drawn else 1, dtype=torch.int32, device=device)
        self.slots = Slots(n, device)
        self.said: tuple[Any, ...] = ()
        self.launches: dict[Any, tuple[Launch, Launch]] = {}

    def _fill_tables(self, states: list[Mapping[str, Tensor]], chance: list[tuple[int, int, int]]) -> None:
        chunk = self.block
        while sum(p.numel() for p in self.params) > PROGRAMS * chunk:
            chunk *= 2
        self.options["BLOCKS"] = chunk // self.block
        rows: list[int] = []
        owners: list[Tensor] = []
        self.programs = 0
        for j, (p, state, (a, b, offset)) in enumerate(zip(self.params, states, chance, strict=True)):
            at = [state[name].data_ptr() if name in state else 0 for name in STATE]
            seed = a | (b - (b >> 31 << 32)) << 32  # two 32-bit numbers in one signed word
            rows += [p.data_ptr(), *at, state["step"].data_ptr(), p.numel(), self.programs, offset, seed]
            chunks = -(-p.numel() // chunk)
            owners.append(torch.full((chunks,), j, dtype=torch.int32))
            self.programs += chunks
        self.rows = torch.tensor(rows, dtype=torch.int64).to(self.device)
        self.owners = torch.cat(owners).to(self.device)

    def _gather(self, grads: Sequence[Tensor | None]) -> tuple[list[int], list[int]]:
        """Gradient addresses (0: leave that tensor alone), and the positions of those that are not flat memory."""
        some: Any = grads
        try:
            addresses = list(map(_data_ptr, some))
            if set(map(_dtype, some)) == self.dtypes:
                if not self.strides:
                    if all(map(_is_contiguous, some)):
                        return addresses, []
                elif (
                    all(map(_is_contiguous, some[: self.plain]))
                    and list(map(_stride, some[self.plain :])) == self.strides
                ):
                    return addresses, []
        except (TypeError, RuntimeError):
            pass  # a gradient is None, or sparse
        addresses, refused = [], []
        for i, p, g in zip(self.positions, self.params, grads, strict=True):
            fits = g is not None and g.dtype in self.dtypes and _unfit(p, g) is None
            addresses.append(g.data_ptr() if fits else 0)  # type: ignore[union-attr]
            if g is not None and not fits:
                refused.append(i)
        return addresses, refused

    def step(
        self,
        hyper: Mapping[str, Any],
        scale: Tensor | None,
        found: Tensor | None,
        grads: Sequence[Tensor | None] | None,
    ) -> list[int]:
        """Look at gradients and hyper-parameters, tell the device what is new, launch twice."""
        if grads is None:
            grads = list(map(_grad, self.params))
        elif not self.whole:
            grads = [grads[i] for i in self.positions]
        addresses, refused = self._gather(grads)
        if not any(addresses):
            return refused
        lr, (b1, b2), reference = hyper["lr"], hyper["betas"], hyper.get("reference_lr")
        scalars = [
            lr if isinstance(lr, Tensor) and lr.device == self.device else None,
            b1 if isinstance(b1, Tensor) and b1.device == self.device else None,
            b2 if isinstance(b2, Tensor) and b2.device == self.device else None,
            scale,
            found,
        ]
        said = (
            float(lr) if scalars[0] is None else 0.0,
            float(b1) if scalars[1] is None else 0.0,
            float(b2) if scalars[2] is None else 0.0,
            float(hyper["eps"]),
            float(hyper["p"]),
            float(hyper["weight_decay"]),
            hyper["decay"],
            None if reference is None else float(reference),
            hyper.get("eps_placement"),
            hyper.get("correct", True),
            hyper.get("clip_update"),
        )
        slots, capturing = self.slots, self.capturable and _capturing(self.device)
        if said != self.said:
            self._read(said)
            slots.tell(self.told, addresses, capturing)
        elif addresses != slots.addresses:
            slots.tell(self.told, addresses, capturing)
        if capturing:
            slots.keep()
            if self not in _captured:
                _captured.append(self)
        if self.device.index is None or torch.cuda.current_device() == self.device.index:
            self._launch(scalars)
        else:
            with torch.cuda.device(self.device):
                self._launch(scalars)
        return refused

    def _read(self, said: tuple[Any, ...]) -> None:
        """The numbers that a slot begins with (see HEAD in `kernel.py`), and which variant of the kernels they need."""
        lr, b1, b2, eps, p, wd, decay, reference, placement, correct, clip = said
        rule, norm = self.rule, self.rule.memory is not None and self.rule.memory.log_norm is not None
        sigma = rule.sigma if correct and norm else 0.0
        tau = (-p if rule.tau == "-p" else float(rule.tau)) if correct and norm else 0.0
        if placement == "plain":
            tau = 0.0
        inner, outer = (0.5, 2 * p) if rule.eps_inside else (p, 1.0)
        fade = wd if decay == "decoupled" else wd / reference if wd and decay == "fully_decoupled" else 0.0
        zeta = memory._power_constant(b2) if rule.memory is not None and rule.memory.kind == "power" else 0.0
        l2 = wd if decay == "l2" else 0.0
        bound = math.inf if clip is None else float(clip)
        self.told = (lr, b1, b2, eps, sigma, tau, l2, fade, inner, outer, bound, self.least, zeta)
        self.variant = {
            "DEBIAS": rule.debias and correct,
            "ROOTS": _roots(inner),
            "OUTER_ROOTS": -1 if outer == 1.0 else _roots(outer),
            "CLIPPED": clip is not None,
        }
        self.variant_key = tuple(self.variant.values())
        self.said = said

    def _launch(self, scalars: list[Tensor | None]) -> None:
        kinds = tuple(None if t is None else t.dtype for t in scalars)
        pair = self.launches.get((kinds, self.variant_key))
        if pair is None:
            self.launches[kinds, self.variant_key] = pair = self._compile(scalars)
        first, second = pair
        slot, mark, ticket = self.slots.use()
        stream = 0 if self.device.type == "cpu" else torch._C._cuda_getCurrentRawStream(self.device.index)
        if first.run is not None and second.run is not None:
            address = self.slots.address(slot)
            others = [0 if t is None else t.data_ptr() for t in scalars]
            first.run(1, 1, 1, stream, *first.head, *first.bare, address, len(self.params), mark, ticket, *others,
                      *first.constants)  # fmt: skip
            second.run(self.programs, 1, 1, stream, *second.head, *second.bare, *second.constants)
        else:
            given = [self.rows if t is None else t for t in scalars]
            first.plainly(1, self.slots.tensor(slot), len(self.params), mark, ticket, *given)
            second.plainly(self.programs)

    def _compile(self, scalars: list[Tensor | None]) -> tuple[Launch, Launch]:
        which = dict(zip(("LR_AT", "B1_AT", "B2_AT", "SCALE_AT", "FOUND_AT"), scalars, strict=True))
        options = {**self.options, **self.variant, **{k: t is not None for k, t in which.items()}}
        tables = (self.rows, self.table, self.numbers, self.keys)
        given = [self.rows if t is None else t for t in scalars]
        example = (self.slots.tensor(0), len(self.params), 1, 1, *given)
        first = Launch(kernel.advance, tables, example, options, max(2, self.options["LANES"] // 64))
        return first, Launch(kernel.update, (*tables, self.owners), (), options, self.warps)


def _roots(p: float) -> int:
    """How many square roots make v**p; 0 where p is none of 1/2, 1/4, 1/8, 1/16."""
    return {0.5: 1, 0.25: 2, 0.125: 3, 0.0625: 4}.get(p, 0)


class Slots:
    """A ring of tables in pinned host memory: HEAD words (the first is the device's answer), then addresses."""

    def __init__(self, count: int, device: torch.device) -> None:
        self.width = kernel.HEAD.value + count
        self.device = device
        self.pack = struct.Struct(f"{kernel.HEAD.value - 1}d{count}q").pack_into
        self.slabs: list[tuple[Tensor, Any]] = []
        self.last: list[int] = []  # per slot, the last launch that was given it
        self.kept: set[int] = set()
        self.current = -1
        self.mark = self.ticket = 0
        self.addresses: list[int] = []
        self._more()

    def _more(self) -> None:
        slab = torch.zeros((SLOTS, self.width), dtype=torch.int64, pin_memory=self.device.type == "cuda")
        self.slabs.append((slab, (ctypes.c_int64 * slab.numel()).from_address(slab.data_ptr())))
        self.last += [0] * SLOTS

    def tell(self, told: tuple[float, ...], addresses: list[int], capturing: bool) -> None:
        """Write what is new where no launch still to run will read."""
        self.current = self._free(capturing)
        self.mark += 1
        slab, place = divmod(self.current, SLOTS)
        self.pack(self.slabs[slab][1], (place * self.width + 1) * 8, *told, *addresses)
        self.addresses = addresses

    def _free(self, capturing: bool) -> int:
        while True:
            for waited in (False, True):
                for k in range(1, len(self.last) + 1):
                    slot = (self.current + k) % len(self.last)
                    slab, place = divmod(slot, SLOTS)
                    read = self.slabs[slab][1][place * self.width] >= self.last[slot]
                    if read and slot != self.current and slot not in self.kept:
                        return slot
                if waited or capturing or len(self.kept) > len(self.last) // 2:
                    break
                torch.cuda.synchronize(self.device)  # the host is a whole ring ahead: let the device catch up
            self._more()

    def use(self) -> tuple[int, int, int]:
        """(slot, mark, ticket) of the next launch."""
        self.ticket += 1
        self.last[self.current] = self.ticket
        return self.current, self.mark, self.ticket

    def keep(self) -> None:
        """The current slot belongs to a graph from now on."""
        self.kept.add(self.current)

    def address(self, slot: int) -> int:
        slab, place = divmod(slot, SLOTS)
        return ctypes.addressof(self.slabs[slab][1]) + place * self.width * 8

    def tensor(self, slot: int) -> Tensor:
        slab, place = divmod(slot, SLOTS)
        return self.slabs[slab][0][place]


class Launch:
    """A kernel compiled for these tensors, launched with bare addresses: a few microseconds instead of Triton's 20.

    `run` is None where Triton interprets, or has changed what a compiled kernel offers: then `plainly` is the way.
    """

    def __init__(
        self,
        function: Any,
        tables: Sequence[Tensor],
        example: Sequence[Any],
        options: dict[str, Any],
        warps: int,
    ) -> None:
        self.function, self.tables = function, tables
        self.how = {} if interpreted() else {"num_warps": warps, "enable_fp_fusion": True}
        names = function.arg_names[len(tables) + len(example) :]
        self.constants = tuple(options[name] for name in names)
        self.bare = tuple(t.data_ptr() for t in tables)
        self.run = None
        if not interpreted():
            named = dict(zip(names, self.constants, strict=True))
            compiled = function.warmup(*tables, *example, **named, grid=(1,), **self.how)
            try:
                compiled = compiled.result() if hasattr(compiled, "result") else compiled
                self.run = compiled.run
                self.head = (compiled.function, compiled.packed_metadata, None, None, None)
            except AttributeError:
                self.run = None

    def plainly(self, programs: int, *arguments: Any) -> None:
        self.function[(programs,)](*self.tables, *arguments, *self.constants, **self.how)
