"""The rule as one optax transformation: the mathematics of `adaxopt.rule` over jax.numpy, and the state around it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from adaxopt.checks import check
from adaxopt.jax.rounding import stochastic
from adaxopt.rule import Numbers, step
from adaxopt.zoo import Method, method

LOW = (jnp.bfloat16, jnp.float16)
KEPT = ("bfloat16", "float16", "float32", "float64")


class ScaleByMethodState(NamedTuple):
    """Optax's names for Adam's state; what a method does not keep is None.

    `count` is an int32 that stays at 2^31 - 1 when it gets there, `nu` the normalised second moment v, `nu_max` its
    running maximum, `window` the last gradients (AdaShift).
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
    """Replace a gradient by s_t * m / (v**p + eps_t), the direction in which a method of the zoo steps.

    `options` are the rule's own (`betas`, `eps`, `p`, `wake`, `clip_update`, `eps_placement`, `window`, `correct`);
    missing ones are the method's defaults. Learning rate and weight decay are optax's affair.

    >>> direction = scale_by_method("adaxw")
    >>> g = {"w": jnp.array([2.0, -4.0])}
    >>> u, state = direction.update(g, direction.init(g))
    >>> u["w"].round(3).tolist(), state.nu["w"].tolist()               # 1-b1 of a sign, and g^2
    ([0.10000000149011612, -0.10000000149011612], [4.0, 16.0])

    Everything is computed in float32 (float64 for float64 gradients or state). State is float32 for 16-bit parameters,
    unlike optax's own, because 16-bit averages lose their small updates; `mu_dtype` and `nu_dtype` choose another, and
    what is then stored in 16 bits is rounded by chance, drawn from (seed, leaf, element, count).
    """
    row = method(name)
    o = {**row.defaults, **(options or {})}
    check(o, row.rule)
    return direction(row, o, mu_dtype, nu_dtype, seed)


def direction(
    row: Method, o: Mapping[str, Any], mu_dtype: Any, nu_dtype: Any, seed: int
) -> optax.GradientTransformation:
    """`scale_by_method` of options that are complete and checked."""
    _check_fixed(o, {"mu_dtype": mu_dtype, "nu_dtype": nu_dtype}, seed)

    def init(params: Any) -> ScaleByMethodState:
        for leaf in jax.tree.leaves(params):
            if jnp.iscomplexobj(leaf):
                raise TypeError(
                    f"{row.name}: a leaf is complex; wrap the transformation in optax.contrib.split_real_and_imaginary"
                )

        def zeros(dtype: Any, lead: tuple[int, ...] = ()) -> Any:
            return jax.tree.map(lambda x: jnp.zeros_like(x, _stored(x, dtype), lead + jnp.shape(x)), params)

        rule = row.rule
        return ScaleByMethodState(
            count=jnp.zeros([], jnp.int32),
            mu=None if rule.mean == "none" else zeros(mu_dtype),
            nu=None if rule.memory is None else zeros(nu_dtype),
            nu_max=zeros(nu_dtype) if rule.maximum else None,
            window=zeros(None, (o["window"],)) if rule.mean == "window" else None,
        )

    def update(updates: Any, state: ScaleByMethodState, params: Any = None) -> tuple[Any, ScaleByMethodState]:
        count = optax.safe_increment(state.count)
        gradients, tree = jax.tree.flatten(updates)
        kept = [_leaves(tree, part, len(gradients)) for part in state[1:]]
        known: dict[Any, Numbers] = {}
        results = []
        for place, (g, m, v, top, window) in enumerate(zip(gradients, *kept, strict=True)):
            work = jnp.result_type(jnp.float32, g, *(x for x in (m, v) if x is not None))
            if work not in known:
                known[work] = _numbers(row, count, o, work)
            wide = [x if x is None else jnp.asarray(x, work) for x in (g, m, v, top)]
            results.append(_leaf(wide, (m, v, top), window, known[work], o, count, (seed, place)))
        columns = list(zip(*results, strict=True)) or [()] * 5
        new, *parts = (
            tree.unflatten(column) if part is not None else None
            for column, part in zip(columns, (updates, *state[1:]), strict=True)
        )
        return new, ScaleByMethodState(count, *parts)

    return optax.GradientTransformation(init, update)


def _check_fixed(o: Mapping[str, Any], dtypes: Mapping[str, Any], seed: Any) -> None:
    """Raise TypeError for what a step could only stumble over: schedules, types that hold no moment, traced seeds."""
    static = "under optax.inject_hyperparams name it in static_args"
    for name, value in {**dict(zip(("b1", "b2"), o["betas"], strict=True)), **o}.items():
        if name in ("b1", "b2", "eps", "clip_update") and callable(value):
            raise TypeError(
                f"{name}={value!r}: must be a number; for a schedule of it wrap in optax.inject_hyperparams"
            )
    asked = {name: value for name, value in dtypes.items() if value is not None}
    for name, value in asked.items():
        if isinstance(value, jax.Array) or jnp.dtype(value).name not in KEPT:
            raise TypeError(f"{name}={value!r}: must be one of {', '.join(KEPT)}, or None; {static}")
    if any(jnp.dtype(value) in LOW for value in asked.values()) and not isinstance(seed, int):
        raise TypeError(f"seed={seed!r}: must be an int where state is rounded by chance; {static}")


def _stored(x: Any, asked: Any) -> Any:
    own = jnp.result_type(x)
    return asked if asked is not None else jnp.float32 if own in LOW else own


def _leaves(tree: Any, part: Any, count: int) -> list[Any]:
    return [None] * count if part is None else tree.flatten_up_to(part)


def _numbers(row: Method, count: jax.Array, options: Mapping[str, Any], work: Any) -> Numbers:
    """The rule's numbers of this step; lr = -1 and no decay make its new x, from x = 0, the direction itself."""
    neutral = {"lr": -1.0, "weight_decay": 0.0, "decay": "l2", "dtype": jnp.dtype(work).name}
    return row.numbers(count.astype(work), {**options, **neutral}, jnp)


def _leaf(
    wide: list[Any],
    narrow: tuple[Any, Any, Any],
    window: Any,
    n: Numbers,
    options: Mapping[str, Any],
    count: jax.Array,
    chance: tuple[int, int],
) -> tuple[Any, ...]:
    """One leaf's direction and its new state, stored as the old was."""
    g, m, v, top = wide
    old = None
    if window is not None:
        slot = (count - 1) % options["window"]
        old = jax.lax.dynamic_index_in_dim(window, slot, keepdims=False).astype(g.dtype)
        window = jax.lax.dynamic_update_index_in_dim(window, g.astype(window.dtype), slot, 0)
    new, m, v, top, _ = step(
        jnp.zeros((), g.dtype), g, m, v, n, top=top, old=old, wake=options["wake"], xp=jnp
    )
    stored = [
        x if x is None else _down(x, before.dtype, count, chance, stream)
        for x, before, stream in zip((m, v, top), narrow, (1, 2, 2), strict=True)
    ]
    return new, *stored, window


def _down(x: jax.Array, dtype: Any, count: jax.Array, chance: tuple[int, int], stream: int) -> jax.Array:
    if dtype in LOW:
        return stochastic(x.astype(jnp.float32), dtype, chance[0], chance[1], count, stream)
    return x.astype(dtype)
