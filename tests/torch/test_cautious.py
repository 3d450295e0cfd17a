"""`cautious=True` against the authors' code (Liang et al. 2024, arXiv 2411.16085), on every path."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from adaxopt import AdamW, AdaXW, create
from adaxopt.zoo import METHODS
from runner import BACKENDS, Problem, drive, flat, relative, split

STEPS = 30
PROBLEM = Problem(18, STEPS, seed=6)
SIZES = (12, 5, 1)
"""Of the tensors that `split` makes: the share is a tensor's own."""
NAMES = ("adamw", "adaxw", "adax", "padax", "sgdm", "amsgradw", "nosadam")


def published(name: str, problem, steps: int, sizes, *, weight_decay=0.0, maximize=False, clip=None, lr=1e-2):
    """mask = (m*g > 0); mask /= mask.mean().clamp(min=1e-3); the update is multiplied by it."""
    o = METHODS[name].defaults
    x, m, v, v_max = problem.start.copy(), 0.0, np.zeros(sum(sizes)), 0.0
    b1, b2 = o["betas"]
    for t in range(1, steps + 1):
        g = problem(t, x) * (-1.0 if maximize else 1.0)
        if o["decay"] == "l2":
            g = g + weight_decay * x
        m = b1 * m + (g if name == "sgdm" else (1 - b1) * g)
        mean = m
        if name == "sgdm":
            d = 1.0
        elif name in ("adaxw", "adax", "padax"):
            v = v + b2 / ((1 + b2) ** t - 1) * (g * g - v)
            d = v ** o["p"]
        elif name == "nosadam":
            v = v + 1 / sum((t / i) ** b2 for i in range(1, t + 1)) * (g * g - v)
            mean, d = m / (1 - b1**t), np.sqrt(v) + 1e-8
        else:
            v = b2 * v + (1 - b2) * g * g
            v_max = np.maximum(v_max, v) if name == "amsgradw" else v
            mean, d = m / (1 - b1**t), np.sqrt(v_max) / np.sqrt(1 - b2**t) + 1e-8
        update = mean / d if clip is None else np.clip(mean / d, -clip, clip)
        mask = (m * g > 0).astype(float)
        parts = np.split(mask, np.cumsum(sizes)[:-1])
        mask = np.concatenate([part / max(part.mean(), 1e-3) for part in parts])
        shrink = lr * weight_decay if o["decay"] == "decoupled" else 0.0
        x = x - shrink * x - lr * update * mask
    return x


def made(name, params, **options):
    eps = {"eps": 0.0} if METHODS[name].rule.floor else {}
    return create(name, params, lr=1e-2, **{"weight_decay": 0.0, **eps, **options}, cautious=True)


@pytest.mark.parametrize("backend", [b for b in BACKENDS if b != "fused"])
@pytest.mark.parametrize("name", NAMES)
def test_the_authors_code(name, backend):
    for more in ({}, {"weight_decay": 0.1, "maximize": True}):
        params = split(PROBLEM.start)
        got = drive(made(name, params, **more, **BACKENDS[backend]), params, PROBLEM, STEPS)
        assert relative(got, published(name, PROBLEM, STEPS, SIZES, **more)) < 1e-11
        plain = split(PROBLEM.start)
        off = drive(create(name, plain, lr=1e-2, **{"weight_decay": 0.0, **more}), plain, PROBLEM, STEPS)
        assert relative(off, got) > 1e-6


@pytest.mark.parametrize("name", ["adaxw", "sgdm"])
def test_the_bound_on_an_update_comes_first(name):
    params = split(PROBLEM.start)
    got = drive(made(name, params, clip_update=0.05), params, PROBLEM, STEPS)
    assert relative(got, published(name, PROBLEM, STEPS, SIZES, clip=0.05)) < 1e-11


def test_a_differentiable_step_and_rows():
    problem = Problem(6, STEPS, seed=8)
    wanted = published("adaxw", problem, STEPS, (6,))
    p = torch.tensor(problem.start, requires_grad=True) * 1.0
    optimizer = made("adaxw", [p], differentiable=True)
    for t in range(1, STEPS + 1):
        p.grad = torch.tensor(problem(t, p.detach().numpy()))
        optimizer.step()
    assert relative(flat([p]), wanted) < 1e-11

    q = torch.nn.Parameter(torch.tensor(problem.start).reshape(3, 2))
    optimizer = made("adaxw", [q])
    for t in range(1, STEPS + 1):
        g = torch.tensor(problem(t, q.detach().numpy().reshape(-1))).reshape(3, 2)
        q.grad = torch.sparse_coo_tensor(torch.arange(3)[None], g, (3, 2), check_invariants=True)
        optimizer.step()
    assert relative(flat([q]), wanted) < 1e-11


def test_nothing_left_scales_by_a_thousand_at_most():
    """One coordinate of 5,000 agrees: its share of 0.0002 is taken for 0.001."""
    p = torch.nn.Parameter(torch.zeros(5000, dtype=torch.float64))
    optimizer = AdaXW([p], lr=1.0, betas=(0.5, 1e-4), weight_decay=0.0, eps=0.0, cautious=True)
    p.grad = torch.ones_like(p)
    optimizer.step()
    before = p.detach().clone()
    p.grad = torch.full_like(p, -1e-3)  # the mean stays positive
    p.grad[0] = 1.0
    optimizer.step()
    moved = p.detach() - before
    assert not moved[1:].any()
    assert moved[0].item() == pytest.approx(-0.75 * 1000, rel=1e-12)


def test_off_by_default_and_what_is_refused():
    p = torch.nn.Parameter(torch.ones(2))
    assert AdaXW([p]).param_groups[0]["cautious"] is False
    assert AdamW([p], cautious=True).param_groups[0]["cautious"] is True
    with pytest.raises(ValueError, match="cautious='yes'"):
        AdaXW([p], cautious="yes")
    with pytest.raises(TypeError, match="unknown argument 'cautious'"):
        create("rmsprop", [p], cautious=True)  # no mean whose sign could differ
    p.grad = torch.ones(2)
    with pytest.raises(ValueError, match=r"fused=True: .*\(cautious\)"):
        AdaXW([p], cautious=True, fused=True).step()
