"""DeepLab-ASPP: a ResNet whose last two stages are dilated instead of strided, and a sum of four dilated convolutions.

    x -> stem, four stages (an eighth of the image's size) -> sum over r in (6, 12, 18, 24) of conv3x3(x, dilation r)

The head is that of DeepLab v2 (Chen et al. 2016). Norms are frozen (no gradient, no batch statistics), so a norm is a
scale and a shift, folded into the preceding convolution: conv(x, scale*w) + shift. Parameters are the weights of the
convolutions and the head, with torchvision's names.

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
"""Blocks per stage; `tiny` is for tests, with an eighth of the channels."""
WIDTH = {"tiny": 8}


@dataclass(frozen=True)
class Style:
    """Conventions of pretrained weights: position of the stride in a block, eps of the norms, input mean and scale.

    Means and scales are for pixels from 0 to 255 in the order red, green, blue; the input channels of weights for blue,
    green, red are reversed when they are read.
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
"""torchvision's networks; He et al.'s and DeepLab's Caffe networks; Keras's copy of He et al.'s, with another eps."""


class FrozenNorm(nn.Module):
    """scale*x + shift per channel; both are buffers and are not trained."""

    scale: Tensor
    shift: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(channels))
        self.register_buffer("shift", torch.zeros(channels))


def folded(x: Tensor, conv: nn.Conv2d, norm: FrozenNorm) -> Tensor:
    """Return norm(conv(x)), computed as one convolution."""
    weight = conv.weight * norm.scale[:, None, None, None]
    return F.conv2d(x, weight, norm.shift, conv.stride, conv.padding, conv.dilation)


class Bottleneck(nn.Module):
    """A bottleneck block: 1x1 to `width` channels, 3x3 (dilated), 1x1 to 4*width; a projection if the shape changes."""

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
    """A ResNet of bottleneck blocks. `output_stride=8` dilates the last two stages; 32 gives the classifier's strides.

    Every second output of a dilated stage equals the output of the strided stage exactly. Therefore, if the stride is
    in the 3x3 convolution, the first block of a stage keeps the dilation of the previous stage.
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
    """Initialise without pretrained weights: Kaiming-normal convolutions, branches scaled by 1/sqrt(blocks)."""
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        if isinstance(module, Bottleneck):
            module.bn3.scale.fill_(blocks**-0.5)


class Aspp(nn.Module):
    """The sum of four 3x3 convolutions with different dilations. Weights are initialised as N(0, 0.01^2)."""

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
    """Map pixels (0 to 255, RGB) [n, 3, height, width] to scores of `classes` at every pixel.

    The network computes scores at every 8th pixel, starting with the first ("cells"), and interpolates linearly between
    them. The image is padded with its mean to 8k+1 pixels per side, so that every pixel lies between two cells.
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
        """Return the scores at every 8th pixel of the padded image, [n, classes, rows, columns]."""
        height, width = pixels.shape[-2:]
        x = (pixels - self.mean) * self.scale
        x = F.pad(x, (0, -(width - 1) % STRIDE, 0, -(height - 1) % STRIDE))
        if x.is_cuda:
            x = x.contiguous(memory_format=torch.channels_last)
        return self.aspp(self.backbone(x))

    def forward(self, pixels: Tensor, autocast: bool = False) -> Tensor:
        """Return the scores at every pixel. `autocast` runs the convolutions in bfloat16; interpolation is float32."""
        height, width = pixels.shape[-2:]
        with torch.autocast(pixels.device.type, torch.bfloat16, enabled=autocast):
            cells = self.cells(pixels)
        rows = interpolation(height, cells.shape[-2], pixels.device)
        columns = interpolation(width, cells.shape[-1], pixels.device)
        return rows @ (cells.float() @ columns.T)


@functools.lru_cache(maxsize=64)
def interpolation(pixels: int, cells: int, device: torch.device) -> Tensor:
    """Return [pixels, cells]: the weights of linear interpolation between cells that are 8 pixels apart.

    A matrix product is deterministic; the backward pass of torch's upsampling on a GPU is not.
    """
    place = torch.arange(pixels, dtype=torch.float32)[:, None] / STRIDE
    return (1 - (place - torch.arange(cells)).abs()).clamp(min=0).to(device)


def deeplab(name: str, classes: int, style: str = "torch") -> DeepLab:
    """Return the network with the given backbone (resnet101, resnet50, tiny) and style of weights."""
    for what, given, known in (("backbone", name, BLOCKS), ("style", style, STYLES)):
        if given not in known:
            raise ValueError(f"{what}={given!r}: known are {', '.join(known)}")
    chosen = STYLES[style]
    net = DeepLab(Backbone(BLOCKS[name], chosen, WIDTH.get(name, 64)), classes, chosen)
    return net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
