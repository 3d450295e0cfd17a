"""The foreach form as a backend: what it serves, and that its steps are those of the for-loop, to the bit."""

from __future__ import annotations

import pytest
import torch

import adaxopt
from adaxopt.torch import foreach_share

SHAPES = ((3, 4), (5,), (), (2, 3, 4, 4))
BF16, F32, F64, C64 = torch.bfloat16, torch.float32, torch.float64, torch.complex64


def made(name="adaxw", dtype=F32, **options):
    generator = torch.Generator().manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(s, generator=generator).to(dtype)) for s in SHAPES]
    return params, adaxopt.create(name, params, lr=1e-2, **options)


def give(params, seed):
    generator = torch.Generator().manual_seed(seed)
    for p in params:
        p.grad = torch.randn(p.shape, generator=generator).to(p.dtype)


def served(optimizer):
    return sum(
        len(owners)
        for plan in optimizer._plans.values()
        for share, owners, _ in plan.shares
        if isinstance(share, foreach_share.Share)
    )


@pytest.mark.parametrize("name", ["adax", "adaxw", "padax", "adamw", "amsgradw", "nosadam"])
@pytest.mark.parametrize("dtype", [F32, F64, C64])
def test_steps_are_the_for_loop_s(name, dtype):
    ends = []
    for foreach in (True, False):
        params, optimizer = made(name, dtype, foreach=foreach, weight_decay=0.1)
        for t in range(4):
            give(params, t)
            if t == 2:
                params[1].grad = None
            optimizer.step()
        assert served(optimizer) == (len(params) if foreach else 0)
        ends.append((params, optimizer.state_dict()["state"]))
    for a, b in zip(*(params for params, _ in ends), strict=True):
        assert torch.equal(a, b)
    for i, entry in ends[0][1].items():
        assert all(torch.equal(entry[k], ends[1][1][i][k]) for k in entry)


@pytest.mark.parametrize(
    ("name", "dtype", "options"),
    [
        ("sgdm", F32, {"foreach": True}),
        ("rmsprop", F32, {"foreach": True}),
        ("adaxw", BF16, {"foreach": True}),
        ("adaxw", F32, {"foreach": True, "state_dtype": torch.uint8}),
        ("adaxw", F32, {"foreach": True, "capturable": True}),
        ("adaxw", F32, {"foreach": False}),
    ],
)
def test_others_are_left_to_dispatch(name, dtype, options):
    params, optimizer = made(name, dtype, **options)
    before = [p.detach().clone() for p in params]
    for t in range(2):
        give(params, t)
        optimizer.step()
    assert served(optimizer) == 0
    assert all(not torch.equal(a, b) for a, b in zip(params, before, strict=True))


def replace_moment(params, optimizer):
    entry = optimizer.state[params[0]]
    entry["exp_avg"] = entry["exp_avg"].double()


def replace_maximum(params, optimizer):
    entry = optimizer.state[params[0]]
    entry["max_exp_avg_sq"] = entry["max_exp_avg_sq"].double()


def replace_data(params, optimizer):
    params[0].data = params[0].data.double()


def write_zeros(params, optimizer):
    optimizer.state[params[0]]["exp_avg_sq"].zero_()


def load_itself(params, optimizer):
    optimizer.load_state_dict(optimizer.state_dict())


def other_layout(params, optimizer):
    params[3].data = params[3].data.to(memory_format=torch.channels_last)


CHANGES = (replace_moment, replace_maximum, replace_data, write_zeros, load_itself, other_layout)


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_between_steps_is_noticed(change):
    ends = []
    for foreach in (True, False):
        params, optimizer = made("amsgradw", foreach=foreach)
        for t in range(4):
            if t == 2:
                change(params, optimizer)
            give(params, t)
            optimizer.step()
        ends.append(params)
    for a, b in zip(*ends, strict=True):
        assert torch.equal(a, b)


def test_a_sparse_gradient_takes_another_path():
    params, optimizer = made(foreach=True)
    give(params, 0)
    optimizer.step()
    give(params, 1)
    params[0].grad = torch.sparse_coo_tensor([[1]], torch.ones(1, 4), (3, 4), check_invariants=True)
    before = [p.detach().clone() for p in params]
    optimizer.step()
    assert torch.equal(params[0][0], before[0][0])
    assert all(not torch.equal(a, b) for a, b in zip(params, before, strict=True))


def test_a_broken_state_is_refused_before_anything_moves():
    params, optimizer = made(foreach=True)
    give(params, 0)
    optimizer.step()
    del optimizer.state[params[2]]["exp_avg"]
    before = [p.detach().clone() for p in params]
    with pytest.raises(ValueError, match="has no exp_avg in its state"):
        optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(params, before, strict=True))
