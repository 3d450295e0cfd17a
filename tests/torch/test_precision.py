"""Sixteen bits: parameters that go on moving, state that does not drift, the same bits on every path."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from adaxopt import AdaXW, create
from adaxopt.zoo import METHODS
from runner import BACKENDS, give, same, snapshot

LOW = (torch.bfloat16, torch.float16)
PATHS = {name: BACKENDS[name] for name in ("default", "foreach", "for-loop", "capturable")}
SIZE = 512


def trained(dtype, rounding, path, steps=300, seed=0, lr=2e-4, **options):
    """A parameter drifting down by small steps, and what a float32 one does with the same gradients."""
    random = np.random.default_rng(4)
    start = torch.tensor(random.uniform(1.0, 1.9, size=SIZE)).to(dtype)
    low, full = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.float().clone())
    common = {"lr": lr, "weight_decay": 0.0, **options}
    ours = AdaXW([low], rounding=rounding, seed=seed, **common, **PATHS[path])
    wide = AdaXW([full], **{k: v for k, v in common.items() if k != "state_dtype"}, **PATHS[path])
    for _ in range(steps):
        g = torch.tensor(random.normal(0.5, 1.0, size=SIZE)).to(dtype)
        low.grad, full.grad = g, g.float()
        ours.step()
        wide.step()
    return ours, low.detach(), full.detach(), start.float()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", LOW)
class TestParameters:
    def test_kahan_is_close(self, dtype, path):
        ours, low, full, start = trained(dtype, "kahan", path)
        unit = torch.finfo(dtype).eps
        assert float((full - start).abs().mean()) > 0.015
        assert (
            float((low.float() - full).abs().max()) <= 1.2 * unit
        )  # half a unit of a number below 2, and a little
        rest = ours.state[ours.param_groups[0]["params"][0]]["compensation"]
        assert rest.dtype == dtype
        assert float((low.float() + rest.float() - full).abs().max()) < 0.03 * unit * 8  # together far closer

    def test_stochastic_is_unbiased(self, dtype, path):
        _, low, full, start = trained(dtype, "stochastic", path)
        moved = float((full - start).mean())
        error = low.float() - full
        spread = float(error.std()) / SIZE**0.5
        assert abs(float(error.mean())) < 5 * spread
        assert 5 * spread < 0.2 * abs(moved)  # so that the line above says something

    def test_another_seed_gives_other_bits(self, dtype, path):
        a = trained(dtype, "stochastic", path, steps=5, seed=1)[1]
        b = trained(dtype, "stochastic", path, steps=5, seed=1)[1]
        c = trained(dtype, "stochastic", path, steps=5, seed=2)[1]
        assert torch.equal(a, b)
        assert not torch.equal(a, c)

    def test_state_is_that_of_a_float32_parameter(self, dtype, path):
        for rounding in ("nearest", "stochastic", "kahan"):
            ours, *_ = trained(dtype, rounding, path, steps=20)
            entry = next(iter(ours.state.values()))
            assert entry["exp_avg"].dtype == entry["exp_avg_sq"].dtype == torch.float32
            assert ("compensation" in entry) == (rounding == "kahan")


def test_nearest_is_what_it_is():
    """Steps below half a unit are lost in bfloat16: why the other two exist."""
    _, low, full, start = trained(torch.bfloat16, "nearest", "default")
    assert torch.equal(low.float(), start)
    assert float((full - start).abs().mean()) > 0.015


def test_torchs_generator_is_left_alone():
    torch.manual_seed(7)
    before = torch.get_rng_state()
    trained(torch.bfloat16, "stochastic", "default", steps=3)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("path", PATHS)
def test_squares_of_float16_gradients_do_not_overflow(path):
    """300^2 is above float16's largest number, (1e-4)^2 below its smallest."""
    p = torch.nn.Parameter(torch.ones(3, dtype=torch.float16))
    optimizer = AdaXW([p], lr=0.1, weight_decay=0.0, **PATHS[path])
    for _ in range(3):
        p.grad = torch.tensor([300.0, 1e-4, 6e4], dtype=torch.float16)
        optimizer.step()
    v = optimizer.state[p]["exp_avg_sq"].double()
    torch.testing.assert_close(v, p.grad.double() ** 2, rtol=1e-6, atol=0)
    moved = (1 - p.detach().double()).numpy()
    assert np.allclose(moved, 0.1 * (0.1 + 0.19 + 0.271), atol=2e-3)


def test_bfloat16_state_does_not_ratchet():
    """v under fading gradients: stochastic within a few percent, to nearest more than 2x too large.

    b2*T = 2, as 20,000 steps at the paper's b2 have, in an eighth of the time.
    """
    steps, size, b2 = 2_500, 256, 8e-4
    p = torch.nn.Parameter(torch.zeros(size))
    optimizer = AdaXW([p], lr=0.0, weight_decay=0.0, betas=(0.9, b2), state_dtype=torch.bfloat16)
    noise = torch.randn(257, size, generator=torch.Generator().manual_seed(0))
    raw = np.zeros(size)
    nearest = torch.zeros(size, dtype=torch.bfloat16)
    for t in range(1, steps + 1):
        g = noise[t % 257] * (t / 100 + 1) ** -1.0
        p.grad = g
        optimizer.step()
        raw = (1 + b2) * raw + b2 * g.double().numpy() ** 2
        k = b2 / ((1 + b2) ** t - 1)
        nearest = torch.lerp(nearest.float(), g * g, k).to(torch.bfloat16)
    exact = raw / ((1 + b2) ** steps - 1)
    entry = optimizer.state[p]
    assert entry["exp_avg_sq"].dtype == entry["exp_avg"].dtype == torch.bfloat16
    stochastic = entry["exp_avg_sq"].double().numpy() / exact
    to_nearest = nearest.double().numpy() / exact
    assert abs(stochastic.mean() - 1) < 0.05
    assert to_nearest.mean() > 2


@pytest.mark.parametrize("path", PATHS)
def test_bfloat16_state_trains(path):
    """The path of the parameter is that of float32 state to a few percent of the way."""
    ours, low, full, start = trained(torch.float32, "nearest", path, lr=1e-3, state_dtype=torch.bfloat16)
    assert next(iter(ours.state.values()))["exp_avg_sq"].dtype == torch.bfloat16
    moved = float((full - start).norm())
    assert float((low - full).norm()) < 0.03 * moved
    assert not torch.equal(low, full)


MODES = [
    (torch.float32, {}),
    (torch.float64, {}),
    (torch.bfloat16, {"rounding": "nearest"}),
    (torch.bfloat16, {"rounding": "stochastic"}),
    (torch.bfloat16, {"rounding": "kahan"}),
    (torch.float16, {"rounding": "stochastic"}),
    (torch.float16, {"rounding": "kahan"}),
    (torch.float32, {"state_dtype": torch.bfloat16}),
    (torch.bfloat16, {"state_dtype": torch.bfloat16, "rounding": "stochastic"}),
    (torch.bfloat16, {"state_dtype": torch.bfloat16, "rounding": "kahan"}),
    (torch.float32, {"state_dtype": torch.float64}),
]


@pytest.mark.parametrize(
    ("dtype", "options"), MODES, ids=[f"{d} {o}".replace("torch.", "") for d, o in MODES]
)
@pytest.mark.parametrize("name", METHODS)
def test_foreach_is_the_for_loop_bit_for_bit(name, dtype, options):
    random = np.random.default_rng(6)
    both = []
    for foreach in (True, False):
        random = np.random.default_rng(6)
        params = [
            torch.nn.Parameter(torch.tensor(random.normal(size=s)).to(dtype)) for s in ((3, 4), (), (5,))
        ]
        optimizer = create(name, params, lr=0.01, weight_decay=0.1, foreach=foreach, **options)
        for _ in range(14):
            give(params, random.normal(size=18) * np.where(np.arange(18) % 7 == 0, 0.0, 1.0))
            optimizer.step()
        found = snapshot(optimizer)
        del found["groups"]
        both.append(found)
    assert same(*both)


@pytest.mark.parametrize("rounding", ["nearest", "stochastic", "kahan"])
@pytest.mark.parametrize("path", PATHS)
def test_formats_side_by_side_in_one_group(path, rounding):
    """Whatever the order: each does what it does alone."""
    formats = (torch.float32, torch.bfloat16, torch.float64, torch.float16)
    for order in itertools.permutations(formats, 3):
        params = [torch.nn.Parameter(torch.linspace(1, 2, 5).to(d)) for d in order]
        optimizer = AdaXW(params, lr=0.01, rounding=rounding, **PATHS[path])
        for _ in range(3):
            for p in params:
                p.grad = torch.linspace(-1, 1, 5).to(p.dtype)
            optimizer.step()
        for place, dtype in enumerate(order):
            strangers = [
                torch.nn.Parameter(torch.ones(1)) for _ in range(place)
            ]  # keep the place: random bits depend on it
            alone = torch.nn.Parameter(torch.linspace(1, 2, 5).to(dtype))
            single = AdaXW([*strangers, alone], lr=0.01, rounding=rounding, **PATHS[path])
            for _ in range(3):
                alone.grad = torch.linspace(-1, 1, 5).to(dtype)
                single.step()
            assert torch.equal(params[place], alone), (order, dtype)
            assert same(snapshot(optimizer)["state"][place], snapshot(single)["state"][place])


@pytest.mark.parametrize("decay", ["l2", "decoupled"])
@pytest.mark.parametrize("name", METHODS)
def test_decay_is_computed_in_float32(name, decay):
    """A bfloat16 parameter with Kahan's rest follows a float32 one: nothing is rounded on the way."""
    random = np.random.default_rng(8)
    start = torch.tensor(random.uniform(1, 1.9, size=64)).bfloat16()
    low, full = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.float())
    lr = 1e-4 if name == "sgdm" else 1e-3
    options = {"lr": lr, "weight_decay": 0.3, "decay": decay}
    ours, wide = create(name, [low], rounding="kahan", **options), create(name, [full], **options)
    for _ in range(60):
        g = torch.tensor(random.normal(0.3, 1, size=64)).bfloat16()
        low.grad, full.grad = g, g.float()
        ours.step()
        wide.step()
    rest = ours.state[low]["compensation"].float()
    moved = float((full.detach() - start.float()).abs().mean())
    assert moved > 1e-4
    assert float((low.detach().float() + rest - full.detach()).abs().mean()) < 0.02 * moved + 60 * 2.0**-18
    if name == "adashift":
        window, twin = ours.state[low]["window"], wide.state[full]["window"]
        assert float((window - twin).abs().max()) < 1e-3  # bfloat16 would have rounded g + wd*x by 2^-8


MOVES = [
    (torch.float64, None),  # given in float64
    (torch.float32, torch.float64),  # model.double() after the first step
    (torch.bfloat16, torch.float64),
    (torch.float64, torch.bfloat16),
    (torch.float16, torch.bfloat16),
]


@pytest.mark.parametrize("way", [*BACKENDS, "sparse"])
@pytest.mark.parametrize("rounding", ["nearest", "stochastic", "kahan"])
@pytest.mark.parametrize(("dtype", "moved"), MOVES, ids=str)
@pytest.mark.parametrize("state_dtype", [torch.bfloat16, torch.float64, torch.float32], ids=str)
@pytest.mark.filterwarnings("ignore:fused=True. a parameter takes the foreach path")
def test_any_parameter_beside_any_state(dtype, moved, state_dtype, rounding, way):
    """Against the same steps in float64 throughout: as near as the stored formats are, and state keeps its dtype."""
    ends = []
    for exact in (True, False):
        p = torch.nn.Parameter(torch.linspace(1, 2, 8, dtype=torch.float64).view(4, 2))
        if not exact:
            p.data = p.data.to(dtype)
        options = {} if exact else {"state_dtype": state_dtype, "rounding": rounding, **BACKENDS.get(way, {})}
        optimizer = AdaXW([p], lr=0.1, betas=(0.5, 1e-2), **options)
        for t in range(3):
            if t == 1 and not exact and moved is not None:
                p.grad = None
                p.data = p.data.to(moved)
            g = torch.linspace(-1, 1, 8).view(4, 2).to(p.dtype) * (t + 1)
            p.grad = g.to_sparse(1) if way == "sparse" else g
            optimizer.step()
        ends.append(p.detach().double())
        moments = {optimizer.state[p][k].dtype for k in ("exp_avg", "exp_avg_sq")}
        low = not exact and rounding == "kahan" and p.dtype in LOW
        assert optimizer.state[p].get("compensation", torch.ones(())).dtype == (
            p.dtype if low else torch.float32
        )
        assert moments == {torch.float64 if exact else state_dtype}
    torch.testing.assert_close(*ends, rtol=0.02, atol=0.02)
