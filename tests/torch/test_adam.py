"""`adaxopt.Adam` and `adaxopt.AdamW` in place of torch's: signatures, torch's own table of inputs, checkpoints."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest
import torch
from torch.testing._internal.common_optimizers import optim_db

import adaxopt
from runner import BACKENDS, Problem, drive, relative, same, saved_and_read, snapshot, split

STEPS = 30
PROBLEM = Problem(18, 2 * STEPS, seed=4)
PAIRS = {"Adam": (adaxopt.Adam, torch.optim.Adam), "AdamW": (adaxopt.AdamW, torch.optim.AdamW)}
each_pair = pytest.mark.parametrize(("ours", "theirs"), PAIRS.values(), ids=PAIRS)
DOUBLE = {"lr": 0.003, "betas": (0.8, 0.97), "eps": 1e-6, "weight_decay": 0.05}


@each_pair
def test_the_signature_is_torchs(ours, theirs):
    mine, other = (inspect.signature(kind.__init__).parameters for kind in (ours, theirs))
    for name, parameter in other.items():
        assert (mine[name].default, mine[name].kind) == (parameter.default, parameter.kind), name
    assert list(mine)[: len(other)] == list(other) or set(other) < set(mine)
    positional = [p.name for p in other.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert [p.name for p in mine.values() if p.kind is p.POSITIONAL_OR_KEYWORD] == positional


def torchs_inputs():
    """Every row of torch's own table of optimizer inputs, those for GPUs too: kwargs, as torch writes them."""
    for info in optim_db:
        if info.optim_cls in (torch.optim.Adam, torch.optim.AdamW):
            for given in info.optim_inputs_func(device="cuda"):
                yield pytest.param(
                    info.optim_cls.__name__, given.kwargs, id=f"{info.optim_cls.__name__}-{given.desc}"
                )


def widened(kwargs, capturable):
    """Tensors among the options in float64; torch's capturable step is not for CPUs."""
    kwargs = {k: v.double() if isinstance(v, torch.Tensor) else v for k, v in kwargs.items()}
    if "betas" in kwargs:
        kwargs["betas"] = tuple(b.double() if isinstance(b, torch.Tensor) else b for b in kwargs["betas"])
    if not capturable:
        kwargs.pop("capturable", None)
    return kwargs


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("name", "kwargs"), list(torchs_inputs()))
def test_torchs_table_of_inputs_in_float64(name, kwargs, backend):
    ours, theirs = PAIRS[name]
    params, others = split(PROBLEM.start), split(PROBLEM.start)
    asked = {**widened(kwargs, True), **BACKENDS[backend]}
    if backend == "fused":
        asked.pop("capturable", None)
    got = drive(ours(params, **asked), params, PROBLEM, STEPS)
    wanted = drive(theirs(others, **widened(kwargs, False), foreach=False), others, PROBLEM, STEPS)
    assert relative(got, wanted) < 1e-12


@pytest.mark.parametrize(("name", "kwargs"), list(torchs_inputs()))
def test_a_differentiable_step_and_complex_parameters(name, kwargs):
    ours, theirs = PAIRS[name]
    kwargs = widened(kwargs, False)
    found = []
    for kind, more in ((ours, {"differentiable": True}), (ours, {}), (theirs, {"foreach": False})):
        generator = torch.Generator().manual_seed(0)
        p = torch.randn(5, dtype=torch.complex128, generator=generator).requires_grad_() * 1.0
        if "differentiable" not in more:
            p = p.detach().requires_grad_()
        optimizer = kind([p], **kwargs, **more)
        for _ in range(4):
            p.grad = torch.randn(5, dtype=torch.complex128, generator=generator)
            optimizer.step()
        found.append(torch.view_as_real(p.detach()).reshape(-1).numpy())
    assert relative(found[0], found[2]) < 1e-12
    assert relative(found[1], found[2]) < 1e-12


def torchs_errors():
    for info in optim_db:
        if info.optim_cls in (torch.optim.Adam, torch.optim.AdamW):
            for wrong in info.optim_error_inputs_func(device="cpu", dtype=torch.float32):
                given = wrong.optimizer_error_input
                if any(
                    isinstance(v, torch.Tensor)
                    for v in (given.kwargs.get("lr"), *given.kwargs.get("betas", ()))
                ):
                    continue  # tensors beside floats and under foreach are served here
                yield pytest.param(
                    info.optim_cls.__name__,
                    given,
                    wrong.error_type,
                    id=f"{info.optim_cls.__name__}-{given.desc}",
                )


@pytest.mark.parametrize(("name", "given", "error"), list(torchs_errors()))
def test_what_torch_refuses_is_refused(name, given, error):
    params = [torch.nn.Parameter(torch.ones(2))] if given.params is None else given.params
    if error is UserWarning:
        with pytest.warns(UserWarning, match="duplicate parameters"):
            PAIRS[name][0](params, **given.kwargs)
    else:
        with pytest.raises(error):
            PAIRS[name][0](params, **given.kwargs)


@pytest.mark.parametrize("amsgrad", [False, True])
@each_pair
def test_a_checkpoint_of_torchs_is_continued_as_torch_would(ours, theirs, amsgrad):
    """And back: what ours writes for torch, torch continues."""
    params, others = split(PROBLEM.start), split(PROBLEM.start)
    options = {**DOUBLE, "amsgrad": amsgrad}
    reference = theirs(others, **options, foreach=False)
    drive(reference, others, PROBLEM, STEPS)
    file = saved_and_read(reference)
    wanted = drive(reference, others, PROBLEM, STEPS, first=STEPS + 1)

    start = split(drive(theirs(params, **options, foreach=False), params, PROBLEM, STEPS))
    optimizer = ours(start, amsgrad=amsgrad)
    optimizer.load_state_dict(file)
    group = optimizer.param_groups[0]
    assert {k: group[k] for k in DOUBLE} == DOUBLE
    middle = optimizer.to_torch_state_dict()
    assert relative(drive(optimizer, start, PROBLEM, STEPS, first=STEPS + 1), wanted) < 1e-12

    again = split(torch.cat([p.detach().reshape(-1) for p in params]))
    torchs = theirs(again, amsgrad=amsgrad, foreach=False)
    torchs.load_state_dict(middle)
    assert torchs.param_groups[0].keys() == reference.param_groups[0].keys() | {"decoupled_weight_decay"}
    assert {k: torchs.param_groups[0][k] for k in DOUBLE} == DOUBLE
    assert relative(drive(torchs, again, PROBLEM, STEPS, first=STEPS + 1), wanted) < 1e-12
    for p in again:
        assert set(torchs.state[p]) == set(reference.state[others[0]])
        assert torchs.state[p]["step"].dtype == torch.float32


@each_pair
def test_what_a_scheduler_keeps_in_a_group_goes_both_ways(ours, theirs):
    p, q = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    reference = theirs([("w", p)], lr=0.5)
    torch.optim.lr_scheduler.StepLR(reference, 1)
    optimizer = ours([("w", q)])
    optimizer.load_state_dict(reference.state_dict())
    assert (optimizer.param_groups[0]["initial_lr"], optimizer.param_groups[0]["lr"]) == (0.5, 0.5)
    back = optimizer.to_torch_state_dict()["param_groups"][0]
    decoupled = {"decoupled_weight_decay": theirs is torch.optim.AdamW}  # torch 2.6 does not write it
    assert back == {**reference.state_dict()["param_groups"][0], **decoupled}


def test_16_bit_state_of_torchs_becomes_float32():
    p = torch.nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    reference = torch.optim.AdamW([p])
    p.grad = torch.ones_like(p)
    reference.step()
    optimizer = adaxopt.AdamW([p])
    optimizer.load_state_dict(reference.state_dict())
    assert optimizer.state[p]["exp_avg_sq"].dtype == torch.float32
    assert optimizer.state[p]["exp_avg_sq"].tolist() == pytest.approx([1.0] * 4, rel=1e-2)


def as_before_1_11(file, **more):
    """A checkpoint of torch 1.10 or older: five options, and steps that are ints."""
    kept = ("params", "lr", "betas", "eps", "weight_decay", "amsgrad")
    return {
        "state": {name: {**entry, "step": int(entry["step"])} for name, entry in file["state"].items()},
        "param_groups": [{**{k: group[k] for k in kept}, **more} for group in file["param_groups"]],
    }


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("more", [{}, {"initial_lr": 0.1}], ids=str)
@each_pair
def test_checkpoints_of_old_releases_of_torch(ours, theirs, amsgrad, more):
    params = split(PROBLEM.start)
    reference = theirs(params, amsgrad=amsgrad, **DOUBLE)
    drive(reference, params, PROBLEM, STEPS)
    expected, got = (ours(split(PROBLEM.start), amsgrad=amsgrad) for _ in range(2))
    expected.load_state_dict(reference.state_dict())
    got.load_state_dict(as_before_1_11(reference.state_dict(), **more))
    assert same(snapshot(got)["state"], snapshot(expected)["state"])
    assert {k: got.param_groups[0][k] for k in DOUBLE} == DOUBLE


@pytest.mark.parametrize(
    ("lacks", "more"), [((), {"beta3": 0.999}), (("amsgrad",), {"correct_bias": True}), (("amsgrad",), {})]
)
def test_a_checkpoint_of_unknown_origin_is_called_unknown(lacks, more):
    file = as_before_1_11(stepped(torch.optim.AdamW(two())).state_dict(), **more)
    for key in lacks:
        del file["param_groups"][0][key]
    with pytest.raises(ValueError, match="it is not known how its second moment is scaled"):
        adaxopt.AdamW(two()).load_state_dict(file)


def test_our_own_checkpoints_and_amsgrad():
    for options in ({}, {"amsgrad": True}):
        params = split(PROBLEM.start)
        optimizer = adaxopt.AdamW(params, **options)
        drive(optimizer, params, PROBLEM, 3)
        other = adaxopt.AdamW(split(PROBLEM.start), **options)
        other.load_state_dict(saved_and_read(optimizer))
        assert same(snapshot(other)["state"], snapshot(optimizer)["state"])
        assert ("max_exp_avg_sq" in optimizer.state[params[0]]) == bool(options)
    with pytest.raises(ValueError, match="method 'amsgradw'"):
        adaxopt.AdamW(split(PROBLEM.start)).load_state_dict(optimizer.state_dict())


def stepped(optimizer, sparse=False):
    for p in optimizer.param_groups[0]["params"]:
        p.grad = torch.ones_like(p)
        if sparse:
            p.grad = p.grad.to_sparse(1)
    optimizer.step()
    return optimizer


def two():
    return [torch.nn.Parameter(torch.ones(3, 2, dtype=torch.float64))]


REFUSED = [
    (
        lambda: adaxopt.AdamW(two(), memory=adaxopt.LogTime(8), betas=(0.9, 0.99)),
        "a memory has its own number",
    ),
    (lambda: adaxopt.AdamW([{"params": two(), "amsgrad": True}]), "amsgrad=True in a parameter group"),
    (lambda: adaxopt.AdamW(two(), nesterov=True), "AdamW: unknown argument 'nesterov'"),
    (
        lambda: adaxopt.AdamW(two()).load_state_dict(
            stepped(torch.optim.AdamW(two(), amsgrad=True)).state_dict()
        ),
        "; build AdamW with amsgrad=True",
    ),
    (
        lambda: adaxopt.Adam(two(), amsgrad=True).load_state_dict(
            stepped(torch.optim.Adam(two())).state_dict()
        ),
        "checkpoint of torch's Adam or AdamW: .*; build Adam with amsgrad=False",
    ),
    (
        lambda: adaxopt.AdamW(two(), amsgrad=True).load_state_dict(
            stepped(adaxopt.AdamW(two())).state_dict()
        ),
        "method 'adamw'.*; build AdamW with amsgrad=False",
    ),
    (
        lambda: adaxopt.AdamW(two()).load_state_dict(
            stepped(adaxopt.AdamW(two(), amsgrad=True)).state_dict()
        ),
        "method 'amsgradw'.*; build AdamW with amsgrad=True",
    ),
    (
        lambda: adaxopt.AdamW(two()).load_state_dict(stepped(adaxopt.AdaXW(two())).state_dict()),
        "method 'adaxw'.*; load it into the class that wrote it",
    ),
    (
        lambda: adaxopt.AdamW(two(), amsgrad=True, memory=adaxopt.LogTime(8)),
        r"amsgrad=True, memory=LogTime\(8\): .*give one of the two",
    ),
    (lambda: adaxopt.AdamW(two(), amsgard=True), "did you mean 'amsgrad'.* Allowed are amsgrad, "),
    (lambda: adaxopt.Adam(two(), ams_grad=True), "did you mean 'amsgrad'"),
    (lambda: adaxopt.AdamW(two(), correct_bias=False), "the method determines the bias correction"),
    (lambda: adaxopt.AdamW(two(), total_steps=10), "an option of AdaX, AdaXW and Padax"),
    (lambda: adaxopt.AdamW(two(), p=0.25), "unknown argument 'p': use adaxopt.Padax"),
    (lambda: adaxopt.AdamW([{"params": two(), "p": 0.25}]), "p=0.25 in a parameter group of AdamW"),
    (lambda: adaxopt.Adam(two(), eps_placement="plain"), "unknown argument 'eps_placement'"),
    pytest.param(
        lambda: adaxopt.Adam(two()).load_state_dict(torch.optim.AdamW(two()).state_dict()),
        "decoupled_weight_decay=True",
        marks=pytest.mark.skipif(
            "decoupled_weight_decay" not in torch.optim.AdamW(two()).defaults,
            reason="this torch does not write it",
        ),
    ),
    (lambda: stepped(adaxopt.AdamW(two()), sparse=True).to_torch_state_dict(), "has had sparse gradients"),
    (
        lambda: adaxopt.AdamW(two(), memory=adaxopt.Equal()).to_torch_state_dict(),
        "cannot store memory='equal'",
    ),
    (
        lambda: adaxopt.AdamW(two(), decay="fully_decoupled").to_torch_state_dict(),
        "store decay='fully_decoupled'",
    ),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_what_is_refused(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_the_options_of_this_package():
    """16-bit state and parameters, other memories, decay forms: by keyword, as everywhere here."""
    p = torch.nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    optimizer = stepped(adaxopt.AdamW([p], rounding="kahan", state_dtype=torch.bfloat16))
    assert optimizer.state[p]["exp_avg"].dtype == torch.bfloat16
    assert "compensation" in optimizer.state[p]
    q = two()
    assert adaxopt.AdamW(q, memory=adaxopt.LogTime(8)).param_groups[0]["betas"] == (0.9, 8)
    assert adaxopt.Adam(q, decoupled_weight_decay=True).param_groups[0]["decay"] == "decoupled"
    with pytest.raises(ValueError, match="decay=None"):
        adaxopt.AdamW(q, decay=None)
    assert type(adaxopt.create("adamw", q)) is adaxopt.AdamW


@each_pair
@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))], ids=["deepcopy", "pickle"]
)
def test_a_copy_of_amsgrad_continues_as_amsgrad(ours, theirs, copied):
    ends = []
    for kind in (ours, theirs):
        optimizer = kind([torch.nn.Parameter(torch.ones(3, dtype=torch.float64))], lr=0.1, amsgrad=True)
        for t in range(8):
            if t == 4:
                optimizer = copied(optimizer)
            (p,) = optimizer.param_groups[0]["params"]
            p.grad = torch.tensor([5.0, 1.0, -2.0], dtype=torch.float64) / (1 + t)
            optimizer.step()
        ends.append(p.detach())
    assert relative(*ends) < 1e-12
