"""24-bit weights: a bf16 parameter and 8 correction bits."""

from __future__ import annotations

import math

import pytest
import torch

from adaxopt import AdamW, AdaXW, float32_weights
from adaxopt.torch.rounding import joined, split_

I8, BF16, F32 = torch.int8, torch.bfloat16, torch.float32


def numbers(count=5000):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, generator=generator) * 10 ** (8 * torch.rand(count, generator=generator) - 4)


def made(source, step=1):
    x, rest = torch.empty_like(source, dtype=BF16), torch.empty_like(source, dtype=I8)
    split_(x, rest, source, seed=0, index=0, step=step)
    return x, rest


def test_24_bits_are_the_nearest_bfloat16_and_a_rest():
    source = numbers()
    x, rest = made(source)
    full = joined(x, rest)
    assert ((full - source).abs() <= 2.0**-15 * source.abs()).all()
    assert torch.equal(*made(full)[:1], x)
    assert torch.equal(joined(*made(full, step=2)), full)
    assert ((x.float() - full).abs() <= 2.0**-8 * full.abs()).all()
    exact = torch.tensor([0.0, -0.0, 1.0, math.inf, -math.inf], dtype=F32)
    x, rest = made(exact)
    assert torch.equal(x.float(), exact)
    assert not rest.any()
    assert made(torch.tensor([math.nan]))[0].isnan()


def test_24_bits_are_unbiased():
    source = torch.full((20_000,), 1 + 2.0**-17)
    mean = joined(*made(source)).double().mean().item()
    assert mean == pytest.approx(1 + 2.0**-17, abs=4 * 2.0**-16 / math.sqrt(20_000))


def test_small_steps_are_kept_that_nearest_rounding_loses():
    """lr 1e-5 on weights of size 1: bfloat16 alone does not move; with 8 more bits the parameter follows float32."""
    ends = {}
    for mode in ("nearest", "24bit", "kahan"):
        p = torch.nn.Parameter(torch.linspace(1, 2, 64).to(BF16))
        optimizer = AdamW([p], lr=1e-5, weight_decay=0.0, rounding=mode)
        start = p.detach().clone()
        for _ in range(50):
            p.grad = torch.ones_like(p)
            optimizer.step()
        ends[mode] = float32_weights(optimizer)[p] - start.float()
    assert (ends["nearest"] == 0).all()
    assert ends["24bit"].mean().item() == pytest.approx(-5e-4, rel=0.05)
    assert ends["kahan"].mean().item() == pytest.approx(-5e-4, rel=0.05)


def test_full_weights_of_parameters_without_a_rest():
    params = [
        torch.nn.Parameter(torch.ones(2, dtype=dtype))
        for dtype in (F32, torch.float64, BF16, torch.complex64)
    ]
    full = float32_weights(AdaXW(params))
    assert [full[p].dtype for p in params] == [F32, torch.float64, F32, torch.complex64]
    assert all(full[p].data_ptr() != p.data_ptr() for p in params)


def test_rows_keep_their_rest():
    e = torch.nn.Embedding(6, 4, sparse=True, dtype=BF16)
    torch.nn.init.ones_(e.weight)
    optimizer = AdamW(e.parameters(), lr=1e-5, rounding="24bit", weight_decay=0.0)
    for _ in range(20):
        e.weight.grad = None
        e(torch.tensor([1, 4])).sum().backward()
        optimizer.step()
    full = float32_weights(optimizer)[e.weight]
    assert torch.equal(full[[0, 2, 3, 5]], torch.ones(4, 4))
    assert (full[[1, 4]] - 1).mean().item() == pytest.approx(-2e-4, rel=0.15)


def test_changing_the_rounding_keeps_what_it_can():
    p = torch.nn.Parameter(torch.linspace(-1, 1, 50).to(BF16))
    optimizer = AdaXW([p])
    for rounding, dtype in (("24bit", I8), ("kahan", BF16), ("nearest", None)):
        optimizer.param_groups[0]["rounding"] = rounding
        p.grad = torch.ones_like(p)
        optimizer.step()
        kept = optimizer.state[p].get("compensation")
        assert (None if kept is None else kept.dtype) == dtype
