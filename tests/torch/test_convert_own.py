"""Checkpoints of this package's Adam and AdamW, converted to AdaX or refused."""

from __future__ import annotations

import pytest
import torch

import adaxopt
from adaxopt import (
    AdamW,
    AdaX,
    AdaXW,
    LogTime,
    Padax,
    create,
    load_adamw_state_dict,
    load_released_state_dict,
)
from adaxopt.torch import codes
from runner import same, snapshot, stepped

OWN = [
    {},
    {"dtype": torch.bfloat16},
    {"dtype": torch.bfloat16, "rounding": "24bit"},
    {"dtype": torch.bfloat16, "rounding": "kahan", "state_dtype": torch.bfloat16},
    {"state_dtype": torch.uint8},
    {"sparse": True},
    {"memory": LogTime(8)},
]


@pytest.mark.parametrize("options", OWN, ids=str)
@pytest.mark.parametrize("theirs", [adaxopt.Adam, AdamW])
@pytest.mark.parametrize("kind", [AdaX, AdaXW, Padax])
def test_a_checkpoint_of_this_package_s_adam_converts(kind, theirs, options):
    """v is normalised already. Step counts of rows and correction bits of weights are copied."""
    options = dict(options)
    sparse, dtype = options.pop("sparse", False), options.pop("dtype", torch.float32)
    p = torch.nn.Parameter(torch.ones(4, 8, dtype=dtype))
    adam = theirs([p], lr=0.3, **options)
    for t in range(5):
        p.grad = torch.randn(4, 8).to(dtype)
        p.grad = (
            torch.sparse_coo_tensor([[t % 3]], p.grad[:1], (4, 8), check_invariants=True)
            if sparse
            else p.grad
        )
        adam.step()
    file = adam.state_dict()
    optimizer = kind([p], lr=0.01, rounding=options.get("rounding", "nearest"))
    group = {k: v for k, v in optimizer.param_groups[0].items() if k != "params"}
    with pytest.raises(ValueError, match=r"convert it with adaxopt\.load_adamw_state_dict"):
        optimizer.load_state_dict(file)
    load_adamw_state_dict(optimizer, file)
    entry, old = optimizer.state[p], adam.state[p]
    for key in ("exp_avg", "exp_avg_sq"):
        assert entry[key].dtype == torch.float32
        assert torch.equal(entry[key], codes.expanded(old, key).float())
    rest = {"step", "row_step", "compensation"} & set(old)
    assert set(entry) == {"exp_avg", "exp_avg_sq", *rest}
    assert all(torch.equal(entry[key], old[key]) for key in rest)
    assert {k: v for k, v in optimizer.param_groups[0].items() if k != "params"} == group
    optimizer.step()


def test_it_is_the_same_as_by_way_of_torch_s_format():
    adam = stepped(AdamW)
    ours, by_torch = stepped(AdaXW), stepped(AdaXW)
    load_adamw_state_dict(ours, adam.state_dict())
    load_adamw_state_dict(by_torch, adam.to_torch_state_dict())
    for a, b in zip(ours.state.values(), by_torch.state.values(), strict=True):
        assert set(a) == set(b)
        assert all(torch.allclose(a[key], b[key], rtol=1e-6, atol=0) for key in a)


def test_checkpoints_of_amsgrad_and_of_other_formats_are_refused():
    optimizer = stepped(AdaXW)
    before = snapshot(optimizer)
    with pytest.raises(
        ValueError, match=r"checkpoint of method 'amsgradw'.*load it into the class that wrote"
    ):
        load_adamw_state_dict(optimizer, stepped(AdamW, amsgrad=True).state_dict())
    with pytest.raises(ValueError, match=r"adaxopt itself: load it with optimizer\.load_state_dict"):
        load_adamw_state_dict(optimizer, stepped(AdaXW).state_dict())
    with pytest.raises(ValueError, match=r"convert it with adaxopt\.load_adamw_state_dict"):
        load_released_state_dict(optimizer, stepped(AdamW).state_dict())
    nx = stepped(lambda params: create("adamnx", params))
    with pytest.raises(ValueError, match=r"method 'adamw'.*load it into the class that wrote it"):
        nx.load_state_dict(stepped(AdamW).state_dict())
    newer = stepped(AdamW).state_dict()
    newer["param_groups"][0]["format"] = 99
    with pytest.raises(ValueError, match="format 99"):
        load_adamw_state_dict(optimizer, newer)
    coded = stepped(AdamW, state_dtype=torch.uint8, shapes=((2, 3), (4,), (5,))).state_dict()
    with pytest.raises(ValueError, match=r"group 0 has 3 parameters: this optimizer's has 2"):
        load_adamw_state_dict(optimizer, coded)
    coded = stepped(AdamW, state_dtype=torch.uint8).state_dict()
    del coded["state"][1]["exp_avg_scale"]
    with pytest.raises(
        ValueError, match=r"parameter 1 has 'exp_avg' in torch.int8 and 'exp_avg_scale' as None"
    ):
        load_adamw_state_dict(optimizer, coded)
    several = stepped(torch.optim.AdamW).state_dict()
    several["state"][0]["step"] = torch.tensor([1.0, 2.0])
    with pytest.raises(ValueError, match=r"parameter 0 has 'step' of shape \(2,\): must be one number"):
        load_adamw_state_dict(optimizer, several)
    assert same(snapshot(optimizer), before)


def test_what_dcp_load_makes_of_state_of_another_form_is_refused():
    """Codes in float moments, and rows without their step counts: as in `load_state_dict`."""
    optimizer = stepped(AdaXW)
    before = snapshot(optimizer)
    coded = stepped(AdamW, state_dtype=torch.uint8).state_dict()
    for entry in coded["state"].values():
        for key in ("exp_avg", "exp_avg_sq"):
            entry[key] = entry[key].float()
            del entry[f"{key}_scale"]
    with pytest.raises(ValueError, match="they are 8-bit codes"):
        load_adamw_state_dict(optimizer, coded)
    p = torch.nn.Parameter(torch.ones(4, 2))
    adam = AdamW([p])
    p.grad = torch.sparse_coo_tensor([[1]], torch.ones(1, 2), (4, 2), check_invariants=True)
    adam.step()
    rows = adam.state_dict()
    del rows["state"][0]["row_step"]
    with pytest.raises(ValueError, match="step count for every row of a sparse parameter"):
        load_adamw_state_dict(AdaXW([p]), rows)
    assert same(snapshot(optimizer), before)
