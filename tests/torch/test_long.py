"""Long runs: state placed late in time, then a few hundred steps against a float64 oracle with exact gains."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import oracles
from adaxopt import AdaX, AdaXW, Padax, create
from adaxopt.memory import growing_gain
from adaxopt.torch import private, wake_guard
from runner import BACKENDS, relative

TIMES = (74_000, 887_000, 1_900_000, 2**24, 10_000_000, 1_000_000_000)
PATHS = {name: BACKENDS[name] for name in ("default", "foreach", "for-loop", "capturable")}
B1, B2, EPS, LR = 0.9, 1e-4, 1e-12, 1e-3
SIZE = 24


def placed(x, t, m, v, kind=AdaXW, dtype=torch.float32, **options):
    """An optimizer and its parameter as they stand after t steps, through a checkpoint."""
    p = torch.nn.Parameter(torch.as_tensor(x).to(dtype).clone())
    optimizer = kind([p], **{"lr": LR, "weight_decay": 0.0, **options})
    saved = optimizer.state_dict()
    work = torch.float64 if dtype is torch.float64 else torch.float32
    saved["state"] = {
        0: {
            "step": torch.tensor(float(t), dtype=torch.float64),
            "exp_avg": torch.as_tensor(m).to(work),
            "exp_avg_sq": torch.as_tensor(v).to(work),
        }
    }
    optimizer.load_state_dict(saved)
    return optimizer, p


def oracle(t, m, v, dtype):
    tiny = 2.0**-1022 if dtype is torch.float64 else 2.0**-126
    return oracles.adax_from(t, m, v, b1=B1, b2=B2, eps=EPS, tiny=tiny)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("dtype", "rounding", "bound"),
    [
        (torch.float64, "nearest", 1e-10),
        (torch.float32, "nearest", 2e-5),
        (torch.bfloat16, "kahan", 2.0**-7),
        (torch.float16, "kahan", 2.0**-10),
    ],
)
@pytest.mark.parametrize("t", TIMES)
def test_updates_stay_right(t, dtype, rounding, bound, path):
    """The distance travelled in 200 steps, in units of the largest; 16-bit ones to a unit of the parameter."""
    steps = 200
    random = np.random.default_rng(t)
    v = random.lognormal(size=SIZE) ** 2
    m = random.normal(size=SIZE) * np.sqrt(v) * 0.2
    start = torch.tensor(random.uniform(0.1, 1.0, size=SIZE)).to(dtype)
    gs = torch.tensor(random.normal(0.3, 1.0, size=(steps, SIZE)) * np.sqrt(v)).to(dtype)
    x = start.double().numpy()
    work = np.float64 if dtype is torch.float64 else np.float32
    direction = oracle(t, m.astype(work), v.astype(work), dtype)
    optimizer, p = placed(start, t, m, v, dtype=dtype, rounding=rounding, **PATHS[path])
    for i in range(steps):
        x = x - LR * direction(t + 1 + i, gs[i].double().numpy())
        p.grad = gs[i]
        optimizer.step()
    moved = x - start.double().numpy()
    assert np.abs(moved).max() > 0.02
    error = p.detach().double().numpy() - x
    if dtype in (torch.float32, torch.float64):
        assert np.abs(error).max() < bound * np.abs(moved).max()
    else:  # what the format can hold
        assert np.all(np.abs(error) <= bound * np.abs(x) + 1e-4)
    assert float(optimizer.state[p]["step"]) == t + steps


@pytest.mark.parametrize("path", [*PATHS, "fused"])
@pytest.mark.parametrize("t", [1, 2, 100, 20_000, 74_000, 110_000, 200_000])
def test_the_memory_itself(t, path):
    """v after 300 steps from t, in float32, where the gain leaves float32's reach (k < 2^-24 from 74,000 on)."""
    random = np.random.default_rng(t)
    v = random.lognormal(size=SIZE)
    gs = torch.tensor(random.normal(size=(300, SIZE)) * 3, dtype=torch.float32)
    optimizer, p = placed(np.zeros(SIZE), t, np.zeros(SIZE), v, **BACKENDS[path])
    wanted = v.astype(np.float32).astype(np.float64)
    for i in range(300):
        k = float(oracles.adax_gain(t + 1 + i, B2))
        wanted = wanted + k * (gs[i].double().numpy() ** 2 - wanted)
        p.grad = gs[i]
        optimizer.step()
    # each step may round by half a unit in the last place: 300 steps walk at most 150 units
    assert relative(optimizer.state[p]["exp_avg_sq"].numpy(), wanted) < 150 * 2.0**-23
    if t <= 20_000:
        assert np.abs(wanted / v - 1).max() > 1e-3


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("t", [2**24 - 1, 2**24, 10**9, 2**40])
def test_counters_go_on(t, path):
    """float32 counters stop at 2^24."""
    optimizer, p = placed(np.ones(2), t, np.zeros(2), np.ones(2), **PATHS[path])
    for _ in range(3):
        p.grad = torch.ones(2)
        optimizer.step()
    assert optimizer.state[p]["step"].dtype == torch.float64
    assert int(optimizer.state[p]["step"]) == t + 3


@pytest.mark.parametrize("path", [*PATHS, "fused"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", [AdaX, AdaXW, Padax])
def test_a_coordinate_without_gradients_stays_put(kind, dtype, path):
    if path == "fused" and (kind is Padax or dtype in (torch.bfloat16, torch.float16)):
        path = "default"  # the kernel serves neither (test_input)
    for t in (0, 1_000, 887_000, 10**9):
        optimizer, p = placed(np.ones(2), t, [0.0, 0.1], [0.0, 1.0], kind, dtype, lr=0.1, **BACKENDS[path])
        for _ in range(5):
            p.grad = torch.tensor([0.0, 1.0], dtype=dtype)
            optimizer.step()
        assert float(p[0].detach()) == 1.0
        assert float(p[1].detach()) < 1.0
        assert float(optimizer.state[p]["exp_avg_sq"][0]) == 0.0


@pytest.mark.parametrize("wake", [True, False])
@pytest.mark.parametrize("path", [*PATHS, "fused"])
@pytest.mark.parametrize("t", [0, 1_000, 100_000, 887_000, 10**7, 10**9])
def test_a_gradient_too_small_to_be_squared_stays_small(t, path, wake):
    """g = 1e-24: g^2 is 0 in float32, and m/(0 + eps_t) must not be a leap."""
    optimizer, p = placed(np.zeros(2), t, [0.0, 0.0], [0.0, 1.0], lr=1.0, wake=wake, **BACKENDS[path])
    for _ in range(50):
        p.grad = torch.tensor([1e-24, 1.0])
        optimizer.step()
    assert abs(float(p[0].detach())) < 50 * 1e-4
    assert abs(float(p[1].detach())) > 1.0


@pytest.mark.parametrize("path", [*PATHS, "fused"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("t", [100_000, 1_000_000, 10_000_000])
def test_a_late_waker(t, dtype, path):
    """Its first step is lr*(1-b1), the next ones of the order of lr."""
    if path == "fused" and dtype in (torch.bfloat16, torch.float16):
        path = "default"
    lr = 2.0**-4
    optimizer, p = placed(np.zeros(3), t, np.zeros(3), [0.0, 0.0, 1.0], dtype=dtype, lr=lr, **BACKENDS[path])
    p.grad = torch.tensor([3.0, 0.0, 1.0], dtype=dtype)
    optimizer.step()
    unit = 2.0**-7 if dtype is torch.bfloat16 else 2.0**-10
    assert float(p[0].detach()) == pytest.approx(-0.1 * lr, rel=unit)
    assert float(optimizer.state[p]["exp_avg_sq"][0]) == 9.0
    for _ in range(20):
        p.grad = torch.tensor([-2.0, 0.5, 1.0], dtype=dtype)
        optimizer.step()
    assert bool((p.detach().abs() < 21 * lr).all())
    assert float(p[1].detach()) < -lr * 0.1  # woke a step later, in its turn
    assert float(optimizer.state[p]["exp_avg_sq"][1]) == 0.25


@pytest.mark.parametrize("path", [*PATHS, "fused"])
@pytest.mark.parametrize("t", [1_000, 50_000, 100_000, 200_000])
def test_a_late_waker_as_the_paper_has_it(t, path):
    """wake=False: (1-b1)/sqrt(k_t) times lr."""
    optimizer, p = placed(np.zeros(2), t - 1, np.zeros(2), [0.0, 1.0], wake=False, **BACKENDS[path])
    p.grad = torch.tensor([3.0, 1.0])
    optimizer.step()
    factor = 0.1 / math.sqrt(float(oracles.adax_gain(t, B2)))
    assert float(p[0].detach()) == pytest.approx(-LR * factor, rel=1e-4)
    if t == 100_000:
        assert factor == pytest.approx(1.5e3, rel=0.05)


@pytest.mark.parametrize("path", [*PATHS, "fused"])
def test_late_activated_coordinates_are_found_at_any_step(path):
    """Coordinates that are activated one after the other, at and between the powers of two where v is checked."""
    size = 40
    p = torch.nn.Parameter(torch.zeros(size, dtype=torch.float64))
    optimizer = AdaXW([p], lr=1.0, weight_decay=0.0, betas=(0.9, 0.01), **BACKENDS[path])
    q = np.zeros(size)
    m, v = np.zeros(size), np.zeros(size)
    for t in range(1, 10 * size + 1):
        g = np.where(np.arange(size) * 10 < t, np.cos(t + np.arange(size)), 0.0)
        k = 0.01 / (1.01**t - 1)
        m = 0.9 * m + 0.1 * g
        v = np.where(v == 0, g * g, v)
        v = v + k * (g * g - v)
        q = q - m / (np.sqrt(v) + np.where(v == 0, 1.0, 1e-12 / np.sqrt(1.01**t - 1)))
        p.grad = torch.tensor(g)
        optimizer.step()
    assert relative(p.detach().numpy(), q) < 1e-9


@pytest.mark.parametrize("decay", ["l2", "decoupled"])
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_fused_kernel_guards_as_the_lists_do(decay, maximize, dtype, monkeypatch):
    """Inactive beside a parameter that has none, in one call of the kernel; a waker's square is taken whole."""
    monkeypatch.setattr(wake_guard, "PIECE", 16)  # so that forty elements are three pieces
    calls = []
    for kernel in ("_fused_adam_", "_fused_adamw_"):
        real = getattr(torch, kernel)
        monkeypatch.setattr(
            private,
            kernel.removeprefix("_"),
            lambda xs, *a, real=real, **o: calls.append(len(xs)) or real(xs, *a, **o),
        )
    start = torch.linspace(-1, 1, 40, dtype=dtype)
    start[20:] = 0  # with L2 a coordinate is inactive only where x is 0
    how = dict(lr=0.1, weight_decay=0.1, decay=decay, maximize=maximize, betas=(0.9, 0.01))
    found = []
    for options in ({"fused": True}, {"foreach": True}):
        params = [torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.flip(0)[20:35].clone())]
        optimizer = create("adaxw", params, **how, **options)
        for t in range(1, 61):
            g = torch.cos(t + torch.arange(40, dtype=dtype))
            g[20:] *= torch.arange(20) * 3 < t  # one more wakes every third step
            params[0].grad, params[1].grad = g, g[:15].clone()
            if t == 58:
                params[0].data[39] = 0.5  # the last one wakes now, and L2 sees it
            optimizer.step()
            if t == 10:  # unguarded, v would be a tenth of it
                v = optimizer.state[params[0]]["exp_avg_sq"][23]
                assert float(v) == pytest.approx(float(g[23]) ** 2, rel=1e-6)
        found.append([p.detach().numpy() for p in params])
    assert calls == [2] * 60
    for ours, theirs in zip(*found, strict=True):
        assert relative(ours, theirs) < (1e-12 if dtype == torch.float64 else 2e-5)


def test_a_guarded_parameter_may_lie_in_another_order(monkeypatch):
    """channels_last: memory is walked as it lies, and the pieces of gradient and state still belong together."""
    monkeypatch.setattr(wake_guard, "PIECE", 7)
    shape, found = (3, 4, 2, 2), []
    for layout in (torch.channels_last, torch.contiguous_format):
        p = torch.nn.Parameter(torch.zeros(shape).contiguous(memory_format=layout))
        optimizer = AdaXW([p], lr=0.1, betas=(0.9, 0.01), fused=True)
        for t in range(1, 9):
            g = torch.cos(t + torch.arange(48.0)).reshape(shape) * (torch.arange(4) < t).reshape(1, 4, 1, 1)
            p.grad = g.contiguous(memory_format=layout)
            optimizer.step()
        found.append(p.detach().contiguous())
    assert torch.equal(*found)


def test_an_ordinary_parameter_is_checked_for_inactive_coordinates_once(monkeypatch):
    looks = []
    real = torch.Tensor.any
    monkeypatch.setattr(torch.Tensor, "any", lambda self, *a: looks.append(1) or real(self, *a))
    p, q = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(3))
    optimizer = AdaXW([p, q])
    for _ in range(70):
        p.grad, q.grad = torch.ones(3), torch.tensor([1.0, 0.0, 1.0])
        optimizer.step()
    assert len(looks) <= 1 + 7  # p once; q, which is still inactive, at powers of two


@pytest.mark.parametrize(
    "name", ["adam", "adamw", "amsgrad", "nosadam", "rmsprop", "adagrad", "padam", "sgdm"]
)
@pytest.mark.parametrize("path", PATHS)
def test_the_other_methods_late(name, path):
    """From t = 10^7 in float32: the method's own formula in float64, over the same state."""
    t, steps = 10**7, 50
    random = np.random.default_rng(11)
    p = torch.nn.Parameter(torch.zeros(SIZE))
    optimizer = create(name, [p], lr=LR, weight_decay=0.0, **PATHS[path])
    p.grad = torch.ones(SIZE)
    optimizer.step()
    saved = optimizer.state_dict()
    v = random.lognormal(size=SIZE).astype(np.float32).astype(np.float64)
    for key, value in saved["state"][0].items():
        value.copy_(
            torch.tensor(0.0 if key == "exp_avg" else t) if key in ("step", "exp_avg") else torch.tensor(v)
        )
    optimizer.load_state_dict(saved)
    p.detach().zero_()
    x, m, top = np.zeros(SIZE), np.zeros(SIZE), v.copy()
    b1, b2 = optimizer.param_groups[0]["betas"]
    for i in range(steps):
        g = torch.tensor(random.normal(0.3, 1.0, size=SIZE), dtype=torch.float32)
        h, now = g.double().numpy(), t + 1 + i
        m = b1 * m + (1 - b1) * h if name != "sgdm" else b1 * m + h
        k = {"nosadam": 0.9 / now, "adagrad": 1 / now}.get(name, 1 - b2)  # sum i^-c ~ t^(1-c)/(1-c)
        v = v + k * (h * h - v)
        top = np.maximum(top, v)
        d = {"adagrad": np.sqrt(v * now), "padam": top**0.125, "amsgrad": np.sqrt(top), "sgdm": 1.0}
        x = x - LR * (h if name in ("rmsprop", "adagrad") else m) / d.get(name, np.sqrt(v))
        p.grad = g
        optimizer.step()
    assert relative(p.detach().numpy(), x) < 1e-5


def test_the_raw_recursion_overflows_where_it_is_said_to():
    """Why v is kept normalised: float32 at about 887,000 steps."""
    top = float(np.finfo(np.float32).max)
    t = math.log(top) / math.log1p(B2)
    assert 880_000 < t < 890_000
    assert growing_gain(t, B2) > 0
    assert growing_gain(t * 100, B2) == 0.0
