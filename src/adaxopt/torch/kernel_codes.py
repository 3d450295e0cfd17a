"""Moments in 8 bits inside the kernel: `codes.py` over blocks of (groups, 32) elements, bit for bit.

Compiled, roots and quotients are the fastest that the device has. Importing this module needs Triton.
"""

import triton
import triton.language as tl

from adaxopt.torch import codes

GROUP, TAIL = tl.constexpr(codes.GROUP), tl.constexpr(codes.TAIL)
M_SPAN, V_SPAN = (tl.constexpr(codes.SPAN[kind]) for kind in (codes.FIRST, codes.SECOND))
M_ROOM, V_ROOM = (tl.constexpr(codes.ROOM[kind]) for kind in (codes.FIRST, codes.SECOND))
LEAST, LOST, HIGH = tl.constexpr(codes.LEAST), tl.constexpr(codes.LOST), tl.constexpr(codes.HIGH)
LARGEST = tl.constexpr(3.4028234663852886e38)
SMALLEST, HUGE = tl.constexpr(2.0**-126), tl.constexpr(2.0**127)
TAILS = tl.constexpr((1 << codes.TAIL) - 1)
RARE = tl.constexpr(2.0**-10)
"""From this gain on down, groups of v whose codes stay are frequent enough to look for: they are not written."""


@triton.jit
def _lanes(BLOCK: tl.constexpr, CODED: tl.constexpr):
    """Positions of a block's elements: a line, or groups of 32 below each other."""
    if CODED:
        groups = tl.arange(0, BLOCK // GROUP)
        return groups[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    else:
        return tl.arange(0, BLOCK)


INTERPRETED = tl.constexpr(not isinstance(_lanes, triton.runtime.JITFunction))


@triton.jit
def _scales(address, start, left, BLOCK: tl.constexpr):
    """Where the exponents of a block lie, as numbers, and which of them exist."""
    groups = tl.arange(0, BLOCK // GROUP)[:, None]
    return address + start // GROUP + groups, (groups * GROUP < left).to(tl.int32)


@triton.jit
def _read_scales(at, there, MASKED: tl.constexpr):
    """Compiled, every thread reads those of its own groups: `tl.load` would read each once, and exchange them."""
    if INTERPRETED:
        return tl.load(at.to(tl.pointer_type(tl.uint8)), mask=there != 0, other=0).to(tl.int32)
    elif MASKED:
        return tl.inline_asm_elementwise(
            "{ .reg .pred p; setp.ne.s32 p, $2, 0; mov.u32 $0, 0; @p ld.global.u8 $0, [$1]; }",
            "=r,l,r", [at, there], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
    else:
        return tl.inline_asm_elementwise(
            "ld.global.u8 $0, [$1];", "=r,l", [at], dtype=tl.int32, is_pure=False, pack=1
        )


@triton.jit
def _write_scales(at, exponent, there, MASKED: tl.constexpr):
    if INTERPRETED:
        tl.store(at.to(tl.pointer_type(tl.uint8)), exponent.to(tl.uint8), mask=there != 0)
    elif MASKED:  # by every thread of a group, the same number
        tl.inline_asm_elementwise(
            "{ .reg .pred p; setp.ne.s32 p, $3, 0; @p st.global.u8 [$1], $2; mov.u32 $0, 0; }",
            "=r,l,r,r", [at, exponent, there], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
    else:
        tl.inline_asm_elementwise(
            "st.global.u8 [$1], $2; mov.u32 $0, 0;",
            "=r,l,r", [at, exponent], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip


@triton.jit
def _power(exponent):
    """2^(exponent - 127), and 0 for 0."""
    return (exponent << 23).to(tl.float32, bitcast=True)


@triton.jit
def _number(code, exponent):
    w = ((code << TAIL) + ((exponent + 1) << 23)).to(tl.float32, bitcast=True)
    return w - 0.5 * tl.maximum(w, _power(exponent + 2))


@triton.jit
def _read_m(codes, exponent):
    code = codes.to(tl.int32)
    size = _number(code & 127, exponent).to(tl.int32, bitcast=True)
    return (size | (code & -0x80000000)).to(tl.float32, bitcast=True)


@triton.jit
def _read_v(codes, exponent):
    code = codes.to(tl.int32)
    return tl.where(code == LOST, float("inf"), _number(code, exponent))


@triton.jit
def _denominator(v):
    """sqrt(v), to a unit or two of the last place; never 0."""
    x = v + SMALLEST
    if INTERPRETED:
        return tl.sqrt(x)
    else:
        return tl.inline_asm_elementwise(
            "sqrt.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )


@triton.jit
def _quotient(a, b):
    """a / b for b between 2^-126 and 2^126, to a unit or two of the last place."""
    if INTERPRETED:
        return a / b
    else:
        return tl.inline_asm_elementwise(
            "div.approx.ftz.f32 $0, $1, $2;", "=f,f,f", [a, b], dtype=tl.float32, is_pure=True, pack=1
        )


@triton.jit
def _toward(v, g, k):
    """v + k*(g*g - v), as in `rule.toward`."""
    new = (k * g) * g
    if k < 0.5:
        v = v + (new - k * tl.minimum(v, LARGEST))  # an infinite v stays infinite
    elif k < 1.0:
        v = new + (1.0 - k) * v
    else:
        v = new
    return v


@triton.jit
def _above(size, two):
    """The bits of w above `two`, those of 2*S."""
    w = size + tl.maximum(size, two.to(tl.float32, bitcast=True))
    return w.to(tl.int32, bitcast=True) - two


@triton.jit
def _code_m(m, bits, v):
    """Codes and exponents of m; 0 where v is 0."""
    size = tl.where(v > 0.0, tl.abs(m), 0.0) if INTERPRETED else tl.minimum(tl.abs(m), v * HUGE)
    largest = tl.max(size, axis=1, keep_dims=True).to(tl.int32, bitcast=True)
    exponent = tl.maximum(((largest + M_ROOM) >> 23) - M_SPAN, LEAST)
    code = (_above(size, (exponent + 1) << 23) + (bits >> 13).to(tl.int32)) << 5
    code = (code & 0x7F000000) | (m.to(tl.int32, bitcast=True) & -0x80000000)
    return (code >> 24).to(tl.int8), exponent


@triton.jit
def _code_v(v, bits, kept):
    """Codes and exponents of v; lost where it is not `kept`."""
    size = tl.where(kept, v, 0.0)
    largest = tl.max(size, axis=1, keep_dims=True).to(tl.int32, bitcast=True)
    exponent = tl.maximum(((largest + V_ROOM) >> 23) - V_SPAN, LEAST)
    least = tl.minimum((size * 2.0**24).to(tl.int32, bitcast=True), TAILS + 1)  # of every v above 0: code 1
    code = (tl.maximum(_above(size, (exponent + 1) << 23), least) + (bits & TAILS).to(tl.int32)) >> TAIL
    return tl.where(kept, code, LOST).to(tl.uint8), exponent


@triton.jit
def _write_v(at, lanes, code, scale_at, exponent, old, old_exponent, k, inside, there, MASKED: tl.constexpr):
    """Write v; where the gain is small, only groups that change."""
    other = there if MASKED else there * 0 + 1
    if k <= RARE:  # no store in here: Triton 3.6 would not compile it
        other = tl.max((code != old).to(tl.int32), axis=1, keep_dims=True)
        other = (other | (exponent != old_exponent).to(tl.int32)) & there
    if MASKED:
        tl.store(at + lanes, code, mask=(other != 0) & inside)
    else:
        tl.store(at + lanes, code, mask=other != 0)
    _write_scales(scale_at, exponent, other, True)
