"""ResNet-18 and ResNet-50 for ImageNet: sizes, a network written out, initial weights, grouped norms."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from adaxlab.models.imagenet import GroupedBatchNorm2d, resnet, seeded


@pytest.mark.parametrize(
    ("name", "stem", "classes", "count"),
    [
        ("resnet18", "imagenet", 1000, 11_689_512),
        ("resnet50", "imagenet", 1000, 25_557_032),
        ("resnet18", "small", 200, 11_689_512 - 3 * 64 * (49 - 9) - 800 * 513),
    ],
)
def test_parameter_counts(name, stem, classes, count):
    """torchvision's; the small stem has 3x3 instead of 7x7 weights, and fewer classes fewer rows of the head."""
    net = resnet(name, classes, stem=stem)
    assert sum(p.numel() for p in net.parameters()) == count


@pytest.mark.parametrize(
    ("stem", "size", "side"), [("imagenet", 224, 7), ("imagenet", 64, 2), ("small", 64, 4)]
)
def test_the_last_stage_is_as_large_as_said(stem, size, side):
    net = resnet("resnet18", 10, stem=stem, width=2)
    x = torch.zeros(1, 3, size, size)
    assert net.blocks(net.pool(net.bn(net.conv(x)))).shape[2:] == (side, side)


def _norm(state, x, name):
    mean, variance = (state[f"{name}.running_{k}"][:, None, None] for k in ("mean", "var"))
    gain, bias = (state[f"{name}.{k}"][:, None, None] for k in ("weight", "bias"))
    return (x - mean) / torch.sqrt(variance + 1e-5) * gain + bias


def test_bottlenecks_against_a_network_written_out():
    net = seeded(0, "resnet50", 5, stem="imagenet", width=4).double().eval()
    with torch.no_grad():
        for name, b in net.named_buffers():
            if "running" in name:
                b.add_(0.3 * torch.rand_like(b))
    state = net.state_dict()
    x = torch.randn(2, 3, 64, 64, dtype=torch.float64)

    def unit(x, conv, norm, stride=1):
        weight = state[f"{conv}.weight"]
        y = F.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)
        return _norm(state, y, norm)

    h = F.max_pool2d(unit(x, "conv", "bn", 2).relu(), 3, 2, 1)
    block = 0
    for stage, count in enumerate((3, 4, 6, 3)):
        for i in range(count):
            stride, at = (2 if stage and i == 0 else 1), f"blocks.{block}"
            inner = unit(h, f"{at}.conv1", f"{at}.bn1").relu()
            inner = unit(
                inner, f"{at}.conv2", f"{at}.bn2", stride
            ).relu()  # torchvision: the stride is in the 3x3
            skip = unit(h, f"{at}.shortcut.0", f"{at}.shortcut.1", stride) if i == 0 else h
            h = (unit(inner, f"{at}.conv3", f"{at}.last") + skip).relu()
            block += 1
    scores = h.mean((2, 3)) @ state["head.weight"].t() + state["head.bias"]
    torch.testing.assert_close(net(x), scores, rtol=1e-9, atol=1e-9)


def test_initial_weights():
    plain = seeded(0, "resnet18", 10, stem="small")
    weight = plain.blocks[3].conv2.weight  # 128 channels, 3x3: fan-out 1152
    assert weight.std().item() == pytest.approx((2 / 1152) ** 0.5, rel=0.02)
    assert all((b.last.weight == 1).all() for b in plain.blocks)


def test_a_grouped_norm_has_the_statistics_of_each_part():
    norm, x = GroupedBatchNorm2d(3).double(), torch.randn(7, 3, 4, 4, dtype=torch.float64)
    norm.groups = 2
    parts = x[:4], x[4:]
    means, variances = ([getattr(p, k)((0, 2, 3)) for p in parts] for k in ("mean", "var"))
    expected = torch.cat(
        [(p - p.mean((0, 2, 3), True)) / (p.var((0, 2, 3), False, keepdim=True) + 1e-5).sqrt() for p in parts]
    )
    torch.testing.assert_close(norm(x), expected)
    torch.testing.assert_close(norm.running_mean, 0.1 * sum(means) / 2)
    torch.testing.assert_close(norm.running_var, 0.9 + 0.1 * sum(variances) / 2)
    plain = torch.nn.BatchNorm2d(3).double()
    assert not torch.allclose(plain(x), norm(x), atol=1e-3)
    held = {f"n.{k}": v for k, v in norm.state_dict().items()}
    torch.testing.assert_close(norm.eval()(x), _norm(held, x, "n"))
