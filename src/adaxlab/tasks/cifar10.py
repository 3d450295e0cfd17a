"""`cifar10`: 60,000 colour images of 32 x 32 pixels and the CIFAR ResNet-20 of the paper, for `adax compare cifar10`.

The recipe is the paper's: pad by 4, random crop, flip, batch 128, 182 epochs with lr x0.1 at epochs 100 and 150. The
data are where `adax data get cifar10` puts them, or in the folder that `data` names. For many seeds at once on one GPU
see `adax reproduce cifar10/table2`, which is about ten times as fast.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from adaxlab.cifar.feed import MEAN, STD
from adaxlab.errors import unknown

EPOCHS, STEPS = 182, 391


class Cifar10:
    """Ten classes, accuracy on the 10,000 test images. `model` is resnet20 (0.27M parameters) or resnet18 (11.2M)."""

    metric = "accuracy"
    higher_is_better = True
    epochs = EPOCHS
    batch_size = 128
    eval_batch_size = 1000

    def __init__(self, data: str = "", model: str = "resnet20", augment: bool = True) -> None:
        self.folder, self.name, self.augment = data, model, augment
        self.schedule = {"name": "step", "milestones": [100 / EPOCHS, 150 / EPOCHS], "gamma": 0.1}
        if model not in ("resnet20", "resnet18"):
            raise unknown("model", model, ("resnet20", "resnet18"))

    def data(self) -> dict[str, Any]:
        """uint8 images [n, 32, 32, 3]; they are normalised in `loss`, on the device."""
        from adaxlab.cifar.studies import read

        data = read(self.folder)
        return {
            part: (torch.from_numpy(images), torch.from_numpy(labels).long())
            for part, images, labels in (
                ("train", data.train_images, data.train_labels),
                ("test", data.test_images, data.test_labels),
            )
        }

    def model(self) -> nn.Module:
        from adaxlab import models

        return {"resnet20": models.resnet20, "resnet18": models.resnet18}[self.name]()

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        images, labels = batch
        if model.training and self.augment:
            images = crop_and_flip(images)
        logits = model(normalise(images))
        return F.cross_entropy(logits, labels), logits.argmax(1) == labels


def crop_and_flip(images: Tensor) -> Tensor:
    """A random 32x32 window of each image padded by 4 black pixels, flipped or not: [n, 32, 32, 3] uint8."""
    n, device = len(images), images.device
    padded = F.pad(images, (0, 0, 4, 4, 4, 4))
    rows = torch.randint(0, 9, (n, 1), device=device) + torch.arange(32, device=device)
    columns = torch.randint(0, 9, (n, 1), device=device) + torch.arange(32, device=device)
    flip = torch.rand(n, 1, device=device) < 0.5
    columns = torch.where(flip, columns.flip(1), columns)
    return padded[torch.arange(n, device=device)[:, None, None], rows[:, :, None], columns[:, None, :]]


def normalise(images: Tensor) -> Tensor:
    """uint8 [n, 32, 32, 3] to float32 [n, 3, 32, 32] by the released code's mean and deviation."""
    mean, std = (torch.tensor(v, device=images.device) for v in (MEAN, STD))
    return ((images.float() / 255 - mean) / std).permute(0, 3, 1, 2)
