"""The stack on a GPU: forward and backward of M ResNets as a fixed list of fused kernels (see `kernels.py`).

The arithmetic is that of autocast: activations and their gradients in bfloat16, products accumulated in float32,
statistics, head, loss, parameters and optimizer in float32. `dtype=torch.float32` computes in TF32 or, with
`precision="ieee"`, in plain float32, which the tests compare with the plain loop.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
from torch import Tensor

from adaxopt.lab.cifar import kernels
from adaxopt.lab.cifar.feed import Feed, Images
from adaxopt.lab.cifar.layout import Conv, layout
from adaxopt.lab.models.resnet import ResNet


class Tiles(NamedTuple):
    """(pixels per program, warps, pipeline stages) of the three heavy kernels in one stage of the network."""

    forward: tuple[int, int, int] = (128, 4, 1)
    input: tuple[int, int, int] = (128, 4, 1)
    weight: tuple[int, int, int] = (64, 4, 2)
    shares: int = 32
    """Shares of the pixels that a weight gradient is summed in."""
    rows: int = 128
    """Rows per program of the element-wise kernels."""


DEFAULT = (Tiles(shares=64), Tiles(shares=32), Tiles(shares=16))


class FusedNetwork:
    """The same interface as `PlainNetwork`. `count` images times the smallest map must be a multiple of a tile."""

    def __init__(
        self,
        nets: list[ResNet],
        device: torch.device,
        *,
        batch: int = 128,
        test_batch: int = 1000,
        dtype: torch.dtype = torch.bfloat16,
        precision: str = "tf32",
        tiles: tuple[Tiles, ...] = DEFAULT,
    ) -> None:
        self.layout = layout(nets[0])
        packed = [self.layout.pack(net) for net in nets]
        self.parameters = torch.stack([row for row, _ in packed]).to(device)
        self.running = torch.stack([running for _, running in packed], dim=1).contiguous().to(device)
        self.gradient = torch.zeros_like(self.parameters)
        self.models = len(nets)
        self.tiles = tiles
        self.precision = precision
        self._dtype = dtype
        self._device = device
        size, channels = self.layout.size, self.layout.channels
        self._weights = torch.zeros(self.models, size, dtype=dtype, device=device)
        self._stats = torch.zeros(4, self.models, channels, device=device)
        self._coefficients = torch.zeros(3, self.models, channels, device=device)
        convs = self.layout.convs
        self._x = self._buffer(batch, 32, 4)
        self._labels = torch.zeros(self.models * batch, dtype=torch.int64, device=device)
        self._y = [self._buffer(batch, c.side, c.co) for c in convs]
        self._h = [self._buffer(batch, c.side, c.co) for c in convs]
        widest = max(c.side**2 * c.co for c in convs)
        self._dz = [torch.zeros(self.models * batch * widest, dtype=dtype, device=device) for _ in range(3)]
        most = max(batch * c.side**2 // min(t.forward[0], t.input[0], t.rows) * c.co for c, t in self._plan())
        self._part = torch.zeros(self.models * 2 * most, device=device)
        self._segments = self._make_segments()
        self._test = [
            torch.zeros(self.models * test_batch * widest, dtype=dtype, device=device) for _ in range(4)
        ]
        self._test_x = self._buffer(test_batch, 32, 4)

    def _buffer(self, count: int, side: int, channels: int) -> Tensor:
        return torch.zeros(
            self.models * count * side * side * channels, dtype=self._dtype, device=self._device
        )

    def _plan(self) -> list[tuple[Conv, Tiles]]:
        return [(c, self.tiles[c.stage]) for c in self.layout.convs]

    def _make_segments(self) -> list[tuple[int, int, Tensor]]:
        """(first, last, [shares, models, length]) of each stage's weights: partial weight gradients."""
        out = []
        for stage, tiles in enumerate(self.tiles):
            mine = [c for c in self.layout.convs if c.stage == stage]
            first, last = mine[0].offset, mine[-1].offset + mine[-1].size
            part = torch.zeros(tiles.shares, self.models, last - first, device=self._device)
            out.append((first, last, part))
        return out

    def gradients(self, feed: Feed, count: int) -> tuple[Tensor, Tensor]:
        """Fill `gradient` for the next `count` images; returns each model's mean loss and number right."""
        self._weights.copy_(self.parameters)
        kernels.augment[(count, self.models)](
            feed.data.images, feed.data.labels, feed.order, feed.crops, feed.cursor, feed.table,
            self._x, self._labels, len(feed.data), count,
        )  # fmt: skip
        self._forward(count)
        labels = self._labels[: self.models * count].view(self.models, count, 1)
        loss, right, dfeature = self._head(self._h[-1], count, labels)
        self._backward(dfeature, count)
        return loss, right

    def _forward(self, count: int) -> None:
        x, block = self._x, self._h[0]
        for i, (conv, tiles) in enumerate(self._plan()):
            self._conv(x, conv, self._y[i], count, stats=True)
            npix = count * conv.side**2
            kernels.finish_forward[(conv.co, self.models)](
                self._part, self._stats, self.running, self.parameters, npix, self.layout.size,
                self.layout.gamma + conv.channel, self.layout.channels, conv.channel,
                CO=conv.co, BLOCK=tiles.forward[0], TILES=triton.next_power_of_2(npix // tiles.forward[0]),
            )  # fmt: skip
            self._activate(i, self._y[i], block, self._h[i], count)
            x = self._h[i]
            if i % 2 == 0:
                block = x

    def _conv(self, x: Tensor, conv: Conv, y: Tensor, count: int, *, stats: bool) -> None:
        block, warps, stages = self.tiles[conv.stage].forward
        npix = count * conv.side**2
        merged = conv.ci <= 16
        kernels.conv_forward[(npix // block, self.models)](
            x, self._weights[:, conv.offset :], y, self._part, npix, self.layout.size,
            SIDE=conv.side, STRIDE=conv.stride, CI=conv.ci, CO=conv.co, MERGED=merged,
            K=4 * conv.ci if merged else conv.ci, STATS=stats, BLOCK=block, PRECISION=self.precision,
            num_warps=warps, num_stages=stages,
        )  # fmt: skip

    def _activate(self, i: int, y: Tensor, block: Tensor, out: Tensor, count: int) -> None:
        """The i-th normalisation and ReLU; every second layer from the third on ends a block and adds its input."""
        conv, tiles = self.layout.convs[i], self.tiles[self.layout.convs[i].stage]
        npix = count * conv.side**2
        kernels.activate[(npix // tiles.rows, self.models)](
            y, block, out, self._stats, npix, self.layout.channels, conv.channel,
            SIDE=conv.side, C=conv.co, SHORTCUT=self._shortcut(i), BLOCK=tiles.rows,
        )  # fmt: skip

    def _shortcut(self, i: int) -> int:
        """How layer i's output meets its block's input: 0 not at all, 1 as it is, 2 subsampled."""
        if i == 0 or i % 2 == 1:
            return 0
        return self.layout.convs[i - 1].stride

    def _head(self, h: Tensor, count: int, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Pool, linear layer, cross entropy and their gradients, in float32."""
        n, lay = self.models, self.layout
        conv = lay.convs[-1]
        feature, logits = self._logits(h, count)
        log_p = torch.log_softmax(logits, 2)
        loss = -log_p.gather(2, labels).mean((1, 2))
        right = (logits.argmax(2, keepdim=True) == labels).sum((1, 2))
        d = log_p.exp().scatter_add_(2, labels, torch.full_like(labels, -1, dtype=torch.float32)) / count
        self.gradient[:, lay.head : lay.bias].view(n, lay.features, lay.classes).copy_(
            torch.bmm(feature.transpose(1, 2), d)
        )
        self.gradient[:, lay.bias : lay.bias + lay.classes].copy_(d.sum(1))
        head = self.parameters[:, lay.head : lay.bias].view(n, lay.features, lay.classes)
        return loss, right, torch.bmm(d / conv.side**2, head.transpose(1, 2)).contiguous()

    def _logits(self, h: Tensor, count: int) -> tuple[Tensor, Tensor]:
        n, lay = self.models, self.layout
        side = lay.convs[-1].side
        shape = (n, count, side * side, lay.features)
        feature = h[: n * count * side * side * lay.features].view(shape).mean(2, dtype=torch.float32)
        head = self.parameters[:, lay.head : lay.bias].view(n, lay.features, lay.classes)
        bias = self.parameters[:, lay.bias : lay.bias + lay.classes]
        return feature, torch.baddbmm(bias[:, None], feature, head)

    def _backward(self, dfeature: Tensor, count: int) -> None:
        convs, last = self.layout.convs, len(self.layout.convs) - 1
        conv, tiles = convs[last], self.tiles[convs[last].stage]
        above, inner, dy = self._dz
        npix = count * conv.side**2
        kernels.head_gradient[(npix // tiles.rows, self.models)](
            dfeature, self._h[last], self._y[last], above, self._stats, self._part,
            npix, self.layout.channels, conv.channel, SIDE=conv.side, C=conv.co, BLOCK=tiles.rows,
        )  # fmt: skip
        self._finish(last, count, tiles.rows)
        for i in range(last, 0, -2):
            self._weight(i, self._h[i - 1], above, dy, count)
            self._input(i, dy, above, inner, count, shortcut=0)
            self._weight(i - 1, self._h[i - 2], inner, dy, count)
            self._input(i - 1, dy, above, inner, count, shortcut=self._shortcut(i))
            above, inner = inner, above
        self._weight(0, self._x, above, dy, count)
        for first, end, part in self._segments:
            torch.sum(part, 0, out=self.gradient[:, first:end])

    def _finish(self, i: int, count: int, block: int) -> None:
        conv = self.layout.convs[i]
        npix = count * conv.side**2
        kernels.finish_backward[(conv.co, self.models)](
            self._part, self._stats, self._coefficients, self.gradient, npix, npix // block, self.layout.size,
            self.layout.gamma + conv.channel, self.layout.channels, conv.channel,
            C=conv.co, TILES=triton.next_power_of_2(npix // block),
        )  # fmt: skip

    def _weight(self, i: int, x: Tensor, dz: Tensor, dy: Tensor, count: int) -> None:
        conv, tiles = self.layout.convs[i], self.tiles[self.layout.convs[i].stage]
        first, end, part = self._segments[conv.stage]
        merged = conv.ci <= 16
        block, warps, stages = tiles.weight
        npix = count * conv.side**2
        if npix % (tiles.shares * block):
            raise ValueError(f"{npix} pixels do not divide into {tiles.shares} shares of {block}-pixel steps")
        kernels.weight_gradient[(tiles.shares, 1 if merged else 3, self.models)](
            x, dz, self._y[i], dy, self._coefficients, part, npix, end - first, conv.offset - first,
            self.layout.channels, conv.channel,
            SIDE=conv.side, STRIDE=conv.stride, CI=conv.ci, CO=conv.co, MERGED=merged,
            K=4 * conv.ci if merged else conv.ci, WRITE=i > 0, BLOCK=block, PRECISION=self.precision,
            num_warps=warps, num_stages=stages,
        )  # fmt: skip

    def _input(self, i: int, dy: Tensor, above: Tensor, dz: Tensor, count: int, *, shortcut: int) -> None:
        """Layer i's input gradient, through the ReLU and into the sums of layer i-1's normalisation."""
        conv, below = self.layout.convs[i], self.layout.convs[i - 1]
        block, warps, stages = self.tiles[below.stage].input
        npix = count * below.side**2
        merged = conv.co <= 16 and conv.stride == 1
        kernels.input_gradient[(npix // block, self.models)](
            dy, self._weights[:, conv.offset :], above, self._h[i - 1], self._y[i - 1], dz, self._stats, self._part,
            npix, self.layout.size, self.layout.channels, below.channel,
            SIDE=below.side, STRIDE=conv.stride, CI=conv.ci, CO=conv.co, MERGED=merged,
            K=4 * conv.co if merged else conv.co, SHORTCUT=shortcut, BLOCK=block, PRECISION=self.precision,
            num_warps=warps, num_stages=stages,
        )  # fmt: skip
        self._finish(i - 1, count, block)

    @torch.no_grad()
    def right(self, data: Images, feed: Feed, start: int, count: int) -> Tensor:
        """Each model's number of right answers on `count` test images from `start`, with running statistics."""
        lay = self.layout
        self._weights.copy_(self.parameters)
        gamma = self.parameters[:, lay.gamma : lay.gamma + lay.channels]
        beta = self.parameters[:, lay.beta : lay.beta + lay.channels]
        torch.mul(gamma, torch.rsqrt(self.running[1] + 1e-5), out=self._stats[2])
        torch.sub(beta, self.running[0] * self._stats[2], out=self._stats[3])
        raw = data.images[start : start + count].float() * feed.table[0] + feed.table[1]
        self._test_x[: self.models * raw.numel()].view(self.models, -1).copy_(raw.flatten()[None])
        y, inner, block, spare = self._test
        x = self._test_x
        for i, conv in enumerate(lay.convs):
            self._conv(x, conv, y, count, stats=False)
            out = inner if i % 2 else spare
            self._activate(i, y, block, out, count)
            x = out
            if i % 2 == 0:
                block, spare = spare, block
        _, logits = self._logits(x, count)
        return (logits.argmax(2) == data.labels[start : start + count]).sum(1)
