"""The options of adaxopt.jax: defaults, what is refused and how it is said, warnings."""

import inspect
import warnings

import numpy as np
import pytest

import adaxopt

pytestmark = pytest.mark.needs("jax", "optax")
feature = pytest.mark.feature


def test_signatures_have_the_defaults_of_the_zoo_and_of_the_torch_classes():
    from adaxopt import jax as ours

    for name, cls in (("adax", adaxopt.AdaX), ("adaxw", adaxopt.AdaXW), ("padax", adaxopt.Padax)):
        found = {k: p.default for k, p in inspect.signature(getattr(ours, name)).parameters.items()}
        other = {k: p.default for k, p in inspect.signature(cls).parameters.items()}
        assert (found["b1"], found["b2"]) == other["betas"]
        assert found["learning_rate"] == other["lr"]
        for key in ("eps", "weight_decay", "decay", "eps_placement", "wake", "clip_update", "seed"):
            assert found[key] == other[key], (name, key)


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("adamx", {}, ValueError, "unknown method; known are sgdm"),
        ("adaxw", {"lr": 0.1}, TypeError, "unknown argument 'lr': did you mean 'learning_rate'"),
        ("adaxw", {"window": 3}, TypeError, "adaxw: unknown argument 'window'.* allowed are b1, b2, betas"),
        ("adaxw", {"momentum": 0.1}, TypeError, "unknown argument 'momentum'"),
        ("adaxw", {"learning_rate": -1.0}, ValueError, "learning_rate=-1.0: must be >= 0"),
        ("adaxw", {"b1": 1.0}, ValueError, r"b1=1.0: must be in \[0, 1\)"),
        ("adaxw", {"b2": -0.1}, ValueError, r"b2=-0.1: must be in \[0, 1\)"),
        ("nosadam", {"c": float("inf")}, ValueError, "b2=inf: must be finite"),
        ("adaxw", {"eps": -1e-8}, ValueError, "eps=-1e-08: must be >= 0"),
        ("adaxw", {"eps": "x"}, TypeError, "eps='x': must be a number"),
        ("adaxw", {"weight_decay": -0.1}, ValueError, "weight_decay=-0.1: must be >= 0"),
        ("padax", {"p": 0.7}, ValueError, "p=0.7"),
        ("adaxw", {"clip_update": 0}, ValueError, "clip_update=0: must be > 0"),
        ("adaxw", {"decay": "l1"}, ValueError, "decay='l1': must be one of 'l2'"),
        ("adaxw", {"eps_placement": "x"}, ValueError, "eps_placement='x'"),
        ("adashift", {"window": 0}, ValueError, "window=0: must be an int >= 1"),
        ("adaxw", {"learning_rate": 0.0, "decay": "fully_decoupled"}, ValueError, "reference_lr=0.0"),
        ("adaxw", {"b1": lambda count: 0.9}, TypeError, "b1=.*wrap in optax.inject_hyperparams"),
        ("adaxw", {"eps": lambda count: 1e-8}, TypeError, "eps=.*wrap in optax.inject_hyperparams"),
        ("adaxw", {"mu_dtype": "int8"}, TypeError, "mu_dtype='int8': must be one of bfloat16, float16"),
        ("adaxw", {"nu_dtype": "float8_e4m3fn"}, TypeError, "nu_dtype=.*must be one of bfloat16"),
        ("adamw", {"nu_dtype": "float16"}, TypeError, "nu_dtype='float16': must be one of bfloat16, float32"),
        ("adaxw", {"seed": 1.0, "mu_dtype": "float16"}, TypeError, "seed=1.0: must be an int.*static_args"),
        ("adaxw", {"seed": True}, TypeError, "seed=True: must be an int"),
        ("adaxw", {"mu_dtype": "bf16"}, TypeError, "mu_dtype='bf16': must be one of bfloat16, float16"),
        ("adaxw", {"betas": 0.9}, ValueError, r"betas=0.9: must be a pair \(b1, b2\)"),
        ("adamw", {"betas": (0.9,)}, ValueError, r"betas=\(0.9,\): must be a pair"),
        ("adaxw", {"betas": (0.9, 1e-4), "b1": 0.5}, ValueError, r"betas=.*, b1=0.5: give one of the two"),
        ("sgdm", {"b1": 0.5, "momentum": 0.9}, ValueError, "b1=0.5, momentum=0.9: give one of the two"),
        ("nosadam", {"b2": 0.5, "c": 0.1}, ValueError, "b2=0.5, c=0.1: give one of the two"),
        (None, {}, ValueError, "name=None: unknown method"),
        ("adaxw", {"reference_lr": "x", "decay": "fully_decoupled"}, TypeError, "reference_lr='x': must be"),
        (
            "adaxw",
            {"reference_lr": [1], "decay": "fully_decoupled"},
            TypeError,
            r"reference_lr=\[1\]: must be",
        ),
        ("adaxw", {"total_steps": [5]}, TypeError, r"total_steps=\[5\]: must be a number"),
    ],
)
def test_what_is_not_allowed_is_said(name, options, error, message):
    from adaxopt.jax import create

    with pytest.raises(error, match=message):
        create(name, **options)


@pytest.mark.parametrize("name", ["adax", "adaxw", "padax"])
@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("lr", r"did you mean 'learning_rate'\? Allowed are b1, b2, "),
        ("betas", r"write b1=\.\.\. and b2=\.\.\.; allowed are"),
        ("state_dtype", "write mu_dtype=.* and nu_dtype="),
        ("beta_2", "did you mean 'b2'"),
        ("wieght_decay", "did you mean 'weight_decay'"),
        ("wd", "did you mean 'weight_decay'"),
        ("epsilon", "did you mean 'eps'"),
        ("fused", "an option of the PyTorch optimizers only; leave it out; allowed are"),
    ],
)
def test_an_unknown_name_gives_a_suggestion(name, option, message):
    from adaxopt import jax as ours

    with pytest.raises(TypeError, match=f"{name}: unknown argument '{option}': {message}"):
        getattr(ours, name)(**{option: 0.1})


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("lr", "; allowed are b1, b2,"),
        ("wd", "; allowed are b1, b2,"),
        ("foreach", ": an option of the PyTorch optimizers only; leave it out"),
        ("epsilon", r": did you mean 'eps'\? Allowed are"),
    ],
)
def test_a_suggestion_is_a_name_that_is_known(option, message):
    """`scale_by_adax` has neither a learning rate nor weight decay."""
    from adaxopt.jax import scale_by_adax

    with pytest.raises(TypeError, match=f"scale_by_adax: unknown argument '{option}'{message}"):
        scale_by_adax(**{option: 0.1})


@pytest.mark.parametrize("option", ["b2", "lr", "weight_decay", "decay", "momentum"])
def test_a_direction_refuses_options_that_it_would_ignore(option):
    from adaxopt.jax import scale_by_method

    with pytest.raises(TypeError, match=f"sgdm: unknown argument '{option}'; allowed are betas, cautious"):
        scale_by_method("sgdm", {option: 0.1})
    with pytest.raises(TypeError, match="adaxw: unknown argument 'epsilon': did you mean 'eps'"):
        scale_by_method("adaxw", {"epsilon": 0.1})


def test_total_steps_may_be_an_array():
    """Without a warning for a NumPy array; without overflow for int32."""
    import jax
    import jax.numpy as jnp

    from adaxopt.jax import scale_by_adax

    def third(total_steps):
        direction = scale_by_adax(total_steps=total_steps)
        state = direction.init(jnp.ones(1))
        for g in (1.0, 3.0, 2.0):
            u, state = direction.update(jnp.array([g]), state)
        return u

    for steps in (100, 2_000_000_000):
        for kind in (np.array, np.int32, jnp.int32):
            np.testing.assert_allclose(third(kind(steps)), third(steps), rtol=1e-6)
        np.testing.assert_allclose(jax.jit(third)(jnp.int32(steps)), third(steps), rtol=1e-6)
    assert abs(third(4) - third(100)) > 1e-3


def test_adams_b2_warns_once_and_points_at_the_call():
    from adaxopt.jax import adaxw, create, scale_by_adax, scale_by_method

    for call in (
        lambda: adaxw(b2=0.999),
        lambda: create("padax", b2=0.999),
        lambda: scale_by_adax(b2=0.999),
        lambda: scale_by_method("adax", {"betas": (0.9, 0.999)}),
    ):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            call()
        assert [str(w.message)[:30] for w in seen] == ["b2=0.999 looks like Adam's dec"]
        assert seen[0].filename == __file__
