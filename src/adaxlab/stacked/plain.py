"""The networks of a stack in plain PyTorch, one model after the other: the reference, and the CPU implementation."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from adaxlab.models.resnet import ResNet
from adaxlab.stacked.layout import Flat, Layout, layout
from adaxlab.stacked.loader import Images, StackLoader


class PlainNetwork:
    """M ResNets whose parameters are the rows of one matrix, with gradients by autograd.

    Arithmetic is float32; `autocast` uses bfloat16 convolutions and channels_last, for large networks on a GPU.
    """

    def __init__(self, nets: list[ResNet], device: torch.device, *, autocast: bool = False) -> None:
        self.layout: Layout | Flat = _layout(nets[0])
        self._autocast = torch.autocast(device.type, torch.bfloat16, enabled=autocast)
        self._dense = torch.channels_last if autocast else torch.preserve_format
        packed = [self.layout.pack(net) for net in nets]
        self.parameters = torch.stack([row for row, _ in packed]).to(device)
        self.running = torch.stack([running for _, running in packed], dim=1).contiguous().to(device)
        self.gradient = torch.zeros_like(self.parameters)
        self._net = nets[0].to(device)

    def gradients(self, loader: StackLoader, count: int) -> tuple[Tensor, Tensor]:
        """Fill `gradient` for the next `count` images and return each model's mean loss and correct predictions."""
        losses, correct = [], []
        self._net.train()
        for m in range(len(self.parameters)):
            x, labels = loader.batch(m, count)
            leaves = {
                k: v.detach().requires_grad_() for k, v in self.layout.unpack(self.parameters[m]).items()
            }
            x = x.to(memory_format=self._dense)
            with self._autocast:
                logits = functional_call(self._net, {**leaves, **self._buffers(m)}, (x,))
            logits = logits.to(self.parameters.dtype)
            loss = F.cross_entropy(logits, labels)
            found = torch.autograd.grad(loss, list(leaves.values()))
            for place, g in zip(self.layout.unpack(self.gradient[m]).values(), found, strict=True):
                place.copy_(g)
            losses.append(loss.detach())
            correct.append((logits.argmax(1) == labels).sum())
        return torch.stack(losses), torch.stack(correct)

    @torch.no_grad()
    def count_correct(self, data: Images, loader: StackLoader, start: int, count: int) -> Tensor:
        """Return each model's correct predictions on `count` test images from `start`, using running statistics."""
        self._net.eval()
        x = loader.normalise(data.images[start : start + count]).to(memory_format=self._dense)
        labels = data.labels[start : start + count]
        out = []
        for m in range(len(self.parameters)):
            state = {**self.layout.unpack(self.parameters[m]), **self._buffers(m)}
            with self._autocast:
                out.append((functional_call(self._net, state, (x,)).argmax(1) == labels).sum())
        return torch.stack(out)

    def _buffers(self, m: int) -> dict[str, Tensor]:
        return self.layout.unpack_running(self.running[:, m])


def _layout(net: ResNet) -> Layout | Flat:
    """Return the layout of the fused kernels if the network has one, so that both use the same rows, else `Flat`."""
    try:
        return layout(net)
    except ValueError:
        return Flat(net)
