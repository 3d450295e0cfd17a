"""Cross entropy that ignores void pixels, and mean intersection over union from a confusion matrix."""

from __future__ import annotations

import torch
from torch import Tensor

from adaxlab.data.segmentation.images import VOID


def cross_entropy(scores: Tensor, classes: Tensor) -> Tensor:
    """Return the mean of -log P(class) over the pixels that are not void; 0 if all are.

    scores [n, C, height, width], classes [n, height, width]. torch's own function is not deterministic on a GPU.
    """
    valid = classes != VOID
    chosen = torch.where(valid, classes, torch.zeros_like(classes))
    log_p = torch.log_softmax(scores, 1).gather(1, chosen[:, None])[:, 0]
    return -(log_p * valid).sum() / valid.sum().clamp(min=1)


def confusion(classes: Tensor, predicted: Tensor, count: int) -> Tensor:
    """Return [count, count] int64: the number of pixels of class i (row) predicted as j (column), without void pixels.

    A product of indicator matrices: it does not synchronise with a GPU, and float32 counts up to 2^24 pixels exactly.
    """
    kinds = torch.arange(count, device=classes.device)
    is_class = (classes.reshape(-1, 1) == kinds).float()
    is_called = (predicted.reshape(-1, 1) == kinds).float()
    return (is_class.T @ is_called).long()


def mean_iou(matrix: Tensor) -> Tensor:
    """Return the mean over classes of TP/(TP + FP + FN), without classes that neither occur nor are predicted.

    >>> round(mean_iou(torch.tensor([[3, 1], [0, 2]])).item(), 4)             # 3/4 and 2/3
    0.7083
    """
    matrix = matrix.double()
    both = matrix.diagonal()
    union = matrix.sum(0) + matrix.sum(1) - both
    seen = union > 0
    iou = torch.where(seen, both / union.clamp(min=1), torch.zeros_like(both))
    return iou.sum() / seen.sum().clamp(min=1)
