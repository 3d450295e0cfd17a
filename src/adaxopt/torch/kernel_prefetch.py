"""Prefetching for 8-bit state: blocks of later programs are requested before those programs run.

The step of 8-bit state computes more per byte than that of wider state; without prefetching, its loads would wait
longer. The instruction needs compute capability 9.0. Importing this module needs Triton.
"""

import triton
import triton.language as tl

from adaxopt.torch.kernel_codes import GROUP
from adaxopt.torch.kernel_numbers import CORRECTED, KAHAN, NO_MEAN


@triton.jit
def _prefetch(address, start, TYPE: tl.constexpr, COUNT: tl.constexpr):
    """Prefetch COUNT elements from `start` on into the L2 cache, once per program (Hopper or newer)."""
    at = address.to(tl.pointer_type(TYPE)) + start
    size: tl.constexpr = COUNT * at.dtype.element_ty.primitive_bitwidth // 8
    tl.inline_asm_elementwise(
        "{ .reg .pred p; .reg .u32 t; mov.u32 t, %tid.x; setp.eq.u32 p, t, 0; "
        "@p cp.async.bulk.prefetch.L2.global [$1], $2; mov.u32 $0, 0; }",
        "=r,l,r", [at.to(tl.int64), tl.full((), size, tl.int32)], dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@triton.jit
def _prefetch_all(
    x, g, m, v, v_max, rest, m_scale, v_scale, v_max_scale, start, X_TYPE: tl.constexpr, G_TYPE: tl.constexpr,
    M_TYPE: tl.constexpr, V_TYPE: tl.constexpr, MEAN: tl.constexpr, SECOND: tl.constexpr, MAXIMUM: tl.constexpr,
    ROUNDING: tl.constexpr, COUNT: tl.constexpr,
):  # fmt: skip
    """Prefetch COUNT elements of a parameter, its gradient and its 8-bit state, if all addresses are aligned."""
    if (g != 0) & ((x | g | m | v | v_max | rest | m_scale | v_scale | v_max_scale) % 16 == 0):
        _prefetch(x, start, X_TYPE, COUNT)
        _prefetch(g, start, G_TYPE, COUNT)
        if MEAN != NO_MEAN:
            _prefetch(m, start, M_TYPE, COUNT)
            _prefetch(m_scale, start // GROUP, tl.int8, COUNT // GROUP)
        if SECOND:
            _prefetch(v, start, V_TYPE, COUNT)
            _prefetch(v_scale, start // GROUP, tl.int8, COUNT // GROUP)
        if MAXIMUM:
            _prefetch(v_max, start, V_TYPE, COUNT)
            _prefetch(v_max_scale, start // GROUP, tl.int8, COUNT // GROUP)
        if ROUNDING == KAHAN:
            _prefetch(rest, start, X_TYPE, COUNT)
        elif ROUNDING == CORRECTED:
            _prefetch(rest, start, tl.int8, COUNT)
