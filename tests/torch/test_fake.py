"""Steps on tensors without values (the meta device, FakeTensorMode): wherever torch's AdamW steps, so do we."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from adaxopt import AdaXW, Box, clip_grad_norm_, create
from adaxopt.zoo import METHODS
from runner import FUSES

WAYS = {
    "default": {},
    "foreach": {"foreach": True},
    "for-loop": {"foreach": False},
    "capturable": {"capturable": True},
    "capturable foreach": {"capturable": True, "foreach": True},
    "lr 0": {"lr": 0.0},
    "bfloat16 state": {"state_dtype": torch.bfloat16},
    "clipped": {"clip_update": 1.0, "maximize": True},
    "fully decoupled": {"decay": "fully_decoupled", "weight_decay": 0.1},
}
PLACES = {
    "meta": ("meta", contextlib.nullcontext),
    "fake": ("cpu", FakeTensorMode),
    "fake on a GPU": ("cuda", FakeTensorMode),  # also where torch was built without CUDA
    "fake on meta": ("meta", FakeTensorMode),
}
each_place = pytest.mark.parametrize("place", list(PLACES))
PLACES["real"] = ("cpu", contextlib.nullcontext)


def drawn(**options):
    """Stochastic rounding slices tensors. torch 2.6, and a torch without CUDA, cannot slice those that claim to be on a
    GPU that is not there."""
    return options.get("state_dtype") is torch.bfloat16 or options.get("rounding") == "stochastic"


def steps(make, place, dtype=torch.float32, count=3, sparse=False):
    """Some steps; the shapes and dtypes of what the optimizer then holds."""
    device, mode = PLACES[place]
    with mode():
        params = [torch.nn.Parameter(torch.ones(s, device=device, dtype=dtype)) for s in ((3, 2), ())]
        optimizer = make(params[:1] if sparse else params)
        for _ in range(count):
            for p in params:
                p.grad = torch.ones_like(p)
                if sparse:
                    rows = torch.zeros(2, device=device, dtype=torch.int64)
                    p.grad = None
                    torch.nn.functional.embedding(rows, p, sparse=True).sum().backward()
                    break
            optimizer.step()
        entries = [optimizer.state[p] for p in params if p in optimizer.state]
        return [{k: (tuple(t.shape), t.dtype) for k, t in entry.items()} for entry in entries]


def real(make, **given):
    return steps(make, "real", **given)


@each_place
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", METHODS)
def test_every_method_on_every_path(name, way, place):
    def make(params):
        return create(name, params, **WAYS[way])

    if place == "fake on a GPU" and drawn(**WAYS[way]) and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    assert steps(make, place) == real(make)


@each_place
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.complex64], ids=str)
@pytest.mark.parametrize("rounding", ["nearest", "stochastic", "kahan"])
def test_every_dtype_and_rounding(dtype, rounding, place):
    def make(params):
        return AdaXW(params, rounding=rounding)

    if place == "fake on a GPU" and drawn(rounding=rounding) and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    assert steps(make, place, dtype) == real(make, dtype=dtype)


@pytest.mark.parametrize("place", ["fake", "fake on a GPU"])
@pytest.mark.parametrize("name", FUSES)
def test_where_a_fused_step_was_asked_for(name, place):
    def make(params):
        return create(name, params, fused=True)

    assert steps(make, place) == real(make)


@pytest.mark.parametrize("place", ["meta", "fake"])
@pytest.mark.parametrize("name", ["adax", "adaxw", "padax", "adam", "amsgradw"])
def test_sparse_gradients(name, place):
    def make(params):
        return create(name, params)

    assert steps(make, place, sparse=True) == real(make, sparse=True)


@each_place
def test_hyper_parameters_without_values(place):
    device, mode = PLACES[place]
    with mode():
        p = torch.nn.Parameter(torch.ones(3, device=device))
        lr = torch.full((), 0.1, device=device)
        betas = (torch.full((), 0.9, device=device), torch.full((), 1e-4, device=device))
        optimizer = AdaXW([p], lr=lr, betas=betas)
        for _ in range(3):
            p.grad = torch.ones_like(p)
            optimizer.step()


@pytest.mark.parametrize("place", ["meta", "fake"])
@pytest.mark.parametrize("capturable", [False, True])
@pytest.mark.parametrize("name", METHODS)
def test_differentiable_steps(name, capturable, place):
    device, mode = PLACES[place]
    with mode():
        p = torch.ones(3, device=device, requires_grad=True).clone()
        g = torch.ones(3, device=device, requires_grad=True)
        optimizer = create(name, [p], differentiable=True, capturable=capturable)
        for _ in range(3):
            p.grad = g
            optimizer.step()
        p.sum().backward()
        assert g.grad.shape == (3,)


@pytest.mark.parametrize("place", ["meta", "fake"])
def test_what_stands_around_a_step(place):
    device, mode = PLACES[place]
    with mode():
        p = torch.nn.Parameter(torch.ones(3, device=device))
        optimizer = AdaXW([p], project=Box(-1, 1))
        for _ in range(2):
            p.grad = torch.ones_like(p)
            clip_grad_norm_([p], 1.0)
            optimizer.step()
            optimizer.step_parameter(p)
        optimizer.restart_memory()
        optimizer.load_state_dict(optimizer.state_dict())
        optimizer.step()


def test_a_real_step_after_a_fake_one():
    """Nothing of the one is remembered for the other."""
    p = torch.nn.Parameter(torch.ones(2))
    optimizer = AdaXW([p], lr=0.1, weight_decay=0.0)
    p.grad = torch.ones(2)
    optimizer.step()
    assert steps(AdaXW, "fake") == real(AdaXW)
    optimizer.step()
    assert optimizer.state[p]["step"].item() == 2
    assert p[0].item() == pytest.approx(1 - 0.1 * (0.1 + 0.19), rel=1e-5)
