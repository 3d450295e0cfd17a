"""What a group and a constructor may be given: unknown names warn, names that trainers add do not."""

from __future__ import annotations

import copy
import re
import warnings

import pytest
import torch
from torch.optim import lr_scheduler, swa_utils

import adaxopt
from adaxopt import AdaX, AdaXW, Ball, Box, Growing, LogTime, Padax, create, step_in_backward
from adaxopt.zoo import METHODS
from runner import same, saved_and_read, snapshot


def parameter():
    return torch.nn.Parameter(torch.ones(2))


def stepped(optimizer):
    for group in optimizer.param_groups:
        for p in group["params"]:
            p.grad = torch.ones_like(p)
    optimizer.step()


MISTAKES = {
    "weightdecay": "did you mean 'weight_decay'?",
    "weight_dcay": "did you mean 'weight_decay'?",
    "Weight_Decay": "did you mean 'weight_decay'?",
    "wd": "did you mean 'weight_decay'?",
    "learning_rate": "did you mean 'lr'?",
    "LR": "did you mean 'lr'?",
    "epsilon": "did you mean 'eps'?",
    "beta": "betas=(b1, b2)",
    "beta2": "betas=(b1, b2)",
    "bettas": "did you mean 'betas'?",
    "clip": "did you mean 'clip_update'?",
    "eps_placment": "did you mean 'eps_placement'?",
    "statedtype": "did you mean 'state_dtype'?",
    "momentum": "betas=(momentum, b2)",
    "amsgrad": 'adaxopt.create("amsgrad", ...)',
    "nesterov": "there is no Nesterov form",
    "decoupled_weight_decay": 'decay="decoupled"',
    "xyz": "options are betas, capturable",
}


@pytest.mark.parametrize("key", MISTAKES)
def test_an_unknown_key_warns_once(key):
    says = re.escape(f"parameter group with {key!r}: not an option of AdaXW, so it is ignored") + ".*"
    says += re.escape(MISTAKES[key])
    groups = [{"params": [parameter()], key: 0.5} for _ in range(3)]
    with pytest.warns(UserWarning, match=says) as seen:
        optimizer = AdaXW(groups)
    assert [one.filename for one in seen] == [__file__]
    optimizer.add_param_group({"params": [parameter()], key: 0.5})  # silent now: a warning would be an error
    stepped(optimizer)
    other = AdaXW([parameter()])
    with pytest.warns(UserWarning, match=says):
        other.add_param_group({"params": [parameter()], key: 0.5})


@pytest.mark.parametrize("value", [None, False, 0, "x"])
def test_an_unknown_key_warns_whatever_it_holds(value):
    with pytest.warns(UserWarning, match="'wak'.*did you mean 'wake'"):
        AdaXW([{"params": [parameter()], "wak": value}])
    AdaXW([{"params": [parameter()], "amsgrad": False}])  # nothing that was asked for is missing


ANNOTATIONS = [
    "name",
    "names",
    "param_names",
    "group_name",
    "tag",
    "label",
    "layer_id",
    "layer_name",
    "depth",
    "initial_lr",
    "swa_lr",
    "max_lr",
    "min_lr",
    "base_lr",
    "lr_scale",
    "lr_mult",
    "lr_multiplier",
    "lr_factor",
    "wd_mult",
    "decay_mult",
    "wd_multiplier",
    "max_momentum",
    "base_momentum",
    "is_last_layer",
    "is_expert_parallel",
    "_mine",
    "param_group",
    "rho",
    "adaptive",
    "moe",
]


@pytest.mark.parametrize("key", ANNOTATIONS)
def test_what_others_keep_in_a_group_is_silent(key):
    optimizer = AdaXW([{"params": [parameter()], key: 0.5}])
    optimizer.add_param_group({"params": [parameter()], key: 0.5})
    assert [group[key] for group in optimizer.param_groups] == [0.5, 0.5]
    stepped(optimizer)


SCHEDULERS = {
    "step": lambda o: lr_scheduler.StepLR(o, 1),
    "cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=10),
    "cyclic": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, cycle_momentum=False),
    "swa": lambda o: swa_utils.SWALR(o, 0.1),
    "plateau": lambda o: lr_scheduler.ReduceLROnPlateau(o),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_and_groups_that_they_wrote_to(name):
    optimizer = AdaXW([parameter()])
    scheduler = SCHEDULERS[name](optimizer)
    stepped(optimizer)
    scheduler.step(*([1.0] if name == "plateau" else []))
    stepped(optimizer)
    again = AdaXW([dict(group) for group in optimizer.param_groups])  # what a trainer that rebuilds does
    again.load_state_dict(saved_and_read(optimizer))
    stepped(again)


@pytest.mark.parametrize("name", METHODS)
def test_an_optimizers_own_groups_make_another_of_it(name):
    optimizer = create(name, [parameter()], weight_decay=0.25)
    again = create(name, [copy.copy(group) for group in optimizer.param_groups])
    assert again.param_groups[0]["weight_decay"] == 0.25


@pytest.mark.parametrize("project", [Box(-1, 1), Ball(1.0), None, lambda y, d: y])
def test_a_projection_in_a_group_is_refused(project):
    with pytest.raises(
        ValueError, match=r"project=.* in a parameter group: .*AdaXW\(params, project=\.\.\.\)"
    ):
        AdaXW([{"params": [parameter()], "project": project}])
    optimizer = AdaXW([parameter()], project=Box(-1, 1))
    before = snapshot(optimizer)
    with pytest.raises(ValueError, match="in a parameter group"):
        optimizer.add_param_group({"params": [parameter()], "project": project})
    assert same(snapshot(optimizer), before)
    saved_and_read(optimizer, weights_only=True)


NEXT = {
    "AdamW": adaxopt.AdamW,
    "AdaXW": AdaXW,
    "torch's AdamW": torch.optim.AdamW,
}


@pytest.mark.parametrize("kind", NEXT.values(), ids=NEXT)
def test_groups_may_be_used_for_another_optimizer(kind):
    """The dicts that were given stay as they were: no option of the first optimizer reaches the second."""
    model = torch.nn.Linear(2, 2)
    given = adaxopt.param_groups(model, 0.125)
    kept = [dict(group) for group in given]
    AdaXW(given, lr=0.25, betas=(0.5, 1e-3))
    assert given == kept
    optimizer, expected = kind(given, lr=0.5), kind(adaxopt.param_groups(model, 0.125), lr=0.5)
    for group, other in zip(optimizer.param_groups, expected.param_groups, strict=True):
        assert {k: v for k, v in group.items() if k != "params"} == {
            k: v for k, v in other.items() if k != "params"
        }


@pytest.mark.parametrize("kind", NEXT.values(), ids=NEXT)
def test_a_group_with_an_iterator_may_be_used_for_another_optimizer(kind):
    """An iterator can be read once: as with torch, the dict that was given has a list afterwards."""
    model = torch.nn.Linear(2, 2)
    given = [{"params": model.parameters(), "lr": 0.5}]
    first, second = kind(given), kind(given)
    for optimizer in (first, second):
        assert len(optimizer.param_groups[0]["params"]) == 2
    assert [p is q for p, q in zip(given[0]["params"], model.parameters(), strict=True)] == [True, True]


def test_a_group_that_is_added_stays_as_it_was():
    given = {"params": [parameter()], "amsgrad": False, "decoupled_weight_decay": False}
    kept = dict(given)
    optimizer = adaxopt.AdamW([parameter()])
    optimizer.add_param_group(given)
    assert given == kept
    assert optimizer.param_groups[1]["decay"] == "l2"


@pytest.fixture
def zero_class(tmp_path):
    """torch's ZeroRedundancyOptimizer, in a group of one process."""
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_gloo_available():
        pytest.skip("this torch has no gloo")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch's own, at the import
        from torch.distributed.optim import ZeroRedundancyOptimizer
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield ZeroRedundancyOptimizer
    distributed.destroy_process_group()


ZERO = [
    {"memory": LogTime(8)},
    {"memory": LogTime(8), "betas": (0.5, None)},
    {"memory": Growing(1e-3).floor(0.125)},
    {"betas": (0.5, None)},
    {"betas": (0.5, None), "total_steps": 600},
]


@pytest.mark.parametrize("options", ZERO, ids=str)
def test_a_group_added_to_zero(zero_class, options):
    """ZeroRedundancyOptimizer writes its arguments into a new group, at every step: the numbers of one optimizer."""
    first, second, ours, others = parameter(), parameter(), parameter(), parameter()
    zero = zero_class([first], AdaXW, lr=0.25, **options)
    expected = AdaXW([ours], lr=0.25, **options)
    for optimizer, p in ((zero, second), (expected, others)):
        stepped(optimizer)
        optimizer.add_param_group({"params": [p]})
        stepped(optimizer)
        stepped(optimizer)
    assert same([first, second], [ours, others])
    for group, other in zip(zero.optim.param_groups, expected.param_groups, strict=True):
        assert (group["memory"], group["betas"]) == (other["memory"], other["betas"])
    zero.consolidate_state_dict()
    zero.load_state_dict(zero.state_dict())
    stepped(zero)


def test_a_projection_is_not_for_zero(zero_class):
    with pytest.raises(ValueError, match=r"project=.*ZeroRedundancyOptimizer.*does not support it"):
        zero_class([parameter()], AdaXW, lr=0.25, project=Box(-1, 1))


@pytest.mark.parametrize("kind", [AdaX, AdaXW])
def test_a_power_in_a_group_of_a_class_without_one(kind):
    with pytest.raises(ValueError, match=r"p=0\.3 in a parameter group of AdaXW?: use adaxopt\.Padax"):
        kind([{"params": [parameter()], "p": 0.3}])
    assert Padax([{"params": [parameter()], "p": 0.3}]).param_groups[0]["p"] == 0.3


# -- arguments of the constructor ------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", MISTAKES)
@pytest.mark.parametrize("kind", [AdaX, AdaXW, Padax])
def test_an_argument_of_another_optimizer(kind, key):
    says = "" if key == "xyz" else ".*" + re.escape(MISTAKES[key])
    with pytest.raises(
        TypeError, match=rf"{kind.__name__}: unknown argument '{key}'{says}.*llowed are betas, .*weight_decay"
    ):
        kind([parameter()], **{key: True})


def test_a_subclass_has_its_own_arguments():
    class Mine(AdaXW):
        def __init__(self, params, momentum=0.9, **options):
            super().__init__(params, betas=(momentum, 1e-4), **options)

    assert Mine([parameter()], momentum=0.5).param_groups[0]["betas"] == (0.5, 1e-4)
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'amsgrad'|unknown argument 'amsgrad'"):
        Mine([parameter()], amsgrad=True)


@pytest.mark.parametrize("model", [torch.nn.Linear(2, 2), torch.nn.Sequential(torch.nn.Linear(2, 2))])
def test_a_model_in_place_of_its_parameters(model):
    with pytest.raises(TypeError, match=r"must be its parameters, AdaXW\(model\.parameters\(\), \.\.\.\)"):
        AdaXW(model)


# -- b2 written later ------------------------------------------------------------------------------------------------

LATER = [(0.9, 0.999), [0.9, 0.99], (0.9, torch.tensor(0.95)), (0.0, 0.011)]


@pytest.mark.parametrize("betas", LATER, ids=str)
@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"capturable": True}], ids=str)
@pytest.mark.parametrize("kind", [AdaX, AdaXW, Padax])
def test_a_b2_like_adams_written_later_warns_once(kind, options, betas):
    optimizer = kind([{"params": [parameter()]}, {"params": [parameter()]}], **options)
    stepped(optimizer)
    optimizer.param_groups[1]["betas"] = betas
    with pytest.warns(UserWarning, match=r"betas\[1\]=0\.\d+ looks like Adam's") as seen:
        stepped(optimizer)
    assert [one.filename for one in seen] == [__file__]
    for b2 in (0.5, 0.6):  # a schedule that stays there says nothing more
        optimizer.param_groups[1]["betas"] = (0.9, b2)
        stepped(optimizer)
    optimizer.param_groups[1]["betas"] = (0.9, 1e-4)
    stepped(optimizer)
    optimizer.param_groups[1]["betas"] = (0.9, 0.5)
    with pytest.warns(UserWarning, match="looks like Adam's"):
        stepped(optimizer)


def test_a_b2_written_later_in_backward():
    p = parameter()
    optimizer = AdaXW([p])
    hooks = step_in_backward(optimizer)
    optimizer.param_groups[0]["betas"] = (0.9, 0.999)
    with pytest.warns(UserWarning, match="looks like Adam's"):
        p.sum().backward()
    hooks.remove()


def test_no_second_warning_and_none_after_loading():
    with pytest.warns(UserWarning, match="looks like Adam's"):
        optimizer = AdaXW([parameter()], betas=(0.9, 0.5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stepped(optimizer)
        other = AdaXW([parameter()])
        other.load_state_dict(saved_and_read(optimizer))
        stepped(other)
        stepped(copy.deepcopy(other))
        adam = create("adam", [parameter()])
        adam.param_groups[0]["betas"] = (0.9, 0.99)
        stepped(adam)


# -- repr ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("name", METHODS)
def test_it_shows_itself_as_torchs_optimizers_do(name, groups):
    optimizer = create(name, [{"params": [parameter()]} for _ in range(groups)], lr=0.25)
    theirs = torch.optim.AdamW([{"params": [parameter()]} for _ in range(groups)], lr=0.25)
    lines, wanted = repr(optimizer).splitlines(), repr(theirs).splitlines()
    assert lines[0] == wanted[0].replace("AdamW", type(optimizer).__name__)
    assert [line for line in lines if not line.startswith("    ")][1:] == [
        line for line in wanted if not line.startswith("    ")
    ][1:]
    shown = [line.split(":")[0].strip() for line in lines if line.startswith("    ")]
    assert "    lr: 0.25" in lines
    assert shown == groups * sorted(set(shown))
    assert not {"format", "method", "reference_lr", "params"} & set(shown)
    assert ("p" in shown) == (name not in ("adam", "adamw", "adax", "adaxw"))
