"""The rows of data: their names, their defaults, and what each default is taken from."""

from __future__ import annotations

import inspect

import pytest
import torch

import adaxopt
import oracles
from adaxopt.zoo import METHODS, method


def test_every_row_has_an_oracle_a_source_and_a_title():
    assert sorted(METHODS) == sorted(oracles.METHODS)
    for name, row in METHODS.items():
        assert method(name) is row
        assert row.name == name
        assert row.source
        assert "".join(letter for letter in row.title.lower() if letter.isalnum()) == name


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


@pytest.mark.parametrize("name", oracles.PUBLISHED)
def test_defaults_of_the_papers(name):
    found = {k: METHODS[name].defaults[k] for k in oracles.PUBLISHED[name]}
    assert found.pop("betas") == pytest.approx(oracles.PUBLISHED[name]["betas"], rel=1e-11)
    assert found == {k: value for k, value in oracles.PUBLISHED[name].items() if k != "betas"}


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


@pytest.mark.parametrize("name", METHODS)
def test_created_by_name(name):
    optimizer = adaxopt.create(name, [torch.nn.Parameter(torch.ones(1))])
    group = optimizer.param_groups[0]
    for key, value in METHODS[name].defaults.items():
        assert group[key] == value, key
