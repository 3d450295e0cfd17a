"""The networks of a stack on a GPU: forward and backward of M ResNet-20s as a fixed list of fused kernels.

See `forward.py` for the kernels. The arithmetic is that of autocast: activations and their gradients in bfloat16,
products accumulated in float32; statistics, head, loss, parameters and optimizer in float32. `dtype=torch.float32`
computes products in TF32 or, with `precision="tf32x3"`, with float32 accuracy; tests compare the latter with
`PlainNetwork`.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
from torch import Tensor

from adaxlab.models.resnet import ResNet
from adaxlab.stacked import backward, forward, rows
from adaxlab.stacked.layout import Conv, layout
from adaxlab.stacked.loader import Images, StackLoader
from adaxlab.stacked.tiles import Rows, Tiles, default, programs, whole

SLACK = 256
"""Number of elements after the last pixel that a window may read; they are multiplied by zero."""


class FusedNetwork:
    """M ResNet-20s on a GPU, with the interface of `PlainNetwork`.

    `train_size` and `test_size` are the numbers of images: if they are given, ValueError is raised at once, not in the
    first epoch, if the tiles do not fit one of the batches.
    """

    def __init__(
        self,
        nets: list[ResNet],
        device: torch.device,
        *,
        batch: int = 128,
        test_batch: int = 1000,
        dtype: torch.dtype = torch.bfloat16,
        precision: str = "tf32",
        kinds: Mapping[tuple[int, int], Tiles] | None = None,
        slots: tuple[int, ...] | None = None,
        train_size: int | None = None,
        test_size: int | None = None,
    ) -> None:
        self.layout = layout(nets[0])
        packed = [self.layout.pack(net) for net in nets]
        self.parameters = torch.stack([row for row, _ in packed]).to(device)
        self.running = torch.stack([running for _, running in packed], dim=1).contiguous().to(device)
        self.gradient = torch.zeros_like(self.parameters)
        usual, usual_slots = default(len(nets), dtype == torch.float32)
        self.models, self.precision = len(nets), precision
        self.kinds, self.slots = dict(kinds or usual), slots or usual_slots
        self._batch, self._test_batch, self._dtype, self._device = batch, test_batch, dtype, device
        self._check(train_size, test_size)
        channels, convs = self.layout.channels, self.layout.convs
        self._weights = torch.zeros(self.models, self.layout.size, dtype=dtype, device=device)
        self._stats = torch.zeros(4, self.models, channels, device=device)
        self._coefficients = torch.zeros(3, self.models, channels, device=device)
        self._x = self._bordered(batch, 32, 4)
        self._labels = torch.zeros(self.models * batch, dtype=torch.int64, device=device)
        self._y = [self._plain(batch, c.side, c.co) for c in convs]
        self._h = [self._bordered(batch, c.side, c.co) for c in convs]
        self._dz = [self._plain(batch, 32, convs[0].co) for _ in range(2)]
        stages = {c.stage: c for c in convs}
        self._dy = [self._bordered(batch, c.side, c.co) for c in stages.values()]
        self._part = torch.zeros(self.models * 2 * batch * 32 * 32 * convs[0].co // 64, device=device)
        self._segments = self._make_segments()
        self._test_x = self._bordered(test_batch, 32, 4)
        self._test_y = self._plain(test_batch, 32, convs[0].co)
        self._test_h = [[self._bordered(test_batch, c.side, c.co) for _ in range(3)] for c in stages.values()]

    def _check(self, train_size: int | None, test_size: int | None) -> None:
        """Raise ValueError if the tiles do not fit a batch of an epoch, or of an evaluation, of so many images."""
        for count in _sizes(train_size, self._batch):
            for conv in self.layout.convs:
                tiles = self._tiles(conv)
                for tile in (tiles.forward, tiles.input):
                    programs(tile, count, conv.side)
                whole(count, conv.side, tiles.rows)
                self._weight_shares(conv, count)
        for count in _sizes(test_size, self._test_batch):
            for conv in self.layout.convs:
                programs(self._tiles(conv).forward, count, conv.side, exact=False)
                whole(count, conv.side, self._tiles(conv).rows)

    def _plain(self, count: int, side: int, channels: int) -> Tensor:
        return torch.zeros(
            self.models * count * side * side * channels, dtype=self._dtype, device=self._device
        )

    def _bordered(self, count: int, side: int, channels: int) -> Tensor:
        return self._plain(count, side + 2, channels).new_zeros(
            self.models * count * (side + 2) ** 2 * channels + SLACK
        )

    def _make_segments(self) -> list[tuple[int, int, Tensor]]:
        """Return (first, last, [slots, models, length]) of the partial weight gradients of each stage."""
        out = []
        for stage, slots in enumerate(self.slots):
            mine = [c for c in self.layout.convs if c.stage == stage]
            first, last = mine[0].offset, mine[-1].offset + mine[-1].size
            out.append((first, last, torch.zeros(slots, self.models, last - first, device=self._device)))
        return out

    def _tiles(self, conv: Conv) -> Tiles:
        return self.kinds[conv.ci, conv.co]

    @staticmethod
    def _group(conv: Conv) -> int:
        """Pixels per row of the matrix product: 2 in narrow layers, 1 with stride 2, 0 (tap by tap) in wide layers."""
        return 0 if conv.ci >= 64 else 3 - conv.stride

    def gradients(self, loader: StackLoader, count: int) -> tuple[Tensor, Tensor]:
        """Fill `gradient` for the next `count` images and return each model's mean loss and correct predictions."""
        self._weights.copy_(self.parameters)
        forward.augment[(count, self.models)](
            loader.data.images, loader.data.labels, loader.order, loader.crops, loader.cursor, loader.table,
            self._x, self._labels, len(loader.data), count, self._batch,
        )  # fmt: skip
        self._forward(count)
        labels = self._labels[: self.models * count].view(self.models, count, 1)
        loss, correct, dfeature = self._head(count, labels)
        self._backward(dfeature, count)
        return loss, correct

    def _forward(self, count: int) -> None:
        x, block = self._x, self._h[0]
        for i, conv in enumerate(self.layout.convs):
            number = self._conv(x, conv, self._y[i], count, self._batch, stats=True)
            forward.finish_forward[(conv.co, self.models)](
                self._part, self._stats, self.running, self.parameters, count * conv.side**2, number,
                self.layout.size, self.layout.gamma + conv.channel, self.layout.channels, conv.channel,
                CO=conv.co, TILES=triton.next_power_of_2(number),
            )  # fmt: skip
            x = self._h[i]
            self._activate(i, self._y[i], block, x, count, self._batch)
            if i % 2 == 0:
                block = x

    def _conv(self, x: Tensor, conv: Conv, y: Tensor, count: int, cap: int, *, stats: bool) -> int:
        """Compute a convolution; return the number of programs."""
        tiles = self._tiles(conv).forward
        grid = (programs(tiles, count, conv.side, exact=stats), self.models)
        if isinstance(tiles, Rows):
            rows.conv_rows[grid](
                x, self._weights[:, conv.offset :], y, self._part, count, cap, self.layout.size,
                SIDE=conv.side, CI=conv.ci, CO=conv.co, G=tiles.group, STATS=stats, PRECISION=self.precision,
                **tiles.shape(), **tiles.options(),
            )  # fmt: skip
            return grid[0]
        block, warps, steps, stages = tiles
        forward.conv_forward[grid](
            x, self._weights[:, conv.offset :], y, self._part, count, cap, self.layout.size,
            SIDE=conv.side, STRIDE=conv.stride, CI=conv.ci, CO=conv.co, G=self._group(conv), STATS=stats,
            BLOCK=block, STEPS=steps, PRECISION=self.precision, num_warps=warps, num_stages=stages,
        )  # fmt: skip
        return grid[0]

    def _activate(self, i: int, y: Tensor, block: Tensor, out: Tensor, count: int, cap: int) -> None:
        """Apply the i-th normalisation and ReLU; every second layer from the third on adds the block's input first."""
        conv = self.layout.convs[i]
        block_rows = self._tiles(conv).rows
        forward.activate[(whole(count, conv.side, block_rows), self.models)](
            y, block, out, self._stats, cap, self.layout.channels, conv.channel,
            SIDE=conv.side, C=conv.co, SHORTCUT=self._shortcut(i), BLOCK=block_rows,
        )  # fmt: skip

    def _shortcut(self, i: int) -> int:
        """Return the shortcut that is added to the output of layer i: 0 none, 1 identity, 2 subsampled."""
        if i == 0 or i % 2 == 1:
            return 0
        return self.layout.convs[i - 1].stride

    def _head(self, count: int, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Fill the head's gradient; return loss, correct predictions and gradient of the pooled feature (float32)."""
        n, lay = self.models, self.layout
        feature, logits = self._logits(self._h[-1], count, self._batch)
        log_p = torch.log_softmax(logits, 2)
        loss = -log_p.gather(2, labels).mean((1, 2))
        correct = (logits.argmax(2, keepdim=True) == labels).sum((1, 2))
        d = log_p.exp().scatter_add_(2, labels, torch.full_like(labels, -1, dtype=torch.float32)) / count
        self.gradient[:, lay.head : lay.bias].view(n, lay.features, lay.classes).copy_(
            torch.bmm(feature.transpose(1, 2), d)
        )
        self.gradient[:, lay.bias : lay.bias + lay.classes].copy_(d.sum(1))
        head = self.parameters[:, lay.head : lay.bias].view(n, lay.features, lay.classes)
        return loss, correct, torch.bmm(d / lay.convs[-1].side ** 2, head.transpose(1, 2)).contiguous()

    def _logits(self, h: Tensor, count: int, cap: int) -> tuple[Tensor, Tensor]:
        """Return the pooled feature and the logits. The border is zero, so the sum includes it."""
        n, lay = self.models, self.layout
        side = lay.convs[-1].side
        pixels = h[:-SLACK].view(n, cap, (side + 2) ** 2, lay.features)[:, :count]
        feature = pixels.sum(2, dtype=torch.float32) / side**2
        head = self.parameters[:, lay.head : lay.bias].view(n, lay.features, lay.classes)
        bias = self.parameters[:, lay.bias : lay.bias + lay.classes]
        return feature, torch.baddbmm(bias[:, None], feature, head)

    def _backward(self, dfeature: Tensor, count: int) -> None:
        last = len(self.layout.convs) - 1
        conv = self.layout.convs[last]
        above, inner = self._dz
        number = whole(count, conv.side, self._tiles(conv).rows)
        backward.head_gradient[(number, self.models)](
            dfeature, self._h[last], self._y[last], above, self._stats, self._part, count, self._batch,
            self.layout.channels, conv.channel, SIDE=conv.side, C=conv.co, BLOCK=self._tiles(conv).rows,
        )  # fmt: skip
        self._finish(last, count, number)
        for i in range(last, 0, -2):
            self._weight(i, self._h[i - 1], above, count)
            self._input(i, above, inner, count, shortcut=0)
            self._weight(i - 1, self._h[i - 2], inner, count)
            self._input(i - 1, above, inner, count, shortcut=self._shortcut(i))
            above, inner = inner, above
        self._weight(0, self._x, above, count)
        for first, end, part in self._segments:
            torch.sum(part, 0, out=self.gradient[:, first:end])

    def _finish(self, i: int, count: int, number: int) -> None:
        conv = self.layout.convs[i]
        backward.finish_backward[(conv.co, self.models)](
            self._part, self._stats, self._coefficients, self.gradient, count * conv.side**2, number,
            self.layout.size, self.layout.gamma + conv.channel, self.layout.channels, conv.channel,
            C=conv.co, TILES=triton.next_power_of_2(number),
        )  # fmt: skip

    def _weight_shares(self, conv: Conv, count: int) -> int:
        """Return the number of programs that share the images of a weight gradient; each fills one slot per pixel of
        a group."""
        tiles, slots = self._tiles(conv).weight, self.slots[conv.stage]
        if isinstance(tiles, Rows):
            programs(tiles, count, conv.side)
            return slots // tiles.group
        shares = slots // max(self._group(conv), 1)
        whole(count, conv.side, shares * tiles[0])
        return shares

    def _weight(self, i: int, x: Tensor, dz: Tensor, count: int) -> None:
        """Compute the weight gradient of layer i, and write the gradient of its output."""
        conv = self.layout.convs[i]
        first, end, part = self._segments[conv.stage]
        tiles, shares = self._tiles(conv).weight, self._weight_shares(conv, count)
        given = (
            x, dz, self._y[i], self._dy[conv.stage], self._coefficients, part, count, self._batch,
            end - first, conv.offset - first, self.layout.channels, conv.channel,
        )  # fmt: skip
        shape = {"SIDE": conv.side, "CI": conv.ci, "CO": conv.co, "PRECISION": self.precision}
        if isinstance(tiles, Rows):
            rows.weight_rows[(shares, self.models)](*given, **shape, **tiles.shape(), **tiles.options())
            return
        group = self._group(conv)
        block, warps, stages = tiles
        backward.weight_gradient[(shares, 1 if group else 3, self.models)](
            *given, **shape, STRIDE=conv.stride, G=group, WRITE=i > 0,
            BLOCK=block, num_warps=warps, num_stages=stages,
        )  # fmt: skip

    def _input(self, i: int, above: Tensor, dz: Tensor, count: int, *, shortcut: int) -> None:
        """Compute the input gradient of layer i through the ReLU, and the sums for the normalisation of layer i-1."""
        conv, below = self.layout.convs[i], self.layout.convs[i - 1]
        tiles = self._tiles(conv).input
        number = programs(tiles, count, conv.side)
        given = (
            self._dy[conv.stage], self._weights[:, conv.offset :], above, self._h[i - 1], self._y[i - 1], dz,
            self._stats, self._part, count, self._batch, self.layout.size, self.layout.channels, below.channel,
        )  # fmt: skip
        shape = {"CI": conv.ci, "CO": conv.co, "PRECISION": self.precision}
        if not isinstance(tiles, Rows):
            block, warps, steps, stages = tiles
            parities = conv.stride**2
            backward.input_gradient[(number, self.models, parities)](
                *given, **shape, SIDE=below.side, STRIDE=conv.stride, G=self._group(conv) if conv.stride == 1 else 0,
                SHORTCUT=shortcut, BLOCK=block, STEPS=steps, num_warps=warps, num_stages=stages,
            )  # fmt: skip
            number *= parities
        elif conv.stride == 2:
            rows.input_strided[(number, self.models)](
                *given, **shape, SIDE=conv.side, **tiles.shape(), **tiles.options()
            )
        else:
            rows.input_rows[(number, self.models)](
                *given, **shape, SIDE=conv.side, G=tiles.group, SHORTCUT=shortcut, **tiles.shape(), **tiles.options()
            )  # fmt: skip
        self._finish(i - 1, count, number)

    @torch.no_grad()
    def count_correct(self, data: Images, loader: StackLoader, start: int, count: int) -> Tensor:
        """Return each model's correct predictions on `count` test images from `start`, using running statistics."""
        lay, cap = self.layout, self._test_batch
        self._weights.copy_(self.parameters)
        gamma = self.parameters[:, lay.gamma : lay.gamma + lay.channels]
        beta = self.parameters[:, lay.beta : lay.beta + lay.channels]
        torch.mul(gamma, torch.rsqrt(self.running[1] + 1e-5), out=self._stats[2])
        torch.sub(beta, self.running[0] * self._stats[2], out=self._stats[3])
        raw = data.images[start : start + count].float() * loader.table[0] + loader.table[1]
        self._test_x[:-SLACK].view(self.models, cap, 34, 34, 4)[:, :count, 1:33, 1:33].copy_(raw[None])
        x = block = self._test_x
        for i, conv in enumerate(lay.convs):
            self._conv(x, conv, self._test_y, count, cap, stats=False)
            inner, even, odd = self._test_h[conv.stage]
            out = inner if i % 2 else even if i % 4 else odd
            self._activate(i, self._test_y, block, out, count, cap)
            x = out
            if i % 2 == 0:
                block = x
        _, logits = self._logits(x, count, cap)
        return (logits.argmax(2) == data.labels[start : start + count]).sum(1)


def _sizes(images: int | None, batch: int) -> set[int]:
    """Return the sizes of the batches that so many images have."""
    return set() if images is None else {min(images, batch), images % batch} - {0}
