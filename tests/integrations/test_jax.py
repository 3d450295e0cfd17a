"""adaxopt.jax in the hands of optax's users: jit, vmap, shards, schedules, wrappers, masks."""

import doctest
import importlib
import math

import numpy as np
import pytest

import adaxopt
from adaxopt.zoo import METHODS

pytestmark = pytest.mark.needs("jax", "optax")
feature = pytest.mark.feature


@pytest.mark.parametrize("name", ["jax", "jax.optimizers", "jax.rounding", "jax.transform"])
def test_examples_in_docstrings(name):
    found = doctest.testmod(importlib.import_module(f"adaxopt.{name}"))
    assert found.failed == 0
    assert found.attempted > 0


def test_the_counter_stays_at_its_end_and_the_step_stays_finite():
    import jax.numpy as jnp

    from adaxopt.jax import ScaleByMethodState, create

    for name in METHODS:
        optimizer = create(name, 1e-3)
        x = jnp.ones(3)
        state = optimizer.init(x)
        late = [
            s._replace(count=jnp.int32(2**31 - 1)) if isinstance(s, ScaleByMethodState) else s for s in state
        ]
        u, after = optimizer.update(x, tuple(late), x)
        assert jnp.isfinite(u).all(), name
        assert [int(s.count) for s in after if isinstance(s, ScaleByMethodState)] == [2**31 - 1]


@feature("JAX / optax", "jit: one trace for all steps")
@pytest.mark.parametrize("name", METHODS)
def test_steps_are_traced_once(name):
    import jax
    import jax.numpy as jnp
    import optax

    from adaxopt.jax import create

    optimizer = create(name, optax.linear_schedule(1e-2, 1e-4, 30))
    traces = []

    @jax.jit
    def step(x, state, g):
        traces.append(1)
        updates, state = optimizer.update(g, state, x)
        return optax.apply_updates(x, updates), state

    x = {"a": jnp.ones((3, 2)), "b": jnp.ones(5, jnp.bfloat16)}
    state = jax.jit(optimizer.init)(x)
    for t in range(30):
        x, state = step(x, state, jax.tree.map(lambda a, t=t: a * (t + 1), x))
    assert len(traces) == 1
    assert all(bool(jnp.isfinite(a).all()) for a in jax.tree.leaves(x))


@pytest.mark.parametrize("spike", [1e20, 1e30, -1e38])
@pytest.mark.parametrize("name", METHODS)
def test_a_gradient_whose_square_overflows(name, spike):
    """Finite, and what the torch engine does."""
    import jax
    import jax.numpy as jnp
    import optax
    import torch

    from adaxopt.jax import create

    options = {"window": 1} if name == "adashift" else {}
    ours, x = create(name, 2.0**-7, **options), jnp.ones(2)
    p = torch.nn.Parameter(torch.ones(2))
    theirs = adaxopt.create(name, [p], lr=2.0**-7, **options)
    state, step = ours.init(x), jax.jit(ours.update)
    for one in (0.5, spike, 0.25, spike, -0.5):
        updates, state = step(jnp.array([one, 0.5]), state, x)
        x = optax.apply_updates(x, updates)
        p.grad = torch.tensor([one, 0.5])
        theirs.step()
    assert jnp.isfinite(x).all()
    np.testing.assert_allclose(x, p.detach().numpy(), rtol=1e-4)


@pytest.mark.parametrize("t", [1, 2, 5, 100])
def test_the_gradient_in_b2_at_0(t):
    import jax
    import jax.numpy as jnp

    from adaxopt import memory

    time = jnp.float32(t)
    growing, fading = (
        jax.grad(lambda b2, gain=gain: gain(time, b2, jnp))(jnp.float32(0))
        for gain in (memory.growing_gain, memory.fading_gain)
    )
    assert growing == pytest.approx((1 - t) / (2 * t), rel=1e-5)
    assert fading == (-1 if t > 1 else 0)
    for norm in (memory.growing_log_norm, memory.fading_log_norm):
        assert jnp.isfinite(jax.grad(lambda b2, norm=norm: norm(time, b2, jnp))(jnp.float32(0)))


@pytest.mark.parametrize("name", ["adaxw", "adam", "amsgrad", "nosadam"])
def test_the_gradient_of_a_step_in_b2_at_0(name):
    import jax
    import jax.numpy as jnp

    from adaxopt.jax import scale_by_method

    def moved(b2):
        direction = scale_by_method(name, {"betas": (0.9, b2)})
        state = direction.init(jnp.ones(2))
        for g in (1.0, 3.0, 2.0):
            u, state = direction.update(jnp.array([g, 0.5 * g]), state)
        return u.sum()

    slope = jax.jit(jax.grad(moved))(jnp.float32(0.0))
    near = (moved(1e-3) - moved(0.0)) / 1e-3
    assert slope == pytest.approx(float(near), rel=0.05)


@feature("JAX / optax", "vmap")
def test_a_vmapped_ensemble_is_its_members():
    import jax
    import jax.numpy as jnp

    from adaxopt.jax import adaxw

    rates = jnp.array([1e-3, 1e-2, 1e-1])
    starts = jax.random.normal(jax.random.key(0), (3, 7))

    def train(lr, x):
        optimizer = adaxw(lr, weight_decay=0.1)
        state = optimizer.init(x)
        for _ in range(5):
            updates, state = optimizer.update(jnp.sin(x) + 0.1, state, x)
            x = x + updates
        return x

    together = jax.vmap(train)(rates, starts)
    alone = jnp.stack([train(lr, x) for lr, x in zip(rates, starts, strict=True)])
    np.testing.assert_allclose(together, alone, rtol=1e-6)


@feature("JAX / optax", "sharded arrays, pmap")
@pytest.mark.parametrize("nu_dtype", ["float32", "bfloat16"])
def test_a_sharded_step_is_the_step_of_one_device(nu_dtype):
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec

    from adaxopt.jax import adaxw

    assert jax.device_count() == 4
    optimizer = adaxw(1e-2, nu_dtype=nu_dtype)
    mesh = jax.make_mesh((4,), ("data",))
    whole = jax.random.normal(jax.random.key(1), (8, 6))
    sharding = NamedSharding(mesh, PartitionSpec("data"))

    @jax.jit
    def step(x, state):
        updates, state = optimizer.update(jnp.cos(x), state, x)
        return x + updates, state

    results = []
    for x in (whole, jax.device_put(whole, sharding)):
        state = jax.jit(optimizer.init)(x)
        for _ in range(4):
            x, state = step(x, state)
        results.append((x, state))
    (one, state_one), (many, state_many) = results
    assert many.sharding.is_equivalent_to(sharding, 2)
    assert state_many[0].nu.sharding.is_equivalent_to(sharding, 2)
    # programs compiled for other shapes may differ in the last bit, which can change how a bfloat16 is rounded (with
    # another seed, so that all are, x moves by 1.7e-5); the steps move x by at least 3.8e-3
    np.testing.assert_allclose(one, many, rtol=0, atol=1e-6 if nu_dtype == "float32" else 3e-5)
    np.testing.assert_allclose(
        np.asarray(state_one[0].nu, np.float32),
        np.asarray(state_many[0].nu, np.float32),
        rtol=1e-5 if nu_dtype == "float32" else 2.0**-7,
    )


def test_shards_are_rounded_with_the_bits_of_one_device():
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec

    from adaxopt.jax.rounding import stochastic

    whole = jax.random.normal(jax.random.key(1), (8, 6))
    mesh = jax.make_mesh((4,), ("data",))
    for dtype in (jnp.bfloat16, jnp.float16):
        rounded = jax.jit(lambda x, dtype=dtype: stochastic(x, dtype, 3, 5, jnp.int32(7), 2))
        one = rounded(whole)
        for spec in (("data",), (None, None)):
            many = rounded(jax.device_put(whole, NamedSharding(mesh, PartitionSpec(*spec))))
            assert bool((one == many).all())
        assert bool((one != whole.astype(dtype)).any())


@feature("JAX / optax", "sharded arrays, pmap")
def test_replicas_under_pmap_agree_with_the_whole_batch():
    import jax
    import jax.numpy as jnp

    from adaxopt.jax import adaxw

    optimizer = adaxw(1e-2)
    data = jax.random.normal(jax.random.key(2), (4, 16, 3))
    x = jnp.ones(3)

    def loss(x, batch):
        return ((batch @ x - 1) ** 2).mean()

    def step(x, state, batch):
        g = jax.lax.pmean(jax.grad(loss)(x, batch), "devices")
        updates, state = optimizer.update(g, state, x)
        return x + updates, state

    replicate = lambda tree: jax.tree.map(lambda a: jnp.stack([a] * 4), tree)  # noqa: E731
    xs, states = replicate(x), replicate(optimizer.init(x))
    for _ in range(5):
        xs, states = jax.pmap(step, axis_name="devices")(xs, states, data)
    alone, state = x, optimizer.init(x)
    for _ in range(5):
        updates, state = optimizer.update(jax.grad(loss)(alone, data.reshape(-1, 3)), state, alone)
        alone = alone + updates
    assert all(bool((row == xs[0]).all()) for row in xs)
    np.testing.assert_allclose(xs[0], alone, rtol=1e-5)


@feature("JAX / optax", "wake guard, clip_update")
def test_a_late_waker_takes_an_ordinary_step_and_without_the_guard_a_huge_one():
    import jax.numpy as jnp

    from adaxopt.jax import ScaleByMethodState, scale_by_adax

    t = 100_000
    state = ScaleByMethodState(jnp.int32(t - 1), jnp.zeros(2), jnp.array([0.0, 1.0]))
    g = jnp.array([1e-3, 1.0])
    guarded, _ = scale_by_adax().update(g, state)
    plain, _ = scale_by_adax(wake=False).update(g, state)
    clipped, _ = scale_by_adax(wake=False, clip_update=2.0).update(g, state)
    np.testing.assert_allclose(guarded, [0.1, 0.1], rtol=1e-5)
    k = 1e-4 / math.expm1(t * math.log1p(1e-4))
    np.testing.assert_allclose(plain, [0.1 / math.sqrt(k), 0.1], rtol=1e-4)
    assert plain[0] > 1000
    np.testing.assert_allclose(clipped, [2.0, 0.1], rtol=1e-5)


@feature("JAX / optax", "weight-decay mask")
@pytest.mark.parametrize("as_function", [False, True])
@pytest.mark.parametrize("name", ["adax", "adaxw", "padax"])
def test_a_mask_says_which_leaves_decay(name, as_function):
    import jax
    import jax.numpy as jnp

    from adaxopt import jax as ours

    x = {"w": jnp.full(3, 2.0), "b": jnp.full(3, 2.0)}
    mask = {"w": True, "b": False}
    make = getattr(ours, name)
    masked = make(1e-2, weight_decay=0.5, mask=(lambda p: mask) if as_function else mask)
    g = jax.tree.map(jnp.ones_like, x)
    u, _ = masked.update(g, masked.init(x), x)
    for key, decays in mask.items():
        same = make(1e-2, weight_decay=0.5 if decays else 0.0)
        expected, _ = same.update(g, same.init(x), x)
        np.testing.assert_array_equal(u[key], expected[key])
    other = make(1e-2, weight_decay=0.0)
    expected, _ = other.update(g, other.init(x), x)
    assert name != "adaxw" or bool((u["w"] != expected["w"]).all())


@feature("JAX / optax", "mu_dtype, nu_dtype; 16-bit parameters keep float32 state")
def test_state_has_the_dtype_that_is_asked_for():
    import jax.numpy as jnp

    from adaxopt.jax import scale_by_adax

    x = {"low": jnp.ones(2, jnp.bfloat16), "half": jnp.ones(2, jnp.float16), "full": jnp.ones(2)}
    plain = scale_by_adax()
    asked = scale_by_adax(mu_dtype=jnp.float16, nu_dtype=jnp.bfloat16)
    for transform, mu, nu in ((plain, jnp.float32, jnp.float32), (asked, jnp.float16, jnp.bfloat16)):
        state = transform.init(x)
        for _ in range(2):
            u, state = transform.update(x, state, x)
            assert {a.dtype for a in state.mu.values()} == {jnp.dtype(mu)}
            assert {a.dtype for a in state.nu.values()} == {jnp.dtype(nu)}
            assert {k: a.dtype for k, a in u.items()} == {k: a.dtype for k, a in x.items()}


def test_a_bfloat16_second_moment_does_not_ratchet():
    import jax
    import jax.numpy as jnp

    from adaxopt.jax import scale_by_adax

    def run(dtype):
        transform = scale_by_adax(nu_dtype=dtype, b2=1e-3)
        x = jnp.zeros(2048)

        def body(state, key):
            return transform.update(jax.random.normal(key, x.shape), state)[1], None

        state, _ = jax.lax.scan(body, transform.init(x), jax.random.split(jax.random.key(3), 3000))
        return state.nu.astype(jnp.float32)

    low, full = run(jnp.bfloat16), run(jnp.float32)
    assert float(low.mean() / full.mean()) == pytest.approx(1.0, abs=0.01)


@feature("JAX / optax", "inject_hyperparams, MultiSteps, multi_transform, apply_if_finite")
def test_hyper_parameters_can_be_injected_and_changed_without_a_new_trace():
    import jax
    import jax.numpy as jnp
    import optax

    from adaxopt.jax import adaxw

    optimizer = optax.inject_hyperparams(adaxw)(learning_rate=1e-2, b1=0.9, b2=1e-4, weight_decay=0.1)
    x = jnp.ones(3)
    state = optimizer.init(x)
    traces = []

    @jax.jit
    def step(state, x):
        traces.append(1)
        return optimizer.update(jnp.sin(x), state, x)

    first, state = step(state, x)
    same = adaxw(1e-2, weight_decay=0.1)
    np.testing.assert_allclose(first, same.update(jnp.sin(x), same.init(x), x)[0], rtol=1e-6)
    state.hyperparams["learning_rate"] = jnp.float32(1e-3)
    second, state = step(state, x)
    assert len(traces) == 1
    assert float(jnp.abs(second).max()) < 0.3 * float(jnp.abs(first).max())
    with pytest.raises(ValueError, match=r"reference_lr=None: .*give reference_lr"):
        jax.vmap(lambda lr: adaxw(lr, decay="fully_decoupled").init(x))(jnp.ones(2))
    settings = {"learning_rate": 1e-2, "mu_dtype": jnp.bfloat16, "seed": 7}
    for static, word in (((), "mu_dtype"), (("mu_dtype",), "seed")):
        with pytest.raises(TypeError, match=f"{word}=.*static_args"):
            optax.inject_hyperparams(adaxw, static_args=static)(**settings).init(x)
    rounded = optax.inject_hyperparams(adaxw, static_args=("mu_dtype", "seed"))(**settings)
    same = adaxw(**settings)
    _, found = rounded.update(jnp.sin(x), rounded.init(x), x)
    _, expected = same.update(jnp.sin(x), same.init(x), x)
    assert (found.inner_state[0].mu == expected[0].mu).all()


@pytest.mark.parametrize("decay", ["l2", "decoupled", "fully_decoupled"])
def test_weight_decay_takes_a_schedule_in_every_form(decay):
    import jax
    import jax.numpy as jnp

    from adaxopt.jax import adaxw

    def wanted(count):
        return 0.1 / (1 + count)

    def optimizer(weight):
        return adaxw(1e-2, weight_decay=weight, decay=decay, mask={"a": True, "b": False})

    x = {"a": jnp.array([1.0, -3.0]), "b": jnp.ones(2)}
    g = jax.tree.map(jnp.ones_like, x)
    scheduled = optimizer(wanted)
    state, other = scheduled.init(x), optimizer(0.1).init(x)
    step = jax.jit(scheduled.update)
    for t in range(3):
        found, state = step(g, state, x)
        expected, other = optimizer(wanted(t)).update(g, other, x)
        for name in x:
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-6)
    with pytest.raises(ValueError, match="params"):
        scheduled.update(g, state)


@pytest.mark.parametrize("decay", ["l2", "decoupled", "fully_decoupled"])
def test_a_state_fits_an_optimizer_without_decay(decay):
    """As in optax, whose adamw has the same state for every weight_decay."""
    import jax
    import jax.numpy as jnp

    from adaxopt.jax import adaxw

    x = jnp.array([1.0, -3.0])
    one, other = (adaxw(1e-2, weight_decay=weight, decay=decay) for weight in (0.1, 0.0))
    assert jax.tree.structure(one.init(x)) == jax.tree.structure(other.init(x))
    _, state = one.update(x, one.init(x), x)
    updates, _ = other.update(x, state)  # parameters are needed for decay alone
    assert bool(jnp.isfinite(updates).all())


def test_a_plain_number_is_a_leaf_as_in_optax():
    from adaxopt.jax import adaxw

    optimizer = adaxw(0.1, weight_decay=0.0)
    updates, _ = optimizer.update({"x": 2.0}, optimizer.init({"x": 1.0}), {"x": 1.0})
    assert float(updates["x"]) == pytest.approx(-0.01)


@feature("JAX / optax", "inject_hyperparams, MultiSteps, multi_transform, apply_if_finite")
def test_optax_wrappers_hold_it():
    import jax
    import jax.numpy as jnp
    import optax

    from adaxopt.jax import adaxw

    x = {"a": jnp.ones(3), "b": jnp.full(2, 2.0)}
    wrapped = {
        "steps": optax.MultiSteps(adaxw(1e-2), 2),
        "finite": optax.apply_if_finite(adaxw(1e-2), 5),
        "two": optax.multi_transform({"x": adaxw(1e-2), "y": optax.sgd(0.1)}, {"a": "x", "b": "y"}),
        "masked": optax.masked(adaxw(1e-2), {"a": True, "b": False}),
    }
    for name, optimizer in wrapped.items():
        state, y = optimizer.init(x), x
        step = jax.jit(optimizer.update)
        for t in range(4):
            g = jax.tree.map(lambda a, t=t: jnp.sin(a + t), y)
            updates, state = step(g, state, y)
            y = optax.apply_updates(y, updates)
        assert bool((y["a"] != x["a"]).all()), name
    count = optax.tree_utils.tree_get(adaxw(1e-2).init(x), "nu")
    assert set(count) == {"a", "b"}
    bad = jax.tree.map(lambda a: a * jnp.nan, x)
    finite = wrapped["finite"]
    updates, _ = finite.update(bad, finite.init(x), x)
    assert all(bool((u == 0).all()) for u in jax.tree.leaves(updates))
