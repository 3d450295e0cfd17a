"""Stochastic rounding with a counter-based generator: the same bits as `adaxopt.torch.rounding`, in JAX's uint32."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from adaxopt.counter_rng import MASK, WEYL, key, mix


def stochastic(x: jax.Array, dtype: Any, seed: int, index: int, count: jax.Array, stream: int) -> jax.Array:
    """Round float32 `x` stochastically to bfloat16 or float16. inf and nan are unchanged.

    Elements are counted in logical order, which sharding does not change: replicas and shards under jit draw the same
    bits as a single device. (Elements beyond 2^32 repeat the random bits of the first.)

    >>> x = jnp.full((10_000,), 1 + 2**-9)                             # a quarter of the way from 1 to 1 + 2^-7
    >>> up = (stochastic(x, jnp.bfloat16, 0, 0, jnp.int32(1), 0) > 1).mean()
    >>> bool(abs(up - 0.25) < 0.02)
    True
    """
    element = jnp.zeros(x.shape, jnp.uint32)
    for axis, size in enumerate(x.shape):
        element = element * jnp.uint32(size) + jax.lax.broadcasted_iota(jnp.uint32, x.shape, axis)
    secret = key(seed, index, count.astype(jnp.uint32), jnp.uint32(0), stream, jnp.uint32)
    bits = mix(element * jnp.uint32(WEYL) + secret, jnp.uint32(MASK))
    rounded = _bfloat16(x, bits) if dtype == jnp.bfloat16 else _float16(x, bits)
    return jnp.where(jnp.isfinite(x), rounded, x).astype(dtype)


def _raised(x: jax.Array, bits: jax.Array, places: int) -> jax.Array:
    """Add random bits below the last kept bit, then truncate: 16 bits of a float32 for bfloat16, 13 for float16."""
    whole = jax.lax.bitcast_convert_type(x, jnp.uint32) + (bits >> (32 - places))
    return jax.lax.bitcast_convert_type(whole & jnp.uint32(0x100000000 - (1 << places)), jnp.float32)


def _bfloat16(x: jax.Array, bits: jax.Array) -> jax.Array:
    return _raised(x, bits, 16)


def _float16(x: jax.Array, bits: jax.Array) -> jax.Array:
    """Below 2^-14, where the spacing is constant, round in units of 2^-24."""
    count = jnp.abs(x) * 2.0**24
    whole = jnp.floor(count)
    up = (bits >> 8).astype(jnp.float32) * 2.0**-24 < count - whole
    small = jnp.copysign(jnp.where(up, whole + 1, whole) * 2.0**-24, x)
    return jnp.where(jnp.abs(x) < 2.0**-14, small, _raised(x, bits, 13))
