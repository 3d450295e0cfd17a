"""The update rule as a Triton kernel over the rows of a sparse gradient, each with its own step count t.

One program performs the whole step of a row: t <- row_step + 1, the coefficients of that t (`kernel_numbers.py`), the
update (`_block` of `kernel.py`, as for dense tensors), and the store of t. `advance` runs before: it updates the table,
advances the parameter's own step count and computes the key of the random bits.

Importing this module requires Triton.
"""

import triton
import triton.language as tl

from adaxopt.torch.kernel import _block
from adaxopt.torch.kernel_numbers import (
    CLIP,
    COUNT,
    DECAY,
    L2,
    N_ACTIVE,
    NUMBERS,
    OUTER,
    POWER,
    REST,
    ROW,
    V_MAX,
    M,
    V,
    X,
    _everyone,
    _of_time,
    _told,
)


@triton.jit(do_not_specialize=["owner", "named", "values", "times", "lr_at", "b1_at", "b2_at", "scale_at"])
def each_row(
    rows, table, numbers, keys, owner: tl.int64, named: tl.int64, values: tl.int64, times: tl.int64, lr_at, b1_at,
    b2_at, scale_at, LR_AT: tl.constexpr, B1_AT: tl.constexpr, B2_AT: tl.constexpr, SCALE_AT: tl.constexpr,
    KIND: tl.constexpr, MEAN: tl.constexpr, DEBIAS: tl.constexpr, FLOOR: tl.constexpr, MAXIMIZE: tl.constexpr,
    KEYS: tl.constexpr, X_TYPE: tl.constexpr, G_TYPE: tl.constexpr, M_TYPE: tl.constexpr, V_TYPE: tl.constexpr,
    SECOND: tl.constexpr, MAXIMUM: tl.constexpr, WAKE: tl.constexpr, ROOTS: tl.constexpr,
    OUTER_ROOTS: tl.constexpr, CLIPPED: tl.constexpr, CAUTIOUS: tl.constexpr,
    ROUNDING: tl.constexpr, WIDTH: tl.constexpr, G_SIZE: tl.constexpr,
    BLOCK: tl.constexpr, EACH: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Program i steps row `named[i]` of the tensor `owner` with the gradient `values[i]`. Addresses are integers.

    A row index outside the tensor is ignored. Row indices must be unique: two programs for one row would race.
    """
    kind: tl.constexpr = numbers.dtype.element_ty
    here = rows + owner * ROW
    i = tl.program_id(0).to(tl.int64)
    row = tl.load(named.to(tl.pointer_type(tl.int64)) + i)
    known = (row >= 0) & (row < tl.load(here + COUNT) // WIDTH)
    if known & (tl.load(numbers + owner * NUMBERS + N_ACTIVE) != 0.0):
        time_at = times.to(tl.pointer_type(tl.float64)) + row
        t = tl.load(time_at) + 1.0
        lr, b1, b2, sign, a, b = _everyone(
            table, lr_at, b1_at, b2_at, scale_at, LR_AT, B1_AT, B2_AT, SCALE_AT, MEAN, MAXIMIZE
        )
        k, rate, eps = _of_time(table, t, lr, b1, b2, KIND, DEBIAS, FLOOR)
        decay, l2, p = lr * _told(table, DECAY), _told(table, L2), _told(table, POWER)
        outer, bound = _told(table, OUTER), _told(table, CLIP)
        key = tl.full((), 0, tl.uint32)
        if KEYS:
            key = tl.load(keys + owner).to(tl.uint32, bitcast=True)
        x, m, v = tl.load(here + X), tl.load(here + M), tl.load(here + V)
        v_max, rest = tl.load(here + V_MAX), tl.load(here + REST)
        # `_block` uses one start index, that of the row, for all tensors: the gradient's address is shifted to match,
        # and random bits are drawn by the position in the gradient
        apart = (i - row) * WIDTH
        g = values + apart * G_SIZE
        for begin in range(0, WIDTH, BLOCK):
            _block(
                x, g, m, v, v_max, rest, x, x, x, apart, key, k.to(kind), rate.to(kind), eps.to(kind), decay.to(kind),
                a.to(kind), b.to(kind), l2.to(kind), sign.to(kind), p.to(kind), outer.to(kind), bound.to(kind),
                row * WIDTH + begin, WIDTH - begin, X_TYPE, G_TYPE, M_TYPE, V_TYPE, False, MEAN, SECOND, MAXIMUM, WAKE,
                ROOTS, OUTER_ROOTS, CLIPPED, CAUTIOUS, True, True, ROUNDING, BLOCK, EACH, MASKED,
            )  # fmt: skip
        tl.debug_barrier()  # wait until every thread has read t
        tl.store(time_at, t)
