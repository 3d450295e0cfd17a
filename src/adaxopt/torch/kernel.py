"""The update rule as two Triton kernels over a table of tensors: `advance` computes coefficients, `update` uses them.

    advance   one program. t <- t + 1 for tensors that have a gradient, unless an overflow was found; then k, s, eps,
              ... for that t in float64, written to a small table. The formulas are those of `memory.py` and `rule.py`.
    update    one program per chunk of any tensor. Reads x, g, m, v once and writes x, m, v once. A block of v is
              written only if it changed, so a v that no longer changes causes no writes; results are bitwise the same.

Tensors are treated as flat memory: addresses come from tables, and `fused_cuda.py` has checked the layouts. `update`
receives kinds and coefficients, no method names or betas. Importing this module requires Triton.
"""

# ruff: noqa: SIM300  (Triton's language has no `in`)
import triton
import triton.language as tl

from adaxopt.rule import LEAST_SHARE
from adaxopt.torch.kernel_codes import (
    HIGH,
    _code_m,
    _code_v,
    _denominator,
    _lanes,
    _quotient,
    _read_m,
    _read_scales,
    _read_v,
    _scales,
    _toward,
    _write_scales,
    _write_v,
)
from adaxopt.torch.kernel_numbers import (
    AVERAGE,
    CLIP,
    CORRECTED,
    COUNT,
    DECAY,
    FIRST,
    HEAD,
    KAHAN,
    L2,
    M_SCALE,
    MARK,
    N_A,
    N_ACTIVE,
    N_B,
    N_CLIP,
    N_DECAY,
    N_EPS,
    N_K,
    N_L2,
    N_OUTER,
    N_P,
    N_RATE,
    N_SIGN,
    NO_MEAN,
    NUMBERS,
    OFFSET,
    OUTER,
    POWER,
    REST,
    ROW,
    SEEDS,
    STEP,
    STOCHASTIC,
    SUM,
    V_MAX,
    V_MAX_SCALE,
    V_SCALE,
    M,
    V,
    X,
    _bring,
    _everyone,
    _key,
    _of_time,
    _told,
)
from adaxopt.torch.kernel_prefetch import _prefetch_all
from adaxopt.torch.kernel_rounding import _by_fours, _full, _random_bits, _round, _split, _wide

CERTAIN = tl.constexpr(2.0**-20)
"""Above this gain, v is written without comparing: some element of every block changes."""
SHARE = tl.constexpr(LEAST_SHARE)
TOGETHER = tl.constexpr(8)
"""The number of programs for which one program prefetches."""


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
    """Copy the slot to the table if its mark differs, then advance every tensor's step count and coefficients.

    `slot` is in pinned host memory and is read only if the mark differs. Afterwards its first word is set to `ticket`,
    which tells the host that the slot may be rewritten. `*_AT` flags select a device scalar instead of the table's
    value.
    """
    lanes = tl.arange(0, LANES)
    if tl.load(table + MARK) != mark:
        tl.debug_barrier()
        _bring(table, slot, count, mark, LANES)
    tl.debug_barrier()
    tl.store(slot + MARK, ticket)
    lr, b1, b2, sign, a, b = _everyone(
        table, lr_at, b1_at, b2_at, scale_at, LR_AT, B1_AT, B2_AT, SCALE_AT, MEAN, MAXIMIZE
    )
    for start in range(0, count, LANES):
        i = start + lanes
        inside = i < count
        active = tl.load(table + HEAD + i, mask=inside, other=0) != 0
        if FOUND_AT:
            active &= tl.load(found_at + i * 0) == 0.0
        row = rows + i * ROW
        step_at = tl.load(row + STEP, mask=active, other=0).to(tl.pointer_type(tl.float64))
        t = tl.load(step_at, mask=active, other=0.0) + 1.0
        tl.store(step_at, t, mask=active)
        k, rate, eps = _of_time(table, t, lr, b1, b2, KIND, DEBIAS, FLOOR)
        n = numbers + i * NUMBERS
        tl.store(n + N_K, k, mask=inside)
        tl.store(n + N_RATE, rate, mask=inside)
        tl.store(n + N_EPS, eps, mask=inside)
        tl.store(n + N_DECAY, lr * _told(table, DECAY), mask=inside)
        tl.store(n + N_A, a, mask=inside)
        tl.store(n + N_B, b, mask=inside)
        tl.store(n + N_L2, _told(table, L2), mask=inside)
        tl.store(n + N_SIGN, sign, mask=inside)
        tl.store(n + N_P, _told(table, POWER), mask=inside)
        tl.store(n + N_OUTER, _told(table, OUTER), mask=inside)
        tl.store(n + N_CLIP, _told(table, CLIP), mask=inside)
        tl.store(n + N_ACTIVE, active, mask=inside)
        if KEYS:
            key = _key(t, tl.load(row + SEEDS, mask=inside, other=0))
            tl.store(keys + i, key.to(tl.int32, bitcast=True), mask=inside)


# -- the rule ------------------------------------------------------------------------------------------------------


@triton.jit
def _root(v, p, ROOTS: tl.constexpr):
    """v**p: by square roots if p is 2**-ROOTS, else with exp2 and log2 (0**p = 0, but v**0 = 1 for every v).

    Square roots and quotients are accurate to 2 ulp. The update is far smaller than x, so these errors are below the
    rounding error of x.
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
    """A pointer to the start of a block. A full block is declared aligned to EACH elements, so that a thread reads EACH
    elements at once of every tensor, whatever its dtype: thread layouts agree, and no data moves between threads."""
    at = address.to(tl.pointer_type(TYPE))
    return (
        at + start
        if MASKED
        else tl.multiple_of(at, EACH * at.dtype.element_ty.primitive_bitwidth // 8) + start
    )


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
        _write(at, lanes, _round(value, _random_bits(key, STREAM, first, lanes), TO), inside, MASKED)
    else:
        _write(at, lanes, value.to(TO), inside, MASKED)


@triton.jit
def _same_sign(a, b):
    return ((a > 0.0) & (b > 0.0)) | ((a < 0.0) & (b < 0.0))


@triton.jit
def _block(
    x_is, g_is, m_is, v_is, v_max_is, rest_is, m_scale, v_scale, v_max_scale, first, key, k, rate, eps, decay, a, b, l2,
    sign, p, outer, bound, start, left, X_TYPE: tl.constexpr, G_TYPE: tl.constexpr, M_TYPE: tl.constexpr,
    V_TYPE: tl.constexpr, CODED: tl.constexpr, MEAN: tl.constexpr, SECOND: tl.constexpr, MAXIMUM: tl.constexpr,
    WAKE: tl.constexpr, ROOTS: tl.constexpr, OUTER_ROOTS: tl.constexpr, CLIPPED: tl.constexpr,
    CAUTIOUS: tl.constexpr, SIGNED: tl.constexpr, DECAYED: tl.constexpr, ROUNDING: tl.constexpr, BLOCK: tl.constexpr,
    EACH: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Update elements start ... start + BLOCK of one tensor: a full block at aligned addresses, or MASKED.

    CODED: moments are 8-bit codes, and a block is a 2-D array of groups that share an exponent.
    """
    lanes = _lanes(BLOCK, CODED)
    inside = lanes < left
    kind = k.dtype
    x_at = _at(x_is, start, X_TYPE, EACH, MASKED)
    x = _read(x_at, lanes, inside, MASKED)
    if ROUNDING != CORRECTED:
        x = _wide(x, k, CODED)
    g = _wide(_read(_at(g_is, start, G_TYPE, EACH, MASKED), lanes, inside, MASKED), k, CODED)
    if MEAN != NO_MEAN:
        m_at = _at(m_is, start, M_TYPE, EACH, MASKED)
        m = _read(m_at, lanes, inside, MASKED)
        if CODED:
            m_scale_at, there = _scales(m_scale, start, left, BLOCK)
            m_exponent = _read_scales(m_scale_at, there, MASKED)
        else:
            m = m.to(kind)
    if SECOND:
        v_at = _at(v_is, start, V_TYPE, EACH, MASKED)
        stored = _read(v_at, lanes, inside, MASKED)
        if CODED:
            v_scale_at, there = _scales(v_scale, start, left, BLOCK)
            exponent = _read_scales(v_scale_at, there, MASKED)
    if MAXIMUM:
        v_max_at = _at(v_max_is, start, V_TYPE, EACH, MASKED)
        v_max = _read(v_max_at, lanes, inside, MASKED)
        if CODED:
            v_max_scale_at, there = _scales(v_max_scale, start, left, BLOCK)
            v_max_exponent = _read_scales(v_max_scale_at, there, MASKED)
        else:
            v_max = v_max.to(kind)
    if ROUNDING == KAHAN:
        rest_at = _at(rest_is, start, X_TYPE, EACH, MASKED)
        x += _read(rest_at, lanes, inside, MASKED).to(kind)
    elif ROUNDING == CORRECTED:
        rest_at = _at(rest_is, start, tl.int8, EACH, MASKED)
        x = _full(x, _read(rest_at, lanes, inside, MASKED)).to(kind)
    first += start
    if CODED:  # after all loads have been issued
        if MEAN != NO_MEAN:
            m = _read_m(m, m_exponent)
        if MAXIMUM:
            v_max = _read_v(v_max, v_max_exponent)

    if SIGNED and DECAYED:
        g = g * sign + l2 * x
    elif SIGNED:
        g = g * sign
    elif DECAYED:
        g = g + l2 * x
    mean = g
    if MEAN == AVERAGE:
        mean = m + b * (g - m)
    elif MEAN == SUM:
        mean = a * m + b * g
    if MEAN != NO_MEAN and not CODED:
        _write_state(m_at, lanes, mean, key, 1, first, inside, MASKED)

    change = mean
    if SECOND:
        if CODED:
            v = _read_v(stored, exponent)
        else:
            v = stored.to(kind)
        if CODED:
            v = _toward(v, g, k, WAKE)
        else:
            if WAKE:
                v = tl.where(v == 0.0, g * g, v)
            new = k * g * g
            held = tl.where(v < float("inf"), v, 0.0)  # an infinite v stays infinite while k < 1
            near = v + (new - k * held)
            v = tl.where(k < 0.5, near, tl.where(k < 1.0, new + (1.0 - k) * v, new))  # k = 1: exactly g*g
        d = v
        if MAXIMUM:
            d = tl.where((v_max >= v) | (v_max != v_max), v_max, v)
        if CODED:
            bits = _by_fours(key, first, lanes, True)
            kept = (v if MEAN == NO_MEAN else v + tl.abs(mean)) < HIGH  # m and v are lost together
            size = tl.where(kept, v, 0.0)
            v_code, v_exponent = _code_v(size, bits, kept, size > 0.0)
            if MEAN != NO_MEAN:
                m_code, m_exponent = _code_m(mean, bits, size > 0.0)
                _write(m_at, lanes, m_code, inside, MASKED)
                _write_scales(m_scale_at, m_exponent, there, lanes, EACH)
            if MAXIMUM:
                kept = d < HIGH
                size = tl.where(kept, d, 0.0)
                v_max_code, v_max_exponent = _code_v(size, bits, kept, size > 0.0)
                _write(v_max_at, lanes, v_max_code, inside, MASKED)
                _write_scales(v_max_scale_at, v_max_exponent, there, lanes, EACH)
            _write_v(
                v_at, lanes, v_code, v_scale_at, v_exponent, stored, exponent, k, inside, there, EACH, MASKED
            )
        else:
            if MAXIMUM:
                _write_state(v_max_at, lanes, d, key, 2, first, inside, MASKED)
            if V_TYPE == tl.bfloat16 or V_TYPE == tl.float16:
                new = _round(v, _random_bits(key, 2, first, lanes), V_TYPE)
            else:
                new = v.to(V_TYPE)
            moved = k > CERTAIN
            if k <= CERTAIN:
                moved = tl.max((new != stored).to(tl.int32), axis=0) > 0
            if moved:
                _write(v_at, lanes, new, inside, MASKED)
        if CODED and ROOTS == 1:
            d = _denominator(d, eps)
        else:
            d = _root(d, p, ROOTS) + eps
        if OUTER_ROOTS >= 0:
            d = _root(d, outer, OUTER_ROOTS)
        change = _quotient(mean, d) if CODED else mean / d
    if CLIPPED:
        change = tl.where(change > bound, bound, tl.where(change < -bound, -bound, change))
    if CAUTIOUS:  # `rate` is scaled already
        change = tl.where(_same_sign(mean, g), change, 0.0)

    x = x - (decay * x + rate * change)
    if ROUNDING == STOCHASTIC:
        _write(x_at, lanes, _round(x, _random_bits(key, 0, first, lanes), X_TYPE), inside, MASKED)
    elif ROUNDING == CORRECTED:
        high, low = _split(x.to(tl.float32), _by_fours(key, first, lanes, CODED))
        _write(x_at, lanes, high, inside, MASKED)
        _write(rest_at, lanes, low, inside, MASKED)
    else:
        x_new = x.to(X_TYPE)
        _write(x_at, lanes, x_new, inside, MASKED)
        if ROUNDING == KAHAN:
            _write(rest_at, lanes, (x - x_new.to(kind)).to(X_TYPE), inside, MASKED)


@triton.jit
def _addresses(row, CODED: tl.constexpr, MAXIMUM: tl.constexpr):
    """The addresses of a parameter and its state: x, m, v, v_max, compensation, exponents of m, v and v_max."""
    x, m, v = tl.load(row + X), tl.load(row + M), tl.load(row + V)
    v_max, rest = tl.load(row + V_MAX), tl.load(row + REST)
    m_scale, v_scale, v_max_scale = x, x, x
    if CODED:
        m_scale, v_scale = tl.load(row + M_SCALE), tl.load(row + V_SCALE)
        v_max_scale = tl.load(row + V_MAX_SCALE) if MAXIMUM else v_scale
    return x, m, v, v_max, rest, m_scale, v_scale, v_max_scale


@triton.jit
def _chunk(
    rows, table, owners, owner, g, active, program, key, k, rate, eps, decay, a, b, l2, sign, p, outer, bound,
    X_TYPE: tl.constexpr, G_TYPE: tl.constexpr, M_TYPE: tl.constexpr, V_TYPE: tl.constexpr, CODED: tl.constexpr,
    MEAN: tl.constexpr, SECOND: tl.constexpr, MAXIMUM: tl.constexpr, WAKE: tl.constexpr, ROOTS: tl.constexpr,
    OUTER_ROOTS: tl.constexpr, CLIPPED: tl.constexpr, CAUTIOUS: tl.constexpr, SIGNED: tl.constexpr,
    DECAYED: tl.constexpr, ROUNDING: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr, EACH: tl.constexpr,
    AHEAD: tl.constexpr,
):  # fmt: skip
    """Update this program's BLOCKS * BLOCK elements of the tensor `owner`.

    Addresses are loaded even if the tensor is not `active`: a branch before the loads would delay all other tensors.
    """
    row = rows + owner * ROW
    x, m, v, v_max, rest, m_scale, v_scale, v_max_scale = _addresses(row, CODED, MAXIMUM)
    count, first, offset = tl.load(row + COUNT), tl.load(row + FIRST), tl.load(row + OFFSET)
    count = tl.where(active, count, 0)
    begin = (program - first) * (BLOCK * BLOCKS)
    aligned = (x | g | m | v | v_max | rest) % 16 == 0
    if AHEAD > 0 and (program - first) % TOGETHER == 0:
        size: tl.constexpr = BLOCK * BLOCKS * TOGETHER
        soon = begin + AHEAD * BLOCK * BLOCKS
        if soon + size <= count:
            _prefetch_all(
                x, g, m, v, v_max, rest, m_scale, v_scale, v_max_scale, soon, X_TYPE, G_TYPE, M_TYPE, V_TYPE, MEAN,
                SECOND, MAXIMUM, ROUNDING, size,
            )  # fmt: skip
        elif program + AHEAD < tl.num_programs(0):  # in the next tensors
            other = tl.load(owners + program + AHEAD).to(tl.int64)
            next_row = rows + other * ROW
            soon = (program + AHEAD - tl.load(next_row + FIRST)) * (BLOCK * BLOCKS)
            if soon + size <= tl.load(next_row + COUNT):
                x2, m2, v2, v_max2, rest2, m_scale2, v_scale2, v_max_scale2 = _addresses(
                    next_row, CODED, MAXIMUM
                )
                _prefetch_all(
                    x2, tl.load(table + HEAD + other), m2, v2, v_max2, rest2, m_scale2, v_scale2, v_max_scale2, soon,
                    X_TYPE, G_TYPE, M_TYPE, V_TYPE, MEAN, SECOND, MAXIMUM, ROUNDING, size,
                )  # fmt: skip
    for i in range(BLOCKS):
        start = begin + i * BLOCK
        left = count - start
        if (left >= BLOCK) & aligned:
            _block(
                x, g, m, v, v_max, rest, m_scale, v_scale, v_max_scale, offset, key, k, rate, eps, decay, a, b, l2,
                sign, p, outer, bound, start, left, X_TYPE, G_TYPE, M_TYPE, V_TYPE, CODED, MEAN, SECOND, MAXIMUM, WAKE,
                ROOTS, OUTER_ROOTS, CLIPPED, CAUTIOUS, SIGNED, DECAYED, ROUNDING, BLOCK, EACH, False,
            )  # fmt: skip
        elif left > 0:
            _block(
                x, g, m, v, v_max, rest, m_scale, v_scale, v_max_scale, offset, key, k, rate, eps, decay, a, b, l2,
                sign, p, outer, bound, start, left, X_TYPE, G_TYPE, M_TYPE, V_TYPE, CODED, MEAN, SECOND, MAXIMUM, WAKE,
                ROOTS, OUTER_ROOTS, CLIPPED, CAUTIOUS, SIGNED, DECAYED, ROUNDING, BLOCK, EACH, True,
            )  # fmt: skip


@triton.jit
def update(
    rows, table, numbers, keys, owners, agreeing, X_TYPE: tl.constexpr, G_TYPE: tl.constexpr,
    M_TYPE: tl.constexpr, V_TYPE: tl.constexpr, CODED: tl.constexpr, MEAN: tl.constexpr, SECOND: tl.constexpr,
    MAXIMUM: tl.constexpr, WAKE: tl.constexpr, ROOTS: tl.constexpr, OUTER_ROOTS: tl.constexpr,
    CLIPPED: tl.constexpr, CAUTIOUS: tl.constexpr, SIGNED: tl.constexpr, DECAYED: tl.constexpr,
    ROUNDING: tl.constexpr, KEYS: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr, EACH: tl.constexpr,
    AHEAD: tl.constexpr,
):  # fmt: skip
    """Update one chunk of the tensor to which this program belongs."""
    program = tl.program_id(0)
    owner = tl.load(owners + program).to(tl.int64)
    n = numbers + owner * NUMBERS
    g = tl.load(table + HEAD + owner)
    k, rate, eps = tl.load(n + N_K), tl.load(n + N_RATE), tl.load(n + N_EPS)
    decay, a, b = tl.load(n + N_DECAY), tl.load(n + N_A), tl.load(n + N_B)
    l2, sign, p = tl.load(n + N_L2), tl.load(n + N_SIGN), tl.load(n + N_P)
    outer, bound, active = tl.load(n + N_OUTER), tl.load(n + N_CLIP), tl.load(n + N_ACTIVE)
    if CAUTIOUS:
        share = tl.load(agreeing + owner).to(tl.float64) / tl.load(rows + owner * ROW + COUNT).to(tl.float64)
        rate = (rate / tl.maximum(share, SHARE)).to(rate.dtype)
    key = tl.full((), 0, tl.uint32)
    if KEYS:
        key = tl.load(keys + owner).to(tl.uint32, bitcast=True)
    _chunk(
        rows, table, owners, owner, g, (g != 0) & (active != 0.0), program, key, k, rate, eps, decay, a, b, l2, sign,
        p, outer, bound, X_TYPE, G_TYPE, M_TYPE, V_TYPE, CODED, MEAN, SECOND, MAXIMUM, WAKE, ROOTS, OUTER_ROOTS,
        CLIPPED, CAUTIOUS, SIGNED, DECAYED, ROUNDING, BLOCK, BLOCKS, EACH, AHEAD,
    )  # fmt: skip


INTERPRETED = not isinstance(update, triton.runtime.JITFunction)
"""Whether TRITON_INTERPRET=1 was set when Triton was imported: kernels then run in Python, on CPU tensors."""
