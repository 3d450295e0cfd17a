"""The two kernels of `kernel.py` as one, for a share so small that a second launch would cost more than the work.

Every program makes the numbers of its own tensor, from a time t that nobody writes meanwhile; the program that ends
last brings the table up to date and writes every t + 1. "Last" is told by a counter: a program adds 1 to it when it has
read all that it needs, and who finds all others there may write. The counter is never set back, so that no addition can
be lost to it: it counts on, modulo the number of programs. Importing this module needs Triton.
"""

import triton
import triton.language as tl

from adaxopt.torch.kernel import _chunk
from adaxopt.torch.kernel_numbers import (
    CLIP,
    FADE,
    HEAD,
    L2,
    MARK,
    OUTER,
    POWER,
    ROW,
    SEEDS,
    STEP,
    _bring,
    _everyone,
    _key,
    _of_time,
    _told,
)


@triton.jit(
    do_not_specialize=["count", "mark", "ticket", "slot", "lr_at", "b1_at", "b2_at", "scale_at", "found_at"]
)
def whole(
    rows, table, numbers, keys, owners, done, slot, count: tl.int64, mark: tl.int64, ticket: tl.int64, lr_at,
    b1_at, b2_at, scale_at, found_at, LR_AT: tl.constexpr, B1_AT: tl.constexpr, B2_AT: tl.constexpr,
    SCALE_AT: tl.constexpr, FOUND_AT: tl.constexpr, KIND: tl.constexpr, MEAN: tl.constexpr,
    DEBIAS: tl.constexpr, FLOOR: tl.constexpr, MAXIMIZE: tl.constexpr, KEYS: tl.constexpr,
    LANES: tl.constexpr, X_TYPE: tl.constexpr, G_TYPE: tl.constexpr, M_TYPE: tl.constexpr,
    V_TYPE: tl.constexpr, SECOND: tl.constexpr, MAXIMUM: tl.constexpr, WAKE: tl.constexpr,
    ROOTS: tl.constexpr, OUTER_ROOTS: tl.constexpr, CLIPPED: tl.constexpr, CAUTIOUS: tl.constexpr,
    ROUNDING: tl.constexpr,
    BLOCK: tl.constexpr, BLOCKS: tl.constexpr, EACH: tl.constexpr,
):  # fmt: skip
    """`update` with the numbers that `advance` would have made, then what `advance` leaves behind.

    A slot whose mark is new is read by every program from pinned host memory: few programs, a few words each.
    """
    kind: tl.constexpr = numbers.dtype.element_ty
    program = tl.program_id(0)
    owner = tl.load(owners + program).to(tl.int64)
    row = rows + owner * ROW
    fresh = tl.load(table + MARK) != mark
    at = table
    if fresh:
        at = slot
    lr, b1, b2, sign, a, b = _everyone(
        at, lr_at, b1_at, b2_at, scale_at, LR_AT, B1_AT, B2_AT, SCALE_AT, MEAN, MAXIMIZE
    )
    g = tl.load(at + HEAD + owner)
    stopped = g == 0
    if FOUND_AT:
        stopped |= tl.load(found_at) != 0.0
    t = tl.load(tl.load(row + STEP).to(tl.pointer_type(tl.float64))) + 1.0
    k, rate, eps = _of_time(at, t, lr, b1, b2, KIND, DEBIAS, FLOOR)
    shrink, l2, p = lr * _told(at, FADE), _told(at, L2), _told(at, POWER)
    outer, bound = _told(at, OUTER), _told(at, CLIP)
    key = tl.full((), 0, tl.uint32)
    if KEYS:
        key = _key(t, tl.load(row + SEEDS))
    if stopped == 0:
        _chunk(
            row, g, program, key, k.to(kind), rate.to(kind), eps.to(kind), shrink.to(kind), a.to(kind), b.to(kind),
            l2.to(kind), sign.to(kind), p.to(kind), outer.to(kind), bound.to(kind), X_TYPE, G_TYPE, M_TYPE,
            V_TYPE, MEAN, SECOND, MAXIMUM, WAKE, ROOTS, OUTER_ROOTS, CLIPPED, CAUTIOUS, ROUNDING, BLOCK, BLOCKS, EACH,
        )  # fmt: skip

    tl.debug_barrier()
    if tl.atomic_add(done, 1, sem="acq_rel") % tl.num_programs(0) == tl.num_programs(0) - 1:
        if fresh:
            _bring(table, slot, count, mark, LANES)
        tl.debug_barrier()
        tl.store(slot + MARK, ticket)
        for start in range(0, count, LANES):
            i = start + tl.arange(0, LANES)
            active = tl.load(table + HEAD + i, mask=i < count, other=0) != 0
            if FOUND_AT:
                active &= tl.load(found_at + i * 0) == 0.0
            step_at = tl.load(rows + i * ROW + STEP, mask=active, other=0).to(tl.pointer_type(tl.float64))
            tl.store(step_at, tl.load(step_at, mask=active, other=0.0) + 1.0, mask=active)
