"""The host side of the rows' kernel: which sparse gradients it serves, and its launches.

A step of rows is `operators.row_step` in one launch a parameter (`kernel_rows.py`), after one launch of `advance` for
all parameters of the same dtypes and width: tables, hyper-parameters, device scalars and GradScaler's numbers are those
of the dense kernel (`fused_cuda.py`). What it does not serve is handed back: gradients of several sparse dimensions,
dense ones of a parameter that lives in rows, empty ones, complex or sharded parameters, layouts with gaps, rows of more
than `WIDEST` elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from adaxopt.torch import fused_cuda, private
from adaxopt.torch.launch import Launch
from adaxopt.torch.layout import FLOATS, freed
from adaxopt.torch.operators import count_rows
from adaxopt.torch.state import LOW, STATE

try:
    from adaxopt.torch import kernel_rows
except ImportError:
    kernel_rows = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from adaxopt.torch.engine import Engine
    from adaxopt.torch.share import Part

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


def impossible(optimizer: Engine, group: Mapping[str, Any]) -> str | None:
    """Why rows can never be served in a group with these options, or None."""
    if group.get("cautious") or not ROWS:
        return "rows are left to torch operations"
    return fused_cuda.impossible(optimizer, group)


def unsuitable(p: Tensor, entry: Mapping[str, Tensor], g: Tensor | None) -> str | None:
    """Why this parameter's rows cannot be served, or None."""
    if "row_step" not in entry and not in_lines(p, g):
        return "its gradient is not sparse"
    if p.dim() == 0 or not p.is_contiguous():
        return "its rows do not lie one after the other"
    if p.numel() > WIDEST * p.shape[0]:
        return f"its rows have more than {WIDEST} elements"
    times = entry.get("row_step")
    if times is None:
        return fused_cuda.unserved(p, entry)
    if (times.dtype, times.device, times.shape) != (torch.float64, p.device, p.shape[:1]):
        return f"its row_step is {times.dtype} of shape {tuple(times.shape)} on {times.device}"
    if not times.is_contiguous() or freed(times):
        return "its row_step has gaps, or was freed"
    return fused_cuda.unserved(p, entry)


def key(p: Tensor, entry: Mapping[str, Tensor], g: Tensor | None, scaled: bool) -> tuple[Any, ...]:
    """As for dense tensors, and the width of a row; the gradient's dtype is that of its summed values."""
    dtype, *others = fused_cuda.key(p, entry, g, scaled)
    return summed_dtype(g, scaled) if in_lines(p, g) else dtype, *others, p.shape[1:].numel()  # type: ignore[arg-type]


def in_lines(p: Tensor, g: Tensor | None) -> bool:
    """Whether this gradient is of the kind that the kernel reads."""
    if g is None or g.layout != torch.sparse_coo or g.sparse_dim() != 1:
        return False
    return g.dtype in FLOATS and g.device == p.device and g.shape == p.shape


def readable(p: Tensor, g: Tensor | None) -> bool:
    """Whether the kernel can read this gradient: one that names nothing is for nobody to read."""
    return in_lines(p, g) and not private.is_empty(g)  # type: ignore[arg-type]


def summed_dtype(g: Tensor, scaled: bool) -> torch.dtype:
    """16 bits that are still to be unscaled may overflow where rows are summed: in 32."""
    uncoalesced = g.is_sparse and not g.is_coalesced()
    return torch.float32 if scaled and g.dtype in LOW and uncoalesced else g.dtype


def named(g: Tensor, scaled: bool) -> Named:
    """What a gradient names, every row once."""
    g = g.to(summed_dtype(g, scaled)).coalesce()
    values = g.values().resolve_neg().contiguous()
    return g.indices().contiguous(), values if values.data_ptr() % 16 == 0 else values.clone()


class Share(fused_cuda.Share):
    """`fused_cuda.Share` whose numbers are used row by row: `advance`, then a launch for every gradient."""

    by_address = False

    def __init__(self, part: Part) -> None:
        for p, entry in zip(part.owners, part.entries, strict=True):
            count_rows(p, entry, 1)
        super().__init__(part)
        width = self.params[0].shape[1:].numel()
        self.times = [entry["row_step"] for entry in part.entries]
        block, self.warps = cut(width)
        flat = [t for entry in part.states for name, t in entry.items() if name in STATE]
        aligned = all(t.data_ptr() % 16 == 0 for t in (*self.params, *flat))
        whole = width % block == 0 and width % self.options["EACH"] == 0
        self.options.update(
            WIDTH=width, G_SIZE=self.dtype.itemsize, BLOCK=block, MASKED=not (whole and aligned)
        )
        self.grads: Sequence[Named | None] = ()

    def moved(self, grads: Sequence[Tensor | None], scaled: bool) -> bool:
        pairs = zip(self.params, grads, strict=True)
        return any(readable(p, g) and summed_dtype(g, scaled) != self.dtype for p, g in pairs)  # type: ignore[arg-type]

    def step(
        self,
        group: Mapping[str, Any],
        grads: Sequence[Tensor | None],
        scale: Tensor | None,
        found: Tensor | None,
        known: bool,
    ) -> dict[int, str | None]:
        """The device is told which parameters have a gradient (1 or 0); where it lies, every launch says itself."""
        mine = [g is not None and readable(p, g) for p, g in zip(self.params, grads, strict=True)]
        self.grads = [
            named(g, scale is not None) if yes else None  # type: ignore[arg-type]
            for g, yes in zip(grads, mine, strict=True)
        ]
        if self._tell(group, list(map(int, mine))):
            self._launch(scale, found)
        self.grads = ()
        return {
            i: None for i, (g, yes) in enumerate(zip(grads, mine, strict=True)) if g is not None and not yes
        }

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
        how = fused_cuda.compiled(self.warps)
        return Launch(kernel_rows.each_row, tables, example, options, how)
