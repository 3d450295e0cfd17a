"""ResNet-18 and ResNet-50 for ImageNet, with an optional stem for small images.

The networks are He et al.'s (2016) in torchvision's variant: stride in the 3x3 convolution of a bottleneck, projection
shortcuts where the shape changes, Kaiming-normal (fan-out) convolutions, norms initialised to weight 1 and bias 0,
PyTorch's default head.

    stem        first layers                               last stage for a 64x64 input
    imagenet    7x7 convolution, stride 2; 3x3 max pooling  2x2
    small       3x3 convolution, stride 2                   4x4

`groups` splits each training batch for the batch-norm statistics: one process then computes what `groups` processes
compute under DistributedDataParallel.

>>> sum(p.numel() for p in resnet("resnet18").parameters()), sum(p.numel() for p in resnet("resnet50").parameters())
(11689512, 25557032)
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LAYERS = {"resnet18": (2, 2, 2, 2), "resnet50": (3, 4, 6, 3)}
STEMS = ("imagenet", "small")


class GroupedBatchNorm2d(nn.BatchNorm2d):
    """Batch normalisation with separate statistics for each of `groups` equal parts of the batch.

    Running statistics are updated with the mean over the parts, as if processes averaged theirs.
    """

    groups = 1

    def forward(self, x: Tensor) -> Tensor:
        if self.groups == 1 or not self.training:
            return super().forward(x)
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.momentum is not None
        out, means, variances = [], [], []
        for part in x.tensor_split(self.groups):
            mean, variance = self.running_mean.clone(), self.running_var.clone()
            out.append(
                F.batch_norm(part, mean, variance, self.weight, self.bias, True, self.momentum, self.eps)
            )
            means.append(mean)
            variances.append(variance)
        with torch.no_grad():
            self.running_mean.copy_(torch.stack(means).mean(0))
            self.running_var.copy_(torch.stack(variances).mean(0))
            if self.num_batches_tracked is not None:
                self.num_batches_tracked.add_(1)
        return torch.cat(out)


class _Block(nn.Module):
    """Base of both block types: a shortcut, and relu(branch(x) + shortcut(x))."""

    expansion = 1

    def __init__(self, narrow: int, wide: int, stride: int) -> None:
        super().__init__()
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or narrow != wide:
            project = nn.Conv2d(narrow, wide, 1, stride=stride, bias=False)
            self.shortcut = nn.Sequential(project, GroupedBatchNorm2d(wide))


class Basic(_Block):
    """Two 3x3 convolutions."""

    def __init__(self, narrow: int, width: int, stride: int) -> None:
        super().__init__(narrow, width, stride)
        self.conv1 = nn.Conv2d(narrow, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = GroupedBatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.last = GroupedBatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.last(self.conv2(out)) + self.shortcut(x), inplace=True)


class Bottleneck(_Block):
    """1x1 to `width` channels, 3x3 (with the stride), 1x1 to 4*width."""

    expansion = 4

    def __init__(self, narrow: int, width: int, stride: int) -> None:
        super().__init__(narrow, 4 * width, stride)
        self.conv1 = nn.Conv2d(narrow, width, 1, bias=False)
        self.bn1 = GroupedBatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = GroupedBatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.last = GroupedBatchNorm2d(4 * width)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        out = F.relu(self.bn2(self.conv2(out)), inplace=True)
        return F.relu(self.last(self.conv3(out)) + self.shortcut(x), inplace=True)


class ImageNetResNet(nn.Module):
    """A stem, four stages of blocks, global average pooling, a linear head."""

    def __init__(
        self,
        block: type[Basic] | type[Bottleneck],
        layers: tuple[int, ...],
        classes: int,
        stem: str,
        width: int,
    ) -> None:
        super().__init__()
        side = 7 if stem == "imagenet" else 3
        self.conv = nn.Conv2d(3, width, side, stride=2, padding=side // 2, bias=False)
        self.bn = GroupedBatchNorm2d(width)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1) if stem == "imagenet" else nn.Identity()
        stages: list[nn.Module] = []
        narrow = width
        for stage, count in enumerate(layers):
            for i in range(count):
                stages.append(block(narrow, width * 2**stage, 2 if stage and i == 0 else 1))
                narrow = width * 2**stage * block.expansion
        self.blocks = nn.Sequential(*stages)
        self.head = nn.Linear(narrow, classes)

    def forward(self, x: Tensor) -> Tensor:
        out = self.pool(F.relu(self.bn(self.conv(x)), inplace=True))
        return self.head(self.blocks(out).mean((2, 3)))


def resnet(
    name: str = "resnet18",
    classes: int = 1000,
    *,
    stem: str = "imagenet",
    groups: int = 1,
    width: int = 64,
) -> ImageNetResNet:
    """Return the network called `name`; a `width` below 64 is for small machines."""
    if name not in LAYERS:
        raise ValueError(f"model={name!r}: known are {', '.join(LAYERS)}")
    if stem not in STEMS:
        raise ValueError(f"stem={stem!r}: known are {', '.join(STEMS)}")
    for key, value in {"classes": classes, "groups": groups, "width": width}.items():
        if value < 1:
            raise ValueError(f"{key}={value}: must be >= 1")
    net = ImageNetResNet(Basic if name == "resnet18" else Bottleneck, LAYERS[name], classes, stem, width)
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, GroupedBatchNorm2d):
            module.groups = groups
    return net


def seeded(seed: int, name: str, classes: int, **options: object) -> ImageNetResNet:
    """Return `resnet(...)` initialised from `seed` without changing the global generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return resnet(name, classes, **options)  # type: ignore[arg-type]
