"""Every knob turns something: its effect is a hundred times the tolerance, and is what the oracle says."""

from __future__ import annotations

import inspect

import pytest
import torch
from infos import PUBLIC, assert_near, build, parameters, recursion, run, set_gradients

import adaxopt
from adaxopt.torch.options import ENGINE_DEFAULTS

TOLERANCE = 1e-12
STEPS = 8

KNOBS = {  # what is turned, and what it is turned from
    "lr": ({"lr": 0.02}, {}),
    "b1": ({"betas": (0.5, 1e-4)}, {}),
    "b2": ({"betas": (0.9, 5e-3)}, {}),
    "eps": ({"eps": 1e-4}, {}),
    "weight_decay": ({"weight_decay": 0.2}, {}),
    "decay, l2": ({"weight_decay": 0.2, "decay": "l2"}, {"weight_decay": 0.2, "decay": "decoupled"}),
    "decay, fully": (
        {"weight_decay": 0.2, "decay": "fully_decoupled"},
        {"weight_decay": 0.2, "decay": "decoupled"},
    ),
    "eps_placement": ({"eps": 1e-4, "eps_placement": "plain"}, {"eps": 1e-4}),
    "wake": ({"wake": False, "weight_decay": 0.0}, {"wake": True, "weight_decay": 0.0}),
    "wake, on": ({"wake": True, "weight_decay": 0.0}, {"wake": False, "weight_decay": 0.0}),
    "clip_update": ({"clip_update": 0.03}, {}),
    "maximize": ({"maximize": True}, {}),
    "project": ({"project": (-0.2, 0.3)}, {}),
    "p": ({"p": 0.3}, {}),
}
WAYS = {
    "default": {},
    "foreach": {"foreach": True},
    "loop": {"foreach": False},
    "capturable": {"capturable": True},
    "differentiable": {"differentiable": True},
}


def late(grads, t):
    """The first two entries of each gradient are zero at first: late-activated coordinates."""
    for g in grads:
        if t < 4 and g.dim():
            g.view(-1)[:2] = 0.0
    return grads


def ours(name, kwargs):
    given = dict(kwargs)
    if "project" in given:
        given["project"] = adaxopt.Box(*given["project"])
    params = parameters()
    if given.get("differentiable"):
        for p in params:
            p.requires_grad_(False)
    optimizer = build(name, params, **given)
    for t in range(STEPS):
        late(set_gradients(params, t), t)
        optimizer.step()
    return [p.detach() for p in params]


def theirs(name, kwargs):
    params = parameters()
    oracle = recursion(name, params)
    for t in range(STEPS):
        for r, g in zip(oracle, late(set_gradients(params, t), t), strict=True):
            r.step(g, **kwargs)
    return [torch.as_tensor(r.x) for r in oracle]


@pytest.mark.parametrize("name", PUBLIC)
@pytest.mark.parametrize("knob", list(KNOBS))
@pytest.mark.parametrize("way", list(WAYS))
def test_every_knob_of_the_rule(name, knob, way):
    turned, left = KNOBS[knob]
    if knob == "p" and name != "padax":
        with pytest.raises(TypeError, match=r"unknown argument 'p': use adaxopt\.Padax"):
            build(name, parameters(), p=0.3)
        return
    expected = theirs(name, turned)
    base = theirs(name, left)
    effect = max((a - b).abs().max().item() for a, b in zip(expected, base, strict=True) if a.numel())
    assert effect > 100 * TOLERANCE
    assert_near(ours(name, {**turned, **WAYS[way]}), expected, TOLERANCE)


def change(name, turned, left=None, dtype=torch.float64, steps=12):
    """The largest difference that turning makes."""
    a, _ = run(name, dtype=dtype, steps=steps, **turned)
    b, _ = run(name, dtype=dtype, steps=steps, **(left or {}))
    return max((p - q).detach().abs().max().item() for p, q in zip(a, b, strict=True) if p.numel())


@pytest.mark.parametrize(
    ("name", "turned"),
    [
        ("sgdm", {"momentum": 0.5}),
        ("rmsprop", {"alpha": 0.9}),
        ("nosadam", {"c": 0.9}),
        ("adashift", {"window": 3}),
        ("amsgrad", {"correct": False}),
        ("amsgradw", {"correct": False}),
        ("padam", {"correct": False}),
        ("padam", {"p": 0.3}),
        ("adam", {"eps": 1e-3}),
        ("adagrad", {"eps": 1e-3}),
        ("amsgrad", {"eps": 1e-3}),
        ("sgdm", {"clip_update": 1e-3}),
        ("sgdm", {"project": adaxopt.Box(-0.1, 0.1)}),
        ("adagrad", {"clip_update": 1e-3}),
        ("nosadam", {"project": adaxopt.Ball(0.1)}),
    ],
    ids=lambda v: v if isinstance(v, str) else next(iter(v)),
)
def test_knobs_of_the_others(name, turned):
    assert change(name, turned) > 100 * TOLERANCE


@pytest.mark.parametrize("name", PUBLIC)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_knobs_of_precision(name, dtype):
    """Equal dtypes are compared bit for bit (tolerance 0), so any one changed bit counts."""
    fast = {"lr": 0.3}
    for turned in ({"rounding": "stochastic"}, {"rounding": "kahan"}, {"state_dtype": torch.bfloat16}):
        assert change(name, {**fast, **turned}, fast, dtype) > 0
    stochastic = {**fast, "rounding": "stochastic"}
    assert change(name, {**stochastic, "seed": 1}, stochastic, dtype) > 0
    assert change(name, stochastic, stochastic, dtype) == 0
    assert change(name, {**fast, "seed": 1}, fast, dtype) == 0
    _, wide = run(name, dtype=dtype, steps=1, state_dtype=torch.float64)
    assert all(e["exp_avg_sq"].dtype == torch.float64 for e in wide.state.values())


@pytest.mark.parametrize("name", PUBLIC)
def test_knobs_of_execution(name):
    """What runs tells them apart: lists or single tensors, the fused kernel, and no number read to the host."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Calls(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.seen = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.seen.append(
                (func.overloadpacket.__name__, len(args[0]) if args and isinstance(args[0], list) else 1)
            )
            return func(*args, **(kwargs or {}))

    def calls(**kwargs):
        params = parameters()
        optimizer = build(name, params, **kwargs)
        set_gradients(params, 0)
        optimizer.step()
        set_gradients(params, 1)
        with Calls() as mode:
            optimizer.step()
        return mode.seen

    def ran(seen, name):
        return [size for called, size in seen if called == name]

    assert ran(calls(foreach=True), "_foreach_addcmul_") == [5]
    assert ran(calls(foreach=False), "_foreach_addcmul_") == [1] * 5
    reads = ran(calls(), "_local_scalar_dense")
    assert len(reads) > 0
    # on a device no number may be read to the host: a captured step reads none
    assert ran(calls(capturable=True), "_local_scalar_dense") == []
    fused = "_fused_adam_" if name == "adax" else "_fused_adamw_"
    if name == "padax":
        assert not ran(calls(), "_fused_adam_")
        with pytest.raises(ValueError, match="fused=True"):
            calls(fused=True)
    else:
        kernels = ("_fused_adam_", "_fused_adamw_")
        assert [n for n, _ in calls() if n in kernels] == [n for n, _ in calls(fused=True) if n in kernels]
        assert any(n in kernels for n, _ in calls())
        assert any(n in kernels for n, _ in calls(fused=True, foreach=False))
        assert not any(n in kernels for n, _ in calls(fused=False))
        assert ran(calls(weight_decay=0.1), fused) == [5]


def test_a_refused_step_changes_nothing():
    params = parameters()
    optimizer = build("padax", params, fused=True)
    set_gradients(params, 0)
    before = [p.detach().clone() for p in params]
    for _ in range(2):
        with pytest.raises(ValueError, match="fused=True"):
            optimizer.step()
    assert all(float(e.get("step", 0)) == 0 for e in optimizer.state.values())
    assert_near([p.detach() for p in params], before, 0)


@pytest.mark.parametrize("cls", [adaxopt.AdaX, adaxopt.AdaXW, adaxopt.Padax])
def test_no_knob_is_left_out_of_this_table(cls):
    seen = {"lr", "betas", "eps", "weight_decay", "decay", "eps_placement", "wake", "clip_update", "maximize"}
    seen |= {
        "total_steps",  # test_memory_option.py
        "memory",
        "cautious",  # test_cautious.py
        "project",
        "p",
        "rounding",
        "state_dtype",
        "seed",
        "foreach",
        "fused",
        "capturable",
        "differentiable",
    }
    arguments = set(inspect.signature(cls).parameters) - {"self", "params"}
    assert arguments <= seen
    assert set(ENGINE_DEFAULTS) - {"format"} <= arguments
