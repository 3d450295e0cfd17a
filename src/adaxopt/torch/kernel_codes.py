"""Moments in 8 bits inside the kernel: `codes.py` over blocks of (groups, 32) elements, bit for bit in IEEE arithmetic.

Compiled, roots and quotients are the fastest that the device has. A root that chooses a code may be off by a unit: what
follows is computed from exact squares, and mends it. Importing this module needs Triton.
"""

import triton
import triton.language as tl

from adaxopt.torch import codes

GROUP, BACK = tl.constexpr(codes.GROUP), tl.constexpr(codes.BACK)
M_ROOM, V_ROOM = (tl.constexpr(codes.ROOM[kind]) for kind in (codes.FIRST, codes.SECOND))
M_LEAST, V_LEAST = (tl.constexpr(codes.LEAST[kind]) for kind in (codes.FIRST, codes.SECOND))
LOST = tl.constexpr(float(codes.LOST))
WHOLE = tl.constexpr(1.5 * 2**23)
"""Added to a number of this size's 22 bits, it rounds it to a whole one, which then stands in the lowest bits."""
LARGEST = tl.constexpr(3.4028234663852886e38)
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
    """Where the exponents of a block lie, and which of them exist."""
    groups = tl.arange(0, BLOCK // GROUP)[:, None]
    return address.to(tl.pointer_type(tl.uint8)) + start // GROUP + groups, groups * GROUP < left


@triton.jit
def _power(exponent):
    """2^(exponent - 127), and 0 for 0."""
    return (exponent << 23).to(tl.float32, bitcast=True)


@triton.jit
def _read_m(codes, exponent):
    code = codes.to(tl.int32).to(tl.float32)
    return code * tl.abs(code) * _power(exponent.to(tl.int32))


@triton.jit
def _read_v(codes, exponent):
    code = codes.to(tl.float32)
    root = code * code * _power(exponent.to(tl.int32))
    return tl.where(code == LOST, float("inf"), root * root)


@triton.jit
def _root(x):
    """sqrt(x), to a unit or two of the last place."""
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
def _square(x):
    """x*x, rounded: not fused with what follows."""
    if INTERPRETED:
        return x * x
    else:
        return tl.inline_asm_elementwise(
            "mul.rn.f32 $0, $1, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
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
def _draw(bits):
    """23 random bits, above those of a float32 between 1 and 2, as a number inside of 0 and 1."""
    return (bits | 0x3F800000).to(tl.float32, bitcast=True) - 0.999999940395355224609375


@triton.jit
def _code_m(m, bits, v):
    """Codes and exponents of m; 0 where v is infinite, toward 0 where v is 0."""
    size = tl.where(v < float("inf"), tl.abs(m), 0.0)
    largest = tl.max(size, axis=1, keep_dims=True).to(tl.int32, bitcast=True)
    exponent = tl.maximum(((largest + M_ROOM) >> 23) - 13, M_LEAST)
    size = size * _power(254 - exponent)
    code = (_root(size) - BACK + WHOLE) - WHOLE
    up = (size - code * code > _draw(bits >> 9) * (2.0 * code + 1.0)) & (v > 0.0)
    code = tl.where(up, code + 1.0, code)
    sign = m.to(tl.int32, bitcast=True) & -0x80000000
    code = (code.to(tl.int32, bitcast=True) | sign).to(tl.float32, bitcast=True)
    return (code + WHOLE).to(tl.int32, bitcast=True).to(tl.int8), exponent.to(tl.uint8)


@triton.jit
def _code_v(v, bits):
    """Codes and exponents of v, and sqrt(v)."""
    largest = tl.max(tl.where(v < float("inf"), v, 0.0), axis=1, keep_dims=True).to(tl.int32, bitcast=True)
    exponent = tl.maximum((((largest + V_ROOM) >> 23) + 97) >> 1, V_LEAST)
    size = v * _power(381 - 2 * exponent)
    root = _root(size)
    near = (_root(root) + WHOLE) - WHOLE
    beyond = size - _square(near * near)
    code = tl.where(beyond < 0.0, near - 1.0, near)
    odd = 2.0 * code + 1.0
    gap = odd * (2.0 * (code * code) + odd)
    up = tl.where(beyond < 0.0, beyond + gap, beyond) > _draw(bits & 0x7FFFFF) * gap
    code = tl.maximum(tl.where(up, code + 1.0, code), 1.0)
    code = tl.where(v <= LARGEST, tl.where(v == 0.0, 0.0, code), LOST)
    return (
        (code + WHOLE).to(tl.int32, bitcast=True).to(tl.uint8),
        exponent.to(tl.uint8),
        root * _power(exponent),
    )


@triton.jit
def _write_coded(at, lanes, code, scale_at, exponent, inside, there, MASKED: tl.constexpr):
    if MASKED:
        tl.store(at + lanes, code, mask=inside)
        tl.store(scale_at, exponent, mask=there)
    else:
        tl.store(at + lanes, code)
        tl.store(scale_at, exponent)


@triton.jit
def _write_v(at, lanes, code, scale_at, exponent, old, old_exponent, k, inside, there, MASKED: tl.constexpr):
    """Write v; where the gain is small, only groups that change."""
    other = there
    if k <= RARE:  # no store in here: Triton 3.6 would not compile it
        other = tl.max((code != old).to(tl.int32), axis=1, keep_dims=True) > 0
        other = (other | (exponent != old_exponent)) & there
    if MASKED:
        tl.store(at + lanes, code, mask=other & inside)
    else:
        tl.store(at + lanes, code, mask=other)
    tl.store(scale_at, exponent, mask=other)
