"""8-bit moments in Triton: the format of `codes.py` on blocks of (groups, 32) elements, bitwise the same.

Compiled kernels use the device's approximate square roots and quotients. Importing this module requires Triton.
"""

import triton
import triton.language as tl

from adaxopt.torch import codes

GROUP, TAIL = tl.constexpr(codes.GROUP), tl.constexpr(codes.TAIL)
M_SPAN, V_SPAN = (tl.constexpr(codes.SPAN[kind]) for kind in (codes.FIRST, codes.SECOND))
M_ROOM, V_ROOM = (tl.constexpr(codes.ROOM[kind]) for kind in (codes.FIRST, codes.SECOND))
LEAST, HIGH = tl.constexpr(codes.LEAST), tl.constexpr(codes.HIGH)
LITTLE = tl.constexpr(2.0**-63)
LOST_X = tl.constexpr(31.0 / 16)
"""x(LOST)*2^-15"""
CODE_1, RAISE = tl.constexpr(1 << codes.TAIL), tl.constexpr(24 - codes.TAIL)
"""Code 1 at its position in the result of `_bits`, and the shift from there to the highest byte."""
RARE = tl.constexpr(2.0**-10)
"""At or below this gain, unchanged groups of v are frequent enough to be detected; they are not written."""


@triton.jit
def _lanes(BLOCK: tl.constexpr, CODED: tl.constexpr):
    """Positions of a block's elements: 1-D, or 2-D with one group of 32 per row."""
    if CODED:
        groups = tl.arange(0, BLOCK // GROUP)
        return groups[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    else:
        return tl.arange(0, BLOCK)


INTERPRETED = tl.constexpr(not isinstance(_lanes, triton.runtime.JITFunction))


@triton.jit
def _scales(address, start, left, BLOCK: tl.constexpr):
    """The addresses of a block's exponents, as integers, and a mask of those that exist."""
    groups = tl.arange(0, BLOCK // GROUP)[:, None]
    return address + start // GROUP + groups, (groups * GROUP < left).to(tl.int32)


@triton.jit
def _read_scales(at, there, MASKED: tl.constexpr):
    """Load exponents. Compiled, every thread loads those of its own groups; `tl.load` would load each once and exchange
    them between threads."""
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
def _write_scales(at, exponent, there, lanes, EACH: tl.constexpr):
    """Store exponents. Compiled, every thread of a group stores the same value once, for its EACH neighbours."""
    if INTERPRETED:
        tl.store(at.to(tl.pointer_type(tl.uint8)), exponent.to(tl.uint8), mask=there != 0)
    else:
        tl.inline_asm_elementwise(
            "{ .reg .pred p; setp.ne.s32 p, $3, 0; @p st.global.u8 [$1], $2; mov.u32 $0, 0; }",
            "=r,l,r,r", [at, exponent, tl.where((lanes & (EACH - 1)) == 0, there, 0)], dtype=tl.int32, is_pure=False,
            pack=1,
        )  # fmt: skip


@triton.jit
def _power(exponent):
    """2^(exponent - 127) for exponents of a normal number."""
    return (exponent << 23).to(tl.float32, bitcast=True)


@triton.jit
def _bits(size, exponent):
    """The code of S*x, followed by TAIL more bits. As a float32 these bits are x*2^-127, so codes below 16 are
    subnormal numbers. Two multiplications are needed, because 2^(127 - E) * 2^-127 may not be a float32 number.

    `mul.rn` is required: without an explicit rounding mode, ptxas 12.8 removes some of these products.
    """
    if INTERPRETED:
        x = size * _power(253 - exponent) * 2.0**-126
    else:
        x = tl.inline_asm_elementwise(
            "mul.rn.f32 $0, $1, $2; mul.rn.f32 $0, $0, 0f00800000;",
            "=&f,f,f", [size, _power(253 - exponent)], dtype=tl.float32, is_pure=True, pack=1,
        )  # fmt: skip
    return x.to(tl.int32, bitcast=True)


@triton.jit
def _read_m(codes, exponent):
    """S*x with its sign. A code shifted left by 6 bits is x*2^-15 as a float16; codes below 16 are subnormal there."""
    if INTERPRETED:
        code = codes.to(tl.int16)
        half = ((code & 0x7F) << 6) | ((code & 0x80) << 8)
        x = half.to(tl.float16, bitcast=True).to(tl.float32)
    else:  # 4 neighbours at once: move each code to the high byte of 16 bits, then shift all but its sign right by 2
        x = tl.inline_asm_elementwise(
            "{ .reg .b32 a, b, c, d; .reg .b16 e, f, g, h; prmt.b32 a, $4, 0, 0x1404; prmt.b32 b, $4, 0, 0x3424; "
            "shr.u32 c, a, 2; shr.u32 d, b, 2; and.b32 c, c, 0x1FC01FC0; and.b32 d, d, 0x1FC01FC0; "
            "lop3.b32 a, a, 0x80008000, c, 0xEA; lop3.b32 b, b, 0x80008000, d, 0xEA; "
            "mov.b32 {e, f}, a; mov.b32 {g, h}, b; "
            "cvt.f32.f16 $0, e; cvt.f32.f16 $1, f; cvt.f32.f16 $2, g; cvt.f32.f16 $3, h; }",
            "=f,=f,=f,=f,r", [codes], dtype=tl.float32, is_pure=True, pack=4,
        )  # fmt: skip
    return x * _power(exponent + 15)


@triton.jit
def _read_v(codes, exponent):
    """As `_read_m`, without a sign; infinite for a lost v."""
    if INTERPRETED:
        x = (codes.to(tl.int16) << 6).to(tl.float16, bitcast=True).to(tl.float32)
    else:
        x = tl.inline_asm_elementwise(
            "{ .reg .b32 a, b; .reg .b16 e, f, g, h; prmt.b32 a, $4, 0, 0x4140; prmt.b32 b, $4, 0, 0x4342; "
            "shl.b32 a, a, 6; shl.b32 b, b, 6; mov.b32 {e, f}, a; mov.b32 {g, h}, b; "
            "cvt.f32.f16 $0, e; cvt.f32.f16 $1, f; cvt.f32.f16 $2, g; cvt.f32.f16 $3, h; }",
            "=f,=f,=f,=f,r", [codes], dtype=tl.float32, is_pure=True, pack=4,
        )  # fmt: skip
    return tl.where(x == LOST_X, float("inf"), x * _power(exponent + 15))


@triton.jit
def _denominator(v, eps):
    """sqrt(v) + eps, accurate to 1 or 2 ulp; at least 2^-63."""
    least = tl.maximum(eps, LITTLE)
    if INTERPRETED:
        return tl.sqrt(v) + least
    else:
        root = tl.inline_asm_elementwise(
            "sqrt.approx.ftz.f32 $0, $1;", "=f,f", [v], dtype=tl.float32, is_pure=True, pack=1
        )
        return root + least


@triton.jit
def _quotient(a, b):
    """a / b for b between 2^-126 and 2^126, accurate to 1 or 2 ulp."""
    if INTERPRETED:
        return a / b
    else:
        return tl.inline_asm_elementwise(
            "div.approx.ftz.f32 $0, $1, $2;", "=f,f,f", [a, b], dtype=tl.float32, is_pure=True, pack=1
        )


@triton.jit
def _toward(v, g, k, WAKE: tl.constexpr):
    """(1-k)*v + k*g*g. The rounding error of 1-k is far below the spacing of codes. WAKE: g*g where v is 0."""
    if WAKE:
        v = tl.where(v == 0.0, g * g, v)
    new = (k * g) * g
    if k < 1.0:  # an infinite v stays infinite
        new += (1.0 - k) * v
    return new


@triton.jit
def _exponent(size, ROOM: tl.constexpr, SPAN: tl.constexpr):
    """The exponent E of every group."""
    largest = tl.max(size, axis=1, keep_dims=True).to(tl.int32, bitcast=True)
    return tl.maximum(((largest + ROOM) >> 23) - SPAN, LEAST)


@triton.jit
def _bytes(x):
    """The highest byte of every number; compiled, 3 instructions for 4 neighbours."""
    if INTERPRETED:
        return (x >> 24).to(tl.uint8)
    else:
        return tl.inline_asm_elementwise(
            "{ .reg .u32 a, b; prmt.b32 a, $1, $2, 0x0073; prmt.b32 b, $3, $4, 0x0073; prmt.b32 $0, a, b, 0x5410; }",
            "=r,r,r,r,r", [x], dtype=tl.uint8, is_pure=True, pack=4,
        )  # fmt: skip


@triton.jit
def _with_sign(x, y):
    """x with the highest bit of y; compiled, one instruction (0xE4: the third operand chooses between the others)."""
    if INTERPRETED:
        return (x & 0x7FFFFFFF) | (y & -0x80000000)
    else:
        return tl.inline_asm_elementwise(
            "lop3.b32 $0, $1, $2, 0x7FFFFFFF, 0xE4;", "=r,r,r", [x, y], dtype=tl.int32, is_pure=True, pack=1
        )


@triton.jit
def _code_m(m, bits, alive):
    """Codes and exponents of m; 0 where `alive` is False."""
    size = tl.where(alive, tl.abs(m), 0.0)
    exponent = _exponent(size, M_ROOM, M_SPAN)
    code = (_bits(size, exponent) << RAISE) + (bits >> 8).to(tl.int32)
    return _bytes(_with_sign(code, m.to(tl.int32, bitcast=True))).to(tl.int8, bitcast=True), exponent


@triton.jit
def _code_v(v, bits, kept, alive):
    """Codes and exponents of v: lost where `kept` is False, else 0 where `alive` is False."""
    exponent = _exponent(v, V_ROOM, V_SPAN)
    code = tl.maximum(_bits(v, exponent), tl.where(alive, CODE_1, 0))
    return _bytes(tl.where(kept, (code << RAISE) + (bits & 0xFFFFFF).to(tl.int32), -1)), exponent


@triton.jit
def _write_v(
    at, lanes, code, scale_at, exponent, old, old_exponent, k, inside, there, EACH: tl.constexpr, MASKED: tl.constexpr
):  # fmt: skip
    """Write v; if the gain is small, only groups that changed."""
    other = there if MASKED else there * 0 + 1
    if k <= RARE:  # no store in this branch: Triton 3.6 does not compile it
        other = tl.max((code != old).to(tl.int32), axis=1, keep_dims=True)
        other = (other | (exponent != old_exponent).to(tl.int32)) & there
    if MASKED:
        tl.store(at + lanes, code, mask=(other != 0) & inside)
    else:
        tl.store(at + lanes, code, mask=other != 0)
    _write_scales(scale_at, exponent, other, lanes, EACH)
