"""Stochastic rounding in Triton, with the random bits and formats of `rounding.py`. Importing this requires Triton."""

import triton
import triton.language as tl

from adaxopt.counter_rng import FOUR
from adaxopt.torch.kernel_codes import INTERPRETED
from adaxopt.torch.kernel_numbers import _mix

FOUR_0, FOUR_1, FOUR_2, FOUR_3 = map(tl.constexpr, FOUR)


@triton.jit
def _random_bits(key, STREAM: tl.constexpr, first, lanes):
    """32 random bits for elements first + lanes (first is an int64 scalar, lanes a block of int32)."""
    secret = _mix(key + (STREAM * 0x9E3779B9 & 0xFFFFFFFF))
    return _mix(lanes.to(tl.uint32) * 0x61C88647 + (first.to(tl.uint32) * 0x61C88647 + secret))


@triton.jit
def _by_fours(key, first, lanes, WHOLE: tl.constexpr):
    """As `counter_rng.four`, for stream 1. WHOLE: `first` is a multiple of 4, so neighbours share most of the work."""
    secret = _mix(key + 0x9E3779B9)
    if WHOLE:
        four, at = (lanes >> 2).to(tl.uint32), lanes & 3
        secret += (first >> 2).to(tl.uint32) * 0x61C88647
    else:
        element = first.to(tl.uint32) + lanes.to(tl.uint32)
        four, at = element >> 2, element & 3
    shared = _mix(four * 0x61C88647 + secret)
    low, high = tl.where(at == 0, FOUR_0, FOUR_1), tl.where(at == 2, FOUR_2, FOUR_3)
    return shared * tl.where(at < 2, low, high).to(tl.uint32)


@triton.jit
def _round(x, bits, TO: tl.constexpr):
    """Round stochastically to 16 bits, through float32. NaN is unchanged. See `rounding.py` for the two formats."""
    x = x.to(tl.float32)
    raw = x.to(tl.uint32, bitcast=True)
    if tl.bfloat16 == TO:
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


@triton.jit
def _wide(x, k, CODED: tl.constexpr):
    """Convert x to the dtype of the coefficient k, in which the step is computed.

    CODED: bfloat16, the upper half of float32, takes one instruction per element. Other kernels would only use more
    registers.
    """
    if (INTERPRETED or not CODED) or x.dtype != tl.bfloat16:
        return x.to(k.dtype)
    else:
        return tl.inline_asm_elementwise(
            "shl.b32 $0, $2, 16; and.b32 $1, $2, 0xFFFF0000;",
            "=&r,=r,r", [x], dtype=tl.int32, is_pure=True, pack=2,
        ).to(tl.float32, bitcast=True)  # fmt: skip


@triton.jit
def _full(x, rest):
    """The float32 value of a bfloat16 number and its 8 correction bits; see `rounding.py`."""
    if INTERPRETED:
        raw = (x.to(tl.uint16, bitcast=True).to(tl.int32) << 16) + (rest.to(tl.int32) << 8)
    else:  # 4 neighbours at once: dp2a adds 256 times the byte that its first operand chooses
        raw = tl.inline_asm_elementwise(
            "{ .reg .b32 a, b, c, d, even, odd; mov.b32 even, 0x100; mov.b32 odd, 0x1000000; "
            "shl.b32 a, $4, 16; and.b32 b, $4, 0xFFFF0000; shl.b32 c, $5, 16; and.b32 d, $5, 0xFFFF0000; "
            "dp2a.lo.s32.s32 a, even, $6, a; dp2a.lo.s32.s32 b, odd, $6, b; "
            "dp2a.hi.s32.s32 c, even, $6, c; dp2a.hi.s32.s32 d, odd, $6, d; "
            "mov.b32 $0, a; mov.b32 $1, b; mov.b32 $2, c; mov.b32 $3, d; }",
            "=r,=r,=r,=r,r,r,r", [x, rest], dtype=tl.int32, is_pure=True, pack=4,
        )  # fmt: skip
    return raw.to(tl.float32, bitcast=True)


@triton.jit
def _split(x, bits):
    """Round float32 stochastically to 24 bits; return the nearest bfloat16 number and the correction bits."""
    if INTERPRETED:
        nan = tl.full((), 0x7FC00000, tl.uint32)
        raw = tl.where(x == x, x.to(tl.uint32, bitcast=True) + ((bits >> 8) & 0xFF), nan)
        high, low = ((raw + 0x8000) >> 16).to(tl.uint16), (raw >> 8).to(tl.int8)
    else:  # a NaN is 0x7FFFFFFF, as every result of arithmetic; dp4a adds the second byte of the bits
        raw = tl.inline_asm_elementwise(
            "{ .reg .b32 second; mov.b32 second, 0x100; min.s32 $0, $1, 0x7FC00000; "
            "dp4a.u32.u32 $0, $2, second, $0; }",
            "=&r,r,r", [x.to(tl.int32, bitcast=True), bits], dtype=tl.int32, is_pure=True, pack=1,
        )  # fmt: skip
        high = tl.inline_asm_elementwise(
            "{ .reg .b32 a, b; add.u32 a, $1, 0x8000; add.u32 b, $2, 0x8000; prmt.b32 $0, a, b, 0x7632; }",
            "=r,r,r", [raw], dtype=tl.uint16, is_pure=True, pack=2,
        )  # fmt: skip
        low = tl.inline_asm_elementwise(
            "{ .reg .b32 a, b; prmt.b32 a, $1, $2, 0x0051; prmt.b32 b, $3, $4, 0x0051; prmt.b32 $0, a, b, 0x5410; }",
            "=r,r,r,r,r", [raw], dtype=tl.int8, is_pure=True, pack=4,
        )  # fmt: skip
    return high.to(tl.bfloat16, bitcast=True), low
