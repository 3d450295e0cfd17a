"""The memory study: its rows and the prototype of an asymmetric gain."""

from __future__ import annotations

import pytest
import torch

import adaxopt
from adaxlab import optimizers
from adaxlab.asymmetric import AsymmetricAdamW
from adaxlab.paper import memory


def steps(optimizer, p, count=4):
    generator = torch.Generator().manual_seed(0)
    for _ in range(count):
        p.grad = torch.randn(p.shape, generator=generator, dtype=p.dtype)
        optimizer.step()
    return p.detach(), optimizer.state[p]["exp_avg_sq"]


def param():
    return torch.nn.Parameter(torch.linspace(-1, 1, 7, dtype=torch.float64))


def test_without_haste_the_asymmetric_gain_is_the_growing_memory():
    p, q = param(), param()
    common = {"lr": 0.1, "weight_decay": 0.1}
    slow = steps(AsymmetricAdamW([p], betas=(0.9, 0.02), fast=0.0, **common), p)
    growing = steps(adaxopt.AdamW([q], memory=adaxopt.Growing(0.02), foreach=False, **common), q)
    for a, b in zip(slow, growing, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_large_squares_are_taken_at_once_and_small_ones_slowly():
    p = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
    optimizer = AsymmetricAdamW([p], betas=(0.9, 1e-3), fast=0.3)
    for t in range(50):
        p.grad = torch.tensor([1.0, 1.0], dtype=torch.float64)
        if t == 49:
            p.grad = torch.tensor([10.0, 0.1], dtype=torch.float64)
        optimizer.step()
    k = 1e-3 / (1.001**50 - 1)
    up, down = optimizer.state[p]["exp_avg_sq"].tolist()
    assert up == pytest.approx(1 + 0.3 * 99, rel=1e-12)
    assert down == pytest.approx(1 - k * 0.99, rel=1e-12)


@pytest.mark.parametrize("options", [{"fast": 1.5}, {"betas": (0.9, 0.0)}, {"betas": (1.0, 0.1)}])
def test_what_it_refuses(options):
    with pytest.raises(ValueError, match=f"{next(iter(options))}="):
        AsymmetricAdamW([param()], **options)


@pytest.mark.parametrize("row", memory.rows(1000, (1e-3,)), ids=lambda row: row.name)
def test_every_row_steps_as_adamw_but_for_its_memory(row):
    """The first step is that of AdamW, whatever the memory: k_1 = 1, so v = g^2."""
    p, q = param(), param()
    options = row.at(1e-3, 1000)
    first, v = steps(optimizers.build(row.method, [p], options), p, 1)
    adamw = steps(torch.optim.AdamW([q], lr=1e-3, weight_decay=options["weight_decay"]), q, 1)
    torch.testing.assert_close(first, adamw[0], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(v, p.grad**2)


def test_rows_have_names_of_their_own():
    found = memory.rows(1000, (1e-3,))
    assert len({row.name for row in found}) == len(found) == 16
