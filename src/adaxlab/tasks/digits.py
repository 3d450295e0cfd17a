"""Task `digits`: 1,797 handwritten digits of 8 x 8 pixels and a small convolutional network; the data are included.

Data: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI, 1998 (CC BY 4.0; see
`digits_LICENCE.md`). The first 1,347 images of the file are the training set, the last 450 the test set.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

TRAIN = 1347


class Digits:
    """Ten classes, accuracy on the 450 test images. `width` scales the network: 16 gives 13,706 parameters.

    >>> task = Digits()
    >>> loss, correct = task.loss(task.model(), tuple(t[:5] for t in task.data()["test"]))
    >>> correct.shape
    torch.Size([5])
    """

    metric = "accuracy"
    higher_is_better = True
    epochs = 20
    batch_size = 64
    eval_batch_size = 512
    schedule = "cosine"

    def __init__(self, width: int = 16) -> None:
        self.width = width

    def data(self) -> dict[str, Any]:
        with np.load(Path(__file__).with_name("digits.npz")) as file:
            images, labels = file["images"], file["labels"]
        x = torch.from_numpy(images).float().div_(16).unsqueeze(1)
        y = torch.from_numpy(labels).long()
        return {"train": (x[:TRAIN], y[:TRAIN]), "test": (x[TRAIN:], y[TRAIN:])}

    def model(self) -> nn.Module:
        w = self.width
        return nn.Sequential(
            nn.Conv2d(1, w, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(w, 2 * w, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(8 * w, 4 * w),
            nn.ReLU(),
            nn.Linear(4 * w, 10),
        )

    def loss(self, model: nn.Module, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = batch
        logits = model(x)
        return F.cross_entropy(logits, y), logits.argmax(1) == y
