"""Checkpoints: state comes back bit for bit."""

from __future__ import annotations

import copy

import pytest
import torch

from adaxopt import (
    AdamW,
    AdaXW,
    create,
    float32_weights,
    load_adamw_state_dict,
)
from adaxopt.zoo import METHODS
from runner import BACKENDS, FUSES, Problem, drive, same, saved_and_read, snapshot, split, stepped

SIZE = 18


MODES = {
    "float32": (torch.float32, {}),
    "float64": (torch.float64, {}),
    "bfloat16": (torch.bfloat16, {}),
    "bfloat16 stochastic": (torch.bfloat16, {"rounding": "stochastic", "seed": 5}),
    "bfloat16 kahan": (torch.bfloat16, {"rounding": "kahan"}),
    "float16 kahan": (torch.float16, {"rounding": "kahan"}),
    "bfloat16 state": (torch.float32, {"state_dtype": torch.bfloat16, "seed": 3}),
    "all bfloat16": (torch.bfloat16, {"state_dtype": torch.bfloat16, "rounding": "stochastic"}),
    "float64 state": (torch.float32, {"state_dtype": torch.float64}),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", METHODS)
def test_resuming_is_bit_exact(name, mode):
    dtype, options = MODES[mode]
    problem = Problem(SIZE, 40, seed=1)
    params = split(problem.start, dtype=dtype)
    optimizer = create(name, params, lr=0.01, **options)
    drive(optimizer, params, problem, 17)
    file = saved_and_read(optimizer)
    again = [torch.nn.Parameter(p.detach().clone()) for p in params]
    resumed = create(name, again, lr=0.5)  # hyper-parameters come from the file
    resumed.load_state_dict(file)
    assert same(snapshot(resumed), snapshot(optimizer))
    drive(optimizer, params, problem, 12, first=18)
    drive(resumed, again, problem, 12, first=18)
    assert same(snapshot(resumed), snapshot(optimizer))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["adax", "adaxw", "padax", "adam", "amsgrad", "adashift"])
def test_resuming_is_bit_exact_on_every_backend(name, backend):
    if backend == "fused" and name not in FUSES:
        backend = "default"
    problem = Problem(SIZE, 30, seed=2)
    params = split(problem.start, dtype=torch.float32)
    optimizer = create(name, params, **BACKENDS[backend])
    drive(optimizer, params, problem, 9)
    again = [torch.nn.Parameter(p.detach().clone()) for p in params]
    resumed = create(name, again)
    resumed.load_state_dict(saved_and_read(optimizer))
    drive(optimizer, params, problem, 9, first=10)
    drive(resumed, again, problem, 9, first=10)
    assert same(snapshot(resumed), snapshot(optimizer))


def test_fully_decoupled_decay_remembers_the_first_lr():
    """Decay is measured against the lr that training began with, also after a resume under another one."""
    p, q = (torch.nn.Parameter(torch.ones(2, dtype=torch.float64)) for _ in range(2))
    options = {"weight_decay": 0.1, "decay": "fully_decoupled"}
    optimizer, resumed = AdaXW([p], lr=0.1, **options), AdaXW([q], lr=7.0, **options)
    optimizer.param_groups[0]["lr"] = 0.05  # as a schedule does
    p.grad = torch.zeros(2, dtype=torch.float64)
    optimizer.step()
    assert p.tolist() == [0.95, 0.95]
    resumed.load_state_dict(saved_and_read(optimizer))
    q.grad = torch.zeros(2, dtype=torch.float64)
    resumed.step()
    assert q.tolist() == [0.95, 0.95]


def test_resuming_sparse_rows():
    def gradient(t):
        index = torch.tensor([[t % 3, 3]])
        return torch.sparse_coo_tensor(index, torch.randn(2, 2), (4, 2), check_invariants=True)

    p = torch.nn.Parameter(torch.ones(4, 2))
    optimizer = AdaXW([p])
    for t in range(5):
        p.grad = gradient(t)
        optimizer.step()
    q = torch.nn.Parameter(p.detach().clone())
    resumed = AdaXW([q])
    resumed.load_state_dict(saved_and_read(optimizer))
    assert resumed.state[q]["row_step"].dtype == torch.float64
    for t in range(5, 9):
        p.grad = q.grad = gradient(t)
        optimizer.step()
        resumed.step()
    assert same(snapshot(resumed), snapshot(optimizer))


def test_inactive_coordinates_are_found_after_every_load():
    """A coordinate that is inactive until the checkpoint is guarded after it."""
    p = torch.nn.Parameter(torch.zeros(2))
    optimizer = AdaXW([p], lr=1.0, weight_decay=0.0)
    p.grad = torch.tensor([0.0, 1.0])
    optimizer.step()
    saved = optimizer.state_dict()
    saved["state"][0]["step"] = torch.tensor(100_000.0, dtype=torch.float64)
    q = torch.nn.Parameter(torch.zeros(2))
    resumed = AdaXW([q], lr=1.0, weight_decay=0.0)
    for _ in range(3):  # it has looked, and found nobody
        q.grad = torch.ones(2)
        resumed.step()
    resumed.load_state_dict(saved)
    q.detach().zero_()
    q.grad = torch.tensor([5.0, 1.0])
    resumed.step()
    assert q[0].item() == pytest.approx(-0.1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_state_keeps_its_own_dtype(dtype):
    """torch casts it to the parameter's."""
    p = torch.nn.Parameter(torch.ones(3, dtype=dtype))
    optimizer = AdaXW([p], rounding="kahan")
    p.grad = torch.full((3,), 0.1, dtype=dtype)
    optimizer.step()
    other = AdaXW([torch.nn.Parameter(torch.ones(3, dtype=dtype))])
    other.load_state_dict(saved_and_read(optimizer))
    entry = next(iter(other.state.values()))
    found = {key: value.dtype for key, value in entry.items()}
    assert found == {
        "step": torch.float64,
        "exp_avg": torch.float32,
        "exp_avg_sq": torch.float32,
        "compensation": dtype,
    }
    theirs = torch.optim.AdamW([torch.nn.Parameter(torch.ones(3, dtype=dtype))])
    theirs.load_state_dict(copy.deepcopy(theirs.state_dict()) | {"state": {0: dict(entry)}})
    assert next(iter(theirs.state.values()))["exp_avg"].dtype == dtype  # what is being avoided


@pytest.mark.parametrize("default", [torch.float64, torch.bfloat16, torch.float16])
def test_the_counter_under_any_default_dtype(default):
    torch.set_default_dtype(default)  # put back by conftest
    p = torch.nn.Parameter(torch.ones(2, dtype=torch.float32))
    optimizer = AdaXW([p])
    for _ in range(300):  # bfloat16 counts to 256
        p.grad = torch.ones(2, dtype=torch.float32)
        optimizer.step()
    assert optimizer.state[p]["step"].dtype == torch.float64
    assert float(optimizer.state[p]["step"]) == 300
    other = AdaXW([torch.nn.Parameter(torch.ones(2, dtype=torch.float32))])
    other.load_state_dict(saved_and_read(optimizer))
    assert next(iter(other.state.values()))["step"].dtype == torch.float64


def test_a_counter_saved_as_a_number_or_in_another_dtype():
    for step in (7, 7.0, torch.tensor(7), torch.tensor(7.0), torch.tensor(7, dtype=torch.int64)):
        optimizer = AdaXW([torch.nn.Parameter(torch.ones(2))])
        saved = optimizer.state_dict()
        saved["state"] = {0: {"step": step, "exp_avg": torch.zeros(2), "exp_avg_sq": torch.ones(2)}}
        optimizer.load_state_dict(saved)
        entry = next(iter(optimizer.state.values()))
        assert entry["step"].dtype == torch.float64
        assert float(entry["step"]) == 7


def test_plain_tensors_and_numbers_only():
    p = torch.nn.Parameter(torch.ones(2))
    optimizer = AdaXW([p], lr=torch.tensor(0.1), state_dtype=torch.bfloat16, rounding="stochastic")
    p.grad = torch.ones(2)
    optimizer.step()
    saved = saved_and_read(optimizer, weights_only=True)
    plain = (int, float, str, bool, type(None), torch.Tensor, torch.dtype, tuple, list)
    for group in saved["param_groups"]:
        assert all(isinstance(value, plain) for value in group.values())
    assert (saved["param_groups"][0]["format"], saved["param_groups"][0]["method"]) == (2, "adaxw")


def test_moving_between_devices():
    """To a device without memory, since there is one everywhere: state follows the parameter, dtypes stay."""
    p = torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    optimizer = AdaXW([p])
    p.grad = torch.ones(3, dtype=torch.bfloat16)
    optimizer.step()
    q = torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16, device="meta"))
    other = AdaXW([q])
    other.load_state_dict(optimizer.state_dict())
    assert other.state[q]["exp_avg"].device.type == "meta"
    assert other.state[q]["exp_avg"].dtype == torch.float32
    assert other.state[q]["step"].device.type == "cpu"  # time stays on the host
    captured = AdaXW([q], capturable=True)
    saved = optimizer.state_dict()
    saved["param_groups"][0]["capturable"] = True
    captured.load_state_dict(saved)
    assert captured.state[q]["step"].device.type == "meta"  # unless a graph needs it there


def test_parameters_that_were_never_stepped():
    optimizer = AdaXW([torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(3))])
    first = optimizer.param_groups[0]["params"][0]
    first.grad = torch.ones(2)
    optimizer.step()
    other = AdaXW([torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(3))])
    other.load_state_dict(saved_and_read(optimizer))
    for p in other.param_groups[0]["params"]:
        p.grad = torch.ones_like(p)
    other.step()
    assert [float(other.state[p]["step"]) for p in other.param_groups[0]["params"]] == [2, 1]


@pytest.mark.parametrize("fused", [None, True])
def test_state_takes_its_parameter_s_memory_order(fused):
    """A checkpoint of a contiguous model, loaded into a channels_last one, leaves the fused path open: no warning."""
    ends = []
    for layout in (torch.contiguous_format, torch.channels_last):
        x = torch.linspace(-1, 1, 2 * 3 * 4 * 5).view(2, 3, 4, 5)
        p = torch.nn.Parameter(x.clone(memory_format=torch.contiguous_format))
        optimizer = AdaXW([p], fused=fused)
        p.grad = x.sin()
        optimizer.step()
        saved = optimizer.state_dict()
        p.data = p.data.to(memory_format=layout)
        optimizer = AdaXW([p], fused=fused)
        optimizer.load_state_dict(saved)
        entry = optimizer.state[p]
        assert entry["exp_avg"].stride() == entry["exp_avg_sq"].stride() == p.stride()
        if layout == torch.contiguous_format:
            assert entry["exp_avg"] is saved["state"][0]["exp_avg"]  # nothing to do, nothing copied
        for _ in range(3):
            p.grad = torch.empty_like(p).copy_(x.cos())
            optimizer.step()
        ends.append(p.detach().contiguous())
    assert torch.equal(*ends)


def test_a_hook_may_change_the_form_of_a_state_dict():
    optimizer = AdaXW([torch.nn.Parameter(torch.ones(2))])
    optimizer.register_state_dict_post_hook(lambda _, saved: {"inner": saved})
    optimizer.register_load_state_dict_pre_hook(lambda _, saved: saved["inner"])
    optimizer.load_state_dict(optimizer.state_dict())
    short = AdaXW([torch.nn.Parameter(torch.ones(2))])
    short.register_state_dict_post_hook(lambda _, saved: {**saved, "param_groups": [{"lr": 0.1}]})
    assert short.state_dict()["param_groups"] == [{"lr": 0.1}]


@pytest.mark.parametrize(("kind", "load"), [(AdamW, AdamW.load_state_dict), (AdaXW, load_adamw_state_dict)])
def test_a_conversion_does_not_call_the_hooks_of_state_dict(kind, load):
    theirs, p = stepped(torch.optim.AdamW), torch.nn.Parameter(torch.ones(2, 3))
    optimizer = kind([p, torch.nn.Parameter(torch.ones(4))])
    optimizer.register_state_dict_post_hook(lambda _, saved: {"inner": saved})
    load(optimizer, theirs.state_dict())
    assert torch.equal(optimizer.state[p]["exp_avg"], next(iter(theirs.state.values()))["exp_avg"])


def rows(n=3):
    """An embedding with sparse gradients, and its optimizer after some steps."""
    table = torch.nn.Embedding(6, 2, sparse=True)
    optimizer = AdaXW(table.parameters(), lr=1e-2)
    for t in range(n):
        optimizer.zero_grad()
        table(torch.tensor([0, t])).sum().backward()
        optimizer.step()
    return table, optimizer


def test_step_counts_per_row_that_were_dropped_are_missed():
    """As after `dcp.load` into an optimizer that has had no sparse gradient."""
    _, optimizer = rows()
    saved = optimizer.state_dict()
    assert (saved["param_groups"][0]["format"], optimizer.param_groups[0]["format"]) == (3, 2)
    table, other = rows(0)
    other.load_state_dict(saved)
    assert other.state[table.weight]["row_step"].tolist() == [3, 1, 1, 0, 0, 0]
    assert other.param_groups[0]["format"] == 2
    del saved["state"][0]["row_step"]
    table, other = rows(0)
    with pytest.raises(ValueError, match="take one step with sparse gradients before dcp"):
        other.load_state_dict(saved)
    assert not other.state


def test_a_file_with_rows_of_the_former_format_loads():
    _, optimizer = rows()
    saved = optimizer.state_dict()
    saved["param_groups"][0]["format"] = 2
    table, other = rows(0)
    other.load_state_dict(saved)
    assert "row_step" in other.state[table.weight]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.uint8])
def test_a_checkpoint_of_torch_is_read_in_the_dtype_that_was_asked_for(dtype):
    p = torch.nn.Parameter(torch.ones(64))
    theirs = torch.optim.AdamW([p])
    p.grad = torch.linspace(-1, 2, 64)
    theirs.step()
    mine = AdamW([p], state_dtype=dtype)
    mine.load_state_dict(theirs.state_dict())
    kept = mine.state[p]["exp_avg_sq"].dtype
    assert kept == dtype if dtype != torch.uint8 else kept in (torch.uint8, torch.int8)


@pytest.mark.parametrize(("saved", "built"), [("24bit", "kahan"), ("kahan", "24bit")])
def test_a_compensation_of_the_other_form_is_dropped(saved, built):
    """`dcp.load` reads the numbers into the dtype that the new optimizer's state has."""

    def stepped(rounding):
        p = torch.nn.Parameter(torch.linspace(-1, 1, 64).bfloat16())
        optimizer = AdaXW([p], lr=1e-3, rounding=rounding)
        p.grad = torch.ones_like(p)
        optimizer.step()
        return p, optimizer

    _, optimizer = stepped(saved)
    _, other = stepped(built)
    file, dtype = optimizer.state_dict(), other.state_dict()["state"][0]["compensation"].dtype
    file["state"][0]["compensation"] = file["state"][0]["compensation"].to(dtype)
    p, fresh = stepped(built)
    fresh.load_state_dict(file)
    assert "compensation" not in fresh.state[p]
    assert torch.equal(float32_weights(fresh)[p], p.detach().float())
    fresh.step()
    assert fresh.state[p]["compensation"].dtype == (torch.int8 if saved == "24bit" else torch.bfloat16)
