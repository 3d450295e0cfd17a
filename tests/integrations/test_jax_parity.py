"""adaxopt.jax beside the torch engine: the same numbers to 1e-12 in float64, the same bits, right at any time."""

import numpy as np
import pytest

import adaxopt
from adaxopt import Equal, Fading, LogTime, Polynomial, Power
from adaxopt.zoo import METHODS

pytestmark = pytest.mark.needs("jax", "optax")
feature = pytest.mark.feature
STEPS = 1000


@pytest.fixture
def double():
    import jax

    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


def problem():
    """Gradients that depend on x and on a fixed noise; one coordinate is inactive for 300 steps."""
    rng = np.random.default_rng(5)
    curvature = rng.uniform(0.2, 3.0, (4, 3))
    noise = rng.standard_normal((STEPS, 4, 3))
    awake = np.ones((STEPS, 4, 3))
    awake[:300, 0, 0] = 0
    return rng.standard_normal((4, 3)), curvature, noise, awake


def by_torch(make, schedule=None):
    import torch

    start, curvature, noise, awake = (torch.from_numpy(a) for a in problem())
    x = torch.nn.Parameter(start.clone())
    optimizer = make(x)
    scheduler = schedule and torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)
    for t in range(STEPS):
        x.grad = ((curvature * x + noise[t]) * awake[t]).detach()
        optimizer.step()
        if scheduler:
            scheduler.step()
    return x.detach().numpy()


def by_jax(optimizer):
    import jax
    import jax.numpy as jnp
    import optax

    start, curvature, noise, awake = (jnp.asarray(a) for a in problem())

    @jax.jit
    def run(x, state):
        def body(carry, data):
            x, state = carry
            n, a = data
            updates, state = optimizer.update({"w": (curvature * x["w"] + n) * a}, state, x)
            return (optax.apply_updates(x, updates), state), None

        return jax.lax.scan(body, (x, state), (noise, awake))[0]

    x = {"w": start}
    return np.asarray(run(x, optimizer.init(x))[0]["w"])


VARIANTS = [
    *((name, {}) for name in METHODS),
    ("sgdm", {"momentum": 0.5, "weight_decay": 0.1}),
    ("rmsprop", {"alpha": 0.9}),
    ("amsgrad", {"correct": False}),
    ("adashift", {"window": 3, "weight_decay": 0.1}),
    ("nosadam", {"c": 0.5}),
    ("adax", {"weight_decay": 0.1}),
    ("adaxw", {"decay": "fully_decoupled", "weight_decay": 1e-3}),
    ("adaxw", {"clip_update": 0.05}),
    ("adaxw", {"wake": False, "betas": (0.9, 1e-2)}),
    ("adaxw", {"betas": (0.5, 1e-3), "eps": 1e-2}),
    ("adaxw", {"eps_placement": "plain", "eps": 1e-2}),
    ("adaxw", {"betas": (0.9, 0.0)}),
    ("padax", {"p": 0.25}),
    ("adaxw", {"total_steps": 1000}),
    ("adaxw", {"memory": Fading(0.99)}),
    ("adaxw", {"memory": Equal().floor(1e-2).freeze(500)}),
    ("adaxw", {"memory": Power(-7.0)}),
    ("adamw", {"memory": Fading(0.99).freeze(5)}),  # implies wake
    ("adamw", {"memory": LogTime(8.0)}),
    ("padax", {"memory": Polynomial(0.8).freeze(100)}),
    ("adaxw", {"cautious": True}),
    ("adam", {"cautious": True, "weight_decay": 0.1}),
]


@feature("JAX / optax", "float64 parity with PyTorch, 1e-12 over 1,000 steps")
@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=str)
def test_the_torch_engine_and_jax_agree_over_a_thousand_steps(double, name, options):
    from adaxopt.jax import create

    expected = by_torch(lambda x: adaxopt.create(name, [x], **options))
    found = by_jax(create(name, **options))
    assert np.abs(found - problem()[0]).max() > 1e-2
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_every_option_of_the_table_changes_the_numbers_a_hundred_times_the_tolerance(double):
    from adaxopt.jax import create

    for name, options in VARIANTS[len(METHODS) :]:
        assert np.abs(by_jax(create(name, **options)) - by_jax(create(name))).max() > 1e-10, (name, options)


@feature("JAX / optax", "learning-rate schedules")
@pytest.mark.parametrize("decay", ["decoupled", "fully_decoupled", "l2"])
def test_a_schedule_gives_what_a_torch_scheduler_gives(double, decay):
    from adaxopt.jax import adaxw

    def factor(t):
        return 1.0 / (1 + 0.01 * t)

    expected = by_torch(lambda x: adaxopt.AdaXW([x], lr=1e-2, decay=decay, weight_decay=1e-2), factor)
    found = by_jax(adaxw(lambda t: 1e-2 * factor(t), decay=decay, weight_decay=1e-2))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@feature("JAX / optax", "right at 10 million steps in float32")
@pytest.mark.parametrize("b2", [1e-4, 1e-6, 1e-7])
@pytest.mark.parametrize("t", [1, 1000, 887_000, 10_000_000])
def test_one_step_in_float32_at_any_time_against_fifty_digits(b2, t):
    import jax
    import jax.numpy as jnp
    from mpmath import mp, mpf, sqrt

    from adaxopt.jax import ScaleByMethodState, scale_by_adax

    mp.dps = 50
    g, m, v = 0.75, 0.125, 0.5 if t > 1 else 0.0
    state = ScaleByMethodState(jnp.int32(t - 1), jnp.float32([m]), jnp.float32([v]))
    u, state = jax.jit(scale_by_adax(b2=b2, eps=1e-3).update)(jnp.float32([g]), state)
    norm = (1 + mpf(b2)) ** t - 1
    new = mpf(v) + mpf(b2) / norm * (mpf(g) ** 2 - mpf(v))
    expected = (mpf("0.9") * m + mpf("0.1") * g) / (sqrt(new) + max(mpf("1e-3") / sqrt(norm), mpf(2) ** -63))
    assert int(state.count) == t
    assert state.nu[0] == pytest.approx(float(new), rel=1e-6)
    assert u[0] == pytest.approx(float(expected), rel=1e-6)


@feature("JAX / optax", "stochastic rounding, the same bits as PyTorch's")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_rounding_draws_the_bits_that_torch_draws(dtype):
    import jax.numpy as jnp
    import torch

    from adaxopt.jax.rounding import stochastic
    from adaxopt.torch.rounding import stochastic_

    rng = np.random.default_rng(0)
    x = (rng.standard_normal((7, 5, 3)) * 10.0 ** rng.integers(-9, 4, (7, 5, 3))).astype(np.float32)
    x[0, 0] = [np.inf, -np.inf, np.nan]
    for seed, place, step, stream in ((0, 0, 1, 1), (3, 5, 70_000, 2)):
        dest = torch.empty(x.shape, dtype=getattr(torch, dtype))
        stochastic_(dest, torch.from_numpy(x), seed=seed, index=place, step=step, stream=stream)
        found = stochastic(jnp.asarray(x), jnp.dtype(dtype), seed, place, jnp.int32(step), stream)
        np.testing.assert_array_equal(np.asarray(found.astype(jnp.float32)), dest.float().numpy())


def test_complex_parameters_go_through_optax_split(double):
    import jax.numpy as jnp
    import optax
    import torch

    from adaxopt.jax import adaxw

    start = np.array([1 + 2j, -0.5 + 0.25j])
    with pytest.raises(TypeError, match="split_real_and_imaginary"):
        adaxw().init(jnp.asarray(start))
    optimizer = optax.contrib.split_real_and_imaginary(adaxw(1e-2))
    x = jnp.asarray(start)
    state = optimizer.init(x)
    p = torch.nn.Parameter(torch.from_numpy(start.copy()))
    same = adaxopt.AdaXW([p], lr=1e-2)
    for t in range(20):
        g = start * (1 + t) - 3j
        updates, state = optimizer.update(jnp.asarray(g), state, x)
        x = optax.apply_updates(x, updates)
        p.grad = torch.from_numpy(g)
        same.step()
    np.testing.assert_allclose(np.asarray(x), p.detach().numpy(), rtol=1e-12)


@pytest.mark.parametrize("b1", [0.0, 0.9, 0.9999, 1 - 1e-7, 1 - 1e-8])
@pytest.mark.parametrize("name", ["adam", "nosadam"])
def test_the_mean_s_bias_is_corrected_in_float32_too(name, b1):
    """1 - b1^t is not what float32 makes of it: the first update has the size of lr."""
    import jax.numpy as jnp

    from adaxopt.jax import create

    transform, params = create(name, 1e-3, b1=b1), jnp.ones(2)
    updates, _ = transform.update(jnp.ones(2), transform.init(params), params)
    np.testing.assert_allclose(updates, -1e-3, rtol=1e-6)
