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
    entry["exp_avg"] = entry["exp_avg"] * 3


def replace_maximum(params, optimizer):
    entry = optimizer.state[params[0]]
    entry["max_exp_avg_sq"] = entry["max_exp_avg_sq"].double() * 3


def replace_entry(params, optimizer):
    optimizer.state[params[0]] = {k: v + 1 for k, v in optimizer.state[params[0]].items()}


def replace_data(params, optimizer):
    params[0].data = params[0].data.double() + 1


def load_another(params, optimizer):
    saved = optimizer.state_dict()
    for entry in saved["state"].values():
        entry["exp_avg"] = entry["exp_avg"] + 1
    optimizer.load_state_dict(saved)


def other_layout(params, optimizer):
    params[3].data = (params[3].data + 1).to(memory_format=torch.channels_last)


CHANGES = (replace_moment, replace_maximum, replace_entry, replace_data, load_another, other_layout)


def run(change, foreach, name="amsgradw"):
    params, optimizer = made(name, foreach=foreach)
    for t in range(9):
        if t == 6:
            kept = list(optimizer._plans.values())
            change(params, optimizer)
        give(params, t)
        optimizer.step()
    return params, optimizer, kept


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_between_steps_is_noticed(change):
    ours, optimizer, kept = run(change, foreach=True)
    theirs, loop, _ = run(change, foreach=False)
    assert not any(plan in kept for plan in optimizer._plans.values())
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a, b)
        assert all(torch.equal(optimizer.state[a][k], loop.state[b][k]) for k in optimizer.state[a])


def test_zeros_that_others_wrote_into_v_are_guarded():
    """The plan holds; the guard sees that v was written to. A first square counts whole: v is g*g."""

    def write(params, optimizer):
        optimizer.state[params[0]]["exp_avg_sq"].zero_()

    for foreach in (True, False):
        params, optimizer, kept = run(write, foreach, "adaxw")
        assert list(optimizer._plans.values()) == kept
        squares = []
        for t in (6, 7, 8):
            give(params, t)
            squares.append(params[0].grad.square())
        v = optimizer.state[params[0]]["exp_avg_sq"]
        assert v.min() > 0
        assert (v / squares[0]).median() > 0.5


def test_a_maximum_that_the_method_does_not_keep_is_left_alone():
    def put(params, optimizer):
        for p in params[:2]:
            optimizer.state[p]["max_exp_avg_sq"] = torch.full_like(p, 1e6)

    ours, theirs = (run(put, foreach, "adaxw")[0] for foreach in (True, False))
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_a_sparse_tensor_of_others_in_the_state_is_left_alone():
    def put(params, optimizer):
        optimizer.state[params[0]]["mine"] = torch.eye(3).to_sparse()

    ours, theirs = (run(put, foreach, "adaxw")[0] for foreach in (True, False))
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("when", [0, 5])
def test_a_freed_gradient_is_an_error(when):
    params, optimizer = made(foreach=True)
    for t in range(when):
        give(params, t)
        optimizer.step()
    give(params, when)
    params[1].grad.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match="freed"):
        optimizer.step()


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
