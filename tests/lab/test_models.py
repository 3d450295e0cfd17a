"""The two CIFAR ResNets, and the flat rows that stacks of them are trained in."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call

from adaxlab.models import make, resnet18, resnet20
from adaxlab.models.resnet import Pad
from adaxlab.stacked.layout import Flat, layout

COUNTS = {"resnet20": 269_722, "resnet18": 11_173_962}


@pytest.mark.parametrize("name", COUNTS)
def test_parameter_counts(name):
    net = make(name, 0)
    assert sum(p.numel() for p in net.parameters()) == COUNTS[name]


def test_resnet20_is_counted_by_hand():
    """3x3 convolutions 3-16, 6 of 16-16, 16-32, 5 of 32-32, 32-64, 5 of 64-64; two numbers a channel; the head."""
    convs = 9 * (3 * 16 + 6 * 16 * 16 + 16 * 32 + 5 * 32 * 32 + 32 * 64 + 5 * 64 * 64)
    norms = 2 * (7 * 16 + 6 * 32 + 6 * 64)
    assert convs + norms + 64 * 10 + 10 == COUNTS["resnet20"]


def test_shortcut_without_parameters():
    x = torch.randn(2, 4, 6, 6)
    out = Pad(4)(x)
    assert out.shape == (2, 8, 3, 3)
    for channel in range(8):
        inside = 2 <= channel < 6
        for row in range(3):
            for column in range(3):
                expected = x[:, channel - 2, 2 * row, 2 * column] if inside else torch.zeros(2)
                assert torch.equal(out[:, channel, row, column], expected)


def test_weights_are_kaiming_normal():
    weight = resnet20().blocks[8].conv2.weight
    expected = math.sqrt(2 / (9 * 64))
    assert weight.std().item() == pytest.approx(expected, rel=0.03)
    assert abs(weight.mean().item()) < 4 * expected / math.sqrt(weight.numel())


def test_output_against_a_network_written_out():
    net = resnet20(depth=8).eval()
    state = net.state_dict()
    x = torch.randn(3, 3, 32, 32)

    def unit(x, conv, norm, stride=1):
        y = F.conv2d(x, state[f"{conv}.weight"], stride=stride, padding=1)
        mean, variance = (state[f"{norm}.running_{k}"][:, None, None] for k in ("mean", "var"))
        gain, bias = (state[f"{norm}.{k}"][:, None, None] for k in ("weight", "bias"))
        return (y - mean) / torch.sqrt(variance + 1e-5) * gain + bias

    h = unit(x, "conv", "bn").relu()
    for i in range(3):
        stride = 1 if i == 0 else 2
        inner = unit(h, f"blocks.{i}.conv1", f"blocks.{i}.bn1", stride).relu()
        skip = h if i == 0 else F.pad(h[:, :, ::2, ::2], (0, 0, 0, 0, 8 * i, 8 * i))
        h = (unit(inner, f"blocks.{i}.conv2", f"blocks.{i}.bn2") + skip).relu()
    logits = h.mean((2, 3)) @ state["head.weight"].t() + state["head.bias"]
    torch.testing.assert_close(net(x), logits, rtol=1e-4, atol=1e-4)


def test_make_is_seeded_and_leaves_the_generator_alone():
    before = torch.get_rng_state()
    one, two, other = make("resnet20", 3), make("resnet20", 3), make("resnet20", 4)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(one.conv.weight, two.conv.weight)
    assert not torch.equal(one.conv.weight, other.conv.weight)


@pytest.mark.parametrize("given", [("resnet21", "known are resnet20, resnet18"), (10, "6n\\+2")])
def test_what_is_not_a_network(given):
    name, message = given
    with pytest.raises(ValueError, match=message):
        make(name, 0) if isinstance(name, str) else resnet20(depth=name)


@pytest.mark.parametrize(
    ("net", "kind"), [(resnet20(depth=8), layout), (resnet18(), Flat)], ids=["layout", "flat"]
)
def test_a_row_is_the_network(net, kind):
    with torch.no_grad():
        for p in net.parameters():
            p.add_(torch.randn_like(p) * 0.05)
        for b in net.buffers():
            if b.is_floating_point():
                b.add_(torch.rand_like(b))
    rows = kind(net)
    row, running = rows.pack(net)
    state = {**rows.unpack(row), **rows.unpack_running(running)}
    assert set(dict(net.named_parameters())) <= set(state)
    for name, value in net.state_dict().items():
        if value.is_floating_point():
            assert torch.equal(state[name], value), name
    x = torch.randn(2, 3, 32, 32)
    net.eval()
    torch.testing.assert_close(functional_call(net, state, (x,)), net(x))


def test_a_row_has_no_room_for_projections():
    with pytest.raises(ValueError, match="shortcuts have no parameters"):
        layout(resnet18())
