"""Checkpoints of the released AdaX code and of torch's AdamW: converted or refused."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch

import adaxopt
import oracles
from adaxopt import (
    AdamW,
    AdaX,
    AdaXW,
    Fading,
    Growing,
    LogTime,
    Padax,
    Polynomial,
    create,
    load_adamw_state_dict,
    load_released_state_dict,
)
from runner import BACKENDS, relative, same, saved_and_read, snapshot, stepped

SIZE = 18


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
    optimizer = stepped(AdaXW, shapes=((2,),))
    file = Released(np.zeros(2)).state_dict(torch.float32)
    file["state"][0]["step"] = 900_000
    if load is load_adamw_state_dict:
        file["param_groups"][0]["betas"] = (0.9, 0.999)
    if value is None:
        del file["state"][0][key]
    else:
        file["state"][0][key] = value
    before = snapshot(optimizer)
    with pytest.raises(ValueError, match=message):
        load(optimizer, file)
    assert same(snapshot(optimizer), before)


def as_released(kind, **options):
    """What another optimizer of that form would have saved with the released code's options alone."""
    saved = stepped(kind, **options).state_dict()
    for group in saved["param_groups"]:
        kept = {k: group[k] for k in ("lr", "eps", "weight_decay", "params")}
        group.clear()
        group.update(kept, betas=(0.9, 1e-4))
    return saved


@pytest.mark.parametrize("load", [load_released_state_dict, load_adamw_state_dict])
def test_converters_refuse_what_is_not_theirs(load):
    def written(**options):
        theirs = torch.optim.AdamW
        return (
            as_released(theirs, **options)
            if load is load_released_state_dict
            else stepped(theirs, **options).state_dict()
        )

    optimizer = stepped(AdaXW)
    before = snapshot(optimizer)
    with pytest.raises(ValueError, match="adaxopt itself"):
        load(optimizer, optimizer.state_dict())
    with pytest.raises(ValueError, match="2 parameter groups"):
        load(optimizer, written(groups=2))
    with pytest.raises(ValueError, match=r"1 parameter group: .* has 2; build it with the same groups as"):
        load(stepped(AdaXW, groups=2), written())
    with pytest.raises(ValueError, match="parameters"):
        load(optimizer, written(shapes=((2, 3),)))
    with pytest.raises(ValueError, match="shape"):
        load(optimizer, written(shapes=((2, 3), (7,))))
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


MEMORIES = [Growing.over(10_000), LogTime(8), Polynomial(0.8).floor(1e-3), Fading(0.9).freeze(50)]


@pytest.mark.parametrize("memory", MEMORIES, ids=repr)
def test_a_memory_keeps_its_number_when_another_checkpoint_is_loaded(memory):
    """The checkpoint's b2 belongs to its own v; b1 and the rest are taken."""
    adam = stepped(lambda params: torch.optim.AdamW(params, lr=0.3, betas=(0.8, 0.99)))
    optimizer = stepped(lambda params: AdamW(params, memory=memory))
    optimizer.load_state_dict(adam.state_dict())
    (group,) = optimizer.param_groups
    assert (group["memory"], group["betas"], group["lr"]) == (memory.text, (0.8, memory.number), 0.3)
    released = stepped(lambda params: AdaXW(params, memory=memory))
    file = as_released(torch.optim.AdamW)
    load_released_state_dict(released, file)
    (group,) = released.param_groups
    assert (group["memory"], group["betas"][1]) == (memory.text, memory.number)
    assert group["lr"] == file["param_groups"][0]["lr"]
    t = float(next(iter(released.state.values()))["step"])
    assert released.stats()[0]["gain"] == pytest.approx(float(memory.k(t)), rel=1e-12)


def test_a_released_checkpoint_s_b2_is_not_that_of_a_run_length():
    optimizer = stepped(lambda params: AdaXW(params, total_steps=1000))
    file = as_released(torch.optim.AdamW)
    with pytest.warns(UserWarning, match="total_steps=1000: not used"):
        load_released_state_dict(optimizer, file)
    (group,) = optimizer.param_groups
    assert group["betas"][1] == file["param_groups"][0]["betas"][1]
    assert group["total_steps"] is None


@pytest.mark.parametrize("schedule", [None, "LambdaLR", "OneCycleLR"])
@pytest.mark.parametrize("kind", ["torch", "released"])
def test_fully_decoupled_decay_goes_on_as_decoupled_decay_did(kind, schedule):
    """A step without a gradient subtracts the checkpoint's wd*lr, whatever lr this optimizer was built with."""
    p = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
    wd = 0.05
    adam = torch.optim.AdamW([p], lr=1e-3, weight_decay=wd)
    if schedule == "LambdaLR":
        torch.optim.lr_scheduler.LambdaLR(adam, lambda _: 0.01)
    elif schedule == "OneCycleLR":
        torch.optim.lr_scheduler.OneCycleLR(adam, max_lr=1e-3, total_steps=10)
    p.grad = torch.zeros_like(p)
    adam.step()
    file, lr = adam.state_dict(), adam.param_groups[0]["lr"]
    p.data.fill_(1.0)
    if kind == "torch":
        optimizer = AdamW([p], lr=3e-4, weight_decay=1e-5, decay="fully_decoupled")
        optimizer.load_state_dict(file)
    else:
        optimizer = AdaXW([p], lr=3e-4, weight_decay=1e-5, decay="fully_decoupled")
        released = as_released(torch.optim.AdamW)
        group = {**released["param_groups"][0], "lr": lr, "weight_decay": wd, "params": [0]}
        load_released_state_dict(optimizer, {"state": {}, "param_groups": [group]})
    optimizer.step()
    assert 1 - p.item() == pytest.approx(wd * lr, rel=1e-9)
    optimizer.param_groups[0]["lr"] *= 2  # a scheduler's next lr
    p.data.fill_(1.0)
    optimizer.step()
    assert 1 - p.item() == pytest.approx(wd * 2 * lr, rel=1e-9)


@pytest.mark.parametrize("kind", ["torch", "released"])
def test_fully_decoupled_decay_of_a_checkpoint_needs_a_first_lr(kind):
    """An optimizer that was built with lr=0 does not drop the checkpoint's decay without an error."""
    options = {"lr": 0.0, "weight_decay": 0.0, "decay": "fully_decoupled"}
    if kind == "torch":
        optimizer, file = (
            stepped(AdamW, **options),
            stepped(torch.optim.AdamW, weight_decay=0.05).state_dict(),
        )
        load = optimizer.load_state_dict
    else:
        optimizer, file = stepped(AdaXW, **options), as_released(torch.optim.AdamW, weight_decay=0.05)
        load = functools.partial(load_released_state_dict, optimizer)
    before = snapshot(optimizer)
    with pytest.raises(ValueError, match=r"reference_lr=0\.0.*must be > 0; set group\['reference_lr'\]"):
        load(file)
    assert same(snapshot(optimizer), before)
    optimizer.param_groups[0]["reference_lr"] = 0.1
    load(file)
    assert optimizer.param_groups[0]["weight_decay"] == pytest.approx(0.005)


def test_a_torch_checkpoint_with_amsgrad_is_refused():
    adam = stepped(lambda params: torch.optim.AdamW(params, amsgrad=True))
    optimizer = stepped(AdaXW)
    before = snapshot(optimizer)
    with pytest.raises(ValueError, match="amsgrad=True"):
        load_adamw_state_dict(optimizer, adam.state_dict())
    assert same(snapshot(optimizer), before)


def test_a_converted_checkpoint_can_be_saved_and_loaded():
    adam = stepped(torch.optim.AdamW)
    optimizer = stepped(AdaXW)
    load_adamw_state_dict(optimizer, adam.state_dict())
    other = stepped(AdaXW)
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


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("more", [5, {"n": 5}], ids=str)
def test_state_that_is_no_parameter_s_passes(more, amsgrad):
    p = torch.nn.Parameter(torch.ones(2))
    ours, theirs = (kind([p], amsgrad=amsgrad) for kind in (adaxopt.AdamW, torch.optim.AdamW))
    for optimizer in (ours, theirs):
        p.grad = torch.ones(2)
        optimizer.step()
        optimizer.state["more"] = more
    ours.restart_memory()
    theirs.load_state_dict(ours.to_torch_state_dict())
    assert theirs.state["more"] == more
    del ours.state["more"]
    ours.load_state_dict(theirs.state_dict())
    assert ours.state["more"] == more
    if not amsgrad:
        converted = AdaXW([p])
        load_adamw_state_dict(converted, theirs.state_dict())
        assert converted.state["more"] == more


@pytest.mark.parametrize(
    "given", [None, torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))])], ids=["None", "AdamW"]
)
def test_what_is_no_checkpoint_is_named(given):
    optimizer = AdaXW([torch.nn.Parameter(torch.ones(2))])
    says = f"checkpoint of type {type(given).__name__}: must be the dict"
    for load in (
        optimizer.load_state_dict,
        lambda file: load_adamw_state_dict(optimizer, file),
        lambda file: adaxopt.cast_state_dict(file, torch.float32),
    ):
        with pytest.raises(TypeError, match=says):
            load(given)
    with pytest.raises(TypeError, match=r"load_adamw_state_dict\(dict\): must be AdaX, AdaXW or Padax"):
        load_adamw_state_dict(optimizer.state_dict(), optimizer)
