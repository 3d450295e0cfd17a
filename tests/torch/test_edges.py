"""Corners where options meet: each row was wrong once, or could be silently."""

import warnings

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import adaxopt
from adaxopt import AdaXW, Box
from adaxopt.torch import refusals


def parameter(*values, dtype=torch.float32):
    return torch.nn.Parameter(torch.tensor(values, dtype=dtype))


def at(optimizer, p, t):
    """Put a parameter's time at t."""
    optimizer.state[p]["step"].fill_(t)
    optimizer._inactive.clear()


@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"capturable": True}])
def test_one_part_of_a_complex_number_may_be_inactive(options):
    p = parameter(0j, dtype=torch.complex64)
    optimizer = AdaXW([p], lr=1.0, weight_decay=0.0, **options)
    for _ in range(2):
        p.grad = torch.tensor([1j])
        optimizer.step()
    at(optimizer, p, 1e6)
    before = p.detach().clone()
    p.grad = torch.tensor([1 + 1j])
    optimizer.step()
    assert abs((p - before).real.item()) == pytest.approx(0.1, rel=1e-3)


@pytest.mark.parametrize("options", [{"foreach": True}, {"fused": True}, {"capturable": True}])
def test_float16_gradients_are_unscaled_in_float32(options):
    p = torch.nn.Parameter(torch.ones(2, dtype=torch.float16))
    optimizer = AdaXW([p], lr=0.1, weight_decay=0.0, **options)
    p.grad = torch.full((2,), 1e-3, dtype=torch.float16)
    optimizer.grad_scale, optimizer.found_inf = torch.tensor(65536.0), torch.tensor(0.0)
    if options.get("fused"):
        with pytest.warns(UserWarning, match="takes the foreach path"):
            optimizer.step()
    else:
        optimizer.step()
    assert optimizer.state[p]["exp_avg"][0].item() == pytest.approx(0.1 * 1e-3 / 65536, rel=1e-3)
    assert p[0].item() == pytest.approx(0.99, abs=1e-3)


@pytest.mark.parametrize("inf", [0.0, 1.0])
def test_a_compiled_step_obeys_the_scaler(inf):
    """What a graph cannot hold it leaves to the plain step."""
    p = parameter(1.0)
    optimizer = AdaXW([p], lr=0.1, weight_decay=0.0, fused=True)
    p.grad = torch.ones(1)
    optimizer.found_inf, optimizer.grad_scale = torch.tensor(inf), torch.tensor(2.0)
    torch.compile(lambda: optimizer.step(), backend="eager")()
    assert p.item() == pytest.approx(1.0 if inf else 0.99)
    if not inf:
        assert optimizer.state[p]["exp_avg_sq"].item() == pytest.approx(0.25)


def test_cleared_state_is_looked_at_anew():
    p = parameter(0.0, 0.0)
    optimizer = AdaXW([p], lr=1.0, weight_decay=0.0)
    for _ in range(3):
        p.grad = torch.ones(2)
        optimizer.step()
    optimizer.state.clear()
    for _ in range(2):
        p.grad = torch.tensor([1.0, 0.0])
        optimizer.step()
    optimizer.state[p]["step"].fill_(3e5)
    before = p.detach().clone()
    p.grad = torch.ones(2)
    optimizer.step()
    assert (p - before)[1].item() == pytest.approx(-0.1, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "word", "value", "place"),
    [("sgdm", "momentum", 0.0, 0), ("rmsprop", "alpha", 0.5, 1), ("nosadam", "c", 0.3, 1)],
)
def test_a_group_may_use_the_methods_own_word(name, word, value, place):
    optimizer = adaxopt.create(name, [{"params": [parameter(1.0)], word: value}])
    optimizer.add_param_group({"params": [parameter(2.0)], word: value})
    for group in optimizer.param_groups:
        assert group["betas"][place] == value
        assert word not in group
    with pytest.raises(ValueError, match="give one of the two"):
        adaxopt.create(name, [parameter(1.0)], betas=(0.0, 0.5), **{word: value})


REFUSED = {
    "sparse and projected": dict(make={"project": Box(-1, 1)}, sparse=True, message="project"),
    "fused and clipped": dict(make={}, group={"fused": True, "clip_update": 1.0}, message="fused=True"),
    "fused and sparse": dict(make={}, group={"fused": True}, sparse=True, message="fused=True"),
    "captured and sparse": dict(make={}, group={"capturable": True}, sparse=True, message="capturable=True"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_step_moves_nothing_in_any_group(name):
    row = REFUSED[name]
    first, second = parameter(1.0, 2.0), torch.nn.Parameter(torch.ones(3, 2))
    groups = [{"params": [first]}, {"params": [second], **row.get("group", {})}]
    optimizer = AdaXW(groups, **row["make"])
    first.grad = torch.ones(2)
    second.grad = torch.ones(3, 2).to_sparse(1) if row.get("sparse") else torch.ones(3, 2)
    before = first.detach().clone()
    for _ in range(2):
        with pytest.raises(ValueError, match=row["message"]):
            optimizer.step()
    assert torch.equal(first, before)
    assert not any(entry.get("step", torch.zeros(())).item() for entry in optimizer.state.values())


def test_complex_parameters_refuse_sixteen_bit_state_at_once():
    with pytest.raises(ValueError, match="complex state needs 64 bits or more"):
        AdaXW([parameter(1j, dtype=torch.complex64)], state_dtype=torch.bfloat16)


def test_a_module_that_became_complex_is_refused_before_anything_changes():
    first, second = parameter(1.0), parameter(1.0)
    optimizer = AdaXW([{"params": [first]}, {"params": [second]}], state_dtype=torch.bfloat16)
    second.data = second.data.to(torch.complex64)
    first.grad, second.grad = torch.ones(1), torch.ones(1, dtype=torch.complex64)
    with pytest.raises(ValueError, match="complex state needs 64 bits or more"):
        optimizer.step()
    assert first.item() == 1.0
    assert not any(optimizer.state.values())


def test_wide_state_is_computed_wide_on_every_path():
    results = []
    for options in ({}, {"foreach": True}, {"capturable": True}):
        p = parameter(0.0)
        optimizer = AdaXW([p], lr=1.0, eps=0.0, weight_decay=0.0, state_dtype=torch.float64, **options)
        for _ in range(2):
            p.grad = torch.full((1,), 1e-22)
            optimizer.step()
        results.append(p.item())
    assert results == pytest.approx([results[0]] * 3, rel=1e-6)
    assert results[0] == pytest.approx(-0.29, rel=1e-3)


def test_a_step_under_fake_tensors():
    with FakeTensorMode():
        p = torch.nn.Parameter(torch.ones(3))
        optimizer = AdaXW([p], wake=False, foreach=True, capturable=True)
        p.grad = torch.ones(3)
        for _ in range(2):
            optimizer.step()


def test_a_checkpoint_with_a_value_that_is_not_allowed():
    p = parameter(1.0)
    optimizer = AdaXW([p])
    saved = optimizer.state_dict()
    saved["param_groups"][0]["rounding"] = "foo"
    with pytest.raises(ValueError, match="checkpoint's group 0: rounding='foo'"):
        optimizer.load_state_dict(saved)


def test_kahans_rest_is_there_exactly_where_it_is_asked_for():
    p = torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    optimizer = AdaXW([p])
    for rounding in ("nearest", "kahan", "nearest"):
        optimizer.param_groups[0]["rounding"] = rounding
        p.grad = torch.ones(2, dtype=torch.bfloat16)
        optimizer.step()
        assert ("compensation" in optimizer.state[p]) == (rounding == "kahan")


@pytest.mark.parametrize("rows", [2, 50_000])
@pytest.mark.parametrize("fused", [None, True])
@pytest.mark.filterwarnings("ignore:fused=True. a parameter takes the foreach path")
def test_a_resized_parameter_does_not_write_past_its_state(rows, fused):
    p = torch.nn.Parameter(torch.ones(5, 3))
    optimizer = AdaXW([p], lr=0.1, fused=fused)
    p.grad = torch.ones(5, 3)
    optimizer.step()
    p.grad = None
    p.data = torch.ones(rows, 3)
    p.grad = torch.ones(rows, 3)
    with pytest.raises(RuntimeError, match="size of tensor"):
        optimizer.step()


@pytest.mark.parametrize("fused", [None, True])
@pytest.mark.filterwarnings("ignore:fused=True. a parameter takes the foreach path")
def test_a_gradient_of_another_size_is_not_read_past_its_end(fused):
    p = torch.nn.Parameter(torch.ones(4))
    p.grad = torch.ones(4)
    p.data = torch.ones(4096)
    with pytest.raises(RuntimeError, match=r"size of tensor|must have the same shape"):
        AdaXW([p], lr=0.1, fused=fused).step()


@pytest.mark.parametrize("way", ["dense", "rows", "differentiable"])
def test_after_a_restart_a_small_gradient_takes_a_step_like_any_other(way):
    """v is replaced, not corrected: in float32 1 + (1e-10 - 1) is 0, and m / eps is far too large."""
    p = torch.ones(2, 1, requires_grad=way == "differentiable").clone()
    optimizer = AdaXW(
        [p], lr=0.1, betas=(0.0, 1e-4), weight_decay=0.0, differentiable=way == "differentiable"
    )
    moves = []
    for g in (1.0, 1e-5):
        optimizer.restart_memory()
        before = p.detach().clone()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # p.grad of a tensor that is no leaf
            p.grad = torch.full((2, 1), g)
            p.grad = p.grad.to_sparse(1) if way == "rows" else p.grad
            optimizer.step()
        moves += (before - p.detach()).flatten().tolist()
    assert moves == pytest.approx([0.1] * 4, rel=1e-4)
    if way == "differentiable":
        p.sum().backward()  # the graph of the steps before the restart is whole


@pytest.mark.parametrize("how", [{}, {"foreach": True}, {"foreach": False}], ids=str)
def test_a_sign_that_autograd_has_left_to_be_applied_is_applied(how):
    ends = []
    for lazy in (True, False):
        p = torch.nn.Parameter(torch.ones(3))
        optimizer = AdaXW([p], **how)
        for size in (1.0, 2.0):
            g = torch.tensor([1.0, -2.0, 3.0]) * size
            p.grad = torch._neg_view(g) if lazy else -g
            assert p.grad.is_neg() == lazy
            optimizer.step()
        ends.append(p.detach())
    assert torch.equal(*ends)


@pytest.mark.parametrize("options", [{}, {"foreach": True}])
def test_a_gradient_that_is_one_number_seen_many_times(options):
    """Its storage is smaller than its shape says, and was not freed."""
    ends = []
    for g in (torch.ones(1).expand(6), torch.ones(6)):
        p = torch.nn.Parameter(torch.linspace(-1, 1, 6))
        p.grad = g
        AdaXW([p], lr=0.1, **options).step()
        ends.append(p.detach())
    torch.testing.assert_close(*ends)


@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"capturable": True}])
def test_a_parameter_still_to_be_conjugated_is_not_stepped_in_a_copy(options):
    p = torch.nn.Parameter(torch.ones(3, dtype=torch.complex64).conj())
    p.grad = torch.ones(3, dtype=torch.complex64)
    with pytest.raises(RuntimeError, match="conjugate"):
        AdaXW([p], **options).step()


def test_schedules_make_no_new_plan():
    p = parameter(1.0, 2.0)
    optimizer = adaxopt.create("padax", [p], clip_update=1.0)
    plans = []
    for name, value in (("lr", 0.1), ("clip_update", 0.5), ("weight_decay", 0.1), ("p", 0.25)):
        optimizer.param_groups[0][name] = value
        p.grad = torch.ones(2)
        optimizer.step()
        plans += optimizer._plans.values()
    assert all(plan is plans[0] for plan in plans)


def test_an_exponent_that_is_a_tensor_may_change_in_place():
    ends = []
    for p in (torch.tensor(0.5, dtype=torch.float64), 0.5):
        x = parameter(1.0, 2.0, dtype=torch.float64)
        optimizer = adaxopt.create("padax", [x], lr=0.1, p=p)
        for t in range(2):
            if t:
                group = optimizer.param_groups[0]
                group["p"] = group["p"].fill_(0.25) if isinstance(p, torch.Tensor) else 0.25
            x.grad = torch.ones_like(x)
            optimizer.step()
        ends.append(x.detach())
    torch.testing.assert_close(*ends)


def test_a_gradient_that_stays_away_asks_for_no_new_refusal(monkeypatch):
    """What can be refused depends on the kind of gradients that are there, and is asked when that changes."""
    params = [parameter(1.0), parameter(2.0)]
    optimizer = AdaXW(params, fused=True)
    for p in params:
        p.grad = torch.ones(1)
    optimizer.step()
    asked, refuse = [], refusals.refuse
    monkeypatch.setattr(refusals, "refuse", lambda *given: (asked.append(1), refuse(*given)))
    params[0].grad = None
    optimizer.step()
    assert not asked
    params[0].grad = torch.ones(1).to_sparse()
    with pytest.raises(ValueError, match="sparse gradients have their own path"):
        optimizer.step()
    assert asked
    assert [optimizer.state[p]["step"].item() for p in params] == [1, 2]


def test_state_that_is_replaced_in_any_of_many_groups_is_seen():
    params = [parameter(1.0) for _ in range(12)]
    optimizer = AdaXW([{"params": params[i : i + 2]} for i in range(0, 12, 2)])
    for t in range(2):
        for p in params:
            p.grad = torch.ones(1)
        if t:
            for p in params:
                optimizer.state[p] = {k: torch.zeros_like(v) for k, v in optimizer.state[p].items()}
        optimizer.step()
    assert [optimizer.state[p]["step"].item() for p in params] == [1] * 12


@pytest.mark.parametrize(
    "options",
    [{}, {"foreach": True}, {"foreach": False}, {"capturable": True}, {"differentiable": True}],
    ids=str,
)
def test_a_step_count_that_the_user_wrote(options):
    p, q = (torch.ones(2, dtype=torch.float64) for _ in range(2))
    optimizer, usual = (AdaXW([x], **options) for x in (p, q))
    optimizer.state[p] = {key: torch.zeros_like(p) for key in ("exp_avg", "exp_avg_sq")}
    optimizer.state[p]["step"] = torch.zeros(1)  # as in optimizers whose state is shared by processes
    for _ in range(3):
        p.grad = q.grad = torch.ones(2, dtype=torch.float64)
        optimizer.step()
        usual.step()
    torch.testing.assert_close(p, q, rtol=1e-12, atol=0)
    optimizer.state[p]["step"] = 7
    with pytest.raises(ValueError, match="step=7 in its state: must be a tensor of one element"):
        optimizer.step()


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental:UserWarning")
@pytest.mark.parametrize("rounding", ["kahan", "24bit"])
def test_a_half_complex_parameter_is_refused_where_it_would_need_a_compensation(rounding):
    p = torch.nn.Parameter(torch.ones(3, dtype=torch.complex32))
    says = f"rounding='{rounding}': parameters of dtype torch.complex32"
    with pytest.raises(ValueError, match=says):
        AdaXW([p], rounding=rounding)
    optimizer = AdaXW([p], rounding="stochastic")
    optimizer.param_groups[0]["rounding"] = rounding
    p.grad = torch.ones_like(p)
    with pytest.raises(ValueError, match=says):
        optimizer.step()


@pytest.mark.parametrize("b2", [0.0, 1e-3])
@pytest.mark.parametrize("options", [{}, {"memory": adaxopt.LogTime(8)}, {"total_steps": 3000}], ids=str)
def test_a_group_that_was_saved_before_there_were_memories_has_none(options, b2):
    """Its b2 is a growth rate, and not the number of the new optimizer's memory or run length."""
    p = parameter(1.0)
    old = AdaXW([p], betas=(0.9, b2))
    p.grad = torch.ones(1)
    old.step()
    file = old.state_dict()
    del file["param_groups"][0]["memory"], file["param_groups"][0]["total_steps"]
    new = AdaXW([p], **options)
    if options.get("total_steps") and b2 != 1e-3:
        with pytest.warns(UserWarning, match="total_steps=3000: not used"):
            new.load_state_dict(file)
    else:
        new.load_state_dict(file)
    (group,) = new.param_groups
    assert (group["memory"], group["total_steps"], group["betas"]) == (None, None, (0.9, b2))


def test_a_saved_group_without_an_option_takes_the_default():
    file = AdaXW([parameter(1.0)], betas=(0.5, 1e-3)).state_dict()
    del file["param_groups"][0]["betas"], file["param_groups"][0]["wake"]
    new = AdaXW([parameter(1.0)], total_steps=3000, wake=False)
    new.load_state_dict(file)
    (group,) = new.param_groups
    assert (group["betas"], group["wake"], group["total_steps"]) == ((0.9, 1e-3), False, None)
