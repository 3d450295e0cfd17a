"""Numbers of other libraries, flags as 0 and 1, and what a group or a checkpoint may not hold."""

from __future__ import annotations

import copy
import io
import math

import numpy as np
import pytest
import torch

import adaxopt
from adaxopt import AdamW, AdaX, AdaXW, Growing, LogTime


def stepped(optimizer):
    for group in optimizer.param_groups:
        for p in group["params"]:
            p.grad = torch.ones_like(p)
    optimizer.step()
    return optimizer


def one(size=3):
    return [torch.nn.Parameter(torch.ones(size))]


@pytest.mark.parametrize(
    "given",
    [
        {"lr": np.float64(1e-3)},
        {"weight_decay": np.float32(0.1), "eps": np.float64(1e-8), "clip_update": np.float64(1)},
        {"betas": (np.float64(0.9), None)},
        {"betas": (np.float64(0.9), np.float64(1e-4))},
        {"total_steps": np.float64(100)},
        {"total_steps": np.float32(100)},
        {"total_steps": np.int64(100)},
        {"total_steps": torch.tensor(100.0)},
        {"memory": Growing(np.float64(0.001))},
        {"memory": LogTime(8).freeze(np.int64(5))},
        {"memory": LogTime(8).floor(np.float32(0.125)).freeze(np.float64(5))},
        {"wake": np.bool_(True), "foreach": np.bool_(False)},
        {"seed": np.int64(3)},
        {"maximize": 0},
        {"maximize": 1, "capturable": 0, "foreach": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("in_group", [False, True])
def test_numbers_of_others_are_taken_and_saved_as_plain_ones(given, in_group):
    optimizer = AdaXW([{"params": one(), **given}]) if in_group else AdaXW(one(), **given)
    saved = io.BytesIO()
    torch.save(stepped(optimizer).state_dict(), saved)
    saved.seek(0)
    again = AdaXW(one(), **{k: v for k, v in given.items() if k == "foreach"})
    again.load_state_dict(torch.load(saved, weights_only=True))
    for key, value in again.param_groups[0].items():
        values = value if isinstance(value, (tuple, list)) and key != "params" else [value]
        assert key == "params" or all(type(v) in (bool, int, float, str, type(None)) for v in values), key


@pytest.mark.parametrize("step", [16777217.0, 1001.0, 16777217])
def test_a_step_of_any_kind_is_exact(step):
    before = torch.get_default_dtype()
    saved = copy.deepcopy(stepped(AdaXW(one())).state_dict())
    saved["state"][0]["step"] = step
    torch.set_default_dtype(torch.bfloat16)
    try:
        optimizer = AdaXW(one())
        optimizer.load_state_dict(saved)
    finally:
        torch.set_default_dtype(before)
    assert next(iter(optimizer.state.values()))["step"].item() == step


def sparse(optimizer, b):
    b.grad = torch.ones(3, 2).to_sparse(1)


def broken(optimizer, b):
    del optimizer.state[b]["exp_avg"]


def memory(optimizer, b):
    optimizer.param_groups[1]["memory"] = LogTime(8)


def no_reference(optimizer, b):
    optimizer.param_groups[1].update(decay="fully_decoupled", reference_lr=0.0)


def no_memory(optimizer, b):
    optimizer.param_groups[1]["memory"] = "foo"


@pytest.mark.parametrize(
    ("options", "spoil", "says"),
    [
        ({"differentiable": True}, sparse, "sparse gradients are not differentiable"),
        ({"differentiable": True}, broken, "no exp_avg in its state"),
        ({"foreach": False}, broken, "no exp_avg in its state"),
        ({}, broken, "no exp_avg in its state"),
        ({}, memory, r"memory=LogTime\(8\) in a group"),
        ({"differentiable": True}, memory, r"memory=LogTime\(8\) in a group"),
        ({}, no_memory, "memory='foo': must be one of"),
        ({}, no_reference, "reference_lr=0.0"),
        ({"foreach": True}, no_reference, "reference_lr=0.0"),
    ],
)
def test_what_one_group_cannot_do_is_said_before_another_is_stepped(options, spoil, says):
    a, b = torch.ones(3), torch.ones(3, 2)
    optimizer = stepped(AdaXW([{"params": [a]}, {"params": [b]}], lr=0.1, **options))
    spoil(optimizer, b)
    before = a.detach().clone()
    with pytest.raises((ValueError, TypeError), match=says):
        optimizer.step()
    assert torch.equal(a.detach(), before)
    assert optimizer.state[a]["step"] == 1


@pytest.mark.parametrize("wrong", [math.nan, -1.0, 0.0, None, "x"])
def test_a_checkpoint_s_first_lr_is_checked(wrong):
    saved = copy.deepcopy(stepped(AdaXW(one(), decay="fully_decoupled")).state_dict())
    saved["param_groups"][0]["reference_lr"] = wrong
    with pytest.raises(ValueError, match=r"checkpoint's group 0: reference_lr="):
        AdaXW(one(), decay="fully_decoupled").load_state_dict(saved)


def test_decay_that_begins_later_names_its_first_lr():
    optimizer = stepped(AdaXW(one(), lr=0.0, weight_decay=0.0, decay="fully_decoupled"))
    optimizer.param_groups[0].update(lr=0.1, weight_decay=0.1)
    with pytest.raises(ValueError, match=r"set group\['reference_lr'\]"):
        optimizer.step()
    optimizer.param_groups[0]["reference_lr"] = 0.1
    optimizer.step()


def test_a_checkpoint_with_another_p_is_refused_where_the_class_has_none():
    saved = copy.deepcopy(stepped(AdaX(one())).state_dict())
    saved["param_groups"][0]["p"] = 0.25
    with pytest.raises(ValueError, match=r"p=0\.25 .*use adaxopt\.Padax"):
        AdaX(one()).load_state_dict(saved)


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("sgdm", {"momentm": 0.8}, "did you mean 'momentum'"),
        ("nosadam", {"cc": 0.8}, r"(?i)allowed are .*\bc, "),
        ("rmsprop", {"alpa": 0.8}, "did you mean 'alpha'"),
    ],
)
def test_a_method_s_own_names_are_suggested(name, given, says):
    with pytest.raises(TypeError, match=says):
        adaxopt.create(name, one(), **given)


def test_flags_of_adamw_as_numbers():
    ends = []
    for flag in (True, 1):
        optimizer = stepped(AdamW(one(), maximize=flag))
        ends.append(optimizer.param_groups[0]["params"][0].detach())
    assert torch.equal(*ends)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8])
def test_a_checkpoint_s_groups_hold_no_dtype(dtype):
    """torch's `get_optimizer_state_dict` refuses one, with `full_state_dict` and `cpu_offload`."""
    optimizer = stepped(AdaXW(one(64), state_dtype=dtype))
    saved = optimizer.state_dict()
    assert saved["param_groups"][0]["state_dtype"] == str(dtype).removeprefix("torch.")
    again = AdaXW(one(64))
    again.load_state_dict(saved)
    assert again.param_groups[0]["state_dtype"] is dtype is optimizer.param_groups[0]["state_dtype"]
    saved["param_groups"][0]["state_dtype"] = dtype  # as earlier files have it
    again.load_state_dict(saved)
    saved["param_groups"][0]["state_dtype"] = "float8"
    with pytest.raises(ValueError, match="state_dtype='float8': must be one of"):
        again.load_state_dict(saved)


@pytest.mark.parametrize("load", [AdaXW.load_state_dict, adaxopt.load_adamw_state_dict])
def test_a_negative_second_moment_is_refused(load):
    saver = AdaXW(one()) if load is AdaXW.load_state_dict else torch.optim.AdamW(one())
    saved = copy.deepcopy(stepped(saver).state_dict())
    saved["state"][0]["exp_avg_sq"][1] = -2.0
    with pytest.raises(ValueError, match=r"'exp_avg_sq' down to -2: must be >= 0"):
        load(AdaXW(one()), saved)


@pytest.mark.parametrize("path", [{}, {"foreach": False}, {"capturable": True}], ids=str)
@pytest.mark.parametrize("given", [{"clip_update": 0.05}, {"p": 0.25}], ids=str)
def test_a_tensor_of_one_element_may_have_any_shape(given, path):
    (name, value), (number, tensor) = *given.items(), (one(), one())
    for params, option in ((number, value), (tensor, torch.tensor([value], dtype=torch.float64))):
        optimizer = adaxopt.Padax(params, lr=0.1, **{name: option}, **path)
        for _ in range(3):
            stepped(optimizer)
    assert torch.equal(number[0], tensor[0])
