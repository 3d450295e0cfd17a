"""Checkpoints: state comes back bit for bit, foreign state is converted or refused, and a refusal changes nothing."""

from __future__ import annotations

import copy
import io

import numpy as np
import pytest
import torch

import oracles
from adaxopt import AdaX, AdaXW, Padax, create, load_adamw_state_dict, load_released_state_dict
from adaxopt.zoo import METHODS
from runner import BACKENDS, FUSES, Problem, drive, relative, same, snapshot, split

SIZE = 18


def saved_and_read(optimizer, weights_only=True):
    """Through a file, as a user does it."""
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    return torch.load(file, weights_only=weights_only)


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


def test_sleepers_are_looked_for_after_every_load():
    """A coordinate that has slept until the checkpoint is guarded after it."""
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
    assert saved["param_groups"][0]["format"] == 1


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


# -- refusals ----------------------------------------------------------------------------------------------------


def stepped(kind=AdaXW, shapes=((2, 3), (4,)), groups=1, **options):
    params = [torch.nn.Parameter(torch.ones(s)) for s in shapes]
    given = params if groups == 1 else [{"params": [p]} for p in params]
    optimizer = kind(given, **options)
    for p in params:
        p.grad = torch.ones_like(p) * 0.3
    optimizer.step()
    return optimizer


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


REFUSED = [
    ("newer format", lambda: newer(stepped().state_dict()), r"format 99.*reads up to 1"),
    ("torch's AdamW", lambda: stepped(torch.optim.AdamW).state_dict(), r"load_adamw_state_dict"),
    ("torch's SGD", lambda: stepped(torch.optim.SGD).state_dict(), r"another optimizer"),
    ("the released code", lambda: released_state([1.0], 3)[1], r"groups|load_released_state_dict|parameters"),
    ("another memory", lambda: create_stepped("adam"), r"'fading' memory.*'growing'"),
    ("no memory", lambda: create_stepped("sgdm"), r"'none' memory.*'growing'"),
    ("more groups", lambda: stepped(groups=2).state_dict(), r"2 parameter groups.*has 1"),
    ("fewer parameters", lambda: stepped(shapes=((2, 3),)).state_dict(), r"has 1 parameters.*2"),
    ("other shapes", lambda: stepped(shapes=((2, 3), (5,))).state_dict(), r"'exp_avg'.*\(5,\).*\(4,\)"),
    ("transposed", lambda: stepped(shapes=((3, 2), (4,))).state_dict(), r"'exp_avg'.*\(3, 2\).*\(2, 3\)"),
    ("no exp_avg_sq", lambda: without("exp_avg_sq")(stepped().state_dict()), r"no 'exp_avg_sq'"),
    ("no step", lambda: without("step")(stepped().state_dict()), r"no 'step'"),
    (
        "rows of another shape",
        lambda: reshaped("row_step", (5,))(stepped().state_dict()),
        r"'row_step'.*\(5,\)",
    ),
    ("an empty dict", dict, r"param_groups"),
]


def create_stepped(name):
    return stepped(lambda params: create(name, params)).state_dict()


@pytest.mark.parametrize(("what", "make", "message"), REFUSED, ids=[row[0] for row in REFUSED])
def test_what_is_refused_leaves_everything_untouched(what, make, message):
    optimizer = stepped(lr=0.7)
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


# -- the released code -------------------------------------------------------------------------------------------


class Released:
    """The AdaX authors' optimizer as their paper's Algorithm 3 has it: an int step, a raw v, decay first."""

    def __init__(self, x, lr=5e-3, betas=(0.9, 1e-4), eps=1e-12, weight_decay=5e-2, decoupled=True):
        self.x = np.array(x, np.float64)
        self.lr, self.betas, self.eps = lr, betas, eps
        self.weight_decay, self.decoupled = weight_decay, decoupled
        self.t, self.m, self.v = 0, np.zeros_like(self.x), np.zeros_like(self.x)

    def step(self, g):
        b1, b2 = self.betas
        self.t += 1
        if self.decoupled:
            self.x = self.x * (1 - self.lr * self.weight_decay)
        else:
            g = g + self.weight_decay * self.x
        self.m = b1 * self.m + (1 - b1) * g
        self.v = (1 + b2) * self.v + b2 * g * g
        denominator = np.sqrt(self.v) + self.eps
        self.x = self.x - self.lr * np.sqrt((1 + b2) ** self.t - 1) * self.m / denominator

    def state_dict(self, dtype=torch.float64):
        entry = {
            "step": self.t,
            "exp_avg": torch.tensor(self.m, dtype=dtype),
            "exp_avg_sq": torch.tensor(self.v, dtype=dtype),
        }
        group = dict(lr=self.lr, betas=self.betas, eps=self.eps, weight_decay=self.weight_decay, params=[0])
        return {"state": {0: entry}, "param_groups": [group]}


def released_state(x, steps, seed=0, **options):
    code = Released(x, **options)
    random = np.random.default_rng(seed)
    for _ in range(steps):
        code.step(random.normal(size=len(x)))
    return code, code.state_dict()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("decoupled", [True, False])
def test_a_released_checkpoint_goes_on_as_it_would_have(decoupled, backend):
    start = np.linspace(-1, 1, 6)
    options = {"lr": 3e-3, "weight_decay": 0.04, "decoupled": decoupled, "eps": 1e-10, "betas": (0.8, 2e-4)}
    code, file = released_state(start, 500, **options)
    p = torch.nn.Parameter(torch.tensor(code.x))
    optimizer = (AdaXW if decoupled else AdaX)([p], wake=False, **BACKENDS[backend])
    load_released_state_dict(optimizer, file)
    group = optimizer.param_groups[0]
    assert (group["lr"], tuple(group["betas"]), group["eps"]) == (3e-3, (0.8, 2e-4), 1e-10)
    assert (group["weight_decay"], group["decay"]) == (0.04, "decoupled" if decoupled else "l2")
    assert bool(group["capturable"]) == (backend == "capturable")
    random = np.random.default_rng(1)
    for _ in range(100):
        g = random.normal(size=6)
        code.step(g)
        p.grad = torch.tensor(g)
        optimizer.step()
    assert relative(p.detach().numpy(), code.x) < 1e-11
    assert float(optimizer.state[p]["step"]) == 600


def test_released_checkpoints_are_the_oracles():
    """The class above, against Algorithm 3 as the oracles have it: two writings, one method."""
    random = np.random.default_rng(0)
    gs = random.normal(size=(50, 3))
    code = Released(np.ones(3))
    for g in gs:
        code.step(g)
    wanted = oracles.run(
        oracles.adax(), lambda t, x: gs[t - 1], np.ones(3), 50, lr=5e-3, weight_decay=5e-2, decay="decoupled"
    )
    assert relative(code.x, wanted) < 1e-12


def test_a_late_released_checkpoint():
    """Raw v of 1e38 at step 875,000: finite in float32, and its quotient is the v that it stands for."""
    p = torch.nn.Parameter(torch.zeros(2))
    t, b2 = 875_000, 1e-4
    raw = np.exp(t * np.log1p(b2)) * np.array([1.0, 0.25])
    file = Released(np.zeros(2)).state_dict(torch.float32)
    file["state"][0] |= {"step": t, "exp_avg_sq": torch.tensor(raw, dtype=torch.float32)}
    assert bool(torch.isfinite(file["state"][0]["exp_avg_sq"]).all())
    assert raw.max() > 1e37
    optimizer = AdaXW([p])
    load_released_state_dict(optimizer, file)
    torch.testing.assert_close(optimizer.state[p]["exp_avg_sq"], torch.tensor([1.0, 0.25]), rtol=1e-5, atol=0)


BROKEN = [
    ("overflowed", "exp_avg_sq", torch.tensor([1.0, float("inf")]), r"not finite at step 900000"),
    ("nan", "exp_avg_sq", torch.tensor([1.0, float("nan")]), r"not finite"),
    ("no first moment", "exp_avg", None, r"no 'exp_avg'"),
]


@pytest.mark.parametrize("load", [load_released_state_dict, load_adamw_state_dict])
@pytest.mark.parametrize(("what", "key", "value", "message"), BROKEN, ids=[row[0] for row in BROKEN])
def test_broken_checkpoints_are_refused_and_change_nothing(what, key, value, message, load):
    optimizer = stepped(shapes=((2,),))
    file = Released(np.zeros(2)).state_dict(torch.float32)
    file["state"][0]["step"] = 900_000
    if value is None:
        del file["state"][0][key]
    else:
        file["state"][0][key] = value
    before = snapshot(optimizer)
    with pytest.raises(ValueError, match=message):
        load(optimizer, file)
    assert same(snapshot(optimizer), before)


@pytest.mark.parametrize("load", [load_released_state_dict, load_adamw_state_dict])
def test_converters_refuse_what_is_not_theirs(load):
    optimizer = stepped()
    before = snapshot(optimizer)
    with pytest.raises(ValueError, match="adaxopt itself"):
        load(optimizer, optimizer.state_dict())
    with pytest.raises(ValueError, match="parameter groups"):
        load(optimizer, stepped(torch.optim.AdamW, groups=2).state_dict())
    with pytest.raises(ValueError, match="parameters"):
        load(optimizer, stepped(torch.optim.AdamW, shapes=((2, 3),)).state_dict())
    with pytest.raises(ValueError, match="shape"):
        load(optimizer, stepped(torch.optim.AdamW, shapes=((2, 3), (7,))).state_dict())
    with pytest.raises(ValueError, match="no 'betas'"):
        load(optimizer, stepped(torch.optim.RMSprop).state_dict())
    with pytest.raises(ValueError, match="no 'exp_avg_sq'"):
        load(optimizer, stepped(torch.optim.Adamax).state_dict())
    with pytest.raises(ValueError, match="without 'state'"):
        load(optimizer, {"model": {}})
    assert same(snapshot(optimizer), before)
    for name in ("adam", "sgdm", "nosadam"):
        with pytest.raises(TypeError, match="AdaX, AdaXW or Padax"):
            load(create(name, [torch.nn.Parameter(torch.ones(1))]), {"state": {}, "param_groups": []})


# -- torch's AdamW -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [AdaX, AdaXW, Padax])
@pytest.mark.parametrize("theirs", [torch.optim.Adam, torch.optim.AdamW])
def test_a_torch_checkpoint_converts(kind, theirs):
    """m and t as they are, v without Adam's bias; the hyper-parameters stay ours."""
    random = np.random.default_rng(3)
    p = torch.nn.Parameter(torch.zeros(4, dtype=torch.float64))
    adam = theirs([p], lr=0.3, betas=(0.8, 0.99), eps=1e-3)
    v = np.zeros(4)
    for _ in range(30):
        g = random.normal(size=4)
        v = 0.99 * v + 0.01 * g * g
        p.grad = torch.tensor(g)
        adam.step()
    optimizer = kind([p], lr=0.01)
    defaults = dict(optimizer.param_groups[0])
    load_adamw_state_dict(optimizer, adam.state_dict())
    entry = optimizer.state[p]
    assert relative(entry["exp_avg_sq"].numpy(), v / (1 - 0.99**30)) < 1e-12
    assert torch.equal(entry["exp_avg"], adam.state[p]["exp_avg"])
    assert float(entry["step"]) == 30
    assert {k: v for k, v in optimizer.param_groups[0].items() if k != "params"} == {
        k: v for k, v in defaults.items() if k != "params"
    }
    p.grad = torch.ones(4, dtype=torch.float64)
    optimizer.step()


def test_a_torch_checkpoint_with_amsgrad_is_refused():
    adam = stepped(lambda params: torch.optim.AdamW(params, amsgrad=True))
    optimizer = stepped()
    before = snapshot(optimizer)
    with pytest.raises(ValueError, match="amsgrad=True"):
        load_adamw_state_dict(optimizer, adam.state_dict())
    assert same(snapshot(optimizer), before)


def test_a_converted_checkpoint_can_be_saved_and_loaded():
    adam = stepped(torch.optim.AdamW)
    optimizer = stepped()
    load_adamw_state_dict(optimizer, adam.state_dict())
    other = stepped()
    other.load_state_dict(saved_and_read(optimizer))
    assert same(snapshot(other)["state"], snapshot(optimizer)["state"])


def test_a_low_precision_checkpoint_is_widened():
    params = [torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16))]
    adam = torch.optim.AdamW(params)
    params[0].grad = torch.full((3,), 0.5, dtype=torch.bfloat16)
    adam.step()
    optimizer = AdaXW(params)
    load_adamw_state_dict(optimizer, adam.state_dict())
    entry = optimizer.state[params[0]]
    assert entry["exp_avg"].dtype == entry["exp_avg_sq"].dtype == torch.float32
    torch.testing.assert_close(entry["exp_avg_sq"], torch.full((3,), 0.25), rtol=1e-2, atol=0)


# -- restart -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["adax", "adaxw", "padax"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_restart_memory(name, backend):
    """The next square replaces v; m goes on."""
    if backend == "fused" and name == "padax":
        backend = "default"
    p = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
    optimizer = create(name, [p], lr=1.0, weight_decay=0.0, **BACKENDS[backend])
    for _ in range(5):
        p.grad = torch.tensor([100.0, 100.0], dtype=torch.float64)
        optimizer.step()
    m = optimizer.state[p]["exp_avg"].clone()
    optimizer.restart_memory()
    p.detach().zero_()
    p.grad = torch.tensor([2.0, 3.0], dtype=torch.float64)
    optimizer.step()
    entry = optimizer.state[p]
    assert entry["exp_avg_sq"].tolist() == [4.0, 9.0]
    assert float(entry["step"]) == 1
    torch.testing.assert_close(entry["exp_avg"], 0.9 * m + 0.1 * p.grad)
    power = METHODS[name].defaults["p"]
    wanted = -entry["exp_avg"] / torch.tensor([4.0, 9.0], dtype=torch.float64) ** power
    torch.testing.assert_close(p.detach(), wanted, rtol=1e-9, atol=0)


@pytest.mark.parametrize("name", ["adam", "amsgrad", "adashift", "nosadam", "adagrad"])
def test_restart_of_the_others_is_a_fresh_start(name):
    """Methods that correct m by t forget m too."""
    problem = Problem(SIZE, 40, seed=4)
    used, fresh = split(problem.start), split(problem.start)
    first, second = create(name, used), create(name, fresh)
    drive(first, used, problem, 20)
    first.restart_memory()
    with torch.no_grad():
        for p, q in zip(used, fresh, strict=True):
            p.copy_(q)
    a, b = drive(first, used, problem, 15), drive(second, fresh, problem, 15)
    assert relative(a, b) < 1e-12


def test_restart_of_rows():
    p = torch.nn.Parameter(torch.ones(3, 1))
    optimizer = AdaXW([p])
    for _ in range(3):
        p.grad = torch.ones(3, 1).to_sparse(1)
        optimizer.step()
    optimizer.restart_memory()
    assert optimizer.state[p]["row_step"].tolist() == [0, 0, 0]
    p.grad = torch.full((3, 1), 5.0).to_sparse(1)
    optimizer.step()
    assert optimizer.state[p]["exp_avg_sq"].flatten().tolist() == [25.0] * 3
