"""Task `cifar10`: CIFAR-10 (60,000 colour images of 32 x 32 pixels) with the paper's ResNet-20.

The recipe is the paper's: pad by 4, random crop, flip, batch 128, 182 epochs with lr x0.1 at epochs 100 and 150. The
data are read from `data`, by default the folder of `adax data get cifar10`. `adax reproduce cifar10/table2` trains many
seeds at once on one GPU (executor `stack`), about ten times as fast.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from adaxlab.data import cifar10, default_root, order
from adaxlab.data.published import found_by
from adaxlab.errors import LabError, check_known
from adaxlab.stacked.loader import MEAN, STD

EPOCHS, STEPS = 182, 391
MODELS = ("resnet20", "resnet18")
PRECISIONS = ("bf16", "tf32", "fp32")


class Cifar10:
    """Ten classes, accuracy on the 10,000 test images.

    `model` is resnet20 (0.27M parameters) or resnet18 (11.2M). `holdout` training images, the same in every run, are
    held out for tuning; 0 uses the lab's default split. On a CPU `precision` has no effect: it computes in float32.
    `trace` records the second moment during training.
    """

    metric = "accuracy"
    higher_is_better = True
    epochs = EPOCHS
    batch_size = 128
    eval_batch_size = 1000

    def __init__(
        self,
        data: str = "",
        model: str = "resnet20",
        augment: bool = True,
        holdout: int = 0,
        precision: str = "fp32",
        trace: bool = False,
    ) -> None:
        self.folder, self.name, self.augment = data, model, augment
        self.holdout, self.precision, self.trace = holdout, precision, trace
        self.schedule = {"name": "step", "milestones": [100 / EPOCHS, 150 / EPOCHS], "gamma": 0.1}
        for kind, given, known in (("model", model, MODELS), ("precision", precision, PRECISIONS)):
            check_known(kind, known, given)

    def data(self) -> dict[str, Any]:
        """Return uint8 images [n, 32, 32, 3], which `loss` normalises on the device."""
        data = read(self.folder)
        train, test = (
            (torch.from_numpy(images), torch.from_numpy(labels).long())
            for images, labels in (
                (data.train_images, data.train_labels),
                (data.test_images, data.test_labels),
            )
        )
        if not self.holdout:
            return {"train": train, "test": test}
        rest, kept = order.held_out(len(train[1]), self.holdout, torch.device("cpu"))
        return {"train": tuple(x[rest] for x in train), "valid": tuple(x[kept] for x in train), "test": test}

    def digest(self) -> str:
        """Return the digest of the images, which does not depend on their layout on disk."""
        return read(self.folder).digest()

    def model(self) -> nn.Module:
        from adaxlab import models

        if self.trace or self.precision == "tf32":
            raise LabError(
                "task cifar10: trace and precision=tf32 need the executor `stack` (adax reproduce)"
            )
        return {"resnet20": models.resnet20, "resnet18": models.resnet18}[self.name]()

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        images, labels = batch
        if model.training and self.augment:
            images = crop_and_flip(images)
        short = images.is_cuda and self.precision == "bf16"
        with torch.autocast(images.device.type, torch.bfloat16, enabled=short):
            logits = model(normalise(images)).float()
        return F.cross_entropy(logits, labels), logits.argmax(1) == labels


def read(folder: str) -> cifar10.Cifar10:
    """Read CIFAR-10 from `folder`; if empty, from the folder of `adax data get cifar10`."""
    if folder:
        return _load(folder)
    root = default_root()
    try:
        return _load(str(root if found_by(cifar10.layout)(root) else root / "cifar10"))
    except LabError as error:
        raise LabError(
            f"{error} (--data names its folder in reproduce, --task-option data= in compare)"
        ) from error


@functools.lru_cache(2)
def _load(folder: str) -> cifar10.Cifar10:
    return cifar10.load(folder)


def crop_and_flip(images: Tensor) -> Tensor:
    """Return [n, 32, 32, 3] uint8: a random 32x32 crop of each image padded by 4 black pixels, randomly flipped."""
    n, device = len(images), images.device
    padded = F.pad(images, (0, 0, 4, 4, 4, 4))
    rows = torch.randint(0, 9, (n, 1), device=device) + torch.arange(32, device=device)
    columns = torch.randint(0, 9, (n, 1), device=device) + torch.arange(32, device=device)
    flip = torch.rand(n, 1, device=device) < 0.5
    columns = torch.where(flip, columns.flip(1), columns)
    return padded[torch.arange(n, device=device)[:, None, None], rows[:, :, None], columns[:, None, :]]


def normalise(images: Tensor) -> Tensor:
    """Normalise uint8 [n, 32, 32, 3] to float32 [n, 3, 32, 32] with the released code's mean and standard deviation."""
    mean, std = (torch.tensor(v, device=images.device) for v in (MEAN, STD))
    return ((images.float() / 255 - mean) / std).permute(0, 3, 1, 2)
