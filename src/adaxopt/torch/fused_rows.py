"""The host side of the rows' kernel: which sparse gradients it serves, and its launches.

A step of rows is `operators.row_step` in one launch a parameter (`kernel_rows.py`), after one launch of `advance` for
all parameters of the same dtypes and width: tables, hyper-parameters, device scalars and GradScaler's numbers are those
of the dense kernel (`fused_cuda.py`). What it does not serve is handed back: gradients of several sparse dimensions,
dense ones of a parameter that lives in rows, empty ones, complex or sharded parameters, layouts with gaps, rows of more
than `WIDEST` elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from adaxopt.torch import state
from adaxopt.torch.fused_cuda import Bucket, Plan, interpreted, unsupported
from adaxopt.torch.launch import Launch
from adaxopt.torch.layout import FLOATS
from adaxopt.torch.operators import count_rows

try:
    from adaxopt.torch import kernel_rows
except ImportError:
    kernel_rows = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from adaxopt.torch.engine import Engine

ROWS = True
"""Whether sparse gradients take the kernel where dense ones do; False leaves them to torch operations, as a comparison
(`benchmarks/sparse.py`, tests)."""

WIDEST = 1 << 16
"""Elements of a row, at most: one program steps a whole row, and a wider one would keep the device waiting for it."""

Named = tuple[Tensor, Tensor]
"""A coalesced gradient: the rows that it names, and a line of values for each."""


def cut(width: int) -> tuple[int, int]:
    """(elements of a block, warps) for rows of so many elements: whole blocks where a power of two of at least 128
    divides the width, else one block with a mask up to 1024; 8 elements a thread, as the dense kernel has them.

    >>> cut(512), cut(768), cut(300), cut(1)
    ((512, 2), (256, 1), (512, 2), (32, 1))
    """
    whole = min(width & -width, 1024)
    block = whole if whole >= 128 else min(1024, max(32, 1 << (width - 1).bit_length()))
    return block, max(1, block // 256)


def unserved(p: Tensor, entry: Mapping[str, Any]) -> str | None:
    """Why this parameter's rows cannot be served, whatever its gradient is, or None."""
    if state.local(p) is not p:
        return "it is sharded"
    if p.dim() == 0 or not p.is_contiguous():
        return "its rows do not lie one after the other"
    if p.numel() > WIDEST * p.shape[0]:
        return f"its rows have more than {WIDEST} elements"
    times = entry["row_step"]
    if (times.dtype, times.device, times.shape) != (torch.float64, p.device, p.shape[:1]):
        return f"its row_step is {times.dtype} of shape {tuple(times.shape)} on {times.device}"
    if not times.is_contiguous():
        return "its row_step has gaps"
    return unsupported(p, None, {k: t for k, t in entry.items() if isinstance(t, Tensor)})


def readable(p: Tensor) -> bool:
    """Whether the kernel can read this parameter's gradient of now."""
    g = p.grad
    if g is None or g.layout != torch.sparse_coo or g.sparse_dim() != 1 or g._nnz() == 0:
        return False
    return g.dtype in FLOATS and g.device == p.device and g.shape == p.shape


def named(g: Tensor, scaled: bool) -> Named:
    """What a gradient names, every row once. 16 bits that are still to be unscaled may overflow: in 32."""
    if scaled and g.dtype in state.LOW and not g.is_coalesced():
        g = g.float()
    g = g.coalesce()
    values = g._values().resolve_neg().contiguous()
    return g._indices().contiguous(), values if values.data_ptr() % 16 == 0 else values.clone()


class GroupRows:
    """The parameters of a group whose rows the kernel serves, remembered from step to step."""

    def __init__(self) -> None:
        self.places: dict[Tensor, int] = {}
        self.entries: list[dict[str, Tensor]] = []
        self.held: list[Any] = []
        self.plan: RowPlan | None = None
        self.memory: str | None = None

    def step(
        self, optimizer: Engine, group: Mapping[str, Any], among: list[Tensor], scale: Any, found: Any
    ) -> list[Tensor]:
        """Step those of `among` that the kernel can serve; return the rest."""
        mine = {p: None for p in among if readable(p) and self._servable(optimizer, p)}
        if not mine:
            return among
        if self.memory != group.get("memory") or not self._fits(optimizer, mine):
            self._make(optimizer, group, mine)
        grads: list[Named | None] = [None] * len(self.places)
        for p, place in self.places.items():
            if p in mine:
                grads[place] = named(p.grad, scale is not None)  # type: ignore[arg-type]
        assert self.plan is not None
        self.plan.step_rows(group, scale, found, grads)
        return [p for p in among if not (p in mine and p in self.places)]

    def _servable(self, optimizer: Engine, p: Tensor) -> bool:
        if p in self.places:  # asked again when something has moved
            return True
        entry = optimizer.state[p]
        if not entry or not state.kernel_may_serve(p):
            return False
        count_rows(p, entry, 1)
        return unserved(p, entry) is None

    def _fits(self, optimizer: Engine, mine: Iterable[Tensor]) -> bool:
        """Whether tables know these parameters, and all that they know lies where it lay."""
        return (
            all(p in self.places for p in mine)
            and all(optimizer.state.get(p) is e for p, e in zip(self.places, self.entries, strict=True))
            and self._look() == self.held
        )

    def _look(self) -> list[Any]:
        found: list[Any] = []
        for p, entry in zip(self.places, self.entries, strict=True):
            found += (p.data_ptr(), p.dtype, p.shape, p.stride())
            found += ((t.data_ptr(), t.dtype) if isinstance(t, Tensor) else t for t in entry.values())
        return found

    def _make(self, optimizer: Engine, group: Mapping[str, Any], mine: Iterable[Tensor]) -> None:
        """Tables for these and for those that were served before."""
        asked = {**self.places, **dict.fromkeys(mine)}
        params = [p for p in group["params"] if p in asked]
        params = [
            p
            for p in params
            if "row_step" in optimizer.state.get(p, ()) and unserved(p, optimizer.state[p]) is None
        ]
        self.entries = [optimizer.state[p] for p in params]
        for p, entry in zip(params, self.entries, strict=True):
            state.keep_compensation(p, group, entry)
        self.memory = group.get("memory")
        self.plan = RowPlan(
            optimizer.method.rule.using(self.memory),
            params,
            self.entries,
            maximize=group["maximize"],
            wake=group["wake"],
            rounding=group["rounding"],
            seed=group["seed"],
            indices=[optimizer._place(p) for p in params],
            offsets=[0] * len(params),
            capturable=False,
        )
        self.places = {p: i for i, p in enumerate(params)}
        self.held = self._look()


class RowPlan(Plan):
    """`fused_cuda.Plan` for rows: `states[i]` holds row_step too, and a bucket has one width."""

    buckets: list[RowBucket]  # type: ignore[assignment]

    def _sort(self) -> None:
        groups: dict[tuple[Any, ...], list[int]] = {}
        for i, (p, entry) in enumerate(zip(self._params, self._states, strict=True)):
            dtypes = tuple(entry[name].dtype if name in entry else None for name in state.STATE)
            key = (p.device, p.dtype, self._expected[i], dtypes, p.shape[1:].numel())
            groups.setdefault(key, []).append(i)
        self.buckets = [RowBucket(self, members) for members in groups.values()]

    def step_rows(
        self,
        hyper: Mapping[str, Any],
        scale: Tensor | None,
        found: Tensor | None,
        grads: Sequence[Named | None],
    ) -> None:
        """Step every parameter that has a gradient. One of another dtype than the last moves to another bucket."""
        for i, pair in enumerate(grads):
            if pair is not None and pair[1].dtype != self._expected[i]:
                self._expected[i] = pair[1].dtype
                self.buckets = []
        if not self.buckets:
            self._sort()
        for bucket in self.buckets:
            bucket.step_rows(hyper, scale, found, [grads[i] for i in bucket.positions])


class RowBucket(Bucket):
    """`fused_cuda.Bucket` whose numbers are used row by row: `advance`, then a launch for every gradient."""

    def __init__(self, plan: RowPlan, members: list[int]) -> None:
        super().__init__(plan, members)
        states = [plan._states[i] for i in members]
        width = self.params[0].shape[1:].numel()
        self.times = [entry["row_step"] for entry in states]
        self.alone = False
        block, self.warps = cut(width)
        flat = [t for entry in states for name, t in entry.items() if name in state.STATE]
        aligned = all(t.data_ptr() % 16 == 0 for t in (*self.params, *flat))
        whole = width % block == 0 and width % self.options["EACH"] == 0
        self.options.update(WIDTH=width, BLOCK=block, MASKED=not (whole and aligned))
        self.grads: Sequence[Named | None] = ()

    def step_rows(
        self,
        hyper: Mapping[str, Any],
        scale: Tensor | None,
        found: Tensor | None,
        grads: Sequence[Named | None],
    ) -> None:
        """The device is told which parameters have a gradient (1 or 0); where it lies, every launch says itself."""
        self.grads = grads
        if self._tell(hyper, [int(pair is not None) for pair in grads]):
            self._launch(scale, found)
        self.grads = ()

    def _use(self, update: Launch, stream: int, scalars: list[Tensor | None], bare: tuple[int, ...]) -> None:
        for owner, (pair, times) in enumerate(zip(self.grads, self.times, strict=True)):
            if pair is not None:
                rows, values = pair
                told = (owner, rows.data_ptr(), values.data_ptr(), times.data_ptr())
                if not update(len(values), stream, *told, *bare[:4]):
                    tensors = (self.rows if t is None else t for t in scalars[:4])
                    update.plainly(len(values), *told, *tensors)

    def _compile_use(
        self, tables: tuple[Tensor, ...], scalars: tuple[Any, ...], options: dict[str, Any]
    ) -> Launch:
        example = (0, 0, 0, 0, *scalars[:4])
        return Launch(kernel_rows.each_row, tables, example, options, self.warps, interpreted())
