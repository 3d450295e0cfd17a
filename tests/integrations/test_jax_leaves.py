"""adaxopt.jax on leaves of every dtype and placement, and under optax.inject_hyperparams."""

import numpy as np
import pytest

from adaxopt.zoo import METHODS

pytestmark = pytest.mark.needs("jax", "optax")
feature = pytest.mark.feature
DTYPES = ("bfloat16", "float16", "float32", "float8_e4m3fn", "float8_e5m2")
OPTAX = "inject_hyperparams, MultiSteps, multi_transform, apply_if_finite"


def transforms():
    """Every way to make a transformation, by name."""
    from adaxopt import jax as ours

    found = {name: ours.create(name, 0.1) for name in METHODS}
    found |= {f"{d} decay": ours.adaxw(0.1, weight_decay=0.1, decay=d) for d in ("l2", "fully_decoupled")}
    found |= {f"direction of {name}": ours.scale_by_method(name) for name in METHODS}
    return {**found, "scale_by_adax": ours.scale_by_adax(), "no decay": ours.adaxw(0.1, weight_decay=0.0)}


def tree(dtype):
    import jax.numpy as jnp

    return {
        "a": [jnp.full((2, 3), 0.5, dtype), None],
        "b": {"c": (jnp.ones(4, dtype), jnp.ones((), "float32"))},
    }


def dtypes(some):
    import jax

    return [str(leaf.dtype) for leaf in jax.tree.leaves(some)]


@feature("JAX / optax", "updates have their parameters' dtypes")
@pytest.mark.parametrize("dtype", DTYPES)
def test_updates_have_the_parameters_dtypes_and_state_is_float32(dtype):
    import jax
    import optax

    for name, optimizer in transforms().items():
        x = tree(dtype)
        state = optimizer.init(x)
        updates, after = jax.jit(optimizer.update)(x, state, x)
        assert dtypes(updates) == dtypes(x), name
        assert dtypes(after) == dtypes(state), name
        assert set(dtypes(state)) <= {"float32", "int32"}, name
        assert dtypes(optax.apply_updates(x, updates)) == dtypes(x), name


def test_an_update_without_parameters_has_its_gradients_dtype():
    import jax.numpy as jnp

    from adaxopt.jax import adaxw, scale_by_adax

    for optimizer in (scale_by_adax(), adaxw(0.1, weight_decay=0.0)):
        for dtype in DTYPES:
            x = jnp.ones(3, dtype)
            assert str(optimizer.update(x, optimizer.init(x))[0].dtype) == dtype


@pytest.mark.parametrize(("params", "gradients"), [("bfloat16", "float32"), ("float32", "bfloat16")])
def test_the_parameters_decide_where_gradients_have_another_dtype(params, gradients):
    import jax.numpy as jnp

    for name, optimizer in transforms().items():
        x, g = jnp.ones(3, params), jnp.ones(3, gradients)
        assert str(optimizer.update(g, optimizer.init(x), x)[0].dtype) == params, name


def test_an_update_is_rounded_once():
    """The float32 update of a float32 copy, rounded to the nearest bfloat16."""
    import jax.numpy as jnp

    from adaxopt.jax import adaxw

    low = jnp.linspace(-2, 3, 1000).astype(jnp.bfloat16)
    found, expected = (
        adaxw(0.3, weight_decay=0.7).update(x, adaxw().init(x), x)[0] for x in (low, low.astype("float32"))
    )
    np.testing.assert_array_equal(
        np.asarray(found, "float32"), np.asarray(expected.astype(jnp.bfloat16), "float32")
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_nothing_is_promoted_implicitly(dtype):
    import jax
    import jax.numpy as jnp

    from adaxopt.jax import create

    x = {"a": jnp.ones(3, jnp.bfloat16), "b": jnp.full(2, 1e-3)}
    with jax.numpy_dtype_promotion("strict"):
        for name in METHODS:
            optimizer = create(name, 0.1, mu_dtype=dtype, nu_dtype=None if dtype == "float16" else dtype)
            jax.jit(optimizer.update)(x, optimizer.init(x), x)


def test_a_seed_may_be_a_number_of_numpy():
    import jax.numpy as jnp

    from adaxopt.jax import scale_by_adax

    x = jnp.linspace(0.1, 1, 50)
    one, other, third = (
        scale_by_adax(mu_dtype="bfloat16", seed=seed).update(x, scale_by_adax(mu_dtype="bfloat16").init(x))[1]
        for seed in (7, np.int64(7), 8)
    )
    assert bool((one.mu == other.mu).all())
    assert bool((one.mu != third.mu).any())


def test_frozen_leaves_and_integers_are_left_alone():
    """Gradients as equinox makes them: None where a parameter is no float."""
    import jax.numpy as jnp

    from adaxopt.jax import adax

    x = {"w": jnp.ones(3, jnp.bfloat16), "count": jnp.arange(3)}
    g = {"w": x["w"], "count": None}
    optimizer = adax(0.1)
    updates, _ = optimizer.update(g, optimizer.init(g), x)
    assert updates["count"] is None
    assert updates["w"].dtype == jnp.bfloat16


@feature("JAX / optax", OPTAX)
def test_wrappers_that_choose_take_sixteen_bit_parameters():
    import jax
    import jax.numpy as jnp
    import optax

    from adaxopt.jax import adaxw

    x = {"a": jnp.ones(3, jnp.bfloat16)}
    for optimizer in (optax.apply_if_finite(adaxw(0.5), 5), optax.MultiSteps(adaxw(0.5), 2)):
        state, y = optimizer.init(x), x
        for _ in range(2):
            updates, state = jax.jit(optimizer.update)(x, state, x)
            y = optax.apply_updates(y, updates)
        assert y["a"].dtype == jnp.bfloat16
        assert bool((y["a"] < 1).all())


@feature("JAX / optax", "sharded arrays, pmap")
@pytest.mark.parametrize("spec", [("data",), (None, "data")])
@pytest.mark.parametrize("name", METHODS)
def test_state_is_sharded_as_its_parameter(name, spec):
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec

    from adaxopt.jax import create

    mesh = jax.make_mesh((4,), ("data",))
    whole = jax.random.normal(jax.random.key(1), (8, 4))
    x = jax.device_put(whole, NamedSharding(mesh, PartitionSpec(*spec)))
    optimizer = create(name, 1e-2)

    @jax.jit
    def step(x, state):
        updates, state = optimizer.update(jnp.cos(x), state, x)
        return x + updates, state

    alone, y = optimizer.init(whole), whole
    compiled = jax.jit(optimizer.init)(x)
    with jax.sharding.use_mesh(mesh) if hasattr(jax.sharding, "use_mesh") else jax.set_mesh(mesh):
        meshed = jax.jit(optimizer.init)(x)
    state = optimizer.init(x)
    for kind, leaves in (("jit", compiled), ("jit in a mesh", meshed)):
        for one, other in zip(*map(jax.tree.leaves, (leaves, state)), strict=True):
            assert one.ndim == 0 or one.sharding.is_equivalent_to(other.sharding, one.ndim), (kind, one.shape)
    for t in range(3):
        for leaf in (leaf for leaf in jax.tree.leaves(state) if leaf.ndim):
            expected = PartitionSpec(*(None,) * (leaf.ndim - 2), *spec)
            assert leaf.sharding.is_equivalent_to(NamedSharding(mesh, expected), leaf.ndim), (t, leaf.shape)
        x, state = step(x, state)
        y, alone = step(y, alone)
    np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-7)


INJECTED = {
    **{name: ("create", {"name": name, "learning_rate": 1e-2}, ()) for name in METHODS},
    "scale_by_adax": ("scale_by_adax", {}, ()),
    "power": ("scale_by_adax", {"p": 0.25, "b2": 1e-3}, ()),
    "padax itself": ("padax", {"learning_rate": 1e-2}, ()),
    "options": ("create", {"name": "adamw", "b1": 0.8, "b2": 0.99, "eps": 1e-6, "weight_decay": 0.1}, ()),
    "padam's power": ("create", {"name": "padam", "p": 0.25}, ()),
    "own name": ("create", {"name": "sgdm", "momentum": 0.5}, ()),
    "bound": ("create", {"name": "adaxw", "clip_update": 0.05, "wake": False, "decay": "l2"}, ()),
    "window": ("create", {"name": "adashift", "window": 2}, ("window",)),
    "c": ("create", {"name": "nosadam", "c": 0.5}, ("c",)),
    "scale_by_method": ("scale_by_method", {"name": "padam", "options": {"p": 0.25}}, ()),
}


@feature("JAX / optax", OPTAX)
@pytest.mark.parametrize(
    ("case", "dtype"),
    [*((case, "float32") for case in INJECTED), *((case, "bfloat16") for case in ("padax", "scale_by_adax"))],
)
def test_everything_can_be_injected(case, dtype):
    import jax
    import jax.numpy as jnp
    import optax

    from adaxopt import jax as ours

    factory, options, static = INJECTED[case]
    make = getattr(ours, factory)
    # exact in bfloat16 too, the dtype that optax gives hyper-parameters of bfloat16 parameters
    exact = {
        k: float(jnp.asarray(v, dtype)) if isinstance(v, float) and k not in static else v
        for k, v in options.items()
    }
    injected = optax.inject_hyperparams(make, static_args=static, hyperparam_dtype=jnp.float32)(**exact)
    plain = make(**exact)
    x = {"w": jnp.linspace(0.5, 2, 6).astype(dtype)}
    state, other = injected.init(x), plain.init(x)
    step = jax.jit(injected.update)
    for t in range(3):
        g = jax.tree.map(lambda a, t=t: jnp.sin(a + t), x)
        found, state = step(g, state, x)
        expected, other = plain.update(g, other, x)
        tolerance = 1e-5 if dtype == "float32" else 1e-2
        np.testing.assert_allclose(
            np.asarray(found["w"], "float32"), np.asarray(expected["w"], "float32"), rtol=tolerance, atol=1e-7
        )


def test_injected_numbers_can_be_changed_and_scheduled():
    import jax.numpy as jnp
    import optax

    from adaxopt.jax import create, scale_by_adax

    x = jnp.linspace(1, 2, 3)
    for make, settings in ((scale_by_adax, {}), (create, {"name": "padax", "learning_rate": 0.1, "p": 0.5})):
        first = optax.inject_hyperparams(make)(**settings)
        state = first.init(x)
        state.hyperparams["p"] = jnp.float32(0.25)
        scheduled = optax.inject_hyperparams(make)(**{**settings, "p": lambda count: 0.25})
        same = make(**{**settings, "p": 0.25})
        expected = same.update(x, same.init(x), x)[0]
        np.testing.assert_allclose(first.update(x, state, x)[0], expected, rtol=1e-5)
        np.testing.assert_allclose(scheduled.update(x, scheduled.init(x), x)[0], expected, rtol=1e-5)


@pytest.mark.parametrize("option", ["c", "b2"])
def test_nosadams_memory_can_be_injected(option):
    import jax
    import jax.numpy as jnp
    import optax

    from adaxopt.jax import create

    x = jnp.linspace(0.1, 2, 5)
    settings = {"name": "nosadam", "learning_rate": 0.01}
    injected = optax.inject_hyperparams(create)(**settings, **{option: 0.5})
    plain = create(**settings, c=0.1)
    state, other = injected.init(x), plain.init(x)
    state.hyperparams[option] = jnp.float32(0.1)
    first, second = jax.jit(injected.update), jax.jit(plain.update)
    for t in range(20):
        g = jnp.sin(x * t) + 0.1
        found, state = first(g, state, x)
        expected, other = second(g, other, x)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_what_cannot_be_injected_says_so():
    import jax.numpy as jnp
    import optax

    from adaxopt.jax import create

    with pytest.raises(TypeError, match=r"window=.*must be an int >= 1; under .*static_args"):
        optax.inject_hyperparams(create)(name="adashift", window=3).init(jnp.ones(2))
