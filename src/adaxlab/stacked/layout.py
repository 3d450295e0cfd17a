"""The position of each parameter of a CIFAR ResNet in one flat row, so that M models are a matrix [M, size].

An element-wise optimizer of several runs is one optimizer over one tensor, some rows of that matrix; for the others,
`slices` says where the tensors of a network begin and end. Convolutions are stored [3x3 tap, in, out]. The three
channels of the image are stored as four; weight and gradient of the fourth are zero, so it stays zero with every
method. Batch-norm weights of all layers are contiguous, then their biases, then the head.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from adaxlab.models.resnet import Block, ResNet


@dataclass(frozen=True)
class Conv:
    """One convolution and the batch norm after it."""

    name: str
    norm: str
    ci: int
    """Input channels as stored: 4 for the image."""
    co: int
    side: int
    """Rows and columns of the output."""
    stride: int
    stage: int
    offset: int
    """First weight in the flat row."""
    channel: int
    """Index of this layer's first channel among all channels."""

    @property
    def size(self) -> int:
        return 9 * self.ci * self.co


@dataclass(frozen=True)
class Layout:
    """The flat row of one ResNet: `convs` in forward order, then gains, biases, head."""

    convs: tuple[Conv, ...]
    channels: int
    gamma: int
    beta: int
    head: int
    features: int
    classes: int

    @property
    def bias(self) -> int:
        return self.head + self.features * self.classes

    @cached_property
    def size(self) -> int:
        end = self.bias + self.classes
        return (end + 15) // 16 * 16

    def pack(self, net: ResNet) -> tuple[Tensor, Tensor]:
        """Return (flat row, running statistics [2, channels]) of a module."""
        row = torch.zeros(self.size)
        running = torch.zeros(2, self.channels)
        state = {k: v.detach().float().cpu() for k, v in net.state_dict().items()}
        for name, view in self._views(row):
            view.copy_(state[name])
        for conv in self.convs:
            part = slice(conv.channel, conv.channel + conv.co)
            running[0, part] = state[f"{conv.norm}.running_mean"]
            running[1, part] = state[f"{conv.norm}.running_var"]
        return row, running

    def unpack(self, row: Tensor) -> dict[str, Tensor]:
        """Return the module's parameters by name, as views of a flat row."""
        return dict(self._views(row))

    def slices(self) -> list[slice]:
        """Return the part of a flat row that holds each parameter, in the order and shape in which it is stored."""
        convs = [slice(conv.offset, conv.offset + conv.size) for conv in self.convs]
        norms = [
            slice(start + conv.channel, start + conv.channel + conv.co)
            for start in (self.gamma, self.beta)
            for conv in self.convs
        ]
        return [*convs, *norms, slice(self.head, self.bias), slice(self.bias, self.bias + self.classes)]

    def unpack_running(self, running: Tensor) -> dict[str, Tensor]:
        """Return the module's running statistics by name, as views of [2, channels]."""
        out = {}
        for conv in self.convs:
            part = slice(conv.channel, conv.channel + conv.co)
            out[f"{conv.norm}.running_mean"] = running[0, part]
            out[f"{conv.norm}.running_var"] = running[1, part]
        return out

    def _views(self, row: Tensor) -> Iterator[tuple[str, Tensor]]:
        for conv in self.convs:
            weight = (
                row[conv.offset : conv.offset + conv.size].view(3, 3, conv.ci, conv.co).permute(3, 2, 0, 1)
            )
            yield f"{conv.name}.weight", weight[:, :3] if conv.ci == 4 else weight
            for kind, start in (("weight", self.gamma), ("bias", self.beta)):
                start += conv.channel
                yield f"{conv.norm}.{kind}", row[start : start + conv.co]
        yield "head.weight", row[self.head : self.bias].view(self.features, self.classes).t()
        yield "head.bias", row[self.bias : self.bias + self.classes]


def layout(net: ResNet) -> Layout:
    """Return the layout of a network with parameter-free shortcuts for 32x32 images."""
    convs: list[Conv] = []
    offset = channel = 0

    def add(name: str, norm: str, ci: int, co: int, side: int, stride: int, stage: int) -> None:
        nonlocal offset, channel
        convs.append(Conv(name, norm, ci, co, side, stride, stage, offset, channel))
        offset += convs[-1].size
        channel += co

    width = net.conv.out_channels
    add("conv", "bn", 4, width, 32, 1, 0)
    side, stage = 32, 0
    for i, block in enumerate(net.blocks):
        if not isinstance(block, Block) or any(True for _ in block.shortcut.parameters()):
            raise ValueError("the flat layout is for ResNets whose shortcuts have no parameters (resnet20)")
        stride = block.conv1.stride[0]
        side, stage = side // stride, stage + (stride == 2)
        for k, conv in (("1", block.conv1), ("2", block.conv2)):
            stride = conv.stride[0]
            add(
                f"blocks.{i}.conv{k}",
                f"blocks.{i}.bn{k}",
                conv.in_channels,
                conv.out_channels,
                side,
                stride,
                stage,
            )
    head = offset + 2 * channel
    return Layout(
        tuple(convs), channel, offset, offset + channel, head, net.head.in_features, net.head.out_features
    )


class Flat:
    """A layout for any network: parameters are concatenated, and so are running statistics; without fused kernels."""

    def __init__(self, net: nn.Module) -> None:
        self._shapes = [(name, p.shape) for name, p in net.named_parameters()]
        self._buffers = [(name, b.shape) for name, b in net.named_buffers() if b.is_floating_point()]
        self.size = sum(shape.numel() for _, shape in self._shapes)

    def pack(self, net: nn.Module) -> tuple[Tensor, Tensor]:
        """Return (flat row, running statistics [1, n]) of a module."""
        state = {k: v.detach().float().cpu() for k, v in net.state_dict().items()}
        row = torch.cat([state[name].flatten() for name, _ in self._shapes])
        return row, torch.cat([state[name].flatten() for name, _ in self._buffers])[None]

    def unpack(self, row: Tensor) -> dict[str, Tensor]:
        """Return the module's parameters by name, as views of a flat row."""
        return _cut(row, self._shapes)

    def slices(self) -> list[slice]:
        """Return the part of a flat row that holds each parameter."""
        ends = list(itertools.accumulate((shape.numel() for _, shape in self._shapes), initial=0))
        return [slice(start, end) for start, end in itertools.pairwise(ends)]

    def unpack_running(self, running: Tensor) -> dict[str, Tensor]:
        """Return the module's running statistics by name, as views of [1, n]."""
        return _cut(running[0], self._buffers)


def _cut(row: Tensor, shapes: list[tuple[str, torch.Size]]) -> dict[str, Tensor]:
    out, at = {}, 0
    for name, shape in shapes:
        out[name] = row[at : at + shape.numel()].view(shape)
        at += shape.numel()
    return out
