"""The data set on the device, and the order and crops of one epoch for every run of a stack."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from adaxlab.data import order

MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2023, 0.1994, 0.2010)
"""Values of the released code, kept for fidelity. The true standard deviations are (.2470, .2435, .2616)."""


@dataclass
class Images:
    """Images [n, 32, 32, 4] uint8 (the fourth channel is padding) and labels [n] int64 on one device."""

    images: Tensor
    labels: Tensor

    @classmethod
    def of(cls, images: np.ndarray, labels: np.ndarray, device: torch.device) -> Images:
        """Return the images [n, 32, 32, 3] uint8 and labels [n] on `device`."""
        if images.ndim != 4 or images.shape[1:] != (32, 32, 3) or images.dtype != np.uint8:
            raise ValueError(f"images: {images.dtype} {images.shape}; must be uint8 [n, 32, 32, 3]")
        padded = torch.zeros(len(images), 32, 32, 4, dtype=torch.uint8)
        padded[..., :3] = torch.from_numpy(np.ascontiguousarray(images))
        return cls(padded.to(device), torch.from_numpy(labels.astype(np.int64)).to(device))

    def __len__(self) -> int:
        return len(self.labels)


def table(device: torch.device) -> Tensor:
    """Return [2, 4] with normalised = raw*table[0] + table[1]; the padding channel stays zero."""
    scale = [1 / (255 * s) for s in STD] + [0.0]
    shift = [-m / s for m, s in zip(MEAN, STD, strict=True)] + [0.0]
    return torch.tensor([scale, shift], dtype=torch.float32, device=device)


class StackLoader:
    """The input buffers of training steps; `start` refills them for each epoch, at fixed addresses for CUDA graphs."""

    def __init__(self, data: Images, seeds: list[int]) -> None:
        self.data = data
        self.seeds = seeds
        device = data.labels.device
        shape = (len(seeds), len(data))
        self.order = torch.zeros(shape, dtype=torch.int32, device=device)
        self.crops = torch.zeros(shape, dtype=torch.int32, device=device)
        self.cursor = torch.zeros((), dtype=torch.int32, device=device)
        self.table = table(device)

    def start(self, epoch: int) -> None:
        """Write the order and the crops of an epoch into the buffers."""
        n, device = len(self.data), self.data.labels.device
        self.order.copy_(order.permutations(self.seeds, epoch, n, device))
        self.crops.copy_(order.crops(self.seeds, epoch, n, device))
        self.cursor.zero_()

    def batch(self, model: int, count: int) -> tuple[Tensor, Tensor]:
        """Return the next batch of one model, ([count, 3, 32, 32] float32, labels), as the kernel `augment` does."""
        place = self.cursor + torch.arange(
            count, device=self.cursor.device
        )  # not read by the host: a graph may
        source = self.order[model][place].long()
        code = self.crops[model][place].long()
        padded = torch.nn.functional.pad(self.data.images[source], (0, 0, 4, 4, 4, 4))
        offsets = torch.arange(32, device=padded.device)
        rows = (code % 9)[:, None] + offsets
        flip = (code // 81)[:, None]
        columns = (code // 9 % 9)[:, None] + torch.where(flip == 1, 31 - offsets, offsets)
        image = torch.arange(count, device=padded.device)[:, None, None]
        return self.normalise(padded[image, rows[:, :, None], columns[:, None, :]]), self.data.labels[source]

    def normalise(self, raw: Tensor) -> Tensor:
        """Normalise [n, 32, 32, 4] uint8 to [n, 3, 32, 32] float32."""
        return (raw.float() * self.table[0] + self.table[1])[..., :3].permute(0, 3, 1, 2)
