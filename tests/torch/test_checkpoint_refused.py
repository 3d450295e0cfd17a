"""Checkpoints that are refused: the error says why, and nothing changes."""

from __future__ import annotations

import pytest
import torch

from adaxopt import AdamW, AdaXW, create, load_adamw_state_dict, load_released_state_dict
from runner import same, snapshot, stepped

SIZE = 18


def released():
    """What the released code's groups hold: hyper-parameters, and no format."""
    group = {"lr": 5e-3, "betas": (0.9, 1e-4), "eps": 1e-12, "weight_decay": 5e-2, "params": [0, 1]}
    return {"state": {}, "param_groups": [group]}


def newer(d):
    d["param_groups"][0]["format"] = 99
    return d


def without(key):
    def change(d):
        del d["state"][1][key]
        return d

    return change


def reshaped(key, shape):
    def change(d):
        d["state"][1][key] = torch.zeros(shape)
        return d

    return change


def with_state(kind, entry):
    d = stepped(kind).state_dict()
    return {**d, "state": {**d["state"], 0: entry}}


REFUSED = [
    ("newer format", lambda: newer(stepped(AdaXW).state_dict()), r"format 99.*reads formats 2 and 3"),
    ("torch's AdamW", lambda: stepped(torch.optim.AdamW).state_dict(), r"load_adamw_state_dict"),
    (
        "torch's SGD",
        lambda: stepped(torch.optim.SGD).state_dict(),
        r"checkpoint of torch.optim.SGD: AdaXW cannot continue",
    ),
    ("the released code", released, r"load_released_state_dict"),
    ("another memory", lambda: create_stepped("adam"), r"method 'adam'.*AdaXW \('adaxw'\)"),
    ("no memory", lambda: create_stepped("sgdm"), r"method 'sgdm'.*AdaXW \('adaxw'\)"),
    ("more groups", lambda: stepped(AdaXW, groups=2).state_dict(), r"2 parameter groups.*has 1"),
    (
        "fewer groups",
        lambda: {**stepped(AdaXW).state_dict(), "param_groups": []},
        r"0 parameter groups.*has 1; build it with the same groups",
    ),
    ("fewer parameters", lambda: stepped(AdaXW, shapes=((2, 3),)).state_dict(), r"has 1 parameters.*2"),
    (
        "other shapes",
        lambda: stepped(AdaXW, shapes=((2, 3), (5,))).state_dict(),
        r"'exp_avg'.*\(5,\).*\(4,\)",
    ),
    (
        "transposed",
        lambda: stepped(AdaXW, shapes=((3, 2), (4,))).state_dict(),
        r"'exp_avg'.*\(3, 2\).*\(2, 3\)",
    ),
    ("no exp_avg_sq", lambda: without("exp_avg_sq")(stepped(AdaXW).state_dict()), r"no 'exp_avg_sq'"),
    ("no step", lambda: without("step")(stepped(AdaXW).state_dict()), r"no 'step'"),
    (
        "rows of another shape",
        lambda: reshaped("row_step", (5,))(stepped(AdaXW).state_dict()),
        r"'row_step'.*\(5,\)",
    ),
    ("an empty dict", dict, r"param_groups"),
    ("a group of None", lambda: {"state": {}, "param_groups": [None]}, r"group 0 is None: must be a dict"),
    ("no params", lambda: {"state": {}, "param_groups": [{"lr": 1}]}, r"group 0 is .*: must be a dict with"),
    (
        "no state",
        lambda: with_state(AdaXW, None),
        r"parameter 0 has a state of type NoneType: must be a dict",
    ),
    ("a number", lambda: with_state(torch.optim.AdamW, 5), r"parameter 0 has a state of type int"),
]


def create_stepped(name):
    return stepped(lambda params: create(name, params)).state_dict()


@pytest.mark.parametrize(("what", "make", "message"), REFUSED, ids=[row[0] for row in REFUSED])
def test_what_is_refused_leaves_everything_untouched(what, make, message):
    optimizer = stepped(AdaXW, lr=0.7)
    before = snapshot(optimizer)
    file = make()
    with pytest.raises(ValueError, match=message):
        optimizer.load_state_dict(file)
    assert same(snapshot(optimizer), before)
    for p in optimizer.param_groups[0]["params"]:
        p.grad = torch.ones_like(p)
    optimizer.step()  # and it still works


@pytest.mark.parametrize(
    ("name", "key"), [("amsgrad", "max_exp_avg_sq"), ("padam", "max_exp_avg_sq"), ("adashift", "window")]
)
def test_every_method_asks_for_all_of_its_state(name, key):
    """Adam's checkpoint has no window, RMSProp's no maximum: said at once, not at the next step."""
    optimizer = stepped(lambda params: create(name, params))
    file = optimizer.state_dict()
    file["state"] = {i: {k: v for k, v in entry.items() if k != key} for i, entry in file["state"].items()}
    with pytest.raises(ValueError, match=f"no '{key}'"):
        stepped(lambda params: create(name, params)).load_state_dict(file)


@pytest.mark.parametrize("kind", [AdaXW, AdamW])
@pytest.mark.parametrize("load", [AdaXW.load_state_dict, load_adamw_state_dict, load_released_state_dict])
def test_a_group_without_options_is_named(load, kind):
    """torch leaves a group empty when it maps one saved group to two by name."""
    groups = [{"params": [p]} for p in torch.nn.Linear(2, 2).parameters()]
    saved = kind(groups).state_dict()
    saved["param_groups"][1] = {"params": [1]}
    with pytest.raises(ValueError, match=r"group 1 has no options.*flatten_optimizer_state_dict=True"):
        load(AdaXW(groups), saved)
