"""Host side of the CUDA kernel for sparse gradients: which gradients it supports, and its launches.

A step computes `operators.row_step` in one launch per parameter (`kernel_rows.py`), after one launch of `advance` for
all parameters of the same dtypes and width. Tables, hyper-parameters, device scalars and GradScaler's tensors are those
of the dense kernel (`fused_cuda.py`). Not supported, and left to other paths: gradients with several sparse dimensions,
dense gradients of a parameter whose rows have their own step counts, empty gradients, complex or sharded parameters,
layouts with gaps, rows of more than `WIDEST` elements.
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
"""Whether sparse gradients use the kernel if dense ones do. With False they use torch operations, for comparisons
(`benchmarks/sparse.py`, tests)."""

WIDEST = 1 << 16
"""The largest row size: one program steps a whole row, and a wider row would leave the rest of the device idle."""

Named = tuple[Tensor, Tensor]
"""A coalesced gradient: its row indices, and the values of each row."""


def cut(width: int) -> tuple[int, int]:
    """(block size, number of warps) for rows of `width` elements.

    Blocks are unmasked if a power of two of at least 128 divides the width, else one masked block of up to 1024
    elements is used. Each thread handles 8 elements, as in the dense kernel.

    >>> cut(512), cut(768), cut(300), cut(1)
    ((512, 2), (256, 1), (512, 2), (32, 1))
    """
    whole = min(width & -width, 1024)
    block = whole if whole >= 128 else min(1024, max(32, 1 << (width - 1).bit_length()))
    return block, max(1, block // 256)


def impossible(optimizer: Engine, group: Mapping[str, Any]) -> str | None:
    """Why this kernel supports no parameter of a group with these options, or None."""
    if group.get("cautious") or not ROWS:
        return "rows are left to torch operations"
    return fused_cuda.impossible(optimizer, group)


def unsuitable(p: Tensor, entry: Mapping[str, Tensor], g: Tensor | None) -> str | None:
    """Why the rows of this parameter are not supported, or None."""
    if "row_step" not in entry and not in_lines(p, g):
        return "its gradient is not sparse"
    if p.dim() == 0 or not p.is_contiguous():
        return "its rows are not contiguous"
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
    """The key of dense tensors and the width of a row. The gradient's dtype is that of its coalesced values."""
    dtype, *others = fused_cuda.key(p, entry, g, scaled)
    return summed_dtype(g, scaled) if in_lines(p, g) else dtype, *others, p.shape[1:].numel()  # type: ignore[arg-type]


def in_lines(p: Tensor, g: Tensor | None) -> bool:
    """Whether this gradient has a format that the kernel supports."""
    if g is None or g.layout != torch.sparse_coo or g.sparse_dim() != 1:
        return False
    return g.dtype in FLOATS and g.device == p.device and g.shape == p.shape


def readable(p: Tensor, g: Tensor | None) -> bool:
    """Whether the kernel supports this gradient; an empty one is not supported."""
    return in_lines(p, g) and not private.is_empty(g)  # type: ignore[arg-type]


def summed_dtype(g: Tensor, scaled: bool) -> torch.dtype:
    """The dtype of the coalesced values. Scaled 16-bit values are summed in float32, because their sum may overflow."""
    uncoalesced = g.is_sparse and not g.is_coalesced()
    return torch.float32 if scaled and g.dtype in LOW and uncoalesced else g.dtype


def named(g: Tensor, scaled: bool) -> Named:
    """The row indices and values of a gradient, coalesced."""
    g = g.to(summed_dtype(g, scaled)).coalesce()
    values = g.values().resolve_neg().contiguous()
    return g.indices().contiguous(), values if values.data_ptr() % 16 == 0 else values.clone()


class Share(fused_cuda.Share):
    """As `fused_cuda.Share`, for sparse gradients: a launch of `advance`, then one launch per gradient."""

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
        """The table holds 1 or 0 for a parameter with or without a gradient; each launch passes the addresses."""
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
