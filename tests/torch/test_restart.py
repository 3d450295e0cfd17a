"""`restart_memory`: m, v and the step counts start anew."""

from __future__ import annotations

import pytest
import torch

from adaxopt import AdaXW, create
from adaxopt.zoo import METHODS
from runner import BACKENDS, Problem, drive, relative, split

SIZE = 18


@pytest.mark.parametrize("name", ["adax", "adaxw", "padax"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_restart_memory(name, backend):
    """The next square replaces v, and m begins anew: a large one would make a step of many times lr."""
    if backend == "fused" and name == "padax":
        backend = "default"
    p = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
    optimizer = create(name, [p], lr=1.0, weight_decay=0.0, **BACKENDS[backend])
    for _ in range(5):
        p.grad = torch.tensor([100.0, 100.0], dtype=torch.float64)
        optimizer.step()
    optimizer.restart_memory()
    p.detach().zero_()
    p.grad = torch.tensor([2.0, 3.0], dtype=torch.float64)
    optimizer.step()
    entry = optimizer.state[p]
    assert entry["exp_avg_sq"].tolist() == [4.0, 9.0]
    assert float(entry["step"]) == 1
    torch.testing.assert_close(entry["exp_avg"], 0.1 * p.grad)
    power = METHODS[name].defaults["p"]
    wanted = -entry["exp_avg"] / torch.tensor([4.0, 9.0], dtype=torch.float64) ** power
    torch.testing.assert_close(p.detach(), wanted, rtol=1e-9, atol=0)


@pytest.mark.parametrize(
    "name", ["adax", "padax", "adam", "amsgrad", "adashift", "nosadam", "adagrad", "sgdm"]
)
def test_a_restart_is_a_fresh_start(name):
    problem = Problem(SIZE, 40, seed=4)
    used, fresh = split(problem.start), split(problem.start)
    first, second = create(name, used), create(name, fresh)
    drive(first, used, problem, 20)
    first.restart_memory()
    with torch.no_grad():
        for p, q in zip(used, fresh, strict=True):
            p.copy_(q)
    a, b = drive(first, used, problem, 15), drive(second, fresh, problem, 15)
    assert relative(a, b) < 1e-12


def test_restart_of_rows():
    p = torch.nn.Parameter(torch.ones(3, 1))
    optimizer = AdaXW([p])
    for _ in range(3):
        p.grad = torch.ones(3, 1).to_sparse(1)
        optimizer.step()
    optimizer.restart_memory()
    assert optimizer.state[p]["row_step"].tolist() == [0, 0, 0]
    p.grad = torch.full((3, 1), 5.0).to_sparse(1)
    optimizer.step()
    assert optimizer.state[p]["exp_avg_sq"].flatten().tolist() == [25.0] * 3
