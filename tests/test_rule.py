"""The rule in its operator form: each method of the zoo against its own paper, one coordinate at a time."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import torch

import oracles
from adaxopt.memory import scalars
from adaxopt.rule import TINY, StepCoefficients, denominator, step
from adaxopt.zoo import DECAYS, METHODS, method
from runner import Problem, relative

STEPS = 300


def run_operators(name, problem, options, xp, steps=STEPS, wake=False, maximize=False):
    """The operator form with numpy-free scalars (one coordinate) or torch tensors (all of them)."""
    row = METHODS[name]
    rule = row.rule
    window = {**row.defaults, **options}.get("window", 0)
    past: list = []
    if xp is torch:
        x = torch.tensor(problem.start)
        zero = torch.zeros_like(x)
    else:
        x, zero = float(problem.start[0]), 0.0
    m = None if rule.mean == "none" else zero
    v = None if rule.memory is None else zero
    v_max = zero if rule.maximum else None
    for t in range(1, steps + 1):
        if xp is torch:
            g = torch.tensor(problem(t, x.numpy()))
            time = torch.tensor(float(t), dtype=torch.float64)
        else:
            g, time = float(problem.curvature[0] * x + problem.noise[t, 0]), float(t)
        n = row.numbers(time, {"dtype": "float64", **options}, xp)
        old = None
        if rule.mean == "window":
            g = g + n.l2 * x
            n = n._replace(l2=0.0)
            past.append(g)
            old = past[-1 - window] if t > window else zero
        x, m, v, v_max, _ = step(x, g, m, v, n, v_max=v_max, old=old, wake=wake, xp=xp)
    return x


@pytest.mark.parametrize("xp", [torch, scalars])
@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize("name", METHODS)
def test_operator_form(name, decay, xp):
    problem = Problem(6, STEPS, seed=3)
    shared = {"lr": 0.01, "weight_decay": 0.02, "decay": decay}
    expected = oracles.run(oracles.METHODS[name](), problem, problem.start, STEPS, **shared)
    got = run_operators(name, problem, {**shared, "reference_lr": 0.01}, xp)
    got, expected = (got.numpy(), expected) if xp is torch else (np.array([got]), expected[:1])
    assert relative(got, expected) < 1e-11


@pytest.mark.parametrize("name", METHODS)
def test_numbers_are_the_same_from_scalars_and_tensors(name):
    row = METHODS[name]
    options = {"lr": 0.1, "weight_decay": 0.2, "reference_lr": 0.1, "dtype": "float64"}
    for t in (1.0, 2.0, 11.0, 1e3, 7.4e4, 8.87e5, 2.0**24, 1e9):
        one = row.numbers(t, options)
        many = row.numbers(torch.tensor([t, t], dtype=torch.float64), options, torch)
        for field, a, b in zip(StepCoefficients._fields, one, many, strict=True):
            if a is None:
                assert b is None
                continue
            b = b if isinstance(b, torch.Tensor) else torch.tensor(b, dtype=torch.float64)
            torch.testing.assert_close(
                b.double().mean(), torch.tensor(a, dtype=torch.float64), rtol=1e-12, atol=1e-300, msg=field
            )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("t", [1, 2, 100, 74_000, 887_000, 10**7, 10**9])
def test_eps_of_algorithm_3(t, dtype):
    """eps / sqrt((1+b2)^t - 1): 100 eps at first, then vanishing down to sqrt(smallest normal number)."""
    with mpmath.workdps(60):
        exact = mpmath.mpf(1e-12) / mpmath.sqrt((1 + mpmath.mpf(1e-4)) ** t - 1)
        floor = mpmath.sqrt(mpmath.mpf(2) ** {"float32": -126, "float64": -1022}[dtype])
        wanted = float(max(exact, floor))
    got = METHODS["adaxw"].numbers(float(t), {"dtype": dtype}).eps
    assert got == pytest.approx(wanted, rel=1e-9)
    if t == 1:
        assert got == pytest.approx(1e-10, rel=1e-6)


def test_the_floor_of_eps_has_a_square_that_is_a_normal_number():
    for tiny in TINY.values():
        assert (tiny**0.5) ** 2 == pytest.approx(tiny)
    assert METHODS["adam"].numbers(1.0, {"eps": 0.0}).eps == 0.0  # torch's methods have no floor


@pytest.mark.parametrize(("p", "power"), [(0.5, 0.5), (0.125, 0.125), (0.25, 0.25)])
def test_eps_of_padax(p, power):
    n = METHODS["padax"].numbers(5.0, {"p": p, "eps": 1e-3})
    assert n.eps == pytest.approx(1e-3 / (1.0001**5 - 1) ** power, rel=1e-10)
    assert METHODS["padax"].numbers(5.0, {"p": p, "eps": 1e-3, "eps_placement": "plain"}).eps == 1e-3


def test_denominators():
    n = METHODS["padam"].numbers(3.0)
    assert denominator(4.0, n) == pytest.approx((2.0 + 1e-8) ** 0.25)
    n = METHODS["padax"].numbers(3.0, {"eps": 0.5, "eps_placement": "plain"})
    assert denominator(4.0, n) == pytest.approx(4.0**0.125 + 0.5)


@pytest.mark.parametrize("xp", [torch, scalars])
def test_wake(xp):
    """A coordinate with v = 0 takes its first square whole; one that has seen something does not."""
    n = METHODS["adaxw"].numbers(100_000.0, {"lr": 1.0, "weight_decay": 0.0, "dtype": "float64"})
    one = (lambda x: torch.tensor(x, dtype=torch.float64)) if xp is torch else float
    x, _, v, _, _ = step(one(0.0), one(2.0), one(0.0), one(0.0), n, wake=True, xp=xp)
    assert float(v) == 4.0
    assert float(x) == pytest.approx(-0.1)
    x, _, v, _, _ = step(one(0.0), one(2.0), one(0.0), one(0.0), n, wake=False, xp=xp)
    assert float(v) == pytest.approx(4 * n.k)
    assert float(x) == pytest.approx(-0.1 / math.sqrt(n.k))
    x, _, v, _, _ = step(one(0.0), one(2.0), one(0.0), one(1.0), n, wake=True, xp=xp)
    assert float(v) == pytest.approx(1 + 3 * n.k)
    x, _, v, _, _ = step(one(0.0), one(0.0), one(0.0), one(0.0), n, wake=True, xp=xp)
    assert float(v) == 0.0
    assert float(x) == 0.0


def test_nothing_is_changed_in_place():
    n = METHODS["amsgradw"].numbers(3.0, {"clip_update": 1.0})
    tensors = [torch.ones(3, dtype=torch.float64) * i for i in range(1, 6)]
    before = [t.clone() for t in tensors]
    x, g, m, v, v_max = tensors
    step(x, g, m, v, n, v_max=v_max, xp=torch)
    assert all(torch.equal(a, b) for a, b in zip(tensors, before, strict=True))


def test_unknown_method():
    with pytest.raises(ValueError, match=r"name='adamax'.*sgdm.*adaxw, padax"):
        method("adamax")


@pytest.mark.parametrize("xp", [scalars, np], ids=["floats", "arrays"])
def test_a_gain_of_1_takes_the_square_whole_however_large_v_was(xp):
    """As after a restart, or with Adam's b2 = 0: v + k*(square - v) would lose the square in v's last digit."""
    numbers = METHODS["adam"].numbers(5, dict(lr=0.01, betas=(0.9, 0.0), weight_decay=0.0))
    assert numbers.k == 1
    wrap = float if xp is scalars else np.float32
    n = numbers._replace(k=wrap(1.0))
    _, _, v, _, d = step(wrap(1.0), wrap(1e-3), wrap(0.0), wrap(1e30), n, xp=xp)
    assert v == wrap(1e-3) * wrap(1e-3)
    assert d == pytest.approx(1e-3, rel=1e-4)
