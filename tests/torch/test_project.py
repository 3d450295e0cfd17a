"""Projections in the metric of the step: against bisection in 50 digits, and inside the step of every method."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import oracles
from adaxopt import AdaX, AdaXW, Ball, Box, create
from adaxopt.zoo import METHODS
from runner import BACKENDS, relative, same, snapshot

PATHS = {name: BACKENDS[name] for name in ("default", "foreach", "for-loop", "capturable")}

METRICS = {
    "flat": lambda random, n: np.ones(n),
    "ordinary": lambda random, n: random.lognormal(size=n),
    "wide": lambda random, n: 10.0 ** random.uniform(-10, 3, size=n),
    "extreme": lambda random, n: 10.0 ** random.uniform(-19, 19, size=n),
    "one heavy": lambda random, n: np.where(np.arange(n) == 0, 1e12, 1.0),
    "one light": lambda random, n: np.where(np.arange(n) == 0, 1e-12, 1.0),
}


@pytest.mark.parametrize("radius", [1e-6, 0.5, 1.999])
@pytest.mark.parametrize("n", [1, 2, 9])
@pytest.mark.parametrize("metric", METRICS)
def test_ball_against_bisection(metric, n, radius):
    random = np.random.default_rng(n)
    y = random.normal(size=n)
    y *= 2.0 / np.linalg.norm(y)
    d = METRICS[metric](random, n)
    got = Ball(radius)(torch.tensor(y), torch.tensor(d)).numpy()
    wanted = oracles.project_to_ball(y, d, radius)
    assert relative(got, wanted) < 1e-11
    assert np.linalg.norm(got) == pytest.approx(radius, rel=1e-14)


def test_ball_meets_the_conditions_of_a_minimum():
    """d*(x - y) is antiparallel to x, and no feasible neighbour is nearer."""
    random = np.random.default_rng(0)
    y, d = random.normal(size=30) * 3, random.lognormal(size=30) ** 2
    x = Ball(1.0)(torch.tensor(y), torch.tensor(d)).numpy()
    pull = d * (y - x)
    assert relative(pull / np.linalg.norm(pull), x / np.linalg.norm(x)) < 1e-12
    best = np.sum(d * (x - y) ** 2)
    for _ in range(200):
        other = x + random.normal(size=30) * 1e-3
        other /= max(1.0, np.linalg.norm(other))
        assert np.sum(d * (other - y) ** 2) > best
    naive = y / np.linalg.norm(y)
    assert np.sum(d * (naive - y) ** 2) > 1.01 * best  # the metric matters


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_points_inside_are_left_alone(dtype):
    y = torch.tensor([0.3, -0.4], dtype=dtype)
    d = torch.tensor([1.0, 5.0], dtype=dtype)
    assert torch.equal(Ball(1.0)(y, d), y)
    assert torch.equal(Box(-1, 1)(y, d), y)
    assert Ball(0.1)(y, d).dtype == dtype


@pytest.mark.parametrize("call", [lambda: Ball(0.0), lambda: Ball(-1.0), lambda: Ball(float("nan"))])
def test_an_impossible_ball(call):
    with pytest.raises(ValueError, match=r"Ball\(radius=.*must be > 0"):
        call()


@pytest.mark.parametrize("pair", [(1.0, -1.0), (float("nan"), 1.0), (0.0, float("nan"))])
def test_an_impossible_box(pair):
    with pytest.raises(ValueError, match=r"Box\(lo=.*lo must be <= hi"):
        Box(*pair)


@pytest.mark.parametrize("bad", [1.0, "box", (-1, 1)])
def test_what_cannot_be_called(bad):
    with pytest.raises(TypeError, match=r"project=.*Box, Ball or a callable"):
        AdaXW([torch.nn.Parameter(torch.ones(1))], project=bad)


WRONG = {
    "one number": (
        lambda y, d: y.mean(),
        ValueError,
        r"returned a tensor of shape \(\) for y of shape \(2, 3\)",
    ),
    "a row": (lambda y, d: y[:1], ValueError, r"returned a tensor of shape \(1, 3\) for y of shape \(2, 3\)"),
    "nothing": (lambda y, d: None, TypeError, "returned a NoneType"),
    "a list": (lambda y, d: y.tolist(), TypeError, "returned a list"),
}


@pytest.mark.parametrize("path", [*PATHS, "differentiable"])
@pytest.mark.parametrize("name", WRONG)
def test_what_a_projection_must_return(name, path):
    project, error, says = WRONG[name]
    p = torch.arange(6.0).reshape(2, 3)
    optimizer = AdaXW([p], lr=0.1, project=project, **BACKENDS.get(path, {path: True}))
    p.grad = torch.ones_like(p)
    with pytest.raises(error, match=f"project: {says}.*must return a tensor of the shape of y"):
        optimizer.step()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", ["ball", "box", "callable"])
def test_algorithm_1_line_7(kind, path):
    """x_{t+1} = P(x_t - lr m/sqrt(v)) in the metric sqrt(v): AdaX written out beside the projection's oracle."""
    random = np.random.default_rng(5)
    start = random.normal(size=4) * 0.2
    gs = random.normal(0.5, 1.0, size=(25, 4))
    project = {"ball": Ball(0.7), "box": Box(-0.2, 0.1), "callable": lambda y, d: y - 0.1 * d * y}[kind]
    p = torch.nn.Parameter(torch.tensor(start))
    optimizer = AdaX([p], lr=0.3, project=project, **PATHS[path])
    x, m, v = start.copy(), 0.0, 0.0
    for t, g in enumerate(gs, 1):
        m = 0.9 * m + 0.1 * g
        v = 1.0001 * v + 1e-4 * g * g
        d = (np.sqrt(v) + 1e-12) / np.sqrt(1.0001**t - 1)
        y = x - 0.3 * m / d
        if kind == "ball":
            x = oracles.project_to_ball(y, d, 0.7)
        elif kind == "box":
            x = np.clip(y, -0.2, 0.1)
        else:
            x = y - 0.1 * d * y
        p.grad = torch.tensor(g)
        optimizer.step()
    assert relative(p.detach().numpy(), x) < 1e-10
    if kind == "ball":
        assert np.linalg.norm(x) == pytest.approx(0.7)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", METHODS)
def test_every_method_stays_in_its_box(name, path):
    """Also where there is no second moment, and so no metric but the plain one."""
    p = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))
    optimizer = create(name, [p], lr=5.0, weight_decay=0.0, project=Box(-1, 0.5), **PATHS[path])
    for _ in range(15):
        p.grad = torch.tensor([1.0, -1.0, 0.0], dtype=torch.float64)
        optimizer.step()
    assert p.tolist() == [-1.0, 0.5, 0.0]


@pytest.mark.parametrize("path", PATHS)
def test_the_papers_problem_3(path):
    """f_t = C x every third step, else -x, on [-1, 1] with lr/sqrt(t): AdaX goes to -1, Adam at b2 = .1 to +1."""
    ends = {}
    for name, betas in (("adax", (0.0, 1e-4)), ("adam", (0.0, 0.1))):
        p = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
        optimizer = create(name, [p], betas=betas, lr=0.5, project=Box(-1, 1), **PATHS[path])
        for t in range(1, 301):
            optimizer.param_groups[0]["lr"] = 0.5 / t**0.5
            p.grad = torch.tensor([3.0 if t % 3 == 1 else -1.0], dtype=torch.float64)
            optimizer.step()
        ends[name] = p.item()
    assert ends["adax"] < -0.9
    assert ends["adam"] > 0.8


def test_a_ball_is_for_each_tensor_by_itself():
    p, q = torch.nn.Parameter(torch.ones(4)), torch.nn.Parameter(torch.full((2, 2), 0.1))
    optimizer = AdaXW([p, q], lr=1e-3, project=Ball(1.0))
    p.grad, q.grad = torch.ones(4), torch.ones(2, 2)
    optimizer.step()
    assert float(p.detach().norm()) == pytest.approx(1.0, rel=1e-6)
    assert float(q.detach().norm()) == pytest.approx(0.2, rel=1e-2)


@pytest.mark.parametrize("rounding", ["nearest", "stochastic", "kahan"])
def test_sixteen_bit_parameters(rounding):
    p = torch.nn.Parameter(torch.full((64,), 0.9, dtype=torch.bfloat16))
    optimizer = AdaXW([p], lr=0.1, weight_decay=0.0, rounding=rounding, project=Box(-1, 1))
    for _ in range(10):
        p.grad = -torch.ones(64, dtype=torch.bfloat16)
        optimizer.step()
    assert p.detach().float().tolist() == [1.0] * 64


def test_complex_parameters_are_pairs():
    p = torch.nn.Parameter(torch.tensor([3.0 + 4.0j]))
    optimizer = AdaXW([p], lr=1e-8, weight_decay=0.0, project=Ball(1.0))
    p.grad = torch.tensor([1.0 + 1.0j])
    optimizer.step()
    assert abs(p.detach().item()) == pytest.approx(1.0, rel=1e-6)


def test_fused_says_that_it_cannot():
    p = torch.nn.Parameter(torch.ones(2))
    optimizer = AdaXW([p], fused=True, project=Box(0, 1))
    p.grad = torch.ones(2)
    before = snapshot(optimizer)
    with pytest.raises(ValueError, match=r"fused=True.*project"):
        optimizer.step()
    assert same(snapshot(optimizer), before)


def test_a_projection_is_no_part_of_a_checkpoint():
    p = torch.nn.Parameter(torch.ones(2))
    optimizer = AdaXW([p], project=Ball(1.0))
    assert "project" not in optimizer.state_dict()["param_groups"][0]
    p.grad = torch.ones(2)
    optimizer.step()
    other = AdaXW([torch.nn.Parameter(torch.ones(2))])
    other.load_state_dict(optimizer.state_dict())
    assert other._project is None
