"""Random bits as a pure function of (seed, parameter, element, step, stream). `torch/rounding.py` explains the design.

The functions accept Python ints, int64 tensors holding 0 ... 2^32-1 (torch) and uint32 arrays, which wrap around (JAX).
All three give the same bits.
"""

from __future__ import annotations

from typing import Any

MASK = 0xFFFFFFFF
GOLDEN = 0x9E3779B9
WEYL, MIX_1, MIX_2 = 0x61C88647, 0x21F0AAAD, 0x735A2D97
"""All are below 2^31, so a product with a 32-bit number fits in int64, which torch supports on every device."""


def mix(x: Any, mask: Any = MASK) -> Any:
    """A permutation of 32-bit numbers in which every input bit flips every output bit half the time."""
    x = x ^ (x >> 16)
    x = (x * MIX_1) & mask
    x = x ^ (x >> 15)
    x = (x * MIX_2) & mask
    return x ^ (x >> 15)


FOUR = (WEYL, MIX_1, MIX_2, 0x2C1B3C6D)


def four(element: Any, key: Any) -> Any:
    """Random bits for int64 element indices. Four neighbours share one `mix`, which takes a third of the work.

    A test bounds the correlations between neighbours.
    """
    shared = mix(((element >> 2) * WEYL + key) & MASK)
    at = element & 3
    odd = sum((at == i) * FOUR[i] for i in range(4))
    return (shared * odd) & MASK


def seeds(seed: int, index: int) -> tuple[int, int]:
    """Two 32-bit numbers (a, b) from a seed and a parameter index, which may be any ints (splitmix64's finalizer)."""
    z = (seed * 0x9E3779B97F4A7C15 + index * 0xD1342543DE82EF95 + 0x632BE59BD9B4E019) & 0xFFFFFFFFFFFFFFFF
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    z ^= z >> 31
    return z & MASK, z >> 32


def key(seed: int, index: int, low: Any, high: Any, stream: int, of: Any = int) -> Any:
    """The 32-bit key of a tensor, step (its low and high 32 bits) and stream. `of` converts constants to the dtype."""
    a, b = seeds(seed, index)
    mask = of(MASK)
    inner = mix(mix(low ^ of(a), mask) ^ high ^ of(b), mask)
    return mix((inner + of(stream * GOLDEN & MASK)) & mask, mask)
