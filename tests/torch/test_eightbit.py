"""Optimizers with 8-bit state: the contract around the codes of `codes.py`."""

from __future__ import annotations

import copy
import io

import pytest
import torch

import adaxopt
from adaxopt import AdamW, AdaXW, cast_state_dict, create, step_in_backward
from adaxopt.torch import codes, rounding
from adaxopt.zoo import METHODS

U8, I8, BF16, F16, F32 = torch.uint8, torch.int8, torch.bfloat16, torch.float16, torch.float32
CODED = [name for name, m in METHODS.items() if m.rule.memory is not None and m.rule.mean != "window"]
SHAPES = ((50,), (3, 40), (2, 3, 4, 5))


def parameters(dtype=F32, shapes=SHAPES, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(s, generator=generator).to(dtype)) for s in shapes]


def run(optimizer, params, steps, first=0):
    for t in range(first, first + steps):
        generator = torch.Generator().manual_seed(100 + t)
        for p in params:
            p.grad = torch.randn(p.shape, generator=generator).to(p.dtype)
        optimizer.step()
    return optimizer


def everything(optimizer, params):
    return [{"x": p.detach(), **optimizer.state[p]} for p in params]


def same(one, other):
    return all(
        a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
        for a, b in zip(one, other, strict=True)
    )


def through_file(file):
    buffer = io.BytesIO()
    torch.save(file, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


# -- 8-bit state -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CODED)
def test_a_step_of_every_method_is_the_rule_and_its_state_is_small(name):
    """One step from the codes of the step before: parameters agree with the same step of expanded float32 state."""
    params = parameters()
    optimizer = run(create(name, params, lr=1e-2, state_dtype=U8), params, 3)
    others = [torch.nn.Parameter(p.detach().clone()) for p in params]
    wide = create(name, others, lr=1e-2)
    wide.load_state_dict(cast_state_dict(optimizer.state_dict(), F32))
    run(optimizer, params, 1, first=3), run(wide, others, 1, first=3)
    for p, q in zip(params, others, strict=True):
        assert torch.allclose(p, q, rtol=1e-6, atol=1e-6)
        entry, full = optimizer.state[p], wide.state[q]
        kept = [key for key in codes.CODED if key in entry]
        assert kept == [key for key in codes.CODED if key in full]
        for key in kept:
            assert entry[key].dtype == (I8 if key == "exp_avg" else U8)
            assert entry[codes.scale_name(key)].shape == (codes.groups(p.numel()),)
            got, want = codes.expanded(entry, key), full[key]
            if key != "exp_avg":
                got, want = got.sqrt(), want.sqrt()
            top = want.abs().max()
            assert (got - want).abs().max() <= 2 * codes.steps(1.0, entry[key].dtype) * top


def test_foreach_and_the_for_loop_write_the_same_bits():
    ends = []
    for foreach in (True, False):
        params = parameters(BF16)
        optimizer = AdaXW(params, state_dtype=U8, rounding="24bit", foreach=foreach)
        ends.append(everything(run(optimizer, params, 3), params))
    assert same(*ends)


def test_large_tensors_are_encoded_in_pieces(monkeypatch):
    ends = []
    for piece in (rounding.PIECE, 64):
        monkeypatch.setattr(rounding, "PIECE", piece)
        params = parameters(BF16)
        optimizer = AdaXW(params, state_dtype=U8, rounding="24bit", foreach=True)
        ends.append(everything(run(optimizer, params, 3), params))
    assert same(*ends)


@pytest.mark.parametrize("name", ["sgdm", "adashift"])
def test_methods_without_v_or_with_a_window_refuse(name):
    with pytest.raises(
        ValueError, match=r"state_dtype=torch\.uint8: 8-bit state is m and v, and this method keeps"
    ):
        create(name, parameters(), state_dtype=U8)


def sparse():
    e = torch.nn.Embedding(4, 3, sparse=True)
    e(torch.tensor([1])).sum().backward()
    AdaXW(e.parameters(), state_dtype=U8).step()


def compiled():
    AdaXW(parameters(), state_dtype=U8)._step_compiled({"differentiable": False, "state_dtype": U8})


REFUSED = [
    (sparse, "a sparse gradient steps rows, and 32 consecutive elements share an exponent"),
    (
        lambda: AdaXW([torch.zeros(2, dtype=torch.complex64)], state_dtype=U8),
        "complex state needs 64 bits or more",
    ),
    (lambda: AdaXW(parameters(), state_dtype=U8, differentiable=True), "rounding has no derivative"),
    (lambda: AdaXW(parameters(), state_dtype=I8), "state_dtype=torch.int8: must be one of"),
    (compiled, "8-bit state cannot be stepped by a compiled step"),
    (
        lambda: AdaXW(parameters(F16), rounding="24bit"),
        "rounding='24bit': 8 correction bits are kept for torch.bfloat16",
    ),
    (
        lambda: cast_state_dict(AdaXW(parameters()).state_dict(), torch.int8),
        "cast_state_dict: dtype=torch.int8",
    ),
    (
        lambda: cast_state_dict(torch.optim.AdamW(parameters()).state_dict(), F32),
        "not a checkpoint of adaxopt",
    ),
]


@pytest.mark.parametrize(("attempt", "words"), REFUSED, ids=[words[:40] for _, words in REFUSED])
def test_what_is_refused_is_said(attempt, words):
    with pytest.raises(ValueError, match=words):
        attempt()


def test_stats_read_the_codes():
    params = parameters()
    wide = [torch.nn.Parameter(p.detach().clone()) for p in params]
    small = run(AdaXW(params, state_dtype=U8), params, 5).stats()[0]
    full = run(AdaXW(wide), wide, 5).stats()[0]
    assert small.keys() == full.keys()
    for key in ("v_q05", "v_q50", "v_q95", "update_rms"):
        assert small[key] == pytest.approx(full[key], rel=0.1)
        assert small[key] != full[key]
    assert small["lost"] == small["inactive"] == 0


def test_coordinates_without_a_gradient_are_inactive_and_wake_with_an_ordinary_step():
    p = torch.nn.Parameter(torch.zeros(40))
    optimizer = AdaXW([p], lr=1.0, weight_decay=0.0, state_dtype=U8)
    g = torch.ones(40)
    g[7] = 0
    for _ in range(100):
        p.grad = g.clone()
        optimizer.step()
    assert optimizer.state[p]["exp_avg_sq"][7] == 0
    assert optimizer.stats()[0]["inactive"] == 1 / 40
    before = p[7].item()
    p.grad = torch.ones(40)
    optimizer.step()
    assert before - p[7].item() == pytest.approx(0.1, rel=1e-5)


def test_no_step_is_large_where_neighbours_are_huge():
    """A coordinate a million times smaller than its group's largest: at most the group's largest step."""
    p = torch.nn.Parameter(torch.zeros(32))
    optimizer = AdamW([p], lr=1.0, weight_decay=0.0, state_dtype=U8)
    worst = 0.0
    for t in range(300):
        p.grad = torch.full((32,), 1e-6) * (-1) ** t
        p.grad[0] = 1.0
        before = p.detach().clone()
        optimizer.step()
        worst = max(worst, (p.detach() - before)[1:].abs().max().item())
    assert worst < 1


@pytest.mark.parametrize("spike", [1e25, -3e30, float("inf"), float("nan")])
@pytest.mark.parametrize("make", [AdamW, AdaXW])
def test_a_coordinate_that_overflows_is_lost_alone(make, spike):
    """Its neighbours end as if it had taken an ordinary step; its m is 0 and its v lost, and stay so."""
    ends = []
    for first in (1.0, spike):
        p = torch.nn.Parameter(torch.ones(64))
        optimizer = make([p], lr=1e-3, weight_decay=0.0, state_dtype=U8)
        for t in range(20):
            p.grad = torch.ones(64)
            p.grad[5] = first if t == 3 else 1.0
            optimizer.step()
        ends.append(p.detach().clone())
        entry = optimizer.state[p]
    assert entry["exp_avg_sq"][5] == codes.LOST
    assert codes.expanded(entry, "exp_avg")[5] == 0
    others = torch.arange(64) != 5
    torch.testing.assert_close(ends[1][others], ends[0][others], rtol=0, atol=1e-3)


def test_gradient_release_and_restart():
    model = torch.nn.Linear(40, 3)
    optimizer = AdaXW(model.parameters(), state_dtype=U8)
    hooks = step_in_backward(optimizer)
    for _ in range(2):
        model(torch.ones(2, 40)).square().sum().backward()
    hooks.remove()
    entry = optimizer.state[model.weight]
    assert entry["step"] == 2
    assert entry["exp_avg_sq"].any()
    optimizer.restart_memory()
    assert not codes.expanded(entry, "exp_avg_sq").any()
    assert not codes.expanded(entry, "exp_avg").any()


# -- checkpoints -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["adaxw", "amsgradw", "rmsprop"])
@pytest.mark.parametrize("dtype", [F32, BF16])
def test_resuming_is_bit_exact(name, dtype):
    params = parameters(dtype)
    optimizer = run(create(name, params, lr=1e-2, state_dtype=U8, rounding="24bit"), params, 4)
    again = [torch.nn.Parameter(p.detach().clone()) for p in params]
    resumed = create(name, again)
    resumed.load_state_dict(through_file(optimizer.state_dict()))
    assert same(everything(optimizer, params), everything(resumed, again))
    run(optimizer, params, 3, first=4), run(resumed, again, 3, first=4)
    assert same(everything(optimizer, params), everything(resumed, again))


def test_a_checkpoint_is_expanded_exactly_and_made_small_again():
    params = parameters()
    optimizer = run(create("amsgradw", params, state_dtype=U8), params, 4)
    file = optimizer.state_dict()
    wide = cast_state_dict(file, F32)
    assert wide["param_groups"][0]["state_dtype"] == "float32"
    for i, p in enumerate(params):
        entry = wide["state"][i]
        assert not any(key in entry for key in codes.SCALES)
        for key in codes.CODED:
            assert torch.equal(entry[key], codes.expanded(optimizer.state[p], key))
            assert entry[key].dtype == F32
    small = cast_state_dict(wide, U8)
    for i in range(len(params)):
        for key, value in file["state"][i].items():
            assert torch.equal(small["state"][i][key], value), key
    full = create("amsgradw", parameters())
    full.load_state_dict(wide)
    assert all(entry["exp_avg"].dtype == F32 for entry in full.state.values())
    back = create("amsgradw", parameters())
    back.load_state_dict(cast_state_dict(full.state_dict(), U8))
    assert all(entry["exp_avg"].dtype == I8 for entry in back.state.values())
    assert cast_state_dict(wide, BF16)["state"][0]["exp_avg"].dtype == BF16


def test_torchs_format_goes_both_ways():
    params = parameters()
    ours = run(AdamW(params, lr=1e-2, state_dtype=U8), params, 3)
    theirs = torch.optim.AdamW(params, lr=1e-2)
    theirs.load_state_dict(ours.to_torch_state_dict())
    for p in params:
        norm = 1 - 0.999**3
        want = codes.expanded(ours.state[p], "exp_avg_sq") * norm
        assert torch.allclose(theirs.state[p]["exp_avg_sq"], want, rtol=1e-6)
        assert torch.equal(theirs.state[p]["exp_avg"], codes.expanded(ours.state[p], "exp_avg"))
    again = AdamW(params, lr=1e-2, state_dtype=U8)
    again.load_state_dict(theirs.state_dict())
    for p in params:
        assert again.state[p]["exp_avg_sq"].dtype == U8
        assert (again.state[p]["exp_avg_sq"].int() - ours.state[p]["exp_avg_sq"].int()).abs().max() <= 1
    converted = AdaXW(params, state_dtype=U8)
    adaxopt.load_adamw_state_dict(converted, theirs.state_dict())
    assert converted.state[params[0]]["exp_avg"].dtype == I8


@pytest.mark.parametrize("source", ["adaxopt", "torch"])
def test_a_checkpoint_of_float64_has_no_m_where_its_v_is_0_in_float32(source):
    """Else the next step there divides m by eps alone."""
    kind, p = (
        {"adaxopt": AdamW, "torch": torch.optim.AdamW}[source],
        torch.nn.Parameter(torch.zeros(64).double()),
    )
    wide = kind([p], lr=1e-3, eps=1e-60)
    p.grad = torch.full_like(p, 1e-25)
    p.grad[32:] = 1e-15
    wide.step()
    file = wide.state_dict()
    small = AdamW([p], state_dtype=U8)
    small.load_state_dict(cast_state_dict(file, U8) if source == "adaxopt" else file)
    entry, before = small.state[p], p.detach().clone()
    assert [codes.expanded(entry, key)[:32].any() for key in codes.CODED[:2]] == [False, False]
    assert codes.expanded(entry, "exp_avg")[32:].all()
    p.grad.zero_()
    small.step()
    assert (p.detach() - before).abs().max() < 2e-3


NOT_IN_8_BITS = {
    "complex": lambda: AdamW([torch.nn.Parameter(torch.ones(2, dtype=torch.complex64))]),
    "row-wise": lambda: AdamW(torch.nn.Embedding(4, 3, sparse=True).parameters()),
    "windowed": lambda: create("adashift", [torch.nn.Parameter(torch.ones(2))]),
}


@pytest.mark.parametrize("kind", NOT_IN_8_BITS)
def test_state_that_has_no_8_bit_form_is_named(kind):
    optimizer = NOT_IN_8_BITS[kind]()
    (p,) = optimizer.param_groups[0]["params"]
    p.grad = torch.ones_like(p)
    if kind == "row-wise":
        p.grad = p.grad.detach().to_sparse(1)
    optimizer.step()
    says = rf"^state_dtype=torch\.uint8: .*{kind}.* cannot be in 8 bits; take another"
    with pytest.raises(ValueError, match=says):
        cast_state_dict(optimizer.state_dict(), U8)
    if kind == "row-wise":
        with pytest.raises(ValueError, match=says):
            adaxopt.load_adamw_state_dict(AdaXW([p], state_dtype=U8), optimizer.state_dict())


def test_another_memory_order_has_other_codes_of_the_same_numbers():
    params = parameters(shapes=((4, 8, 3, 3),))
    optimizer = run(AdaXW(params, state_dtype=U8), params, 2)
    other = [torch.nn.Parameter(params[0].detach().to(memory_format=torch.channels_last))]
    loaded = AdaXW(other)
    loaded.load_state_dict(optimizer.state_dict())
    entry = loaded.state[other[0]]
    assert entry["exp_avg"].stride() == other[0].stride()
    for key in ("exp_avg", "exp_avg_sq"):
        got, want = codes.expanded(entry, key), codes.expanded(optimizer.state[params[0]], key)
        assert not torch.equal(entry[key], optimizer.state[params[0]][key])
        assert (got - want).abs().max() <= 0.03 * want.abs().max()
    run(loaded, other, 1)


BROKEN = {
    "no scale": (lambda e: e.pop("exp_avg_scale"), "'exp_avg_scale' as None"),
    "another kind": (lambda e: e.update(exp_avg=e["exp_avg"].to(U8)), "'exp_avg' in torch.uint8"),
    "scales of another count": (lambda e: e.update(exp_avg_scale=e["exp_avg_scale"][:1]), r"of shape \(1,\)"),
    "half of it": (lambda e: e.update(exp_avg=e["exp_avg"].float()), r"only \['exp_avg_sq'\] in 8 bits"),
    "another shape": (
        lambda e: e.update(exp_avg=e["exp_avg"].view(5, 10), exp_avg_sq=e["exp_avg_sq"].view(5, 10)),
        r"in 8 bits of shape \(5, 10\): this parameter is of another shape",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_codes_are_refused_before_anything_changes(kind):
    change, words = BROKEN[kind]
    params = parameters()
    optimizer = run(AdaXW(params, state_dtype=U8), params, 2)
    file = copy.deepcopy(optimizer.state_dict())
    change(file["state"][0])
    before = copy.deepcopy(everything(optimizer, params))
    with pytest.raises(ValueError, match=words):
        optimizer.load_state_dict(file)
    assert same(before, everything(optimizer, params))


def test_codes_that_were_read_as_numbers_are_refused():
    """What torch's distributed checkpoints do to an optimizer that was built without 8-bit state."""
    small = AdaXW([torch.nn.Parameter(torch.ones(64))], state_dtype=U8)
    p = small.param_groups[0]["params"][0]
    for t in range(3):
        p.grad = torch.linspace(0.1, 1, 64) * (t + 1)
        small.step()
    file = small.state_dict()
    assert file["param_groups"][0]["state_dtype"] == "uint8"
    read = {k: v.float() if v.dtype in (U8, I8) else v for k, v in file["state"][0].items()}
    wrong = {**file, "state": {0: {k: v for k, v in read.items() if not k.endswith("_scale")}}}
    large = AdaXW([torch.nn.Parameter(torch.ones(64))])
    with pytest.raises(
        ValueError, match=r"they are 8-bit codes; build this optimizer with state_dtype=torch\.uint8"
    ):
        large.load_state_dict(wrong)
    large.load_state_dict(cast_state_dict(file, F32))
    large.param_groups[0]["state_dtype"] = U8  # for parameters that come later
    AdaXW([torch.nn.Parameter(torch.ones(64))]).load_state_dict(large.state_dict())


def test_m_is_0_where_a_v_is_0_in_float32():
    """The codes are of float32 numbers: a float64 v below them is stored as 0, and m with it."""
    p = torch.nn.Parameter(torch.zeros(64, dtype=torch.float64))
    optimizer = adaxopt.Adam([p], lr=1e-3, eps=1e-60, state_dtype=U8)
    p.grad = torch.full((64,), 1e-25, dtype=torch.float64)  # a group of 32 with an exponent of its own
    p.grad[32:] = 1e-15
    optimizer.step()
    entry = optimizer.state[p]
    m, v = entry["exp_avg"] != 0, entry["exp_avg_sq"] != 0
    assert m.tolist() == v.tolist() == 32 * [False] + 32 * [True]
