"""Stochastic rounding is unbiased, reproducible and blind to layout; Kahan's keeps what rounding drops."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from adaxopt import counter_rng
from adaxopt.counter_rng import four
from adaxopt.torch import rounding

FORMATS = [torch.bfloat16, torch.float16]


def neighbours(x: float, dtype: torch.dtype) -> tuple[float, float]:
    """The two numbers of `dtype` around x, by walking outwards from rounding to nearest."""
    near = torch.tensor(x, dtype=torch.float64).to(dtype)
    up = near if near.double() >= x else torch.nextafter(near, torch.tensor(float("inf"), dtype=dtype))
    down = near if near.double() <= x else torch.nextafter(near, torch.tensor(float("-inf"), dtype=dtype))
    return float(down), float(up)


def draw(source, dtype, **where):
    settings = {"seed": 3, "index": 5, "step": 7, "stream": 0} | where
    return rounding.stochastic_(torch.empty(source.shape, dtype=dtype), source, **settings)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("x", [1.0 + 1e-3, -0.3337, 3.14159e-3, 60001.0, -2.5e-5, 7.0e-8, 1e-9])
def test_only_the_two_neighbours_and_the_right_mean(dtype, x):
    n = 200_000
    x = float(np.float32(x))
    y = draw(torch.full((n,), x), dtype).double()
    down, up = neighbours(x, dtype)
    assert set(y.tolist()) <= {down, up}
    spread = (up - down) / 2 / n**0.5  # at most: the deviation of a coin between the two
    assert abs(y.mean().item() - x) < 4.5 * spread


@pytest.mark.parametrize("dtype", FORMATS)
def test_unbiased_over_steps_for_each_element(dtype):
    """The same 300 elements over 2,000 steps: every mean within 5 deviations; nearest is far out."""
    x = torch.from_numpy(np.random.default_rng(0).standard_normal(300).astype(np.float32))
    total = torch.zeros(300, dtype=torch.float64)
    for t in range(2_000):
        total += draw(x, dtype, step=t).double()
    ulp = torch.tensor([u - d for d, u in (neighbours(float(v), dtype) for v in x)])
    worst = ((total / 2_000 - x.double()).abs() / ulp * 2 * 2_000**0.5).max().item()
    assert worst < 5
    nearest = ((x.to(dtype).double() - x.double()).abs() / ulp * 2 * 2_000**0.5).max().item()
    assert nearest > 30


def test_bits_are_uniform_and_independent_of_neighbours_steps_streams_and_indices():
    n = 1 << 16
    element = torch.arange(n)

    def bits(**where):
        secret = rounding.key(
            *[
                ({"seed": 0, "index": 0, "step": 1, "stream": 0} | where)[k]
                for k in ("seed", "index", "step", "stream")
            ]
        )
        return counter_rng.mix((element * 0x61C88647 + secret) % 2**32).double() / 2.0**32 - 0.5

    base = bits()
    counts = torch.histc(base, 256, -0.5, 0.5)
    assert ((counts - n / 256) ** 2 / (n / 256)).sum() < 255 + 5 * (2 * 255) ** 0.5
    others = [bits(step=2), bits(step=1 + 2**32), bits(stream=1), bits(stream=2), bits(index=1), bits(seed=1)]
    others += [base.roll(k) for k in (1, 2, 3, 4, 8, 16, 256, 4096)]
    for other in others:
        assert abs((base * other).mean().item() * 12) < 5 / n**0.5
        low = ((base * 2.0**16) % 1 - 0.5) * ((other * 2.0**16) % 1 - 0.5)
        assert abs(low.mean().item() * 12) < 5 / n**0.5


def test_bits_are_what_the_formula_says():
    """An independent spelling with numpy's wrapping uint32 arithmetic."""

    def mix(x):
        x = np.uint32(x)
        x = x ^ (x >> np.uint32(16))
        x = np.uint32(int(x) * 0x21F0AAAD % 2**32)
        x = x ^ (x >> np.uint32(15))
        x = np.uint32(int(x) * 0x735A2D97 % 2**32)
        return x ^ (x >> np.uint32(15))

    a, b = counter_rng.seeds(11, 4)
    t = 2**33 + 9
    key = mix((int(mix(int(mix((t % 2**32) ^ a)) ^ (t >> 32) ^ b)) + 2 * 0x9E3779B9) % 2**32)
    assert int(key) == rounding.key(11, 4, t, 2)
    x = torch.tensor([1.0 + i * 1e-4 for i in range(50)])
    y = draw(x, torch.bfloat16, seed=11, index=4, step=t, stream=2, offset=2**32 - 25)
    for i, value in enumerate(x.numpy()):
        e = 2**32 - 25 + i
        r = int(mix((e * 0x61C88647 + int(key)) % 2**32))
        raised = (int(value.view(np.uint32)) + (r >> 16)) & 0xFFFF0000
        assert y[i].item() == np.uint32(raised).view(np.float32)


@pytest.mark.parametrize("dtype", FORMATS)
def test_step_as_number_or_device_scalar_gives_the_same_bits(dtype):
    x = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    tensor = torch.tensor(123456789012.0, dtype=torch.float64)
    assert torch.equal(draw(x, dtype, step=tensor), draw(x, dtype, step=123456789012))
    assert not torch.equal(draw(x, dtype, step=tensor), draw(x, dtype, step=123456789013))


def test_layout_changes_nothing_but_the_order_in_memory():
    x = torch.randn(4, 3, 5, 6, generator=torch.Generator().manual_seed(0))
    plain = draw(x, torch.bfloat16)
    last = torch.empty_like(x, dtype=torch.bfloat16, memory_format=torch.channels_last)
    rounding.stochastic_(last, x, seed=3, index=5, step=7, stream=0)
    memory = draw(x.permute(0, 2, 3, 1).reshape(-1), torch.bfloat16)
    assert torch.equal(last.permute(0, 2, 3, 1).reshape(-1), memory)
    wide = torch.zeros(4, 3, 5, 12, dtype=torch.bfloat16)
    rounding.stochastic_(wide[..., ::2], x, seed=3, index=5, step=7, stream=0)
    assert torch.equal(wide[..., ::2], plain)
    assert not wide[..., 1::2].any()


def test_a_shard_draws_what_the_whole_would(monkeypatch):
    x = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    whole = draw(x, torch.bfloat16)
    assert torch.equal(draw(x[300:], torch.bfloat16, offset=300), whole[300:])
    monkeypatch.setattr(rounding, "PIECE", 64)
    assert torch.equal(draw(x, torch.bfloat16), whole)


@pytest.mark.parametrize("dtype", FORMATS)
def test_exact_numbers_zero_inf_and_nan_pass(dtype):
    x = torch.tensor([0.0, -0.0, 1.5, -2.0, float("inf"), float("-inf")])
    y = draw(x, dtype)
    assert torch.equal(y.float(), x)
    assert torch.signbit(y).tolist() == torch.signbit(x).tolist()
    assert draw(torch.full((100,), float("nan")), dtype).isnan().all()
    assert draw(torch.empty(0), dtype).numel() == 0


def test_compiled_gives_the_same_bits():
    x = torch.randn(7, 11, generator=torch.Generator().manual_seed(0))
    t = torch.tensor(41.0, dtype=torch.float64)

    def call(dest, source, step):
        return rounding.stochastic_(dest, source, seed=1, index=2, step=step, stream=1)

    eager = call(torch.empty(7, 11, dtype=torch.bfloat16), x, t)
    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(torch.empty(7, 11, dtype=torch.bfloat16), x, t), eager)


@pytest.mark.parametrize(
    ("dest", "source", "says"),
    [
        (torch.empty(2), torch.empty(2), "torch.float32"),
        (torch.empty(2, dtype=torch.bfloat16), torch.empty(2, dtype=torch.int64), "must be torch.float32"),
        (torch.empty(2, dtype=torch.bfloat16), torch.empty(3), r"shape \(3,\)"),
    ],
)
def test_errors_say_what_was_given(dest, source, says):
    with pytest.raises(TypeError, match=says):
        rounding.stochastic_(dest, source, seed=0, index=0, step=1, stream=0)


def test_draws_by_fours_are_not_correlated():
    """Of four neighbours the highest 19 bits and those from bit 5 on, as 8-bit state takes them, below some bounds."""
    count = 1 << 18
    bits = four(torch.arange(4 * count), 12345).view(count, 4).numpy()
    draws = np.concatenate([bits >> 13, bits >> 5 & 0x7FFFF], axis=1) / 2**19
    below = np.stack([draws < bound for bound in (0.02, 0.1, 0.5, 0.9)], axis=2).astype(np.float64)
    assert np.abs(below.mean(0) - (0.02, 0.1, 0.5, 0.9)).max() < 5e-3
    for i in range(8):
        for j in range(i):
            found = np.corrcoef(below[:, i].T, below[:, j].T)[:4, 4:]
            assert np.abs(found).max() < 0.012, (
                i,
                j,
            )  # noise alone: six standard deviations of 1/sqrt(count)
