"""The rule as two Triton kernels over a table of tensors: `advance` makes each tensor's numbers, `update` uses them.

    advance   one program. t <- t + 1 where a tensor has a gradient and no overflow was found; k, s, eps, ... of that t
              in float64, written to a small table. The formulas are those of `memory.py` and `rule.py`.
    update    one program per chunk of any tensor. Reads x, g, m, v once, writes x, m, v once; v only where its block
              changed, so that a memory that no longer moves costs no traffic, bit for bit.

A tensor is flat memory here: addresses come from tables, layouts were checked by `fused_cuda.py`. Method
names and betas do not reach `update`; kinds and numbers do. Importing this module needs Triton.
"""

# ruff: noqa: SIM109, SIM300  (Triton's language has no `in`)
import torch
import triton
import triton.language as tl

# One row of `rows` (int64) per tensor: addresses (0 where a rule keeps no such state), sizes, chance.
X, M, V, TOP, REST, STEP, COUNT, FIRST, OFFSET, SEEDS = (tl.constexpr(i) for i in range(10))
ROW = tl.constexpr(10)

# The head of a table (int64; numbers as float64 bits): a mark, then what a step is told, then gradient addresses.
MARK, LR, B1, B2, EPS, SIGMA, TAU, L2, FADE, POWER, OUTER, CLIP, LEAST, ZETA = (
    tl.constexpr(i) for i in range(14)
)
HEAD = tl.constexpr(14)

# One row of `numbers` per tensor, in the arithmetic that the step is computed in.
N_K, N_RATE, N_EPS, N_SHRINK, N_A, N_B, N_L2, N_SIGN, N_P, N_OUTER, N_CLIP, N_ACTIVE = (
    tl.constexpr(i) for i in range(12)
)
NUMBERS = tl.constexpr(12)

NONE, GROWING, FADING, UNNORMALISED, EQUAL, HYPERHARMONIC = (tl.constexpr(i) for i in range(6))
KINDS = {
    None: 0,
    "growing": 1,
    "fading": 2,
    "unnormalised": 3,
    "equal": 4,
    "power": 5,
}
AVERAGE, SUM, NO_MEAN = (tl.constexpr(i) for i in range(3))
MEANS = {"average": 0, "sum": 1, "none": 2}
NEAREST, STOCHASTIC, KAHAN = (tl.constexpr(i) for i in range(3))
ROUNDINGS = {"nearest": 0, "stochastic": 1, "kahan": 2}

TYPES = {
    torch.float32: tl.float32,
    torch.bfloat16: tl.bfloat16,
    torch.float16: tl.float16,
    torch.float64: tl.float64,
}

CERTAIN = tl.constexpr(2.0**-20)
"""Above this gain some element of every block changes: v is written without asking."""


# -- numbers of a step, in float64 ------------------------------------------------------------------------------------


@triton.jit
def _log1p(x):
    """log(1 + x) for x >= 0 with all its digits: the rounding of 1 + x cancels in the quotient (Kahan)."""
    u = 1.0 + x
    return tl.where(u == 1.0, x, tl.log(u) * x / tl.where(u == 1.0, 1.0, u - 1.0))


@triton.jit
def _lost(y):
    """1 - exp(-y) for y >= 0 with all its digits, by the same quotient."""
    u = tl.exp(-y)
    plain = (u == 1.0) | (y > 30.0)
    quotient = (1.0 - u) * y / -tl.log(tl.where(plain, 0.5, u))
    return tl.where(plain, tl.where(u == 1.0, y, 1.0 - u), quotient)


@triton.jit
def _power_tail(x, c):
    """Euler-Maclaurin for sum_{i<=x} i^-c without its constant."""
    log = tl.log(x)
    flat = c == 1.0
    whole = tl.where(flat, log, tl.exp((1.0 - c) * log) / tl.where(flat, 1.0, 1.0 - c))
    third = c * (c + 1.0) * (c + 2.0)
    fifth = third * (c + 3.0) * (c + 4.0)
    seventh = fifth * (c + 5.0) * (c + 6.0)
    y = 1.0 / (x * x)
    series = (c / 12.0 - y * (third / 720.0 - y * (fifth / 30240.0 - y * seventh / 1209600.0))) / x
    return whole + tl.exp(-c * log) * (0.5 - series)


@triton.jit
def _gain(t, b2, zeta, KIND: tl.constexpr):
    """k_t and log c_t (see `memory.py`; `zeta` is the hyperharmonic sum's constant)."""
    if KIND == GROWING:
        still = b2 == 0.0
        y = t * _log1p(b2)
        lost = tl.where(still, 1.0, _lost(y))
        k = tl.where(still, 1.0 / t, tl.minimum(b2 * tl.exp(-y) / lost, 1.0))
        norm = tl.where(still, tl.log(t), y + tl.log(lost))
    elif KIND == FADING or KIND == UNNORMALISED:
        none = b2 == 0.0
        y = -t * tl.log(tl.where(none, 0.5, b2))
        lost = tl.where(none, 1.0, _lost(y))
        k = tl.minimum((1.0 - b2) / lost, 1.0)
        if KIND == UNNORMALISED:
            k = t * 0.0 + (1.0 - b2)
        norm = tl.log(lost)
    elif KIND == EQUAL:
        k = 1.0 / t
        norm = tl.log(t)
    elif KIND == HYPERHARMONIC:
        total = _power_tail(t + 12.0, b2) + zeta
        for j in tl.static_range(1, 13):
            total -= tl.exp(-b2 * tl.log(t + j))
        k = tl.minimum(tl.exp(-b2 * tl.log(t)) / total, 1.0)
        norm = t * 0.0
    else:
        k = t * 0.0
        norm = t * 0.0
    return k, norm


@triton.jit
def _told(table, WHICH: tl.constexpr):
    return tl.load(table + WHICH).to(tl.float64, bitcast=True)


@triton.jit(
    do_not_specialize=["count", "mark", "ticket", "slot", "lr_at", "b1_at", "b2_at", "scale_at", "found_at"]
)
def advance(
    rows, table, numbers, keys, slot, count: tl.int64, mark: tl.int64, ticket: tl.int64, lr_at, b1_at, b2_at,
    scale_at, found_at, LR_AT: tl.constexpr, B1_AT: tl.constexpr, B2_AT: tl.constexpr,
    SCALE_AT: tl.constexpr, FOUND_AT: tl.constexpr, KIND: tl.constexpr, MEAN: tl.constexpr,
    DEBIAS: tl.constexpr, FLOOR: tl.constexpr, MAXIMIZE: tl.constexpr, KEYS: tl.constexpr,
    LANES: tl.constexpr,
):  # fmt: skip
    """Bring the table up to date if its mark is not ours, then every tensor's time and numbers.

    `slot` lies in pinned host memory and is read only when the mark differs; its first word is set to `ticket` when
    it has been read, which tells the host that it may be written again. `*_AT` say that a number is to be read from
    a device scalar instead of the table.
    """
    lanes = tl.arange(0, LANES)
    if tl.load(table + MARK) != mark:
        tl.debug_barrier()
        head = (lanes > MARK) & (lanes < HEAD)
        tl.store(table + lanes, tl.load(slot + lanes, mask=head, other=0, volatile=True), mask=head)
        for start in range(0, count, LANES):
            i = start + lanes
            word = tl.load(slot + HEAD + i, mask=i < count, other=0, volatile=True)
            tl.store(table + HEAD + i, word, mask=i < count)
        tl.debug_barrier()
        tl.store(table + MARK, mark)
    tl.debug_barrier()
    tl.store(slot + MARK, ticket)

    lr = tl.load(lr_at).to(tl.float64) if LR_AT else _told(table, LR)
    b1 = tl.load(b1_at).to(tl.float64) if B1_AT else _told(table, B1)
    b2 = tl.load(b2_at).to(tl.float64) if B2_AT else _told(table, B2)
    sign = lr * 0.0 + 1.0
    if SCALE_AT:
        sign = 1.0 / tl.load(scale_at).to(tl.float64)
    if MAXIMIZE:
        sign = -sign
    a = b1 * 0.0
    b = a + 1.0
    if MEAN != NO_MEAN:
        a = b1
    if MEAN == AVERAGE:
        b = 1.0 - b1

    for start in range(0, count, LANES):
        i = start + lanes
        inside = i < count
        gradient = tl.load(table + HEAD + i, mask=inside, other=0)
        active = gradient != 0
        if FOUND_AT:
            active &= tl.load(found_at + i * 0) == 0.0
        row = rows + i * ROW
        step_at = tl.load(row + STEP, mask=active, other=0).to(tl.pointer_type(tl.float64))
        t = tl.load(step_at, mask=active, other=0.0) + 1.0
        tl.store(step_at, t, mask=active)

        k, norm = _gain(t, b2, _told(table, ZETA), KIND)
        s = tl.exp(_told(table, SIGMA) * norm)
        if DEBIAS:
            s = tl.where(b1 == 0.0, s, s / _lost(-t * tl.log(tl.where(b1 == 0.0, 0.5, b1))))
        eps = _told(table, EPS) * tl.exp(_told(table, TAU) * norm)
        if FLOOR:
            eps = tl.maximum(eps, _told(table, LEAST))
        n = numbers + i * NUMBERS
        tl.store(n + N_K, k, mask=inside)
        tl.store(n + N_RATE, lr * s, mask=inside)
        tl.store(n + N_EPS, eps, mask=inside)
        tl.store(n + N_SHRINK, lr * _told(table, FADE), mask=inside)
        tl.store(n + N_A, a, mask=inside)
        tl.store(n + N_B, b, mask=inside)
        tl.store(n + N_L2, _told(table, L2), mask=inside)
        tl.store(n + N_SIGN, sign, mask=inside)
        tl.store(n + N_P, _told(table, POWER), mask=inside)
        tl.store(n + N_OUTER, _told(table, OUTER), mask=inside)
        tl.store(n + N_CLIP, _told(table, CLIP), mask=inside)
        tl.store(n + N_ACTIVE, active, mask=inside)
        if KEYS:
            seeds = tl.load(row + SEEDS, mask=inside, other=0)
            time = t.to(tl.int64)
            first = _mix(time.to(tl.uint32) ^ seeds.to(tl.uint32))
            second = _mix(first ^ (time >> 32).to(tl.uint32) ^ (seeds >> 32).to(tl.uint32))
            tl.store(keys + i, second.to(tl.int32, bitcast=True), mask=inside)


# -- chance: the same bits as `rounding.py` ----------------------------------------------------------------------


@triton.jit
def _mix(x):
    x ^= x >> 16
    x *= 0x21F0AAAD
    x ^= x >> 15
    x *= 0x735A2D97
    return x ^ (x >> 15)


@triton.jit
def _chance(key, STREAM: tl.constexpr, first, lanes):
    """32 random bits for elements first + lanes (first is an int64 scalar, lanes a block of int32)."""
    secret = _mix(key + (STREAM * 0x9E3779B9 & 0xFFFFFFFF))
    return _mix(lanes.to(tl.uint32) * 0x61C88647 + (first.to(tl.uint32) * 0x61C88647 + secret))


@triton.jit
def _round(x, bits, TO: tl.constexpr):
    """float32 to 16 bits by chance; nan as it is. See `rounding.py` for the two formats."""
    raw = x.to(tl.uint32, bitcast=True)
    if TO == tl.bfloat16:
        raised = tl.where(x == x, raw + (bits >> 16), raw)
        return (raised >> 16).to(tl.uint16).to(tl.bfloat16, bitcast=True)
    else:
        normal = ((raw + (bits >> 19)) & 0xFFFFE000).to(tl.float32, bitcast=True)
        units = tl.abs(x) * 16777216.0
        whole = tl.floor(units)
        up = (bits >> 8).to(tl.float32) * 5.9604644775390625e-08 < units - whole
        small = (whole + up.to(tl.float32)) * 5.9604644775390625e-08
        small = (small.to(tl.uint32, bitcast=True) | (raw & 0x80000000)).to(tl.float32, bitcast=True)
        rounded = tl.where(tl.abs(x) < 6.103515625e-05, small, normal)
        return tl.where(tl.abs(x) < float("inf"), rounded, x).to(tl.float16)


# -- the rule ------------------------------------------------------------------------------------------------------


@triton.jit
def _root(v, p, ROOTS: tl.constexpr):
    """v**p: square roots where p is 2**-ROOTS, else by exponent (0**p = 0, but v**0 = 1 for every v).

    Square roots and quotients are within 2 units of the last place: the update is far smaller than x, whose own
    rounding they disappear in.
    """
    if ROOTS == 0:
        d = tl.where(v == 0.0, 0.0, tl.exp2(p * tl.log2(tl.where(v == 0.0, 1.0, v))))
        d = tl.where(p == 0.0, 1.0, d)
    else:
        d = v
        for _ in tl.static_range(ROOTS):
            d = tl.sqrt(d)
    return d


@triton.jit
def _at(address, start, TYPE: tl.constexpr, EACH: tl.constexpr, MASKED: tl.constexpr):
    """Where a block begins; a full one is said to be aligned to EACH elements, so that a thread reads as many at once
    of every tensor, whatever its type: layouts agree and nothing is shuffled between threads."""
    at = address.to(tl.pointer_type(TYPE))
    return at + start if MASKED else tl.multiple_of(at, EACH * TYPE.primitive_bitwidth // 8) + start


@triton.jit
def _read(at, lanes, inside, MASKED: tl.constexpr):
    return tl.load(at + lanes, mask=inside, other=0.0) if MASKED else tl.load(at + lanes)


@triton.jit
def _write(at, lanes, value, inside, MASKED: tl.constexpr):
    if MASKED:
        tl.store(at + lanes, value, mask=inside)
    else:
        tl.store(at + lanes, value)


@triton.jit
def _write_state(at, lanes, value, key, STREAM: tl.constexpr, first, inside, MASKED: tl.constexpr):
    TO: tl.constexpr = at.dtype.element_ty
    if TO == tl.bfloat16 or TO == tl.float16:
        _write(at, lanes, _round(value, _chance(key, STREAM, first, lanes), TO), inside, MASKED)
    else:
        _write(at, lanes, value.to(TO), inside, MASKED)


@triton.jit
def _block(
    x_is, g_is, m_is, v_is, top_is, rest_is, first, key, k, rate, eps, shrink, a, b, l2, sign, p, outer, bound,
    start, left, X_TYPE: tl.constexpr, G_TYPE: tl.constexpr, M_TYPE: tl.constexpr, V_TYPE: tl.constexpr,
    MEAN: tl.constexpr, SECOND: tl.constexpr, MAXIMUM: tl.constexpr, WAKE: tl.constexpr, ROOTS: tl.constexpr,
    OUTER_ROOTS: tl.constexpr, CLIPPED: tl.constexpr, ROUNDING: tl.constexpr, BLOCK: tl.constexpr,
    EACH: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Elements start ... start + BLOCK of one tensor: full and at aligned addresses, or MASKED."""
    lanes = tl.arange(0, BLOCK)
    inside = lanes < left
    kind = k.dtype
    x_at = _at(x_is, start, X_TYPE, EACH, MASKED)
    x = _read(x_at, lanes, inside, MASKED).to(kind)
    g = _read(_at(g_is, start, G_TYPE, EACH, MASKED), lanes, inside, MASKED).to(kind)
    if MEAN != NO_MEAN:
        m_at = _at(m_is, start, M_TYPE, EACH, MASKED)
        m = _read(m_at, lanes, inside, MASKED).to(kind)
    if SECOND:
        v_at = _at(v_is, start, V_TYPE, EACH, MASKED)
        stored = _read(v_at, lanes, inside, MASKED)
    if MAXIMUM:
        top_at = _at(top_is, start, V_TYPE, EACH, MASKED)
        top = _read(top_at, lanes, inside, MASKED).to(kind)
    if ROUNDING == KAHAN:
        rest_at = _at(rest_is, start, X_TYPE, EACH, MASKED)
        x += _read(rest_at, lanes, inside, MASKED).to(kind)
    first += start

    g = g * sign + l2 * x
    mean = g
    if MEAN == AVERAGE:
        mean = m + b * (g - m)
    elif MEAN == SUM:
        mean = a * m + b * g
    if MEAN != NO_MEAN:
        _write_state(m_at, lanes, mean, key, 1, first, inside, MASKED)

    change = mean
    if SECOND:
        v = stored.to(kind)
        if WAKE:
            v = tl.where(v == 0.0, g * g, v)
        v = v + k * (g * g - v)
        d = v
        if MAXIMUM:
            d = tl.where((top >= v) | (top != top), top, v)
            _write_state(top_at, lanes, d, key, 2, first, inside, MASKED)
        if V_TYPE == tl.bfloat16 or V_TYPE == tl.float16:
            new = _round(v, _chance(key, 2, first, lanes), V_TYPE)
        else:
            new = v.to(V_TYPE)
        moved = k > CERTAIN
        if k <= CERTAIN:
            moved = tl.max((new != stored).to(tl.int32), axis=0) > 0
        if moved:
            _write(v_at, lanes, new, inside, MASKED)
        d = _root(d, p, ROOTS) + eps
        if OUTER_ROOTS >= 0:
            d = _root(d, outer, OUTER_ROOTS)
        change = mean / d
    if CLIPPED:
        change = tl.where(change > bound, bound, tl.where(change < -bound, -bound, change))

    x = x - (shrink * x + rate * change)
    if ROUNDING == STOCHASTIC:
        _write(x_at, lanes, _round(x, _chance(key, 0, first, lanes), X_TYPE), inside, MASKED)
    else:
        x_new = x.to(X_TYPE)
        _write(x_at, lanes, x_new, inside, MASKED)
        if ROUNDING == KAHAN:
            _write(rest_at, lanes, (x - x_new.to(kind)).to(X_TYPE), inside, MASKED)


@triton.jit
def update(
    rows, table, numbers, keys, owners, X_TYPE: tl.constexpr, G_TYPE: tl.constexpr, M_TYPE: tl.constexpr,
    V_TYPE: tl.constexpr, MEAN: tl.constexpr, SECOND: tl.constexpr, MAXIMUM: tl.constexpr,
    WAKE: tl.constexpr, ROOTS: tl.constexpr, OUTER_ROOTS: tl.constexpr, CLIPPED: tl.constexpr,
    ROUNDING: tl.constexpr, KEYS: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
    EACH: tl.constexpr,
):  # fmt: skip
    """One chunk of BLOCKS * BLOCK elements of the tensor that owns this program."""
    program = tl.program_id(0)
    owner = tl.load(owners + program).to(tl.int64)
    row = rows + owner * ROW
    n = numbers + owner * NUMBERS
    x, m, v = tl.load(row + X), tl.load(row + M), tl.load(row + V)
    top, rest, g = tl.load(row + TOP), tl.load(row + REST), tl.load(table + HEAD + owner)
    count, first, offset = tl.load(row + COUNT), tl.load(row + FIRST), tl.load(row + OFFSET)
    k, rate, eps = tl.load(n + N_K), tl.load(n + N_RATE), tl.load(n + N_EPS)
    shrink, a, b = tl.load(n + N_SHRINK), tl.load(n + N_A), tl.load(n + N_B)
    l2, sign, p = tl.load(n + N_L2), tl.load(n + N_SIGN), tl.load(n + N_P)
    outer, bound, active = tl.load(n + N_OUTER), tl.load(n + N_CLIP), tl.load(n + N_ACTIVE)
    key = tl.full((), 0, tl.uint32)
    if KEYS:
        key = tl.load(keys + owner).to(tl.uint32, bitcast=True)
    begin = (program - first) * (BLOCK * BLOCKS)
    aligned = (x | g | m | v | top | rest) % 16 == 0
    if (g != 0) & (active != 0.0):
        for i in range(BLOCKS):
            start = begin + i * BLOCK
            left = count - start
            if (left >= BLOCK) & aligned:
                _block(
                    x, g, m, v, top, rest, offset, key, k, rate, eps, shrink, a, b, l2, sign, p, outer, bound,
                    start, left, X_TYPE, G_TYPE, M_TYPE, V_TYPE, MEAN, SECOND, MAXIMUM, WAKE, ROOTS,
                    OUTER_ROOTS, CLIPPED, ROUNDING, BLOCK, EACH, False,
                )  # fmt: skip
            elif left > 0:
                _block(
                    x, g, m, v, top, rest, offset, key, k, rate, eps, shrink, a, b, l2, sign, p, outer, bound,
                    start, left, X_TYPE, G_TYPE, M_TYPE, V_TYPE, MEAN, SECOND, MAXIMUM, WAKE, ROOTS,
                    OUTER_ROOTS, CLIPPED, ROUNDING, BLOCK, EACH, True,
                )  # fmt: skip


INTERPRETED = not isinstance(update, triton.runtime.JITFunction)
"""TRITON_INTERPRET=1 was set when Triton was imported: kernels run on CPU tensors, in Python."""
