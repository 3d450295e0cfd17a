"""The two residual networks of the paper's CIFAR-10 experiments.

`resnet20` is He et al.'s CIFAR network as in the released code: three stages of 16, 32 and 64 channels, shortcuts
without parameters (every second pixel, zero-padded channels), Kaiming-normal convolution and linear weights.
`resnet18` is the network that compares L2 with decoupled decay: 3x3 stem, stages of 64 to 512 channels, projection
shortcuts.

>>> sum(p.numel() for p in resnet20().parameters()), sum(p.numel() for p in resnet18().parameters())
(269722, 11173962)
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CLASSES = 10


def _conv3(narrow: int, wide: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(narrow, wide, 3, stride=stride, padding=1, bias=False)


class Pad(nn.Module):
    """A shortcut without parameters: every second pixel, zero-padded channels on both sides."""

    def __init__(self, extra: int) -> None:
        super().__init__()
        self.extra = extra

    def forward(self, x: Tensor) -> Tensor:
        side = self.extra // 2
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, side, self.extra - side))


class Block(nn.Module):
    """relu(bn(conv(relu(bn(conv(x))))) + shortcut(x))."""

    def __init__(self, narrow: int, wide: int, stride: int, shortcut: Literal["pad", "project"]) -> None:
        super().__init__()
        self.conv1 = _conv3(narrow, wide, stride)
        self.bn1 = nn.BatchNorm2d(wide)
        self.conv2 = _conv3(wide, wide)
        self.bn2 = nn.BatchNorm2d(wide)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or narrow != wide:
            if shortcut == "pad":
                self.shortcut = Pad(wide - narrow)
            else:
                project = nn.Conv2d(narrow, wide, 1, stride=stride, bias=False)
                self.shortcut = nn.Sequential(project, nn.BatchNorm2d(wide))

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(out)) + self.shortcut(x))


class ResNet(nn.Module):
    """A stem, stages of residual blocks (half the size, twice the channels), global average pooling, a linear head."""

    def __init__(self, blocks: tuple[int, ...], width: int, shortcut: Literal["pad", "project"]) -> None:
        super().__init__()
        self.conv = _conv3(3, width)
        self.bn = nn.BatchNorm2d(width)
        layers: list[nn.Module] = []
        narrow = width
        for stage, count in enumerate(blocks):
            wide = width * 2**stage
            for i in range(count):
                layers.append(Block(narrow, wide, 2 if stage and i == 0 else 1, shortcut))
                narrow = wide
        self.blocks = nn.Sequential(*layers)
        self.head = nn.Linear(narrow, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        out = self.blocks(F.relu(self.bn(self.conv(x))))
        return self.head(out.mean((2, 3)))


def _kaiming(net: nn.Module) -> None:
    for module in net.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(module.weight)


def resnet20(depth: int = 20) -> ResNet:
    """Return the CIFAR ResNet-(6n+2): 269,722 parameters at n = 3. Other values of `depth` are for tests."""
    if depth < 8 or (depth - 2) % 6:
        raise ValueError(f"depth={depth}: a CIFAR ResNet has 6n+2 layers (8, 14, 20, 32, ...)")
    net = ResNet(((depth - 2) // 6,) * 3, 16, "pad")
    _kaiming(net)
    return net


def resnet18() -> ResNet:
    """Return ResNet-18 for 32x32 images: 11,173,962 parameters; PyTorch's default initialisation, as released."""
    return ResNet((2, 2, 2, 2), 64, "project")


def make(name: str, seed: int) -> ResNet:
    """Return a network by name, initialised from `seed` without changing the global generator."""
    makers = {"resnet20": resnet20, "resnet18": resnet18}
    if name not in makers:
        raise ValueError(f"model={name!r}: known are {', '.join(makers)}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return makers[name]()
