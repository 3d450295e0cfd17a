"""The update rule of `adaxopt.rule` as an optax transformation, computed with jax.numpy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from adaxopt import memories
from adaxopt.bounds import own
from adaxopt.checks import check, settle
from adaxopt.jax.rounding import stochastic
from adaxopt.rule import StepCoefficients, step
from adaxopt.suggestions import TORCHS, refuse_unknown
from adaxopt.zoo import Method, method

LOW = (jnp.bfloat16, jnp.float16)
KEPT = {
    "mu_dtype": ("bfloat16", "float16", "float32", "float64"),
    "nu_dtype": ("bfloat16", "float32", "float64"),
}
"""Dtypes of the state. In float16 the square of a gradient below 2e-4 underflows, and of one above 256 overflows."""
ADVICE = {
    **TORCHS,
    "betas": "write b1=... and b2=...",
    "statedtype": "write mu_dtype=... and nu_dtype=...",
}
"""Advice for torch's names. Keys are in lower case, without underscores."""
STATIC = "under optax.inject_hyperparams name it in static_args"


class ScaleByMethodState(NamedTuple):
    """The state, under optax's names for Adam. Fields that a method does not use are None.

    `count` is an int32 that saturates at 2^31 - 1, `nu` is the normalised second moment v, `nu_max` its running
    maximum, `window` the last gradients (AdaShift).
    """

    count: jax.Array
    mu: Any
    nu: Any
    nu_max: Any = None
    window: Any = None


def scale_by_method(
    name: str,
    options: Mapping[str, Any] | None = None,
    *,
    mu_dtype: Any = None,
    nu_dtype: Any = None,
    seed: int = 0,
) -> optax.GradientTransformation:
    """Replace a gradient by s_t * m / (v**p + eps_t), the update direction of the named method.

    `options` may hold `betas`, `memory`, `total_steps`, `eps`, `p`, `wake`, `clip_update`, `cautious`, `eps_placement`,
    `window` and `correct`; missing ones are the method's defaults. Learning rate and weight decay are left to optax.

    >>> direction = scale_by_method("adaxw")
    >>> g = {"w": jnp.array([2.0, -4.0])}
    >>> u, state = direction.update(g, direction.init(g))
    >>> u["w"].round(3).tolist(), state.nu["w"].tolist()               # 1-b1 of a sign, and g^2
    ([0.10000000149011612, -0.10000000149011612], [4.0, 16.0])

    Everything is computed in float32 (float64 for float64 gradients or state). An update has the dtype of its
    parameter, or of its gradient if `update` is called without parameters. Unlike in optax, the state of 16-bit
    parameters is float32, because 16-bit averages lose small updates. `mu_dtype` and `nu_dtype` select another dtype;
    16-bit state is rounded stochastically, with random bits from (seed, leaf, element, count).
    """
    row, given = method(name), dict(options or {})
    allowed = set(row.defaults) - {"lr", "weight_decay", "decay"}
    refuse_unknown(row.name, given, allowed, advice=ADVICE)
    o = {**row.defaults, **given}
    betas = given.get("betas", (row.defaults["betas"][0], None))
    o.update(settle(row, betas, o.get("memory"), o.get("total_steps")))
    check(checkable(o), row.rule)
    return narrowed(direction(row, o, mu_dtype, nu_dtype, seed))


def direction(
    row: Method, o: Mapping[str, Any], mu_dtype: Any, nu_dtype: Any, seed: int
) -> optax.GradientTransformation:
    """`scale_by_method` for complete, validated options. Its updates are float32 or float64."""
    seed = own(seed)
    _check_fixed(o, {"mu_dtype": mu_dtype, "nu_dtype": nu_dtype}, seed)

    def init(params: Any) -> ScaleByMethodState:
        for leaf in jax.tree.leaves(params):
            if jnp.iscomplexobj(leaf):
                raise TypeError(
                    f"{row.name}: a leaf is complex; wrap the transformation in optax.contrib.split_real_and_imaginary"
                )

        def zeros(dtype: Any) -> Any:
            return jax.tree.map(lambda x: _zeros(x, _stored(x, dtype)), params)

        def windows(count: int) -> Any:
            return jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *jnp.shape(x))), zeros(None))

        rule = row.rule
        return ScaleByMethodState(
            count=jnp.zeros([], jnp.int32),
            mu=None if rule.mean == "none" else zeros(mu_dtype),
            nu=None if rule.memory is None else zeros(nu_dtype),
            nu_max=zeros(nu_dtype) if rule.maximum else None,
            window=windows(o["window"]) if rule.mean == "window" else None,
        )

    def update(updates: Any, state: ScaleByMethodState, params: Any = None) -> tuple[Any, ScaleByMethodState]:
        count = optax.safe_increment(state.count)
        gradients, tree = jax.tree.flatten(updates)
        kept = [_leaves(tree, part, len(gradients)) for part in state[1:]]
        known: dict[Any, StepCoefficients] = {}
        results = []
        for place, (g, m, v, v_max, window) in enumerate(zip(gradients, *kept, strict=True)):
            work = _stored(g, None)  # not result_type of all: float8 has no implicit promotion
            work = jnp.result_type(work, *(_stored(x, None) for x in (m, v) if x is not None))
            if work not in known:
                known[work] = _numbers(row, count, o, work)
            wide = [x if x is None else jnp.asarray(x, work) for x in (g, m, v, v_max)]
            results.append(_leaf(wide, (m, v, v_max), window, known[work], o, count, (seed, place)))
        columns = list(zip(*results, strict=True)) or [()] * 5
        new, *parts = (
            tree.unflatten(column) if part is not None else None
            for column, part in zip(columns, (updates, *state[1:]), strict=True)
        )
        return new, ScaleByMethodState(count, *parts)

    return optax.GradientTransformation(init, update)


def narrowed(inner: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
    """Wrap a transformation so that updates have the dtypes of the parameters (of the gradients without them)."""
    inner = optax.with_extra_args_support(inner)

    def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        gradients, tree = jax.tree.flatten(updates, is_leaf=lambda x: x is None)
        likes = _matching(tree, params) or gradients
        new, state = inner.update(updates, state, params, **extra)
        cast = [
            u if u is None else jnp.asarray(u, _floating(like) or _floating(g))
            for u, like, g in zip(tree.flatten_up_to(new), likes, gradients, strict=True)
        ]
        return tree.unflatten(cast), state

    return optax.GradientTransformationExtraArgs(inner.init, update)


def widened(tree: Any) -> Any:
    """Cast floating-point leaves to the dtype of the step: float64 or float32."""
    return jax.tree.map(lambda x: x if _floating(x) is None else jnp.asarray(x, _stored(x, None)), tree)


def _matching(tree: Any, params: Any) -> list[Any] | None:
    """The parameters that correspond to a tree's leaves, or None if there are none or the structures differ."""
    try:
        return None if params is None else tree.flatten_up_to(params)
    except ValueError:
        return None


def _floating(x: Any) -> Any:
    """The dtype of a floating-point array or number, or None for other values."""
    if not isinstance(x, (jax.Array, np.ndarray, np.generic, float)):
        return None
    dtype = jnp.result_type(x)
    return dtype if jnp.issubdtype(dtype, jnp.floating) else None


def checkable(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options for `checks.check`. A `p` that optax.inject_hyperparams has made an array is replaced by 0.5.

    Raises TypeError for options that cannot be arrays.
    """
    if isinstance(options.get("window"), jax.Array):
        raise TypeError(f"window={options['window']!r}: must be an int >= 1; {STATIC}")
    return {**options, "p": 0.5} if isinstance(options["p"], jax.Array) else dict(options)


def _check_fixed(o: Mapping[str, Any], dtypes: Mapping[str, Any], seed: Any) -> None:
    """Raise TypeError for values that would fail only during a step: schedules, unsupported dtypes, traced seeds."""
    for name, value in {**dict(zip(("b1", "b2"), o["betas"], strict=True)), **o}.items():
        if name in ("b1", "b2", "eps", "clip_update") and callable(value):
            raise TypeError(
                f"{name}={value!r}: must be a number; for a schedule of it wrap in optax.inject_hyperparams"
            )
    asked = {name: value for name, value in dtypes.items() if value is not None}
    for name, value in asked.items():
        if _name(value) not in KEPT[name]:
            raise TypeError(f"{name}={value!r}: must be one of {', '.join(KEPT[name])}, or None; {STATIC}")
    rounds = any(jnp.dtype(value) in LOW for value in asked.values())
    if type(seed) is not int and (rounds or not isinstance(seed, jax.Array)):
        raise TypeError(f"seed={seed!r}: must be an int; with 16-bit state, {STATIC}")


def _name(dtype: Any) -> str | None:
    """The name of a dtype, or None for a value that is no dtype."""
    try:
        return None if isinstance(dtype, jax.Array) else jnp.dtype(dtype).name
    except TypeError:
        return None


def _stored(x: Any, asked: Any) -> Any:
    """The requested dtype; with None, float64 for float64 and float32 for every other dtype."""
    if asked is not None:
        return asked
    return jnp.float64 if jnp.result_type(x) == jnp.float64 else jnp.float32


def _zeros(x: Any, dtype: Any) -> jax.Array:
    """Zeros with the sharding of x. Under jit they are computed from x, because constants are placed on one device."""
    if isinstance(x, jax.core.Tracer):
        return jnp.where(x != x, 0, 0).astype(dtype)
    return jnp.zeros_like(x, dtype)


def _leaves(tree: Any, part: Any, count: int) -> list[Any]:
    return [None] * count if part is None else tree.flatten_up_to(part)


def _numbers(row: Method, count: jax.Array, options: Mapping[str, Any], work: Any) -> StepCoefficients:
    """The coefficients of this step. With lr = -1 and no decay, a step from x = 0 gives the direction."""
    neutral = {"lr": -1.0, "weight_decay": 0.0, "decay": "l2", "dtype": jnp.dtype(work).name}
    wide = {k: _wide(options[k], work) for k in ("eps", "p", "clip_update") if k in options}
    betas = tuple(_wide(b, work) for b in options["betas"])
    return row.numbers(count.astype(work), {**options, **wide, "betas": betas, **neutral}, jnp)


def _wide(number: Any, work: Any) -> Any:
    """A hyper-parameter in the dtype of the step: optax.inject_hyperparams casts it to the parameters' dtype."""
    return number.astype(work) if isinstance(number, jax.Array) else number


def _leaf(
    wide: list[Any],
    narrow: tuple[Any, Any, Any],
    window: Any,
    n: StepCoefficients,
    options: Mapping[str, Any],
    count: jax.Array,
    keys: tuple[int, int],
) -> tuple[Any, ...]:
    """One leaf's direction and its new state, in the dtypes of the old state."""
    g, m, v, v_max = wide
    old = None
    if window is not None:
        slot = (count - 1) % options["window"]
        old = jax.lax.dynamic_index_in_dim(window, slot, keepdims=False).astype(g.dtype)
        window = jax.lax.dynamic_update_index_in_dim(window, g.astype(window.dtype), slot, 0)
    new, m, v, v_max, _ = step(
        jnp.zeros((), g.dtype), g, m, v, n, v_max=v_max, old=old, wake=memories.guarded(options), xp=jnp
    )
    stored = [
        x if x is None else _down(x, before.dtype, count, keys, stream)
        for x, before, stream in zip((m, v, v_max), narrow, (1, 2, 2), strict=True)
    ]
    return new, *stored, window


def _down(x: jax.Array, dtype: Any, count: jax.Array, keys: tuple[int, int], stream: int) -> jax.Array:
    if dtype in LOW:
        return stochastic(x.astype(jnp.float32), dtype, keys[0], keys[1], count, stream)
    return x.astype(dtype)
