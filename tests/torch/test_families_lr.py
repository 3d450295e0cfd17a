"""Hyper-parameters that are tensors, and every scheduler that torch has."""

from __future__ import annotations

import warnings

import pytest
import torch
from infos import (
    PUBLIC,
    TORCH,
    assert_near,
    build,
    each_method,
    parameters,
    recursion,
    run,
    set_gradients,
)
from torch.optim import lr_scheduler as schedules

from adaxopt.zoo import METHODS

WAYS = {
    "default": {},
    "foreach": {"foreach": True},
    "loop": {"foreach": False},
    "capturable": {"capturable": True},
}
each_way = pytest.mark.parametrize("way", list(WAYS.values()), ids=list(WAYS))


def float64(value, shape=()):
    return torch.full(shape, value, dtype=torch.float64)


@each_method
@each_way
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)], ids=["0-d", "1-d", "2-d"])
def test_tensor_lr_is_the_float(name, way, shape):
    expected, _ = run(name, lr=0.02, weight_decay=0.1, **way)
    lr = float64(0.02, shape)
    params, optimizer = run(name, lr=lr, weight_decay=0.1, **way)
    assert_near([p.detach() for p in params], [p.detach() for p in expected])
    assert isinstance(optimizer.param_groups[0]["lr"], torch.Tensor)
    assert optimizer.param_groups[0]["lr"].shape == shape


B2 = {"growing": 1e-3, "fading": 0.99, "unnormalised": 0.99, "power": 0.1}
BETAS = {
    name: (
        0.8 if row.defaults["betas"][0] else 0.0,
        B2.get(row.rule.memory.kind if row.rule.memory else "", 0.0),
    )
    for name, row in METHODS.items()
}


@each_method
@each_way
@pytest.mark.parametrize("shape", [(), (1, 1, 1)], ids=["0-d", "3-d"])
def test_tensor_betas_are_the_floats(name, way, shape):
    b1, b2 = BETAS[name]
    expected, _ = run(name, betas=(b1, b2), **way)
    for given in (
        (float64(b1, shape), float64(b2, shape)),
        (float64(b1, shape), b2),
        (b1, float64(b2, shape)),
    ):
        params, _ = run(name, betas=given, **way)
        assert_near([p.detach() for p in params], [p.detach() for p in expected])


@each_method
@each_way
def test_tensor_eps_and_weight_decay_are_the_floats(name, way):
    expected, _ = run(name, eps=1e-3, weight_decay=0.1, **way)
    params, _ = run(name, eps=float64(1e-3), weight_decay=float64(0.1), **way)
    assert_near([p.detach() for p in params], [p.detach() for p in expected])


@each_method
@each_way
def test_a_float_may_be_written_over_a_tensor_lr_and_back(name, way):
    params, twins = parameters(), parameters()
    optimizer = build(name, params, lr=float64(0.02), weight_decay=0.1, **way)
    plain = build(name, twins, lr=0.02, weight_decay=0.1, **way)
    for t, lr in enumerate([None, 0.5, float64(0.1), float64(0.3, (1,)), 2, 0.0]):
        if lr is not None:
            optimizer.param_groups[0]["lr"] = lr
            plain.param_groups[0]["lr"] = float(lr)
        set_gradients(params, t)
        set_gradients(twins, t)
        optimizer.step()
        plain.step()
    assert_near([p.detach() for p in params], [p.detach() for p in twins])


@each_method
def test_a_tensor_lr_is_the_users_own(name):
    """Its value may be changed in place, and no step writes into it."""
    lr = float64(0.02)
    params, twins = parameters(), parameters()
    import adaxopt

    optimizer = adaxopt.create(name, params, lr=lr, decay="fully_decoupled", weight_decay=0.01)
    plain = adaxopt.create(name, twins, lr=0.02, decay="fully_decoupled", weight_decay=0.01)
    for t in range(4):
        set_gradients(params, t)
        set_gradients(twins, t)
        optimizer.step()
        plain.step()
        assert lr.item() == plain.param_groups[0]["lr"]
        lr.mul_(0.5)
        plain.param_groups[0]["lr"] *= 0.5
    assert_near([p.detach() for p in params], [p.detach() for p in twins])


SCHEDULERS = {
    "LambdaLR": lambda o: schedules.LambdaLR(o, lambda t: 0.9**t),
    "MultiplicativeLR": lambda o: schedules.MultiplicativeLR(o, lambda t: 0.8),
    "StepLR": lambda o: schedules.StepLR(o, 2, 0.3),
    "MultiStepLR": lambda o: schedules.MultiStepLR(o, [2, 5], 0.3),
    "ConstantLR": lambda o: schedules.ConstantLR(o, 0.3, 3),
    "LinearLR": lambda o: schedules.LinearLR(o, 0.2, total_iters=5),
    "ExponentialLR": lambda o: schedules.ExponentialLR(o, 0.7),
    "CosineAnnealingLR": lambda o: schedules.CosineAnnealingLR(o, 6),
    "CosineAnnealingWarmRestarts": lambda o: schedules.CosineAnnealingWarmRestarts(o, 3),
    "PolynomialLR": lambda o: schedules.PolynomialLR(o, 6, 2.0),
    "OneCycleLR": lambda o: schedules.OneCycleLR(o, 0.1, total_steps=9),
    "OneCycleLR, b1 still": lambda o: schedules.OneCycleLR(o, 0.1, total_steps=9, cycle_momentum=False),
    "CyclicLR": lambda o: schedules.CyclicLR(o, 0.01, 0.1, step_size_up=2),
    "CyclicLR, b1 still": lambda o: schedules.CyclicLR(o, 0.01, 0.1, step_size_up=2, cycle_momentum=False),
    "ReduceLROnPlateau": lambda o: schedules.ReduceLROnPlateau(o, patience=1, factor=0.3),
    "SequentialLR": lambda o: schedules.SequentialLR(
        o, [schedules.LinearLR(o, 0.1, total_iters=3), schedules.ExponentialLR(o, 0.7)], [3]
    ),
    "ChainedScheduler": lambda o: schedules.ChainedScheduler(
        [schedules.StepLR(o, 2, 0.5), schedules.ExponentialLR(o, 0.9)]
    ),
}


def test_no_scheduler_of_torch_is_left_out():
    mine = {name.split(",")[0] for name in SCHEDULERS}
    assert mine == set(schedules.__all__) - {"LRScheduler"}


def scheduled(optimizer, params, scheduler, steps=8):
    """Step under the scheduler; the lr and b1 that were in force at each step."""
    seen = []
    for t in range(steps):
        group = optimizer.param_groups[0]
        seen.append((float(group["lr"]), float(group["betas"][0])))
        set_gradients(params, t)
        optimizer.step()
        if isinstance(scheduler, schedules.ReduceLROnPlateau):
            scheduler.step(1.0)
        else:
            with (
                warnings.catch_warnings()
            ):  # SequentialLR calls its own children with an epoch, which torch deprecates
                warnings.filterwarnings("ignore", message="The epoch parameter", category=UserWarning)
                scheduler.step()
    return seen


@pytest.mark.parametrize("name", PUBLIC)
@pytest.mark.parametrize("scheduler", list(SCHEDULERS))
@pytest.mark.parametrize("kind", ["float", "tensor", "tensor, capturable"])
def test_each_scheduler_drives_each_class(name, scheduler, kind):
    """What torch's own AdamW would be given at each step, run through the paper's recursion."""
    lrs = [0.05 if kind == "float" else float64(0.05) for _ in range(2)]
    adamw = torch.optim.AdamW(
        [torch.nn.Parameter(torch.ones(1, dtype=torch.float64))], lr=lrs[0], foreach=False
    )
    theirs = [adamw.param_groups[0]["params"][0]]
    expected = scheduled(adamw, theirs, SCHEDULERS[scheduler](adamw))
    params = parameters()
    optimizer = build(name, params, lr=lrs[1], betas=(0.9, 1e-4), capturable="capturable" in kind)
    seen = scheduled(optimizer, params, SCHEDULERS[scheduler](optimizer))
    assert seen == [(pytest.approx(a, rel=1e-12), pytest.approx(b, rel=1e-12)) for a, b in expected]
    assert len({a for a, _ in seen}) > 1
    if scheduler in ("OneCycleLR", "CyclicLR"):
        assert len({b for _, b in seen}) > 1
    oracle = recursion(name, parameters())
    grads = parameters()
    for t, (rate, b1) in enumerate(expected):
        for r, g in zip(oracle, set_gradients(grads, t), strict=True):
            r.step(g, lr=rate, betas=(b1, 1e-4))
    assert_near([p.detach() for p in params], [torch.as_tensor(r.x) for r in oracle], 1e-11)


@pytest.mark.parametrize("name", list(TORCH))
@pytest.mark.parametrize("scheduler", ["OneCycleLR, b1 still", "SequentialLR", "ReduceLROnPlateau"])
def test_scheduled_methods_of_torch_are_torchs(name, scheduler):
    params, theirs = parameters(), parameters()
    ours, reference = build(name, params, lr=0.05), TORCH[name](theirs, lr=0.05)
    scheduled(ours, params, SCHEDULERS[scheduler](ours))
    chosen = SCHEDULERS[scheduler](reference)
    reference.param_groups[0].setdefault("betas", (0.0, 0.0))
    scheduled(reference, theirs, chosen)
    assert_near([p.detach() for p in params], [p.detach() for p in theirs])


@pytest.mark.parametrize("name", ["adam", "amsgradw", "adamw", "amsgrad"])
def test_a_cycled_b1_is_torchs_for_methods_of_torch(name):
    params, theirs = parameters(), parameters()
    ours, reference = build(name, params, lr=0.05), TORCH[name](theirs, lr=0.05)
    for scheduler in ("OneCycleLR", "CyclicLR"):
        scheduled(ours, params, SCHEDULERS[scheduler](ours))
        scheduled(reference, theirs, SCHEDULERS[scheduler](reference))
    assert_near([p.detach() for p in params], [p.detach() for p in theirs])


@each_method
def test_a_scheduler_and_its_optimizer_resume_together(name):
    params = parameters()
    optimizer = build(name, params, lr=0.05)
    scheduler = schedules.CosineAnnealingLR(optimizer, 8)
    scheduled(optimizer, params, scheduler, 4)
    twins = [p.detach().clone().requires_grad_() for p in params]
    resumed = build(name, twins, lr=0.7)
    later = schedules.CosineAnnealingLR(resumed, 8)
    resumed.load_state_dict(optimizer.state_dict())
    later.load_state_dict(scheduler.state_dict())
    assert scheduled(resumed, twins, later, 4) == scheduled(optimizer, params, scheduler, 4)
    assert resumed.param_groups[0]["initial_lr"] == 0.05


@pytest.mark.parametrize("name", PUBLIC)
@pytest.mark.parametrize("kind", [float, float64])
def test_fully_decoupled_decay_follows_the_schedule_not_the_lr(name, kind):
    """x loses wd*lr/first lr: ten times the lr with the same schedule decays the same."""
    shrunk = []
    for lr in (0.01, 0.1):
        p = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
        optimizer = build(name, [p], lr=kind(lr), decay="fully_decoupled", weight_decay=0.1)
        scheduler = schedules.StepLR(optimizer, 1, 0.5)
        for _ in range(3):
            p.grad = torch.zeros_like(p)
            optimizer.step()
            scheduler.step()
        shrunk.append(p.detach().clone())
    expected = torch.full((3,), (1 - 0.1) * (1 - 0.05) * (1 - 0.025), dtype=torch.float64)
    assert_near(shrunk, [expected, expected])
