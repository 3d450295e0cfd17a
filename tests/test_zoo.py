"""Fourteen rows of data: their names, their defaults, and what each default is taken from."""

from __future__ import annotations

import inspect

import pytest
import torch

import adaxopt
from adaxopt.zoo import METHODS, method

NAMES = (
    *("sgdm", "adagrad", "rmsprop", "adam", "adamw", "amsgrad", "amsgradw"),
    *("adashift", "nosadam", "adamnx", "padam", "adax", "adaxw", "padax"),
)


def test_fourteen_names():
    assert sorted(METHODS) == sorted(NAMES)
    assert all(method(name) is METHODS[name] and METHODS[name].name == name for name in NAMES)
    assert all(METHODS[name].source for name in NAMES)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("adagrad", torch.optim.Adagrad),
        ("rmsprop", torch.optim.RMSprop),
        ("adam", torch.optim.Adam),
        ("adamw", torch.optim.AdamW),
        ("amsgrad", torch.optim.Adam),
        ("amsgradw", torch.optim.AdamW),
        ("sgdm", torch.optim.SGD),
    ],
)
def test_defaults_are_torchs(name, kind):
    theirs = {k: v.default for k, v in inspect.signature(kind).parameters.items()}
    ours = METHODS[name].defaults
    assert ours["lr"] == theirs["lr"]
    assert ours["weight_decay"] == theirs["weight_decay"]
    if "eps" in theirs:
        assert ours["eps"] == theirs["eps"]
    if "betas" in theirs:
        assert ours["betas"] == theirs["betas"]
    if "alpha" in theirs:
        assert ours["betas"][1] == theirs["alpha"]


PAPER = {
    "adax": dict(lr=1.5e-3, betas=(0.9, 1e-4), eps=1e-12, weight_decay=0.0, decay="l2", p=0.5, wake=True),
    "adaxw": dict(
        lr=5e-3, betas=(0.9, 1e-4), eps=1e-12, weight_decay=5e-2, decay="decoupled", p=0.5, wake=True
    ),
    "padax": dict(lr=0.1, betas=(0.9, 1e-4), eps=1e-12, weight_decay=5e-4, decay="l2", p=0.125, wake=True),
    "padam": dict(lr=0.1, betas=(0.9, 0.999), eps=1e-8, weight_decay=5e-4, decay="l2", p=0.125, wake=False),
    "nosadam": dict(lr=1e-3, betas=(0.9, 0.1), eps=1e-8, weight_decay=0.0, p=0.5, wake=False),
    "adashift": dict(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, window=10, wake=False),
    "adamnx": dict(
        lr=1e-3, betas=(0.9, 0.99**-0.01 - 1), eps=1e-8, weight_decay=0.01, decay="decoupled", wake=False
    ),
}


@pytest.mark.parametrize("name", PAPER)
def test_defaults_of_the_papers(name):
    found = {k: METHODS[name].defaults[k] for k in PAPER[name]}
    assert found.pop("betas") == pytest.approx(PAPER[name]["betas"], rel=1e-11)
    assert found == {k: value for k, value in PAPER[name].items() if k != "betas"}


@pytest.mark.parametrize(("name", "public"), [("adax", "AdaX"), ("adaxw", "AdaXW"), ("padax", "Padax")])
def test_the_public_signatures_repeat_the_rows(name, public):
    kind = getattr(adaxopt, public)
    signature = {
        k: v.default
        for k, v in inspect.signature(kind).parameters.items()
        if v.default is not inspect.Parameter.empty
    }
    for key, value in METHODS[name].defaults.items():
        if key in signature:
            assert signature[key] == ((value[0], None) if key == "betas" else value), key  # b2 is left open
    hidden = set(METHODS[name].defaults) - set(signature)
    assert hidden <= {"p"}  # AdaX and AdaXW have p = 1/2
    assert isinstance(adaxopt.create(name, [torch.nn.Parameter(torch.ones(1))]), kind)


@pytest.mark.parametrize("name", NAMES)
def test_created_by_name(name):
    optimizer = adaxopt.create(name, [torch.nn.Parameter(torch.ones(1))])
    group = optimizer.param_groups[0]
    for key, value in METHODS[name].defaults.items():
        assert group[key] == value, key
