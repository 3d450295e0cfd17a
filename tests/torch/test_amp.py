"""GradScaler: infinite gradients skip a step, scaled ones are unscaled once, `.grad` is not touched."""

from __future__ import annotations

import pytest
import torch
from infos import (
    TORCH,
    assert_near,
    assert_same,
    build,
    each_method,
    everything,
    parameters,
    set_gradients,
)

import adaxopt
from runner import FUSES

INF, NAN = float("inf"), float("nan")
WAYS = {
    "default": {},
    "foreach": {"foreach": True},
    "loop": {"foreach": False},
    "capturable": {"capturable": True},
}
each_way = pytest.mark.parametrize("way", list(WAYS.values()), ids=list(WAYS))


def scaler(scale=1024.0):
    return torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=10**6)


def seed_scale(amp):
    """The scale is made at the first `scale` call."""
    amp.scale(torch.ones(()))
    return amp


def scaled_run(name, bad=(), steps=6, unscale=False, dtype=torch.float64, clip=None, **kwargs):
    """Steps with gradients times 1024; those of the steps in `bad` hold an inf. Scale is held for comparability."""
    params = parameters(dtype)
    optimizer = build(name, params, **kwargs)
    amp = seed_scale(scaler())
    for t in range(steps):
        grads = set_gradients(params, t)
        for g in grads:
            g.mul_(amp.get_scale())
        if t in bad:
            grads[1][2] = bad[t]
        if unscale:
            amp.unscale_(optimizer)
            if clip is not None:
                torch.nn.utils.clip_grad_norm_(params, clip)
        amp.step(optimizer)
        amp.update()
    return params, optimizer, amp


def plain_run(name, skip=(), steps=6, dtype=torch.float64, clip=None, **kwargs):
    params = parameters(dtype)
    optimizer = build(name, params, **kwargs)
    for t in range(steps):
        set_gradients(params, t)
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(params, clip)
        if t not in skip:
            optimizer.step()
    return params, optimizer


@each_method
@each_way
def test_a_scaled_run_is_the_unscaled_run(name, way):
    params, optimizer, _ = scaled_run(name, **way)
    assert_near(everything(params, optimizer), everything(*plain_run(name, **way)))


@pytest.mark.parametrize("name", FUSES)
def test_a_scaled_fused_run_is_the_unscaled_run(name):
    params, optimizer, _ = scaled_run(name, fused=True)
    assert_near(everything(params, optimizer), everything(*plain_run(name, fused=True)))


@each_method
@each_way
@pytest.mark.parametrize("bad", [INF, -INF, NAN])
def test_infinite_gradients_skip_the_step_and_halve_the_scale(name, way, bad):
    params, optimizer, amp = scaled_run(name, bad={2: bad, 4: bad}, **way)
    assert_near(everything(params, optimizer), everything(*plain_run(name, skip=(2, 4), **way)))
    assert all(optimizer.state[p]["step"] == 4 for p in params)
    assert amp.get_scale() == 1024.0 / 4


@pytest.mark.parametrize("name", FUSES)
@pytest.mark.parametrize("bad", [INF, NAN])
@pytest.mark.parametrize("unscale", [False, True], ids=["by the step", "unscale_"])
def test_infinite_gradients_skip_the_fused_step(name, bad, unscale):
    params, optimizer, amp = scaled_run(name, bad={0: bad, 3: bad}, fused=True, unscale=unscale)
    assert_near(everything(params, optimizer), everything(*plain_run(name, skip=(0, 3), fused=True)))
    assert all(optimizer.state[p]["step"] == 4 for p in params)
    assert amp.get_scale() == 1024.0 / 4


@each_method
@pytest.mark.parametrize("fused", [None, True])
def test_unscaling_then_clipping(name, fused):
    way = {"fused": fused} if name in FUSES else {}
    params, optimizer, _ = scaled_run(name, unscale=True, clip=0.5, **way)
    assert_near(everything(params, optimizer), everything(*plain_run(name, clip=0.5, **way)))
    loose, _, _ = scaled_run(name, unscale=True, **way)
    assert (
        max((a - b).detach().abs().max().item() for a, b in zip(params, loose, strict=True) if a.numel())
        > 1e-10
    )


@pytest.mark.parametrize("name", FUSES)
def test_the_scaler_hands_its_scale_to_a_step_that_was_asked_to_be_fused(name):
    """As with torch's optimizers; the step then unscales into a copy."""
    params = parameters(torch.float32)
    assert build(name, params)._step_supports_amp_scaling is False
    optimizer = build(name, params, fused=True)
    assert optimizer._step_supports_amp_scaling is True
    amp = seed_scale(scaler(8.0))
    grads = set_gradients(params, 0)
    before = [g.clone() for g in grads]
    amp.step(optimizer)
    for p, g in zip(params, before, strict=True):
        assert torch.equal(p.grad, g)  # torch's own fused step would have divided them by 8
    assert not hasattr(optimizer, "grad_scale")
    assert not hasattr(optimizer, "found_inf")
    twin = parameters(torch.float32)
    other = build(name, twin, fused=True)
    for p, g in zip(twin, before, strict=True):
        p.grad = g / 8.0
    other.step()
    assert_near(everything(params, optimizer), everything(twin, other), 1e-6)


@pytest.mark.parametrize("name", FUSES)
@pytest.mark.parametrize("way", [{"fused": True}, {"foreach": True}, {"capturable": True}])
@pytest.mark.parametrize("found", [0.0, 1.0])
@pytest.mark.parametrize("scale", [None, 4.0])
def test_found_inf_and_grad_scale_each_alone_and_together(name, way, found, scale):
    params, twins = parameters(), parameters()
    optimizer, twin = build(name, params, **way), build(name, twins, **way)
    for t in range(3):
        grads = set_gradients(params, t)
        for q, g in zip(twins, grads, strict=True):
            q.grad = g.clone() / (scale or 1.0)
        skipped = t == 1 and found
        optimizer.found_inf = torch.tensor(found if t == 1 else 0.0)
        if scale is not None:
            optimizer.grad_scale = torch.tensor(scale)
        optimizer.step()
        if not skipped:
            twin.step()
    assert_near(everything(params, optimizer), everything(twins, twin))
    assert all(optimizer.state[p]["step"] == (2 if found else 3) for p in params)


def test_groups_that_ask_differently_share_one_scale():
    """Any fused group makes the scaler hand its scale over, and every group then divides by it."""
    params = parameters()
    groups = [{"params": params[:2], "fused": True}, {"params": params[2:], "fused": False}]
    optimizer = adaxopt.AdaXW(groups)
    amp = seed_scale(scaler(64.0))
    for t in range(3):
        for g in set_gradients(params, t):
            g.mul_(64.0)
        amp.step(optimizer)
        amp.update()
    expected, _ = plain_run("adaxw", steps=3)
    assert_near([p.detach() for p in params], [p.detach() for p in expected])


def test_with_a_differentiable_group_the_scaler_unscales_before_the_step():
    params = parameters()
    groups = [{"params": params[:2], "fused": True}, {"params": params[2:], "differentiable": True}]
    optimizer = adaxopt.AdaXW(groups)
    amp = seed_scale(scaler(64.0))
    for t in range(3):
        for g in set_gradients(params, t):
            g.mul_(64.0)
        with torch.no_grad():
            amp.step(optimizer)
        amp.update()
    expected, _ = plain_run("adaxw", steps=3)
    assert_near([p.detach() for p in params], [p.detach() for p in expected])
    before = [p.detach().clone() for p in params]
    optimizer.grad_scale = torch.tensor(64.0)  # by hand
    with pytest.raises(ValueError, match="differentiable=True: a step does not support GradScaler's scale"):
        optimizer.step()
    assert_near([p.detach() for p in params], before)


@pytest.mark.parametrize("name", ["adaxw", "adax", "padax"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_trains(name, dtype):
    """The whole recipe: autocast, scaled backward, step, update; the loss falls and one overflow does no harm."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    x = torch.randn(64, 8)
    y = x.sum(1, keepdim=True)
    optimizer = build(name, net.parameters(), lr=0.02)
    amp = scaler(2.0**10)
    losses = []
    for t in range(40):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=dtype):
            loss = torch.nn.functional.mse_loss(net(x).float(), y)
        amp.scale(loss * (INF if t == 5 else 1.0)).backward()
        amp.step(optimizer)
        amp.update()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    assert amp.get_scale() == 2.0**9
    assert optimizer.state[next(net.parameters())]["step"] == 39


@pytest.mark.parametrize("name", [*TORCH, "adax", "adaxw", "padax"])
@each_way
@pytest.mark.parametrize("bad", [INF, -INF, NAN], ids=str)
def test_without_a_scaler_what_is_not_finite_spreads_as_in_torch(name, way, bad):
    """Where torch's AdamW (or the method's own class in torch) has a number that is not finite, so has ours."""
    compare_finite(name, way, bad)


@pytest.mark.parametrize("name", ["adax", "adaxw", "adam", "adamw", "amsgrad", "amsgradw"])
def test_a_square_that_overflows_stops_its_coordinate_as_in_torch(name):
    """g = 1e30 in float32: v is inf from then on, and the coordinate stays where it is."""
    compare_finite(name, {}, 1e30)


def compare_finite(name, way, bad):
    theirs = parameters(torch.float32)
    reference = (TORCH.get(name) or torch.optim.AdamW)(theirs)
    params = parameters(torch.float32)
    optimizer = build(name, params, **way)
    for t in range(4):
        for some in (params, theirs):
            grads = set_gradients(some, t)
            if t == 1:
                grads[0][1, 2] = bad
                grads[1][3] = bad
        optimizer.step()
        reference.step()
        for p, q in zip(params, theirs, strict=True):
            assert torch.equal(p.isfinite(), q.isfinite())
            for key in ("exp_avg", "exp_avg_sq"):
                if key in reference.state[q] and key in optimizer.state[p]:
                    assert torch.equal(
                        optimizer.state[p][key].isfinite(), reference.state[q][key].isfinite()
                    ), key
    assert all(p.isfinite().all() for p in params) == (bad == 1e30)


@each_method
def test_the_helper_above_compares_different_runs(name):
    """Skipping a step is seen by the comparison that the skip tests rest on."""
    some, all_of_them = everything(*plain_run(name, skip=(2,))), everything(*plain_run(name))
    with pytest.raises(AssertionError):
        assert_same(some, all_of_them)
