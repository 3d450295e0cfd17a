"""Stochastic rounding in Triton, with the random bits and formats of `rounding.py`. Importing this requires Triton."""

import triton
import triton.language as tl

from adaxopt.counter_rng import FOUR
from adaxopt.torch.kernel_numbers import _mix

FOUR_0, FOUR_1, FOUR_2, FOUR_3 = map(tl.constexpr, FOUR)


@triton.jit
def _chance(key, STREAM: tl.constexpr, first, lanes):
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
def _full(x, rest):
    """The float32 value of a bfloat16 number and its 8 correction bits; see `rounding.py`."""
    high = x.to(tl.uint16, bitcast=True).to(tl.int32) << 16
    return (high + (rest.to(tl.int32) << 8)).to(tl.float32, bitcast=True)


@triton.jit
def _split(x, bits):
    """Round float32 stochastically to 24 bits; return the nearest bfloat16 number and the correction bits."""
    nan = tl.full((), 0x7FC00000, tl.uint32)
    raw = tl.where(x == x, x.to(tl.uint32, bitcast=True) + ((bits >> 8) & 0xFF), nan)
    high = (raw + 0x8000) >> 16
    return high.to(tl.uint16).to(tl.bfloat16, bitcast=True), (raw >> 8).to(tl.int8)
