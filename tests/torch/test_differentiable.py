"""Autograd sees through a step: gradcheck in float64, in everything that a step is a function of."""

from __future__ import annotations

import pytest
import torch
from infos import NAMES, PUBLIC, each_method

import adaxopt

DOUBLE = torch.float64
STATE = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "window")


def away_from_zero(*shape, dtype=DOUBLE, seed=0):
    """StepCoefficients of either sign whose size is between 1/2 and 2, so that no derivative meets a kink."""
    generator = torch.Generator().manual_seed(seed)
    size = 0.5 + 1.5 * torch.rand(
        *shape, generator=generator, dtype=dtype.to_real() if dtype.is_complex else dtype
    )
    turn = torch.randn(*shape, generator=generator, dtype=dtype)
    return (size * turn / turn.abs()).to(dtype)


def start(name, p, **kwargs):
    """State as after some steps, as plain tensors: what one more step is a function of."""
    optimizer = adaxopt.create(name, [p.detach().clone()], differentiable=True, **kwargs)
    q = optimizer.param_groups[0]["params"][0]
    for t in range(kwargs.get("window", 10) + 2 if name == "adashift" else 3):
        q.grad = away_from_zero(*p.shape, dtype=p.dtype, seed=20 + t)
        optimizer.step()
    return {k: v.detach().clone() for k, v in optimizer.state[q].items()}


def stepped(name, p, g, state, kwargs, steps=1):
    """The parameter and state after `steps` steps, as functions of all that is given."""
    p = p.clone()
    optimizer = adaxopt.create(name, [p], differentiable=True, **kwargs)
    optimizer.state[p].update({k: v.clone() for k, v in state.items()})
    for _ in range(steps):
        p.grad = g
        optimizer.step()
    return (p, *(optimizer.state[p][k] for k in STATE if k in state))


def check(name, dtype=DOUBLE, steps=1, **kwargs):
    p = away_from_zero(3, dtype=dtype, seed=1).requires_grad_()
    g = away_from_zero(3, dtype=dtype, seed=2).requires_grad_()
    state = start(name, p, **kwargs)
    keys = [k for k in STATE if k in state]
    inputs = tuple(state[k].requires_grad_() for k in keys)

    def function(p, g, *values):
        return stepped(
            name, p, g, {"step": state["step"], **dict(zip(keys, values, strict=True))}, kwargs, steps
        )

    assert torch.autograd.gradcheck(function, (p, g, *inputs))


OPTIONS = {
    "default": {},
    "decay": {"weight_decay": 0.3},
    "other decay": {"weight_decay": 0.3, "decay": "fully_decoupled"},
    "maximize": {"maximize": True},
    "clip": {"clip_update": 1e3},
    "eps": {"eps": 0.1},
    "capturable": {"capturable": True, "weight_decay": 0.3},
}


@each_method
@pytest.mark.parametrize("options", list(OPTIONS))
def test_in_parameter_gradient_and_state(name, options):
    window = {"window": 2} if name == "adashift" else {}
    check(name, **{**OPTIONS[options], **window}, lr=0.1)


@pytest.mark.parametrize("name", PUBLIC)
@pytest.mark.parametrize(
    "kwargs", [{"betas": (0.5, 0.0)}, {"eps_placement": "plain", "eps": 0.1}, {"wake": False}]
)
def test_options_of_adax(name, kwargs):
    check(name, lr=0.1, **kwargs)


@pytest.mark.parametrize("name", ["adaxw", "padax", "amsgrad", "adashift"])
def test_through_several_steps(name):
    check(name, steps=3, lr=0.1, **({"window": 2} if name == "adashift" else {}))


@each_method
def test_complex(name):
    check(name, dtype=torch.complex128, lr=0.1, **({"window": 2} if name == "adashift" else {}))


LACKS = {("adagrad", "b1"), ("adagrad", "b2"), ("rmsprop", "b1"), ("sgdm", "b2"), ("sgdm", "eps")}
LACKS |= {("nosadam", "b2")}  # its c is a number: the sum of its weights is computed on the host
HYPER = [(n, w) for n in NAMES for w in ("lr", "b1", "b2", "weight_decay", "eps") if (n, w) not in LACKS]


@pytest.mark.parametrize(("name", "which"), HYPER)
def test_in_hyper_parameters(name, which):
    """The derivative of a step in a tensor hyper-parameter, against finite differences."""
    p, g = away_from_zero(3, seed=1), away_from_zero(3, seed=2)
    window = {"window": 2} if name == "adashift" else {}
    state = start(name, p, **window)
    first, second = adaxopt.create(name, [p.clone()]).defaults["betas"]
    value = {"lr": 0.1, "b1": 0.7, "b2": second or 0.5, "weight_decay": 0.3, "eps": 0.1}[which]
    hyper = torch.tensor(value, dtype=DOUBLE, requires_grad=True)

    def function(hyper):
        given = {which: hyper} if which in ("lr", "weight_decay", "eps") else {}
        if which == "b1":
            given["betas"] = (hyper, second)
        elif which == "b2":
            given["betas"] = (first, hyper)
        return stepped(name, p, g, state, {**given, **window}, steps=2)[0]

    assert torch.autograd.gradcheck(function, (hyper,))
    (slope,) = torch.autograd.grad(function(hyper).abs().sum(), hyper)
    assert slope.abs() > 1e-9


def test_in_an_lr_whose_first_value_decay_is_measured_against():
    """wd*lr/reference_lr moves with lr; the reference is a number, and does not."""
    x, g = away_from_zero(3, seed=1), away_from_zero(3, seed=2)
    lr = torch.tensor(0.1, dtype=DOUBLE, requires_grad=True)

    def function(lr, wd=0.3, **given):
        p = x.clone()
        group = {"params": [p], "lr": lr, "weight_decay": wd, "decay": "fully_decoupled", **given}
        optimizer = adaxopt.AdaXW([group], differentiable=True)
        p.grad = g
        optimizer.step()
        return p

    assert torch.autograd.gradcheck(lambda lr: function(lr, reference_lr=0.1), (lr,))
    with_decay, without = (torch.autograd.grad(function(lr, wd).sum(), lr)[0] for wd in (0.3, 0.0))
    torch.testing.assert_close(with_decay - without, -(0.3 / 0.1) * x.sum())


@pytest.mark.parametrize("name", PUBLIC)
def test_the_best_lr_is_found_by_descending_on_it(name):
    """What it is for: an inner loop of three steps, and a hyper-gradient that lowers the loss after them."""

    def after(lr):
        x = torch.tensor([1.0, -2.0], dtype=DOUBLE)
        p = x.clone().requires_grad_().clone()
        optimizer = adaxopt.create(name, [p], lr=lr, weight_decay=0.0, differentiable=True)
        for _ in range(3):
            (g,) = torch.autograd.grad((p.clone() ** 2).sum(), p, create_graph=True)
            p.grad = g
            optimizer.step()
        return (p**2).sum()

    lr = torch.tensor(0.01, dtype=DOUBLE, requires_grad=True)
    losses = []
    for _ in range(10):
        loss = after(lr)
        (slope,) = torch.autograd.grad(loss, lr)
        with torch.no_grad():
            lr -= 0.01 * slope
        losses.append(loss.item())
    assert slope < 0
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.95 * losses[0]


@pytest.mark.parametrize("name", PUBLIC)
@pytest.mark.parametrize("project", [adaxopt.Box(-1.1, 1.3), adaxopt.Ball(1.0)], ids=["box", "ball"])
def test_a_differentiable_step_projects(name, project):
    p = away_from_zero(5, seed=3)
    q = torch.nn.Parameter(p.clone())
    g = away_from_zero(5, seed=4)
    ours = projected(name, p, g, project)
    loop = adaxopt.create(name, [q], project=project, lr=0.3, foreach=False)
    q.grad = g
    loop.step()
    torch.testing.assert_close(ours.detach(), q.detach(), rtol=1e-12, atol=1e-12)
    free = adaxopt.create(name, [r := torch.nn.Parameter(p.clone())], lr=0.3, foreach=False)
    r.grad = g
    free.step()
    assert (r - q).abs().max() > 1e-10


def projected(name, p, g, project):
    p = p.clone()
    optimizer = adaxopt.create(name, [p], project=project, lr=0.3, differentiable=True)
    p.grad = g
    optimizer.step()
    return p


@pytest.mark.parametrize("name", [*PUBLIC, "adashift"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_in_16_bits_it_computes_as_the_for_loop_does(name, dtype):
    p, q = (away_from_zero(50, seed=3).to(dtype) for _ in range(2))
    a = adaxopt.create(name, [p], differentiable=True, lr=0.1, weight_decay=0.1)
    b = adaxopt.create(name, [q], foreach=False, lr=0.1, weight_decay=0.1)
    for t in range(14 if name == "adashift" else 4):  # its window is 10
        p.grad = q.grad = away_from_zero(50, seed=t).to(dtype)
        a.step(), b.step()
    step = 2 * torch.finfo(dtype).eps  # one rounding may fall the other way
    torch.testing.assert_close(p, q, rtol=step, atol=step)
    for key in ("exp_avg", "exp_avg_sq"):
        assert a.state[p][key].dtype == torch.float32
        torch.testing.assert_close(a.state[p][key], b.state[q][key], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("shape", [(), (1,), (3,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_state_keeps_its_dtype(shape, dtype):
    p = torch.ones(shape, dtype=dtype)
    optimizer = adaxopt.AdaXW([p], differentiable=True)
    for _ in range(3):
        p.grad = torch.ones_like(p)
        optimizer.step()
        assert {optimizer.state[p][key].dtype for key in ("exp_avg", "exp_avg_sq")} == {torch.float32}


def test_a_window_keeps_its_dtype():
    """A 0-d decay in float64 promotes 0-d parameters."""
    p = torch.ones(())
    decay = torch.tensor(0.1, dtype=torch.float64)
    optimizer = adaxopt.create("adashift", [p], differentiable=True, weight_decay=decay, decay="l2")
    for _ in range(3):
        p.grad = torch.ones(())
        optimizer.step()
    assert optimizer.state[p]["window"].dtype == torch.float32


@pytest.mark.parametrize("name", PUBLIC)
def test_what_has_no_derivative_is_refused(name):
    p = torch.zeros(2)
    for given, word in (
        ({"rounding": "stochastic"}, "rounding"),
        ({"state_dtype": torch.bfloat16}, "state_dtype"),
        ({"fused": True}, "fused"),
        ({"foreach": True}, "foreach"),
    ):
        with pytest.raises(ValueError, match=f"differentiable=True, {word}"):
            adaxopt.create(name, [p], differentiable=True, **given)
    optimizer = adaxopt.create(name, [p], differentiable=True)
    p.grad = torch.ones(2).to_sparse()
    with pytest.raises(ValueError, match="sparse"):
        optimizer.step()
