"""Host side of the CUDA kernel: two launches for all tensors of a share, with tables that stay on the device.

A share has tensors of one device and the same dtypes. Its tables hold the addresses of parameters and state; they are
written once, and `Plan.holds` checks that they are still valid. A step reads gradient addresses and hyper-parameters,
and sends changed values to the device (`launch.py`).

Triton is optional: without it this module can be imported, and `missing()` says why there is no kernel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import is_, itemgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from adaxopt import memories, memory
from adaxopt.counter_rng import seeds
from adaxopt.rule import TINY
from adaxopt.torch import codes, private
from adaxopt.torch.launch import Launch, Slots
from adaxopt.torch.layout import FLOATS, LOWEST, dense, flat, freed, same_layout
from adaxopt.torch.share import Part
from adaxopt.torch.share import Share as _Share
from adaxopt.torch.state import LOW, STATE

try:
    from adaxopt.torch import kernel, kernel_cautious, kernel_numbers
except ImportError:
    kernel = kernel_cautious = kernel_numbers = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from adaxopt.torch.engine import Engine

HYPER = ("lr", "betas", "eps", "p", "weight_decay", "decay", "reference_lr",
         "eps_placement", "correct", "clip_update")  # fmt: skip
LANES = 1024
"""The largest number of tensors that `advance` processes at a time."""
PROGRAMS = 400_000
"""Approximate limit on the programs of a launch. Larger shares use longer chunks, so `owners` stays under 800 kB."""

ROOTS = {0.5: 1, 0.25: 2, 0.125: 3, 0.0625: 4}
"""The number of square roots that compute v**p. For any other p, v**p is computed with exp2 and log2."""

REGISTERS = 72
"""Registers per thread for 8-bit state. Without a limit the compiler uses 128, for the blocks at the end of tensors."""

AHEAD = 256
"""Prefetch distance for 8-bit state, in programs: about a microsecond."""

_captured: dict[tuple[int, int], tuple[Any, ...]] = {}
"""Tables, slots, kernels and device scalars that a captured CUDA graph may read; kept until the process ends."""


def missing() -> str | None:
    """Why the kernel is not available in this installation, or None."""
    if kernel is None:
        return "Triton is not installed"
    return "the kernel is written for NVIDIA GPUs" if torch.version.hip is not None else None


def _prefetches(device: torch.device) -> bool:
    """Whether the device has the prefetch instruction: compute capability 9.0 or newer."""
    return not interpreted() and torch.cuda.get_device_capability(device)[0] >= 9


def interpreted() -> bool:
    """Whether Triton interprets kernels on the CPU (TRITON_INTERPRET=1), as the tests without a GPU do."""
    return kernel is not None and kernel.INTERPRETED


def compiled(warps: int, **more: int) -> dict[str, Any]:
    """Triton's compile options; empty if kernels are interpreted."""
    return {} if interpreted() else {"num_warps": warps, "enable_fp_fusion": True, **more}


def impossible(optimizer: Engine, group: Mapping[str, Any]) -> str | None:
    """Why the kernel supports no parameter of a group with these options, or None."""
    if optimizer.method.rule.mean == "window":
        return "the CUDA kernel keeps no window of gradients"
    if group.get("cautious") and (group["state_dtype"] is torch.uint8 or group["rounding"] == "24bit"):
        return "the CUDA kernel does not support cautious=True with 8-bit state or 24-bit weights"
    return missing() if optimizer._project is None else "the CUDA kernel does not project"


def unsuitable(p: Tensor, entry: Mapping[str, Tensor], g: Tensor | None) -> str | None:
    """Why this parameter and its state (as real tensors) are not supported by the dense kernel, or None."""
    if "row_step" in entry or (g is not None and g.is_sparse):
        return "its rows have their own step counts"
    return unserved(p, entry)


def key(p: Tensor, entry: Mapping[str, Tensor], g: Tensor | None, scaled: bool) -> tuple[Any, ...]:
    """The key that tensors of one table have in common: dtypes (that of gradients first) and device."""
    dtypes = tuple(entry[name].dtype if name in entry else None for name in STATE)
    return p.dtype if g is None else g.dtype.to_real(), p.dtype, dtypes, p.device


def unserved(p: Tensor, state: Mapping[str, Tensor]) -> str | None:
    if missing() is not None:
        return missing()
    if not (p.is_cuda or (interpreted() and p.is_cpu)):
        return f"it is on {p.device}, not on a CUDA device"
    if p.numel() == 0:
        return "it is empty"
    if p.dtype not in FLOATS:
        return f"its dtype is {p.dtype}"
    if not dense(p):
        return f"its strides {tuple(p.stride())} leave gaps or overlap"
    if freed(p):
        return "its memory was freed"
    for name, t in ((name, state[name]) for name in STATE if name in state):
        if t.device != p.device or not (t.dtype in FLOATS or codes.is_coded(t)):
            return f"its {name} is {t.dtype} on {t.device}"
        if freed(t) or not same_layout(p, t):
            return f"its {name} has another memory layout than the parameter, or was freed"
    v, v_max = (state.get(name) for name in STATE[1:3])
    if v is not None and v_max is not None and v.dtype != v_max.dtype:  # the kernel reads both as one type
        return f"its max_exp_avg_sq is {v_max.dtype}, its exp_avg_sq {v.dtype}"
    coded = [name for name in codes.CODED if codes.is_coded(state.get(name))]
    if coded and p.dtype == torch.float64:
        return "it is torch.float64, and the kernel steps 8-bit state in float32"
    for scale in (state[codes.scale_name(name)] for name in coded):
        if scale.device != p.device or not scale.is_contiguous() or freed(scale):
            return f"exponents of its state are on {scale.device}, have gaps, or were freed"
    step = state.get("step")
    if step is not None and (step.device != p.device or step.dtype != torch.float64):
        return f"its step is {step.dtype} on {step.device}: must be torch.float64 beside the parameter"
    return "its step was freed" if step is not None and freed(step) else None


def _capturing(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def _beside(t: Tensor | None, device: torch.device) -> Tensor | None:
    """A scalar on `device`, copied if needed: GradScaler keeps its scalars on one device."""
    return t if t is None or t.device == device else t.to(device, non_blocking=True)


def tuning(widest: int) -> tuple[int, int, int, int]:
    """(block size, warps, blocks per program, elements that a thread reads at once).

    Measured on an H200 with one tensor of 2**28 elements (`records/gpu_step_tuning.json`): within 1% of the best
    configuration. `widest` is the size of the largest dtype in bytes; a thread reads 16 bytes of that dtype at once.
    """
    return 1024, 4, 1, 16 // widest


class Share(_Share):
    """Tensors of one device and the same dtypes, with their tables and compiled kernels."""

    by_address = True

    def __init__(self, part: Part) -> None:
        super().__init__(part)
        if _capturing(part.xs[0].device):
            raise RuntimeError(
                "fused step under CUDA graph capture: its tables do not exist yet; take a few steps before capturing"
            )
        group, rounding = part.group, part.group["rounding"]
        rule, cautious = part.method.rule.using(group.get("memory")), bool(group.get("cautious"))
        self.capturable = group["capturable"]
        self.params, self.dtype = part.xs, part.dtype
        self.layouts = [(p.shape, p.stride()) for p in self.params]
        self.rule = rule
        x, state = self.params[0], part.states[0]
        self.device = x.device
        m_dtype, v_dtype = (state[name].dtype if name in state else x.dtype for name in STATE[:2])
        double = torch.float64 in (x.dtype, m_dtype, v_dtype)
        self.least = math.sqrt(TINY["float64" if double else "float32"])
        if x.dtype not in LOW or (rounding in ("kahan", "24bit") and "compensation" not in state):
            rounding = "nearest"
        coded = v_dtype == codes.SECOND
        drawn = coded or rounding in ("stochastic", "24bit") or m_dtype in LOW or v_dtype in LOW
        types = (x.dtype, self.dtype, m_dtype, v_dtype)
        self.block, self.warps, self.blocks, each = tuning(max(t.itemsize for t in types))
        self.options: dict[str, Any] = {
            "KIND": kernel_numbers.KINDS[None if rule.memory is None else rule.memory.kind],
            "MEAN": kernel_numbers.MEANS[rule.mean],
            "FLOOR": rule.floor,
            "MAXIMIZE": group["maximize"],
            "KEYS": drawn,
            "LANES": min(LANES, max(64, 1 << (len(self.params) - 1).bit_length())),
            **{f"{name}_TYPE": kernel_numbers.TYPES[t] for name, t in zip("XGMV", types, strict=True)},
            "CODED": coded,
            "EACH": each,
            "AHEAD": AHEAD if coded and _prefetches(self.device) else 0,
            "SECOND": rule.memory is not None,
            "MAXIMUM": rule.maximum,
            "WAKE": memories.guarded(group),
            "CAUTIOUS": cautious,
            "ROUNDING": kernel_numbers.ROUNDINGS[rounding],
            "BLOCK": self.block,
        }
        drawn_from = zip(part.indices, part.offsets, strict=True)
        self._fill_tables(part.states, [(*seeds(group["seed"], i), offset) for i, offset in drawn_from])
        n, device = len(self.params), self.device
        self.table = torch.zeros(kernel_numbers.HEAD.value + n, dtype=torch.int64, device=device)
        self.numbers = torch.zeros(
            n * kernel_numbers.NUMBERS.value, dtype=torch.float64 if double else torch.float32, device=device
        )
        self.keys = torch.zeros(n if drawn else 1, dtype=torch.int32, device=device)
        self.slots = Slots(kernel_numbers.HEAD.value, n, device)
        self.raw: tuple[Any, ...] = ()
        self.told: tuple[float, ...] = ()
        self.agreeing = torch.zeros(n, dtype=torch.int64, device=device)
        self.agree: Launch | None = None
        self.launches: dict[Any, tuple[Launch, Launch]] = {}
        self.stream = self._stream()

    def _fill_tables(self, states: Sequence[Mapping[str, Tensor]], keys: list[tuple[int, int, int]]) -> None:
        chunk = self.block * self.blocks
        while sum(p.numel() for p in self.params) > PROGRAMS * chunk:
            chunk *= 2
        self.options["BLOCKS"] = chunk // self.block
        rows: list[int] = []
        owners: list[Tensor] = []
        small = torch.int16 if len(self.params) < 1 << 15 else torch.int32
        self.programs = 0
        for j, (p, state, (a, b, offset)) in enumerate(zip(self.params, states, keys, strict=True)):
            at = [state[name].data_ptr() if name in state else 0 for name in STATE]
            seed = a | (b - (b >> 31 << 32)) << 32  # two 32-bit numbers in one signed word
            scales = [state[name].data_ptr() if name in state else 0 for name in codes.SCALES]
            step = state["step"].data_ptr()
            rows += [p.data_ptr(), *at, step, p.numel(), self.programs, offset, seed, *scales]
            chunks = -(-p.numel() // chunk)
            owners.append(torch.full((chunks,), j, dtype=small, device="cpu"))
            self.programs += chunks
        self.rows = torch.tensor(rows, dtype=torch.int64, device="cpu").to(self.device)
        self.owners = torch.cat(owners).to(self.device)

    def moved(self, grads: Sequence[Tensor | None], scaled: bool) -> bool:
        """Whether a gradient has another dtype, which requires another kernel."""
        return any(g is not None and g.dtype.to_real() != self.dtype for g in grads)

    def step(
        self,
        group: Mapping[str, Any],
        grads: Sequence[Tensor | None],
        scale: Tensor | None,
        found: Tensor | None,
        known: bool,
    ) -> dict[int, str | None]:
        """Check gradients, send changed values to the device, and launch the kernels.

        Returns the indices of parameters whose gradient does not have the parameter's dense layout. These parameters
        and their step counts are not changed. lr and betas may be scalars on the device; the kernel reads them there.
        """
        refused: dict[int, str | None] = {}
        addresses = list(map(Tensor.data_ptr, grads)) if known else []  # type: ignore[arg-type]
        if not known or min(addresses) < LOWEST:
            addresses = []
            for i, (p, layout, g) in enumerate(zip(self.params, self.layouts, grads, strict=True)):
                fits = g is not None and g.dtype == self.dtype and flat(p, layout, g)
                addresses.append(g.data_ptr() if fits else 0)  # type: ignore[union-attr]
                if g is not None and not fits:
                    refused[i] = "its gradient has another memory layout"
            if all(addresses):
                self.alike = private.alike(grads)  # type: ignore[arg-type]
        if self._tell(group, addresses):
            self._launch(scale, found)
        return refused

    def _tell(self, hyper: Mapping[str, Any], addresses: list[int]) -> bool:
        """Send changed hyper-parameters and addresses to the device. Returns whether any tensor has a gradient."""
        slots, capturing = self.slots, self.capturable and _capturing(self.device)
        raw = self.get_hyper(hyper) if self.raw and self.steady else ()
        known = bool(raw) and all(map(is_, raw, self.raw))
        if not known or addresses != slots.addresses:
            if not any(addresses):
                return False
            if (
                raw
                and type(raw[0]) is float
                and self.scalars[0] is None
                and all(map(is_, raw[1:], self.raw[1:]))
            ):
                self.raw, self.told = raw, (raw[0], *self.told[1:])  # a schedule changes lr only
            elif not known:
                self._read(hyper)
            slots.tell(self.told, addresses, capturing)
        if capturing:
            slots.keep()
            _captured[id(slots), id(self.scalars)] = (*self._tables(), slots, self.launches, self.scalars)
        return True

    def _read(self, hyper: Mapping[str, Any]) -> None:
        """Compute the head of a slot (HEAD in `kernel_numbers.py`) and the compile-time variant of the kernels."""
        rule, lr, (b1, b2), p = self.rule, hyper["lr"], hyper["betas"], float(hyper["p"])
        power = rule.memory is not None and rule.memory.kind == "power"  # its constant comes from the host
        scalars = [
            t if isinstance(t, Tensor) and t.device == self.device else None
            for t in (lr, b1, None if power else b2)
        ]
        here = zip(("lr", "betas[0]", "betas[1]"), (lr, b1, b2), scalars, strict=True)
        others = ("eps", "weight_decay", "reference_lr", "clip_update")
        read = {**{name: t for name, t, s in here if s is None}, **{name: hyper.get(name) for name in others}}
        tensors = [name for name, t in read.items() if isinstance(t, Tensor)]
        if tensors and _capturing(self.device):
            raise RuntimeError(
                f"{tensors[0]} as a tensor under CUDA graph capture: the host passes its value to the kernel; give a "
                "float"
            )
        self.get_hyper = itemgetter(*(name for name in HYPER if name in hyper))
        self.raw, self.scalars = self.get_hyper(hyper), scalars
        self.usual: tuple[Launch, Launch, list[Tensor | None], tuple[int, ...]] | None = None
        """The launches of a step in which all values come from the host and GradScaler is not used."""
        # tensors and lists may change in place: values that the device does not read are read here at every step
        self.steady = isinstance(hyper["betas"], tuple) and not tensors
        numbers = [
            0.0 if s is not None else float(t) for t, s in zip((lr, b1, b2), self.scalars, strict=True)
        ]
        correct, clip, wd = hyper.get("correct", True), hyper.get("clip_update"), float(hyper["weight_decay"])
        text = hyper.get("memory")
        least, last = (0.0, math.inf) if text is None else memories.read(text)[1:]
        bounded = least > 0 or last < math.inf
        normed = rule.memory is not None and rule.memory.log_norm is not None and correct and not bounded
        tau = -p if rule.tau == "-p" else float(rule.tau)
        inner, outer = (0.5, 2 * p) if rule.eps_inside else (p, 1.0)
        decay = wd if hyper["decay"] == "decoupled" else 0.0
        if hyper["decay"] == "fully_decoupled" and wd:
            decay = wd / float(hyper["reference_lr"])
        self.told = (
            *numbers,
            float(hyper["eps"]),
            rule.sigma if normed else 0.0,
            tau if normed and hyper.get("eps_placement") != "plain" else 0.0,
            wd if hyper["decay"] == "l2" else 0.0,
            decay,
            inner,
            outer,
            math.inf if clip is None else float(clip),
            self.least,
            memory.power_constant(numbers[2]) if power else 0.0,
            least,
            last,
        )
        self.variant = {
            "DEBIAS": rule.debias and correct,
            "ROOTS": ROOTS.get(inner, 0),
            "OUTER_ROOTS": -1 if outer == 1.0 else ROOTS.get(outer, 0),
            "CLIPPED": clip is not None,
            "DECAYED": not self.options["CODED"] or (hyper["decay"] == "l2" and wd != 0.0),
        }
        self.kind = (*self.variant.values(), *(None if t is None else t.dtype for t in self.scalars))

    def _launch(self, scale: Tensor | None, found: Tensor | None) -> None:
        if self.device.index is None or private.current_device() == self.device.index:
            self._launch_here(scale, found)
        else:
            with torch.cuda.device(self.device):
                self._launch_here(scale, found)

    def _launch_here(self, scale: Tensor | None, found: Tensor | None) -> None:
        """Launch `advance`, then the kernels that use its coefficients."""
        usual = scale is None and found is None
        if usual and self.usual is not None:
            first, second, scalars, bare = self.usual
        else:
            scalars = [*self.scalars, _beside(scale, self.device), _beside(found, self.device)]
            key = (self.kind, scale is None, found is None)
            if key not in self.launches:
                self.launches[key] = self._compile(scalars)
            first, second = self.launches[key]
            bare = tuple(0 if t is None else t.data_ptr() for t in scalars)
            if usual and not any(bare):
                self.usual = first, second, scalars, bare
        slot, *ticket = self.slots.use()
        stream = self._stream()
        if stream != self.stream:
            self._record_stream(stream)
        if not first(1, stream, self.slots.address(slot), *ticket, *bare):
            given = (self.rows if t is None else t for t in scalars)
            first.plainly(1, self.slots.tensor(slot), *ticket, *given)
        if self.options["CAUTIOUS"]:
            self._count(stream)
        self._use(second, stream, scalars, bare)

    def _count(self, stream: int) -> None:
        """Count the coordinates of every tensor that a cautious step updates."""
        self.agreeing.zero_()
        if self.agree is None:
            tables = (self.rows, self.table, self.numbers, self.owners, self.agreeing)
            self.agree = Launch(kernel_cautious.agree, tables, (), self.options, compiled(self.warps))
        if not self.agree(self.programs, stream):
            self.agree.plainly(self.programs)

    def _use(self, update: Launch, stream: int, scalars: list[Tensor | None], bare: tuple[int, ...]) -> None:
        if not update(self.programs, stream):
            update.plainly(self.programs)

    def _stream(self) -> int:
        at = self.device.index
        return 0 if at is None else private.raw_stream(at)

    def _tables(self) -> tuple[Tensor, ...]:
        return self.rows, self.table, self.numbers, self.keys, self.owners, self.agreeing

    def _record_stream(self, stream: int) -> None:
        """Keep the tables' memory from being reused before a launch on another stream has read it.

        Launches pass addresses only, so torch's allocator does not know of them. Tables of a captured graph are kept
        until the process ends.
        """
        if not _capturing(self.device):
            for t in self._tables():
                t.record_stream(torch.cuda.current_stream(self.device))
            self.stream = stream

    def _compile(self, scalars: list[Tensor | None]) -> tuple[Launch, Launch]:
        which = dict(zip(("LR_AT", "B1_AT", "B2_AT", "SCALE_AT", "FOUND_AT"), scalars, strict=True))
        options = {**self.options, **self.variant, **{k: t is not None for k, t in which.items()}}
        options["SIGNED"] = not options["CODED"] or options["MAXIMIZE"] or options["SCALE_AT"]
        tables = (self.rows, self.table, self.numbers, self.keys)
        given = tuple(self.rows if t is None else t for t in scalars)
        example = (self.slots.tensor(0), len(self.params), 1, 1, *given)
        first = Launch(kernel.advance, tables, example, options, compiled(max(2, options["LANES"] // 64)))
        return first, self._compile_use(tables, given, options)

    def _compile_use(
        self, tables: tuple[Tensor, ...], scalars: tuple[Any, ...], options: dict[str, Any]
    ) -> Launch:
        both = (*tables, self.owners, self.agreeing)
        how = compiled(self.warps, maxnreg=REGISTERS) if options["CODED"] else compiled(self.warps)
        return Launch(kernel.update, both, (), options, how)
