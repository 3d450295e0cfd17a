"""A checkpoint of one method is never loaded into another, by any road."""

from __future__ import annotations

import pytest
import torch

from adaxopt import AdaX, AdaXW, Padax, create, load_adamw_state_dict
from adaxopt.torch.optimizers import CLASSES
from adaxopt.zoo import METHODS
from runner import same, saved_and_read, snapshot, stepped

dcp = pytest.importorskip("torch.distributed.checkpoint.state_dict")
PAIRS = [(a, b) for a in METHODS for b in METHODS]


def saved(name, state=True, **options):
    optimizer = create(
        name, [torch.nn.Parameter(torch.ones(2, 3)), torch.nn.Parameter(torch.ones(4))], **options
    )
    for p in optimizer.param_groups[0]["params"]:
        p.grad = torch.full_like(p, 0.3)
    if state:
        optimizer.step()
    return saved_and_read(optimizer)


def fresh(name, **options):
    return stepped(lambda params: create(name, params, **options))


@pytest.mark.parametrize("state", [True, False], ids=["stepped", "never stepped"])
@pytest.mark.parametrize(("writer", "reader"), PAIRS)
def test_every_pair_of_methods(writer, reader, state):
    file, optimizer = saved(writer, state), fresh(reader)
    before = snapshot(optimizer)
    if writer == reader:
        optimizer.load_state_dict(file)
        again = saved_and_read(optimizer)
        assert [(g["format"], g["method"]) for g in again["param_groups"]] == [(2, writer)]
        return
    with pytest.raises(ValueError, match="checkpoint"):
        optimizer.load_state_dict(file)
    assert same(snapshot(optimizer), before)


OPTIONS = [
    (AdaXW, {"decay": "l2"}),
    (AdaXW, {"decay": "fully_decoupled"}),
    (AdaX, {"decay": "decoupled"}),
    (Padax, {"p": 0.25}),
    (AdaXW, {"eps_placement": "plain", "wake": False, "clip_update": 1.0, "lr": 0.3, "betas": (0.5, 1e-3)}),
]


@pytest.mark.parametrize(("kind", "options"), OPTIONS)
def test_options_of_the_same_class_load(kind, options):
    file = stepped(lambda params: kind(params, **options)).state_dict()
    reader = stepped(kind)
    reader.load_state_dict(file)
    assert {k: reader.param_groups[0][k] for k in options} == options


@pytest.mark.parametrize("version", [0, -1, 1, 2.0, 3.0, "2", True, None, 4])
def test_a_format_that_does_not_exist(version):
    optimizer = stepped(AdaXW)
    file = optimizer.state_dict()
    file["param_groups"][0]["format"] = version
    with pytest.raises(ValueError, match=f"checkpoint of format {version!r}"):
        optimizer.load_state_dict(file)


def test_a_second_group_of_another_method():
    optimizer = stepped(AdaXW, groups=2)
    file = optimizer.state_dict()
    file["param_groups"][1]["method"] = "padax"
    with pytest.raises(ValueError, match="method 'padax'"):
        optimizer.load_state_dict(file)


def test_a_group_taken_from_another_optimizer_is_of_the_new_ones_method():
    adax = stepped(AdaX)
    optimizer = AdaXW([dict(group) for group in adax.param_groups])
    assert optimizer.param_groups[0]["method"] == "adaxw"


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize(("writer", "reader"), [("adax", "adaxw"), ("adaxw", "padax"), ("adaxw", "adaxw")])
def test_through_distributed_checkpoint_helpers(writer, reader, flat):
    options = dcp.StateDictOptions(flatten_optimizer_state_dict=flat)

    def made(name):
        torch.manual_seed(0)
        model = torch.nn.Linear(2, 2)
        optimizer = create(name, model.parameters(), lr=0.25)
        return model, optimizer

    model, optimizer = made(writer)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    file = dcp.get_optimizer_state_dict(model, optimizer, options=options)
    other, read = made(reader)
    if writer != reader:
        with pytest.raises(ValueError, match=f"checkpoint of method {writer!r}"):
            dcp.set_optimizer_state_dict(other, read, file, options=options)
        return
    dcp.set_optimizer_state_dict(other, read, file, options=options)
    assert same(snapshot(read)["state"], snapshot(optimizer)["state"])


# -- checkpoints of other optimizers: what they are, by name ---------------------------------------------------------

THEIRS = {
    "SGD": (torch.optim.SGD, {}, r"torch\.optim\.SGD"),
    "SGD with momentum": (torch.optim.SGD, {"momentum": 0.9}, r"torch\.optim\.SGD"),
    "RMSprop": (torch.optim.RMSprop, {}, r"torch\.optim\.RMSprop"),
    "Adagrad": (torch.optim.Adagrad, {}, r"torch\.optim\.Adagrad"),
    "Adadelta": (torch.optim.Adadelta, {}, r"torch\.optim\.Adadelta"),
    "ASGD": (torch.optim.ASGD, {}, r"torch\.optim\.ASGD"),
    "Rprop": (torch.optim.Rprop, {}, r"torch\.optim\.Rprop"),
    "Adamax": (torch.optim.Adamax, {}, r"torch\.optim\.Adamax"),
    "Adafactor": (torch.optim.Adafactor, {}, r"torch\.optim\.Adafactor"),
    "AMSGrad": (torch.optim.AdamW, {"amsgrad": True}, r"amsgrad=True"),
}


@pytest.mark.parametrize("name", THEIRS)
def test_what_no_converter_reads_is_not_sent_to_one(name):
    kind, options, what = THEIRS[name]
    file = stepped(kind, **options).state_dict()
    for reader in ("adaxw", "adam", "sgdm"):
        optimizer = fresh(reader)
        before = snapshot(optimizer)
        with pytest.raises(ValueError, match=rf"checkpoint of .*{what}.*cannot continue") as caught:
            optimizer.load_state_dict(file)
        assert "load_" not in str(caught.value)
        assert same(snapshot(optimizer), before)
    with pytest.raises(ValueError, match=what):
        load_adamw_state_dict(stepped(AdaXW), file)


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_torchs_adam_is_sent_to_its_converter_by_those_that_it_serves(kind):
    file = stepped(kind).state_dict()
    for name in set(METHODS) - {"adam", "adamw"}:  # these load it: test_adam.py
        with pytest.raises(ValueError, match="checkpoint of torch") as caught:
            fresh(name).load_state_dict(file)
        assert ("load_adamw_state_dict" in str(caught.value)) == (CLASSES[name] in (AdaX, AdaXW, Padax))


def test_a_file_that_is_no_optimizers():
    for file in ({"state": [], "param_groups": []}, {"state": {}, "param_groups": {}}):
        with pytest.raises(ValueError, match="not an optimizer's"):
            stepped(AdaXW).load_state_dict(file)


# -- values that no step can have written ----------------------------------------------------------------------------

NAN, INF = float("nan"), float("inf")
TIMES = [NAN, INF, -INF, -5, -5.0, 0.5, 1e-3, True, 1j, "7", None, [1, 2]]
TIMES += [torch.tensor(t) for t in (NAN, INF, -5, 0.5, 1j, True)] + [
    torch.ones(2),
    torch.ones(()).to_sparse(),
]
MOMENTS = [
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
    torch.complex64,
    torch.complex128,
    torch.float8_e5m2,
]


def refused(optimizer, file, match):
    before = snapshot(optimizer)
    with pytest.raises(ValueError, match=match):
        optimizer.load_state_dict(file)
    assert same(snapshot(optimizer), before)


@pytest.mark.parametrize("value", TIMES, ids=str)
@pytest.mark.parametrize("name", ["adaxw", "sgdm"])
def test_a_step_that_is_no_count(name, value):
    optimizer = fresh(name)
    file = optimizer.state_dict()
    file["state"][1] = {**file["state"][1], "step": value}
    refused(optimizer, file, "parameter 1 has 'step'")


@pytest.mark.parametrize("value", [NAN, -1.0, 0.5, INF])
def test_a_row_step_that_is_no_count(value):
    optimizer = stepped(AdaXW)
    file = optimizer.state_dict()
    file["state"][0] = {**file["state"][0], "row_step": torch.tensor([3.0, value])}
    refused(optimizer, file, "'row_step'")
    file["state"][0]["row_step"] = torch.tensor([3, 4])
    optimizer.load_state_dict(file)
    assert optimizer.state[optimizer.param_groups[0]["params"][0]]["row_step"].dtype == torch.float64


@pytest.mark.parametrize("dtype", MOMENTS, ids=str)
@pytest.mark.parametrize(
    ("name", "key"),
    [("adaxw", "exp_avg_sq"), ("adaxw", "exp_avg"), ("amsgrad", "max_exp_avg_sq"), ("adashift", "window")],
)
def test_a_moment_of_another_kind_of_number(name, key, dtype):
    optimizer = fresh(name)
    file = optimizer.state_dict()
    file["state"][1] = {**file["state"][1], key: file["state"][1][key].to(dtype)}
    alone = dtype == torch.uint8 and key != "window"  # codes of 8-bit state, without what belongs to them
    refused(
        optimizer,
        file,
        f"parameter 1 has only \\['{key}'\\] in 8 bits: must be all moments or none"
        if alone
        else f"parameter 1 has '{key}' of {dtype}.*must be a dense floating point tensor",
    )


def test_moments_that_are_no_dense_tensors():
    for value in (1.0, None, [1.0] * 4, torch.ones(4).to_sparse()):
        optimizer = stepped(AdaXW)
        file = optimizer.state_dict()
        file["state"][1] = {**file["state"][1], "exp_avg_sq": value}
        refused(optimizer, file, "'exp_avg_sq' of .*must be a dense floating point tensor")


def test_complex_parameters_have_complex_moments():
    optimizer = AdaXW([torch.nn.Parameter(torch.ones(2, dtype=torch.complex64))])
    optimizer.param_groups[0]["params"][0].grad = torch.ones(2, dtype=torch.complex64)
    optimizer.step()
    file = saved_and_read(optimizer)
    optimizer.load_state_dict(file)
    file["state"][0]["exp_avg_sq"] = torch.ones(2)
    refused(optimizer, file, "'exp_avg_sq' of torch.float32.*must be a dense complex tensor")


@pytest.mark.parametrize("load", ["own", "adamw"])
def test_under_a_default_device_of_meta(load):
    adam, ours = stepped(torch.optim.AdamW), stepped(AdaXW)
    file = ours.state_dict()
    file["state"][0]["step"] = 7
    torch.set_default_device("meta")
    try:
        if load == "own":
            ours.load_state_dict(file)
        else:
            load_adamw_state_dict(ours, adam.state_dict())
    finally:
        torch.set_default_device(None)
    entry = next(iter(ours.state.values()))
    assert {t.device.type for t in entry.values()} == {"cpu"}
    assert entry["step"].item() == (7 if load == "own" else 1)


@pytest.mark.parametrize(
    "change", [{"step": NAN}, {"step": -5}, {"step": 0.5}, {"exp_avg_sq": torch.ones(4).int()}]
)
def test_the_converter_refuses_the_same(change):
    optimizer, file = stepped(AdaXW), stepped(torch.optim.AdamW).state_dict()
    file["state"][1].update(change)
    before = snapshot(optimizer)
    with pytest.raises(ValueError, match=f"parameter 1 has '{next(iter(change))}'"):
        load_adamw_state_dict(optimizer, file)
    assert same(snapshot(optimizer), before)


def test_a_model_on_meta_takes_a_converted_checkpoint():
    file = stepped(torch.optim.AdamW).state_dict()
    optimizer = AdaXW([torch.nn.Parameter(torch.ones(s, device="meta")) for s in ((2, 3), (4,))])
    load_adamw_state_dict(optimizer, file)
    assert all(e["exp_avg_sq"].is_meta and e["step"].item() == 1 for e in optimizer.state.values())
    for entry in file["state"].values():
        entry["step"] = entry["step"].to("meta")
    with pytest.raises(ValueError, match=r"'step' without a value.*map_location"):
        load_adamw_state_dict(optimizer, file)
