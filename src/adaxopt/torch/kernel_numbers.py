"""The layout of the kernels' tables, and the coefficients of a step in float64 (formulas of `memory.py` and `rule.py`).

Importing this module requires Triton.
"""

# ruff: noqa: SIM109  (Triton's language has no `in`)
import torch
import triton
import triton.language as tl

from adaxopt import memory

# One row of `rows` (int64) per tensor: addresses (0 if the rule has no such state), sizes, rounding keys.
X, M, V, V_MAX, REST, STEP, COUNT, FIRST, OFFSET, SEEDS, M_SCALE, V_SCALE, V_MAX_SCALE = (
    tl.constexpr(i) for i in range(13)
)
ROW = tl.constexpr(13)

# The head of a table (int64; numbers as float64 bits): a mark, then the hyper-parameters of a step. Gradient addresses
# follow.
MARK, LR, B1, B2, EPS, SIGMA, TAU, L2, DECAY, POWER, OUTER, CLIP, LEAST, ZETA, K_LEAST, K_LAST = (
    tl.constexpr(i) for i in range(16)
)
HEAD = tl.constexpr(16)

# One row of `numbers` per tensor, in the dtype in which the step is computed.
N_K, N_RATE, N_EPS, N_DECAY, N_A, N_B, N_L2, N_SIGN, N_P, N_OUTER, N_CLIP, N_ACTIVE = (
    tl.constexpr(i) for i in range(12)
)
NUMBERS = tl.constexpr(12)

NONE, GROWING, FADING, UNNORMALISED, EQUAL, HYPERHARMONIC, LOG_TIME, POLYNOMIAL = (
    tl.constexpr(i) for i in range(8)
)
_NAMES = (None, "growing", "fading", "unnormalised", "equal", "power", "log_time", "polynomial")
KINDS = {name: i for i, name in enumerate(_NAMES)}
AVERAGE, SUM, NO_MEAN = (tl.constexpr(i) for i in range(3))
MEANS = {"average": 0, "sum": 1, "none": 2}
TERMS, LIMIT = tl.constexpr(memory.MANY_TERMS), tl.constexpr(memory.POWER_LIMIT)
C1, C2, C3, C4, C5, C6, C7, C8, C9, C10 = (tl.constexpr(b) for b in memory.BERNOULLI)
NEAREST, STOCHASTIC, KAHAN, CORRECTED = (tl.constexpr(i) for i in range(4))
ROUNDINGS = {"nearest": 0, "stochastic": 1, "kahan": 2, "24bit": 3}

TYPES = {
    torch.float32: tl.float32,
    torch.bfloat16: tl.bfloat16,
    torch.float16: tl.float16,
    torch.float64: tl.float64,
    torch.int8: tl.int8,
    torch.uint8: tl.uint8,
}


# -- coefficients of a step, in float64 -------------------------------------------------------------------------------


@triton.jit
def _log1p(x):
    """log(1 + x) for x > -1, to full precision: the rounding error of 1 + x cancels in the quotient (Kahan)."""
    u = 1.0 + x
    return tl.where(u == 1.0, x, tl.log(u) * x / tl.where(u == 1.0, 1.0, u - 1.0))


@triton.jit
def _one_minus_exp(y):
    """1 - exp(-y) for y >= 0, to full precision, with the same quotient."""
    u = tl.exp(-y)
    plain = (u == 1.0) | (y > 30.0)
    quotient = (1.0 - u) * y / -tl.log(tl.where(plain, 0.5, u))
    return tl.where(plain, tl.where(u == 1.0, y, 1.0 - u), quotient)


@triton.jit
def _mean_decay(u):
    """(1 - exp(-u)) / u for every u."""
    size = tl.where(u == 0.0, 1.0, tl.abs(u))
    mean = tl.where(u < 0.0, tl.exp(size), 1.0) * _one_minus_exp(size) / size
    return tl.where(u == 0.0, 1.0, mean)


@triton.jit
def _power_series(t, c):
    """Euler-Maclaurin's corrections, as in `memory.py`."""
    total = 1.0 - C10 / C9 * ((c + 17.0) / t) * ((c + 18.0) / t)
    total = 1.0 - C9 / C8 * ((c + 15.0) / t) * ((c + 16.0) / t) * total
    total = 1.0 - C8 / C7 * ((c + 13.0) / t) * ((c + 14.0) / t) * total
    total = 1.0 - C7 / C6 * ((c + 11.0) / t) * ((c + 12.0) / t) * total
    total = 1.0 - C6 / C5 * ((c + 9.0) / t) * ((c + 10.0) / t) * total
    total = 1.0 - C5 / C4 * ((c + 7.0) / t) * ((c + 8.0) / t) * total
    total = 1.0 - C4 / C3 * ((c + 5.0) / t) * ((c + 6.0) / t) * total
    total = 1.0 - C3 / C2 * ((c + 3.0) / t) * ((c + 4.0) / t) * total
    total = 1.0 - C2 / C1 * ((c + 1.0) / t) * ((c + 2.0) / t) * total
    return C1 * (c / t) * total


@triton.jit
def _power_gain(t, c, constant):
    """k_t of the power memory: term by term, or by the expansion at t."""
    c = tl.minimum(c, LIMIT)
    counted = t * 0.0 + 1.0
    for j in range(1, TERMS):
        there = j < t
        counted += tl.where(there, tl.exp(-c * _log1p(-tl.where(there, j / t, 0.0))), 0.0)
    log = tl.log(t)
    summed = tl.exp(c * log) * constant + t * log * _mean_decay((1.0 - c) * log) + 0.5 - _power_series(t, c)
    return 1.0 / tl.where((t <= TERMS) | (-c * TERMS > 38.0 * t), counted, summed)


@triton.jit
def _gain(t, b2, zeta, KIND: tl.constexpr):
    """k_t and log c_t (see `memory.py`; `zeta` is the power memory's constant)."""
    if KIND == GROWING:
        still = b2 == 0.0
        y = t * _log1p(b2)
        lost = tl.where(still, 1.0, _one_minus_exp(y))
        k = tl.where(still, 1.0 / t, tl.minimum(b2 * tl.exp(-y) / lost, 1.0))
        norm = tl.where(still, tl.log(t), y + tl.log(lost))
    elif KIND == FADING or KIND == UNNORMALISED:
        none = b2 == 0.0
        y = -t * tl.log(tl.where(none, 0.5, b2))
        lost = tl.where(none, 1.0, _one_minus_exp(y))
        k = tl.minimum((1.0 - b2) / lost, 1.0)
        if KIND == UNNORMALISED:
            k = t * 0.0 + (1.0 - b2)
        norm = tl.log(lost)
    elif KIND == EQUAL:
        k = 1.0 / t
        norm = tl.log(t)
    elif KIND == HYPERHARMONIC:
        k = _power_gain(t, b2, zeta)
        norm = t * 0.0
    elif KIND == LOG_TIME:
        k = b2 / (b2 + (t - 1.0))
        norm = t * 0.0
    elif KIND == POLYNOMIAL:
        k = tl.exp(-b2 * tl.log(t))
        norm = t * 0.0
    else:
        k = t * 0.0
        norm = t * 0.0
    return k, norm


@triton.jit
def _told(table, WHICH: tl.constexpr):
    return tl.load(table + WHICH).to(tl.float64, bitcast=True)


@triton.jit
def _bring(table, slot, count, mark, LANES: tl.constexpr):
    """Copy a slot from pinned host memory into the table."""
    lanes = tl.arange(0, LANES)
    head = (lanes > MARK) & (lanes < HEAD)
    tl.store(table + lanes, tl.load(slot + lanes, mask=head, other=0, volatile=True), mask=head)
    for start in range(0, count, LANES):
        i = start + lanes
        word = tl.load(slot + HEAD + i, mask=i < count, other=0, volatile=True)
        tl.store(table + HEAD + i, word, mask=i < count)
    tl.debug_barrier()
    tl.store(table + MARK, mark)


@triton.jit
def _everyone(
    table, lr_at, b1_at, b2_at, scale_at, LR_AT: tl.constexpr, B1_AT: tl.constexpr, B2_AT: tl.constexpr,
    SCALE_AT: tl.constexpr, MEAN: tl.constexpr, MAXIMIZE: tl.constexpr,
):  # fmt: skip
    """Coefficients that do not depend on the step count: lr, b1, b2, sign, a, b."""
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
    return lr, b1, b2, sign, a, b


@triton.jit
def _of_time(table, t, lr, b1, b2, KIND: tl.constexpr, DEBIAS: tl.constexpr, FLOOR: tl.constexpr):
    """Coefficients that depend on the step count: k, rate = lr * s, eps."""
    k, norm = _gain(t, b2, _told(table, ZETA), KIND)
    if KIND != NONE:
        k = tl.where(t > _told(table, K_LAST), 0.0, tl.maximum(k, _told(table, K_LEAST)))
        k = tl.maximum(k, _told(table, LEAST) * _told(table, LEAST))
    s = tl.exp(_told(table, SIGMA) * norm)
    if DEBIAS:
        s = tl.where(b1 == 0.0, s, s / _one_minus_exp(-t * tl.log(tl.where(b1 == 0.0, 0.5, b1))))
    eps = _told(table, EPS) * tl.exp(_told(table, TAU) * norm)
    if FLOOR:
        eps = tl.maximum(eps, _told(table, LEAST))
    return k, lr * s, eps


@triton.jit
def _mix(x):
    x ^= x >> 16
    x *= 0x21F0AAAD
    x ^= x >> 15
    x *= 0x735A2D97
    return x ^ (x >> 15)


@triton.jit
def _key(t, seeds):
    """The key of a tensor's random bits at step t."""
    time = t.to(tl.int64)
    first = _mix(time.to(tl.uint32) ^ seeds.to(tl.uint32))
    return _mix(first ^ (time >> 32).to(tl.uint32) ^ (seeds >> 32).to(tl.uint32))
