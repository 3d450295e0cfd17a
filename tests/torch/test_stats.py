"""`optimizer.stats()`: every number against its definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import oracles
from adaxopt import AdaXW, create
from adaxopt.torch import stats as module
from adaxopt.zoo import METHODS
from runner import Problem, drive, split


def run(name, steps=20, dtype=torch.float64, **options):
    problem = Problem(18, steps, seed=3)
    params = split(problem.start, dtype=dtype)
    optimizer = create(name, params, lr=1e-3, **options)
    drive(optimizer, params, problem, steps)
    return optimizer, params


def everything(optimizer, params, key):
    return torch.cat([optimizer.state[p][key].double().flatten() for p in params]).numpy()


def test_before_the_first_step():
    assert AdaXW([torch.nn.Parameter(torch.ones(2))]).stats() == [{"step": 0.0}]


@pytest.mark.parametrize("name", ["adax", "adaxw", "padax"])
def test_adax(name):
    optimizer, params = run(name)
    (s,) = optimizer.stats()
    k = float(oracles.adax_gain(20, 1e-4))
    v, m = everything(optimizer, params, "exp_avg_sq"), everything(optimizer, params, "exp_avg")
    assert s["step"] == 20
    assert s["gain"] == pytest.approx(k, rel=1e-12)
    assert s["horizon"] == pytest.approx(1 / k, rel=1e-12)
    for q in (5, 50, 95):
        assert s[f"v_q{q:02d}"] == pytest.approx(np.quantile(v, q / 100), rel=1e-5)
    power = METHODS[name].defaults["p"]
    assert s["update_rms"] == pytest.approx(np.sqrt(np.mean((m / v**power) ** 2)), rel=1e-5)
    assert s["inactive"] == 0.0


def test_the_update_is_what_the_step_does():
    """update_rms is the step just taken, in units of lr."""
    for name in ("adaxw", "adam", "amsgrad", "nosadam", "padam", "padax", "sgdm"):
        problem = Problem(18, 21, seed=3)
        params = split(problem.start)
        optimizer = create(name, params, lr=1e-3, weight_decay=0.0)
        before = drive(optimizer, params, problem, 20)
        moved = drive(optimizer, params, problem, 1, first=21) - before
        rms = np.sqrt(np.mean((moved / 1e-3) ** 2))
        assert optimizer.stats()[0]["update_rms"] == pytest.approx(rms, rel=1e-5), name


@pytest.mark.parametrize("name", METHODS)
def test_every_method_answers(name):
    optimizer, _ = run(name, steps=15)
    (s,) = optimizer.stats()
    assert s["step"] == 15
    assert all(isinstance(x, float) and x == x for x in s.values())
    assert ("gain" in s) == (name != "sgdm")
    assert ("update_rms" in s) == (name not in ("adagrad", "rmsprop"))


def test_the_horizon_of_a_frozen_memory_is_infinite():
    optimizer, params = run("adaxw")
    for p in params:
        optimizer.state[p]["step"].fill_(1e9)
    (s,) = optimizer.stats()
    assert s["gain"] == 0.0
    assert s["horizon"] == float("inf")


def test_groups_and_inactive_coordinates():
    p, q = torch.nn.Parameter(torch.ones(4)), torch.nn.Parameter(torch.ones(2))
    optimizer = AdaXW([{"params": [p]}, {"params": [q], "betas": (0.9, 1e-2)}])
    for _ in range(2):
        p.grad = torch.tensor([1.0, 0.0, 0.0, 1.0])
        optimizer.step()
    first, second = optimizer.stats()
    assert first["inactive"] == 0.5
    assert second == {"step": 0.0}
    q.grad = torch.ones(2)
    optimizer.step()
    assert optimizer.stats()[1]["gain"] == 1.0


def test_rows_speak_of_their_own_time():
    """A parameter of 1,000 steps whose busiest row has met three gradients has the gain of step three."""
    p = torch.nn.Parameter(torch.ones(4, 2))
    optimizer = AdaXW([p])
    with torch.sparse.check_sparse_tensor_invariants():
        for row in (0, 1, 1, 1):
            p.grad = torch.sparse_coo_tensor(torch.tensor([[row]]), torch.full((1, 2), 2.0), (4, 2))
            optimizer.step()
    optimizer.state[p]["step"].fill_(1_000)
    (s,) = optimizer.stats()
    assert s["step"] == 1_000
    assert s["gain"] == pytest.approx(float(oracles.adax_gain(3, 1e-4)))
    assert s["inactive"] == 0.5


@pytest.mark.parametrize("name", ["adamw", "adaxw"])
def test_rows_without_a_gradient_are_counted_as_steps_of_0(name):
    p, empty = torch.nn.Parameter(torch.ones(4, 2)), torch.nn.Parameter(torch.ones(0, 2))
    optimizer = create(name, [p, empty])
    with torch.sparse.check_sparse_tensor_invariants():
        p.grad = torch.sparse_coo_tensor(torch.tensor([[1]]), torch.full((1, 2), 2.0), (4, 2))
        empty.grad = torch.sparse_coo_tensor(torch.empty(1, 0, dtype=torch.int64), torch.empty(0, 2), (0, 2))
    optimizer.step()
    (s,) = optimizer.stats()
    step = 1.0 if name == "adamw" else 0.1  # the first update; AdaX's mean is not debiased
    assert s["update_rms"] == pytest.approx(step * (2 / 8) ** 0.5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.complex64])
def test_other_dtypes(dtype):
    p = torch.nn.Parameter(torch.ones(4, dtype=dtype))
    optimizer = AdaXW([p], lr=torch.tensor(1e-3))
    p.grad = torch.full((4,), 2.0, dtype=dtype)
    optimizer.step()
    (s,) = optimizer.stats()
    assert s["v_q95"] == 4.0
    wanted = 0.1 if not dtype.is_complex else 0.1 / 2**0.5  # the imaginary halves rest
    assert s["update_rms"] == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize("name", ["adam", "amsgrad", "rmsprop", "adax", "nosadam", "adagrad"])
def test_betas_as_tensors_at_0(name):
    p = torch.nn.Parameter(torch.ones(4))
    optimizer = create(name, [p], betas=(torch.tensor(0.0), torch.tensor(0.0)))
    for _ in range(2):
        p.grad = torch.full((4,), 2.0)
        optimizer.step()
    (s,) = optimizer.stats()
    assert s["gain"] == METHODS[name].numbers(2.0, {"betas": (0.0, 0.0)}).k


def test_shares_of_complex_parameters():
    """Halves are counted, each by itself."""
    p = torch.nn.Parameter(torch.ones(2, dtype=torch.complex64))
    optimizer = AdaXW([p])
    p.grad = torch.tensor([complex(1e30, 0.0), complex(1.0, 1.0)])
    optimizer.step()
    (s,) = optimizer.stats()
    assert (s["inactive"], s["lost"], s["v_q95"]) == (0.25, 0.25, 1.0)


def test_large_groups_are_sampled(monkeypatch):
    monkeypatch.setattr(module, "SAMPLE", 64)
    p = torch.nn.Parameter(torch.zeros(1000))
    optimizer = AdaXW([p])
    p.grad = torch.linspace(0, 1, 1000).sqrt()  # v is spread evenly over [0, 1]
    optimizer.step()
    (s,) = optimizer.stats()
    assert s["v_q50"] == pytest.approx(0.5, abs=0.05)
    assert s["inactive"] == 0.001  # exact all the same


def test_nothing_is_changed():
    optimizer, params = run("adaxw")
    before = [everything(optimizer, params, key) for key in ("exp_avg", "exp_avg_sq", "step")]
    optimizer.stats()
    after = [everything(optimizer, params, key) for key in ("exp_avg", "exp_avg_sq", "step")]
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("foreach", [None, True])
def test_a_gradient_too_large_to_be_squared_is_seen(foreach):
    p = torch.nn.Parameter(torch.zeros(8))
    optimizer = AdaXW([p], foreach=foreach)
    for size in (1.0, 1e20, 1.0):
        p.grad = torch.ones(8)
        p.grad[0] = size
        optimizer.step()
    assert optimizer.stats()[0]["lost"] == 0.125
    assert p[1:].isfinite().all()


@pytest.mark.parametrize("name", ["adaxw", "adamw", "nosadam"])
def test_the_update_of_rows_is_that_of_their_own_step_counts(name):
    """Rows with 1, 2, ... 6 gradients: each is as far as a dense parameter with as many."""
    table = torch.nn.Parameter(torch.zeros(6, 2, dtype=torch.float64))
    optimizer = create(name, [table], lr=1e-3, weight_decay=0.0)
    single = []
    for row in range(6):
        alone = torch.nn.Parameter(torch.zeros(1, 2, dtype=torch.float64))
        other = create(name, [alone], lr=1e-3, weight_decay=0.0)
        for t in range(row + 1):
            g = torch.full((1, 2), 2.0 ** (t + row), dtype=torch.float64)
            alone.grad = g
            other.step()
            table.grad = torch.sparse_coo_tensor([[row]], g, (6, 2), check_invariants=True)
            optimizer.step()
        single.append(other.stats()[0])
    (s,) = optimizer.stats()
    rms = np.sqrt(np.mean([each["update_rms"] ** 2 for each in single]))
    assert s["update_rms"] == pytest.approx(rms, rel=1e-9)
    assert s["gain"] == pytest.approx(single[-1]["gain"], rel=1e-9), "that of the row with the most gradients"
