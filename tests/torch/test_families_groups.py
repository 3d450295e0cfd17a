"""Groups, closures, hooks, and gradients that come late or never: the everyday contract of a torch optimizer."""

from __future__ import annotations

import pytest
import torch
from infos import (
    PUBLIC,
    assert_near,
    assert_same,
    build,
    each_input,
    each_method,
    each_public,
    everything,
    parameters,
    recursion,
    run,
    set_gradients,
)
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

import adaxopt


@each_public
def test_each_group_has_its_own_options(name):
    rows = [
        {"lr": 0.01},
        {"lr": 0.03, "betas": (0.5, 1e-3)},
        {"weight_decay": 0.3},
        {"maximize": True, "eps": 1e-2},
    ]
    rows.append({"clip_update": 0.01, "decay": "decoupled", "eps_placement": "plain"})
    params = parameters()
    optimizer = build(name, [{"params": [p], **row} for p, row in zip(params, rows, strict=True)])
    oracle = recursion(name, parameters())
    for t in range(10):
        for r, g, row in zip(oracle, set_gradients(params, t), rows, strict=True):
            r.step(g, **row)
        optimizer.step()
    assert_near([p.detach() for p in params], [torch.as_tensor(r.x) for r in oracle])


@each_method
def test_groups_do_not_touch_each_other(name):
    params = parameters()
    grouped = build(name, [{"params": params[:2]}, {"params": params[2:], "lr": 0.5}])
    halves = parameters()
    apart = [build(name, halves[:2]), build(name, halves[2:], lr=0.5)]
    for t in range(4):
        set_gradients(params, t)
        set_gradients(halves, t)
        grouped.step()
        for optimizer in apart:
            optimizer.step()
    assert_same([p.detach() for p in params], [p.detach() for p in halves])


@each_method
def test_a_group_may_come_later_and_counts_its_own_steps(name):
    params = parameters()
    optimizer = build(name, params[:3])
    for t in range(3):
        set_gradients(params[:3], t)
        optimizer.step()
    optimizer.add_param_group({"params": params[3:], "lr": 0.3})
    fresh = parameters()[3:]
    alone = build(name, fresh, lr=0.3)
    for t in range(3, 6):
        grads = set_gradients(params, t)
        for p, g in zip(fresh, grads[3:], strict=True):
            p.grad = g.clone()
        optimizer.step()
        alone.step()
    assert [optimizer.state[p]["step"].item() for p in params] == [6, 6, 6, 3, 3]
    assert_same([p.detach() for p in params[3:]], [p.detach() for p in fresh])
    assert len(optimizer.param_groups) == 2
    assert len(optimizer.state_dict()["param_groups"]) == 2


@each_method
def test_groups_without_parameters_are_allowed(name):
    params = parameters()
    optimizer = build(name, [{"params": []}, {"params": params}, {"params": [], "lr": 0.1}])
    for t in range(3):
        set_gradients(params, t)
        optimizer.step()
    assert_same([p.detach() for p in params], [p.detach() for p in run(name, steps=3)[0]])
    again = build(name, [{"params": []}, {"params": parameters()}, {"params": []}])
    again.load_state_dict(optimizer.state_dict())
    assert again.param_groups[2]["lr"] == 0.1


@each_method
@pytest.mark.parametrize(
    "way",
    [{}, {"foreach": True}, {"foreach": False}, {"capturable": True}],
    ids=["default", "foreach", "loop", "capturable"],
)
def test_time_belongs_to_the_parameter(name, way):
    """Some gradients come late, some are missing now and then: each parameter is as if stepped alone."""
    here = [
        (True,) * 8,
        (False,) * 3 + (True,) * 5,
        (True, False) * 4,
        (False,) * 8,
        (True,) * 2 + (False,) * 6,
    ]
    params = parameters()
    optimizer = build(name, params, **way)
    twins = parameters()
    alone = [build(name, [p], **way) for p in twins]
    for t in range(8):
        grads = set_gradients(params, t)
        for i, (p, q) in enumerate(zip(params, twins, strict=True)):
            q.grad = grads[i].clone() if here[i][t] else None
            p.grad = grads[i] if here[i][t] else None
            if q.grad is not None:
                alone[i].step()
        optimizer.step()
    counts = [optimizer.state[p]["step"].item() if p in optimizer.state else 0 for p in params]
    assert counts == [sum(row) for row in here]
    assert_near([p.detach() for p in params], [p.detach() for p in twins], 1e-14)


@each_public
def test_time_belongs_to_the_parameter_by_the_recursion(name):
    params = parameters()
    optimizer = build(name, params)
    oracle = recursion(name, parameters())
    for t in range(12):
        grads = set_gradients(params, t)
        for i, (p, r) in enumerate(zip(params, oracle, strict=True)):
            if (t + i) % 3 == 0:
                p.grad = None
            else:
                r.step(grads[i])
        optimizer.step()
    assert_near([p.detach() for p in params], [torch.as_tensor(r.x) for r in oracle])


@each_input()
def test_a_step_without_gradients_does_nothing(name, kwargs):
    params = parameters()
    optimizer = build(name, params, **kwargs)
    before = [p.detach().clone() for p in params]
    optimizer.step()
    assert_same([p.detach() for p in params], before)
    assert not any(optimizer.state[p] for p in params if p in optimizer.state)


@each_input(unless=lambda kwargs: "weight_decay" in kwargs)
def test_zero_gradients_move_nothing_but_by_decay(name, kwargs):
    params = parameters()
    optimizer = build(name, params, **{**kwargs, "weight_decay": 0.0})
    before = [p.detach().clone() for p in params]
    for _ in range(3):
        for p in params:
            p.grad = torch.zeros_like(p)
        optimizer.step()
    assert_same([p.detach() for p in params], before)


@each_method
def test_zero_grad_sets_to_none_or_to_zero(name):
    params = parameters()
    optimizer = build(name, params)
    set_gradients(params, 0)
    optimizer.zero_grad(set_to_none=False)
    assert all(p.grad is not None and not p.grad.any() for p in params)
    optimizer.zero_grad()
    assert all(p.grad is None for p in params)


@each_method
def test_a_closure_is_run_with_gradients_and_its_loss_returned(name):
    p = torch.nn.Parameter(torch.tensor([2.0, -3.0], dtype=torch.float64))
    q = torch.nn.Parameter(p.detach().clone())
    a, b = build(name, [p]), build(name, [q])
    calls = []

    def closure():
        assert torch.is_grad_enabled()
        a.zero_grad()
        loss = (p**2).sum()
        loss.backward()
        calls.append(loss.item())
        return loss

    for i in range(5):
        loss = a.step(closure)
        b.zero_grad()
        expected = (q**2).sum()
        expected.backward()
        assert b.step() is None
        assert loss.item() == expected.item() == calls[i]
        assert torch.is_grad_enabled()
    assert len(calls) == 5
    assert torch.equal(p, q)


@each_method
def test_a_failing_closure_leaves_gradients_enabled(name):
    params = parameters()
    optimizer = build(name, params)

    def closure():
        raise RuntimeError("the data ended")

    with pytest.raises(RuntimeError, match="the data ended"):
        optimizer.step(closure)
    assert torch.is_grad_enabled()


@each_method
def test_hooks_around_a_step(name):
    params = parameters()
    optimizer = build(name, params)
    seen = []
    handles = [
        optimizer.register_step_pre_hook(lambda opt, args, kwargs: seen.append("pre")),
        optimizer.register_step_post_hook(lambda opt, args, kwargs: seen.append("post")),
        register_optimizer_step_pre_hook(lambda opt, args, kwargs: seen.append("pre of all")),
        register_optimizer_step_post_hook(lambda opt, args, kwargs: seen.append("post of all")),
    ]
    try:
        set_gradients(params, 0)
        optimizer.step(lambda: seen.append("closure"))
        assert seen == ["pre of all", "pre", "closure", "post", "post of all"]
    finally:
        for handle in handles:
            handle.remove()
    optimizer.step()
    assert len(seen) == 5


@each_method
def test_a_pre_hook_may_replace_the_closure(name):
    params = parameters()
    optimizer = build(name, params)
    handle = optimizer.register_step_pre_hook(lambda opt, args, kwargs: ((opt, lambda: 42), {}))
    assert optimizer.step(lambda: 7) == 42
    handle.remove()


def seen_by_hooks(kind):
    """The arguments that hooks before and after a step get, and what a step with a hook's own closure returns."""
    optimizer, seen = kind(parameters()), []
    optimizer.register_step_pre_hook(lambda opt, args, kwargs: seen.append((len(args), list(kwargs))))
    optimizer.register_step_post_hook(lambda opt, args, kwargs: seen.append((len(args), list(kwargs))))
    optimizer.step()
    optimizer.step(closure=lambda: 1)
    optimizer.step(lambda: 1)
    other = kind(parameters())
    other.register_step_pre_hook(lambda opt, args, kwargs: (args, {**kwargs, "closure": lambda: 7}))
    return seen, other.step()


@pytest.mark.parametrize("kind", [adaxopt.AdamW, adaxopt.AdaXW])
def test_hooks_get_the_arguments_that_torch_gives_them(kind):
    assert seen_by_hooks(kind) == seen_by_hooks(torch.optim.AdamW)


@each_method
def test_a_parameter_given_twice_is_named(name):
    p = parameters()[0]
    with pytest.warns(UserWarning, match="duplicate parameters"):
        build(name, [p, p])
    with pytest.raises(ValueError, match="more than one parameter group"):
        build(name, [{"params": [p]}, {"params": [p]}])


@each_public
def test_any_iterable_of_parameters_will_do(name):
    net = torch.nn.Linear(3, 2)
    expected = list(net.parameters())
    for params in (
        net.parameters(),
        expected,
        tuple(expected),
        iter(expected),
        {"w": expected[0], "b": expected[1]}.values(),
        net.named_parameters(),
        [{"params": net.parameters()}],
        [{"params": p} for p in expected],
        ({"params": [p]} for p in expected),
    ):
        optimizer = adaxopt.create(name, params)
        held = [p for group in optimizer.param_groups for p in group["params"]]
        assert list(map(id, held)) == list(map(id, expected))


@pytest.mark.parametrize("name", PUBLIC)
@pytest.mark.parametrize("attribute", ["lr", "weight_decay", "betas", "eps", "clip_update", "maximize"])
def test_what_is_written_into_a_group_counts_from_the_next_step(name, attribute):
    """As with every torch optimizer, `group["lr"] = ...` needs no other call."""
    new = {
        "lr": 0.3,
        "weight_decay": 0.5,
        "betas": (0.2, 1e-4),
        "eps": 0.1,
        "clip_update": 1e-3,
        "maximize": True,
    }[attribute]
    for way in ({}, {"foreach": True}, {"capturable": True}):
        params = parameters()
        optimizer = build(name, params, **way)
        oracle, stale = recursion(name, parameters()), recursion(name, parameters())
        for t in range(6):
            given = {attribute: new} if t >= 3 else {}
            if t == 3:
                optimizer.param_groups[0][attribute] = new
            for r, s, g in zip(oracle, stale, set_gradients(params, t), strict=True):
                # fully decoupled aside, nothing else depends on the first lr
                r.step(g, **given)
                s.step(g)
            optimizer.step()
        assert_near([p.detach() for p in params], [torch.as_tensor(r.x) for r in oracle], 1e-11)
        assert max(abs(r.x - s.x).max() for r, s in zip(oracle, stale, strict=True) if r.x.size) > 1e-9


def test_everything_counts_every_number():
    """The helper that the comparisons rest on sees parameters and all state."""
    params, optimizer = run("amsgrad", steps=1)
    assert len(everything(params, optimizer)) == 5 + 5 * 4
