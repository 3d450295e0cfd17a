"""Counts the coordinates of every tensor whose mean and gradient have the same sign, for the scale of a cautious step.

Launched between `advance` and `update` of `kernel.py`. It computes the new mean from the tensors that `update` will
read, and writes only the counts. Importing this module requires Triton.
"""

import triton
import triton.language as tl

from adaxopt.torch.kernel import _at, _read, _same_sign
from adaxopt.torch.kernel_numbers import (
    AVERAGE,
    COUNT,
    FIRST,
    HEAD,
    KAHAN,
    N_A,
    N_ACTIVE,
    N_B,
    N_L2,
    N_SIGN,
    NUMBERS,
    REST,
    ROW,
    M,
    X,
)


@triton.jit
def agree(
    rows, table, numbers, owners, agreeing, X_TYPE: tl.constexpr, G_TYPE: tl.constexpr, M_TYPE: tl.constexpr,
    MEAN: tl.constexpr, ROUNDING: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr, EACH: tl.constexpr,
):  # fmt: skip
    """Add this program's coordinates to the count of its tensor."""
    program = tl.program_id(0)
    owner = tl.load(owners + program).to(tl.int64)
    row, n = rows + owner * ROW, numbers + owner * NUMBERS
    kind: tl.constexpr = numbers.dtype.element_ty
    g_is = tl.load(table + HEAD + owner)
    if (g_is != 0) & (tl.load(n + N_ACTIVE) != 0.0):
        a, b, l2, sign = tl.load(n + N_A), tl.load(n + N_B), tl.load(n + N_L2), tl.load(n + N_SIGN)
        count = tl.load(row + COUNT)
        lanes = tl.arange(0, BLOCK)
        total = tl.zeros((BLOCK,), tl.int32)
        for i in range(BLOCKS):
            start = (program - tl.load(row + FIRST)) * (BLOCK * BLOCKS) + i * BLOCK
            inside = lanes < count - start
            g = _read(_at(g_is, start, G_TYPE, EACH, True), lanes, inside, True).to(kind)
            m = _read(_at(tl.load(row + M), start, M_TYPE, EACH, True), lanes, inside, True).to(kind)
            x = _read(_at(tl.load(row + X), start, X_TYPE, EACH, True), lanes, inside, True).to(kind)
            if ROUNDING == KAHAN:
                x += _read(_at(tl.load(row + REST), start, X_TYPE, EACH, True), lanes, inside, True).to(kind)
            g = g * sign + l2 * x
            mean = a * m + b * g
            if MEAN == AVERAGE:
                mean = m + b * (g - m)
            total += (inside & _same_sign(mean, g)).to(tl.int32)
        tl.atomic_add(agreeing + owner, tl.sum(total, axis=0).to(tl.int64))
