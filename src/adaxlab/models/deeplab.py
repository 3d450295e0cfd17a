"""DeepLab-ASPP: a ResNet whose last two stages are dilated instead of strided, and four dilated convolutions, summed.

    x -> stem, four stages (an eighth of the image's size) -> sum over r in (6, 12, 18, 24) of conv3x3(x, dilation r)

That is the head of DeepLab v2 (Chen et al. 2016). Norms are frozen: no gradient and no batch statistics, so a norm is
a scale and a shift, and it is folded into the convolution before it: conv(x, scale*w) + shift. Parameters are the
convolutions' weights and the head, named as torchvision names them.

>>> deeplab("tiny", 21)(torch.zeros(1, 3, 50, 70)).shape                 # resnet101 has 43,943,188 parameters
torch.Size([1, 21, 50, 70])
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

RATES = (6, 12, 18, 24)
STRIDE = 8
BLOCKS = {"resnet50": (3, 4, 6, 3), "resnet101": (3, 4, 23, 3), "tiny": (1, 1, 1, 1)}
"""Blocks a stage; `tiny` is for tests, with an eighth of the channels."""
WIDTH = {"tiny": 8}


@dataclass(frozen=True)
class Style:
    """What pretrained weights expect: where a block halves the image, the norms' eps, the input's mean and scale.

    Means and scales are of pixels from 0 to 255 in the order red, green, blue; weights for blue, green, red have the
    stem's channels turned round when they are read.
    """

    name: str
    stride_first: bool
    eps: float
    mean: tuple[float, float, float]
    scale: tuple[float, float, float]
    bgr: bool


STYLES = {
    "torch": Style("torch", False, 1e-5, (123.675, 116.28, 103.53), (58.395, 57.12, 57.375), False),
    "caffe": Style("caffe", True, 1e-5, (123.68, 116.779, 103.939), (1.0, 1.0, 1.0), True),
    "keras": Style("keras", True, 1e-3, (123.68, 116.779, 103.939), (1.0, 1.0, 1.0), True),
}
"""torchvision's networks; He et al.'s own and DeepLab's; Keras's copy of He et al.'s, whose eps is another."""


class FrozenNorm(nn.Module):
    """scale*x + shift, channel by channel; both are buffers, so nothing trains them."""

    scale: Tensor
    shift: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(channels))
        self.register_buffer("shift", torch.zeros(channels))


def folded(x: Tensor, conv: nn.Conv2d, norm: FrozenNorm) -> Tensor:
    """norm(conv(x)) as one convolution."""
    weight = conv.weight * norm.scale[:, None, None, None]
    return F.conv2d(x, weight, norm.shift, conv.stride, conv.padding, conv.dilation)


class Bottleneck(nn.Module):
    """1x1 to `width` channels, 3x3 (dilated), 1x1 to four times as many; a projection where the shape changes."""

    def __init__(self, narrow: int, width: int, stride: int, dilation: int, stride_first: bool) -> None:
        super().__init__()
        wide = 4 * width
        first, second = (stride, 1) if stride_first else (1, stride)
        self.conv1 = nn.Conv2d(narrow, width, 1, first, bias=False)
        self.bn1 = FrozenNorm(width)
        self.conv2 = nn.Conv2d(width, width, 3, second, dilation, dilation, bias=False)
        self.bn2 = FrozenNorm(width)
        self.conv3 = nn.Conv2d(width, wide, 1, bias=False)
        self.bn3 = FrozenNorm(wide)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or narrow != wide:
            self.downsample = nn.Sequential(nn.Conv2d(narrow, wide, 1, stride, bias=False), FrozenNorm(wide))

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(folded(x, self.conv1, self.bn1), inplace=True)
        out = F.relu(folded(out, self.conv2, self.bn2), inplace=True)
        out = folded(out, self.conv3, self.bn3)
        if self.downsample is not None:
            x = folded(x, self.downsample[0], self.downsample[1])  # type: ignore[arg-type]
        return F.relu(out + x, inplace=True)


class Backbone(nn.Module):
    """A ResNet of bottlenecks. `output_stride` 8 dilates the last two stages; 32 is the network that classifies.

    Every second position of a stage that is not strided is what the strided one would give, exactly: a block of the
    style that strides in its 3x3 convolution keeps, in a stage's first block, the dilation of the stage before.
    """

    def __init__(
        self, blocks: tuple[int, ...], style: Style, width: int = 64, output_stride: int = STRIDE
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = FrozenNorm(width)
        narrow, stride, dilation = width, 4, 1
        for stage, count in enumerate(blocks):
            before, step = dilation, 1
            if stage and stride < output_stride:
                stride, step = 2 * stride, 2
            elif stage:
                dilation *= 2
            wide = width * 2**stage
            layers = []
            for i in range(count):
                rate = before if i == 0 and not style.stride_first else dilation
                layers.append(Bottleneck(narrow, wide, step if i == 0 else 1, rate, style.stride_first))
                narrow = 4 * wide
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layers))
        self.channels = narrow
        _start(self, sum(blocks))

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(folded(x, self.conv1, self.bn1), inplace=True), 3, 2, 1)
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):  # type: ignore[operator]
            x = stage(x)  # type: ignore[operator]
        return x


def _start(net: Backbone, blocks: int) -> None:
    """Without pretrained weights: Kaiming-normal convolutions, and branches small enough that the sum does not grow."""
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        if isinstance(module, Bottleneck):
            module.bn3.scale.fill_(blocks**-0.5)


class Aspp(nn.Module):
    """The sum of four 3x3 convolutions of different dilation. Weights start normal with deviation 0.01."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(nn.Conv2d(channels, classes, 3, 1, r, r) for r in RATES)
        for branch in self.branches:
            nn.init.normal_(branch.weight, std=0.01)  # type: ignore[arg-type]
            nn.init.zeros_(branch.bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        out = self.branches[0](x)
        for branch in self.branches[1:]:  # type: ignore[union-attr]
            out = out + branch(x)
        return out


class DeepLab(nn.Module):
    """Pixels (0 to 255, red green blue) [n, 3, height, width] to scores of `classes` at every pixel.

    A cell of the network's output stands over every 8th pixel from the first on. The image is padded with its mean
    to 8k+1 pixels a side, so that the scores between cells are on straight lines, whatever the size.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, backbone: Backbone, classes: int, style: Style) -> None:
        super().__init__()
        self.style = style
        self.backbone = backbone
        self.aspp = Aspp(backbone.channels, classes)
        self.register_buffer("mean", torch.tensor(style.mean)[:, None, None], persistent=False)
        self.register_buffer("scale", 1 / torch.tensor(style.scale)[:, None, None], persistent=False)

    def cells(self, pixels: Tensor) -> Tensor:
        """Scores over every 8th pixel of the padded image, [n, classes, rows, columns]."""
        height, width = pixels.shape[-2:]
        x = (pixels - self.mean) * self.scale
        x = F.pad(x, (0, -(width - 1) % STRIDE, 0, -(height - 1) % STRIDE))
        if x.is_cuda:
            x = x.contiguous(memory_format=torch.channels_last)
        return self.aspp(self.backbone(x))

    def forward(self, pixels: Tensor, autocast: bool = False) -> Tensor:
        """`autocast` computes the convolutions in bfloat16; what is between cells is float32 always."""
        height, width = pixels.shape[-2:]
        with torch.autocast(pixels.device.type, torch.bfloat16, enabled=autocast):
            cells = self.cells(pixels)
        rows = between(height, cells.shape[-2], pixels.device)
        columns = between(width, cells.shape[-1], pixels.device)
        return rows @ (cells.float() @ columns.T)


@functools.lru_cache(maxsize=64)
def between(pixels: int, cells: int, device: torch.device) -> Tensor:
    """[pixels, cells]: the weights of linear interpolation between cells that are 8 pixels apart.

    A matrix, because its product has the same bits every time; torch's own upsampling has not, on a GPU.
    """
    place = torch.arange(pixels, dtype=torch.float32)[:, None] / STRIDE
    return (1 - (place - torch.arange(cells)).abs()).clamp(min=0).to(device)


def deeplab(name: str, classes: int, style: str = "torch") -> DeepLab:
    """The network by its backbone's name (resnet101, resnet50, tiny) and the style of its weights."""
    for what, given, known in (("backbone", name, BLOCKS), ("style", style, STYLES)):
        if given not in known:
            raise ValueError(f"{what}={given!r}: known are {', '.join(known)}")
    chosen = STYLES[style]
    net = DeepLab(Backbone(BLOCKS[name], chosen, WIDTH.get(name, 64)), classes, chosen)
    return net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
