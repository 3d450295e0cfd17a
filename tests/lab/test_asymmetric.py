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


def test_parameters_of_a_group_are_trained_at_the_same_steps():
    first, second = (torch.nn.Parameter(torch.zeros(2)) for _ in range(2))
    optimizer = AsymmetricAdamW([{"params": [first, second]}, {"params": []}])
    first.grad = torch.ones(2)
    with pytest.raises(
        ValueError, match=r"group 0 has no gradient for parameters \[1\]: its parameters share one step"
    ):
        optimizer.step()
    assert not optimizer.state[first]
    second.grad = torch.ones(2)
    optimizer.step()
    optimizer.step()
    assert [float(optimizer.state[p]["step"]) for p in (first, second)] == [2.0, 2.0]
    third = torch.nn.Parameter(torch.zeros(2))
    third.grad = torch.ones(2)
    optimizer.param_groups[0]["params"].append(third)
    with pytest.raises(ValueError, match="group 0 has parameters with different step counts"):
        optimizer.step()


def test_float32_parameters_have_float32_state_and_follow_the_equations():
    p = torch.nn.Parameter(torch.tensor([0.5, -0.5]))
    optimizer = AsymmetricAdamW([p], LR, (B1, B2), EPS, DECAY, 0.3)
    gradients = [[1.0, 0.1], [-0.2, 2.0], [3.0, 0.5]]
    for gradient in gradients:
        p.grad = torch.tensor(gradient)
        optimizer.step()
    assert {value.dtype for key, value in optimizer.state[p].items() if key != "step"} == {torch.float32}
    wanted = [walk(x, [g[i] for g in gradients], 0.3) for i, x in enumerate((0.5, -0.5))]
    assert p.tolist() == pytest.approx(wanted, rel=1e-5)
