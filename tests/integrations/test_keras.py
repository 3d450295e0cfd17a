"""adaxopt.keras on every Keras backend, each in a process of its own."""

import json
import math
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch

import adaxopt

pytestmark = pytest.mark.needs("keras")
feature = pytest.mark.feature
STEPS = 60
RATE = {"learning_rate": 2.0**-8}
"""Exact in float32, which Keras keeps a learning rate in."""
PARITY = [
    ("AdaX", {"weight_decay": 0.1, **RATE}),
    ("AdaXW", {**RATE}),
    ("AdaXW", {"beta_2": 1e-2, "epsilon": 1e-3, "clip_update": 0.05, **RATE}),
    ("AdaXW", {"decay": "fully_decoupled", "weight_decay": 1e-3, "wake": False, **RATE}),
    ("AdaXW", {"eps_placement": "plain", "epsilon": 1e-2, **RATE}),
    ("Padax", {**RATE}),
    ("Padax", {"p": 0.25, "weight_decay": None, **RATE}),
    ("AdaXW", {"total_steps": STEPS, **RATE}),
    ("AdaXW", {"memory": "log_time", "beta_2": 8.0, **RATE}),  # as a config has it
    ("AdaXW", {"memory": "fading floor 0.05", "beta_2": 0.99, **RATE}),
    ("AdaXW", {"memory": "equal freeze 30", "beta_2": 0.0, **RATE}),
    ("AdaXW", {"memory": "fading freeze 5", "beta_2": 0.99, "wake": False, **RATE}),
    ("AdaXW", {"memory": "power", "beta_2": 0.5, **RATE}),
    ("AdaXW", {"memory": "polynomial", "beta_2": 0.8, **RATE}),
    ("AdaX", {"cautious": True, "weight_decay": 0.1, **RATE}),
]
SPIKES = [(t, g, "float32") for t in (1, 1000, 200_000) for g in (1e30, -1e38)]
INACTIVE = 10
"""Steps without a gradient of one coordinate in the tests of parity."""
LATE = [1, 1000, 100_000, 10_000_000]
BACKENDS = {
    "torch": ["keras"],
    "jax": ["keras", "jax"],
    "tensorflow": ["keras", "tensorflow-cpu"],
}
LABEL = {"torch": "Keras 3 on torch", "jax": "Keras 3 on JAX", "tensorflow": "Keras 3 on TensorFlow"}


def marked(what):
    return [
        pytest.param(b, marks=[pytest.mark.needs(*needed), feature(LABEL[b], what)], id=b)
        for b, needed in BACKENDS.items()
    ]


@cache
def result(backend):
    with TemporaryDirectory() as folder:
        request = {
            "backend": backend,
            "steps": STEPS,
            "parity": PARITY,
            "inactive": INACTIVE,
            "late": LATE,
            "spikes": SPIKES,
            # Keras's torch backend has no compiler of its own worth a minute here; "auto" is what people run
            "jit": {"torch": [False], "jax": [True, False], "tensorflow": [True, False]}[backend],
            "folder": folder,
        }
        environment = {
            **os.environ,
            "KERAS_BACKEND": backend,
            "KERAS_HOME": folder,
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        program = Path(__file__).with_name("keras_program.py")
        done = subprocess.run(
            [sys.executable, str(program), json.dumps(request)],
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=900,  # a stop where something hangs; a loaded machine has time
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert done.returncode == 0, done.stderr[-4000:]
    assert lines
    return json.loads(lines[-1].removeprefix("RESULT "))


def by_torch(name, options):
    renamed = dict(options)
    betas = (renamed.pop("beta_1", 0.9), renamed.pop("beta_2", None))
    for theirs, ours in (("epsilon", "eps"), ("learning_rate", "lr")):
        if theirs in renamed:
            renamed[ours] = renamed.pop(theirs)
    renamed["weight_decay"] = (
        renamed.get("weight_decay", getattr(adaxopt, name).method.defaults["weight_decay"]) or 0.0
    )
    rng = np.random.default_rng(7)
    start, noise = rng.standard_normal((3, 2)), rng.standard_normal((STEPS, 3, 2))
    x = torch.nn.Parameter(torch.from_numpy(start.copy()))
    optimizer = getattr(adaxopt, name)([x], betas=betas, **renamed)
    for t, g in enumerate(noise):
        x.grad = torch.from_numpy(g) + x.detach()
        x.grad[0, 0] *= t >= INACTIVE  # at first
        optimizer.step()
    return x.detach().numpy()


@pytest.mark.parametrize("backend", marked("float64 parity with PyTorch"))
def test_it_does_what_the_torch_engine_does(backend):
    found = result(backend)
    assert found["backend"] == backend
    for (name, options), x in zip(PARITY, found["parity"], strict=True):
        np.testing.assert_allclose(
            x, by_torch(name, options), rtol=1e-12, atol=1e-12, err_msg=f"{name} {options}"
        )


@pytest.mark.parametrize("backend", marked("right at 10 million steps in float32; wake guard"))
def test_one_step_at_any_time(backend):
    for t, (inactive, other) in zip(LATE, result(backend)["late"], strict=True):
        assert inactive == pytest.approx(-0.1, rel=1e-5), t
        assert other == pytest.approx(-0.1, rel=1e-5), t


@pytest.mark.parametrize("backend", marked("finite where a gradient's square overflows"))
def test_a_coordinate_whose_second_moment_overflows_stands_still(backend):
    for case, (spiked, other) in zip(SPIKES, result(backend)["spikes"], strict=True):
        assert spiked == pytest.approx(-0.1, rel=1e-3), case  # its first step alone
        assert other < -0.5, case


@pytest.mark.parametrize("backend", marked("compile, fit, jit_compile, save and load"))
def test_a_saved_model_goes_on_as_if_it_had_not_stopped(backend):
    for jit, found in result(backend)["training"].items():
        assert found["straight"][-1] < 0.5 * found["straight"][0], jit
        np.testing.assert_allclose(found["resumed"], found["straight"], rtol=1e-5, err_msg=jit)


@pytest.mark.parametrize(
    "backend", marked("schedules, clipping, accumulation, EMA, 16-bit policies, embeddings")
)
def test_what_keras_offers_around_an_optimizer(backend):
    found = result(backend)["features"]
    for key in ("schedule", "accumulated", "mixed", "bfloat16", "embedding"):
        assert found[key][-1] < found[key][0], key
    assert found["config"]
    assert found["reference_lr"] == pytest.approx(1e-2)
    assert found["loaded_class"] == "AdaXW"
    assert found["state_of_bfloat16"] == ["float32"]
    assert all(found[f"excluded_{name}"] for name in ("AdaX", "AdaXW", "Padax"))


@pytest.mark.parametrize(
    "backend", [pytest.param(b, marks=pytest.mark.needs(*n)) for b, n in BACKENDS.items()]
)
def test_examples_in_docstrings(backend):
    failed, attempted = result(backend)["examples"]
    assert attempted > failed == 0


@pytest.mark.parametrize(
    "backend", marked("schedules, clipping, accumulation, EMA, 16-bit policies, embeddings")
)
def test_accumulated_gradients_are_one_step_with_their_mean(backend):
    accumulated, mean = result(backend)["accumulation"]
    np.testing.assert_allclose(accumulated, mean, rtol=1e-6)


@pytest.mark.parametrize(
    "backend", marked("schedules, clipping, accumulation, EMA, 16-bit policies, embeddings")
)
def test_numbers_of_numpy_train_and_are_plain_in_a_config(backend):
    found = result(backend)["numpy"]
    assert found["warnings"] == []
    assert found["config"] == found["plain"]
    assert found["loss"][-1] < found["loss"][0]


@pytest.mark.parametrize("backend", marked("weight_decay set later; learning rates under 16-bit floatx"))
def test_decay_may_be_set_after_construction(backend):
    found = dict(result(backend)["decay_set_later"])
    for name in ("zero", "callable"):
        assert "must be > 0; give reference_lr" in found.pop(name)
    for name, (given, from_none, from_zero) in found.items():
        assert given == from_none == from_zero, name
    assert len({str(steps[0]) for steps in found.values()}) == 6  # each form and rate has its own effect


@pytest.mark.parametrize("backend", marked("weight_decay set later; learning rates under 16-bit floatx"))
def test_a_learning_rate_is_float32_whatever_floatx_is(backend):
    cosine = 1e-3 * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * 0.7)))
    expected = {"number": 1e-8, "exponential": 1e-8 * 0.5**70, "cosine": cosine, "callable": 1e-8}
    for floatx, found in result(backend)["narrow_floatx"].items():
        for name, rate in expected.items():
            assert found[name] == pytest.approx(-rate, rel=1e-4), (floatx, name)
        assert found["set"] == pytest.approx(1e-8, rel=1e-6)
        assert found["reference"] == pytest.approx(1e-8, rel=1e-6)
        assert (found["dtype"], found["after"]) == ("float32", floatx)


@pytest.mark.needs("jax")
def test_keras_on_jax_needs_no_torch():
    assert result("jax")["torch"] is False


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"beta_1": 1.0}, ValueError, "beta_1=1.0: must be in [0, 1)"),
        ({"weight_decay": -0.1}, ValueError, "weight_decay=-0.1: must be >= 0"),
        ({"decay": "l1"}, ValueError, "decay='l1': must be one of"),
        ({"learning_rate": -1.0}, ValueError, "learning_rate=-1.0: must be >= 0"),
        ({"epsilon": -1e-8}, ValueError, "epsilon=-1e-08: must be >= 0"),
        ({"momentum": 0.9}, TypeError, "AdaXW: unknown argument 'momentum': it is beta_1; allowed are"),
        ({"fused": True}, TypeError, "an option of the PyTorch optimizers only; leave it out; allowed are"),
        ({"lr": 0.1}, TypeError, "unknown argument 'lr': did you mean 'learning_rate'? Allowed are beta_1, "),
        ({"betas": (0.9, 1e-4)}, TypeError, "write beta_1=... and beta_2=...; allowed are"),
        ({"eps": 1e-8}, TypeError, "did you mean 'epsilon'?"),
        ({"b1": 0.9}, TypeError, "did you mean 'beta_1'?"),
        ({"wieght_decay": 0.1}, TypeError, "did you mean 'weight_decay'?"),
        ({"clip_norm": 1.0}, TypeError, "did you mean 'clipnorm'?"),
        ({"state_dtype": "float32"}, TypeError, "m and v are float32"),
        ({"seed": 1}, TypeError, "AdaXW: unknown argument 'seed'; allowed are"),
        ({"learning_rate": 0.0, "decay": "fully_decoupled"}, ValueError, "reference_lr=0.0"),
        ({"reference_lr": "x", "decay": "fully_decoupled"}, ValueError, "reference_lr='x'"),
        ({"learning_rate": True}, ValueError, "`learning_rate` should be float"),
        ({"weight_decay": lambda step: 0.1}, TypeError, "must be a number >= 0"),
        ({"epsilon": [1e-8]}, TypeError, "epsilon=[1e-08]: must be a number >= 0"),
    ],
)
def test_what_is_not_allowed_is_said(monkeypatch, options, error, message):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    from adaxopt.keras import AdaXW

    with pytest.raises(error) as e:
        AdaXW(**options)
    assert message in str(e.value)
    _, found, allowed = str(e.value).partition("llowed are ")
    names = allowed.split(", ")
    assert not found or sorted(set(names)) == names
