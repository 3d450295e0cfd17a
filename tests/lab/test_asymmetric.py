"""The prototype of the memory study against its equations, coordinate by coordinate in float64."""

import math

import pytest
import torch

from adaxlab.asymmetric import AsymmetricAdamW

LR, B1, B2, EPS, DECAY = 0.01, 0.9, 0.003, 1e-8, 0.1


def walk(x, gradients, fast):
    """One coordinate, written from the docstring of the module."""
    m = v = 0.0
    for t, g in enumerate(gradients, 1):
        k = B2 / ((1 + B2) ** t - 1)
        v += (max(fast, k) if g * g > v else k) * (g * g - v)
        m = B1 * m + (1 - B1) * g
        x -= LR * DECAY * x + LR * m / (1 - B1**t) / (math.sqrt(v) + EPS)
    return x


@pytest.mark.parametrize("fast", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("shapes", [((5,),), ((2, 3), (4,), ())], ids=["one tensor", "several"])
def test_every_coordinate_follows_the_equations(fast, shapes):
    draw = torch.Generator().manual_seed(7)

    def random(shape):
        return torch.randn(shape, generator=draw, dtype=torch.float64)

    params = [torch.nn.Parameter(random(shape)) for shape in shapes]
    begin = [p.detach().clone() for p in params]
    steps = [[random(shape) * scale for shape in shapes] for scale in (1.0, 0.1, 3.0, 0.2, 5.0, 0.01, 1.0)]
    optimizer = AsymmetricAdamW(params, LR, (B1, B2), EPS, DECAY, fast)
    for gradients in steps:
        for p, gradient in zip(params, gradients, strict=True):
            p.grad = gradient.clone()
        optimizer.step()
    for i, p in enumerate(params):
        for place in range(p.numel()):
            g = [gradients[i].reshape(-1)[place].item() for gradients in steps]
            wanted = walk(begin[i].reshape(-1)[place].item(), g, fast)
            assert p.detach().reshape(-1)[place].item() == pytest.approx(wanted, rel=1e-12, abs=1e-14)


def test_a_missing_gradient_is_an_error():
    params = [torch.nn.Parameter(torch.zeros(2)) for _ in range(2)]
    params[0].grad = torch.ones(2)
    with pytest.raises(ValueError, match="share one step count"):
        AsymmetricAdamW(params).step()
