"""Cross entropy without the void, and mean intersection over union from one confusion matrix."""

from __future__ import annotations

import torch
from torch import Tensor

from adaxlab.data.segmentation.images import VOID


def cross_entropy(scores: Tensor, classes: Tensor) -> Tensor:
    """Mean of -log P(class) over the pixels that are not void; 0 when all are.

    scores [n, C, height, width], classes [n, height, width]. Spelled out because torch's own sums over pixels in an
    order that changes from call to call on a GPU.
    """
    valid = classes != VOID
    chosen = torch.where(valid, classes, torch.zeros_like(classes))
    log_p = torch.log_softmax(scores, 1).gather(1, chosen[:, None])[:, 0]
    return -(log_p * valid).sum() / valid.sum().clamp(min=1)


def confusion(classes: Tensor, predicted: Tensor, count: int) -> Tensor:
    """[count, count] int64: pixels of class i (row) that were called j (column); void pixels are in no row.

    A product of indicator matrices: it does not wait for a GPU, and float32 counts to 2^24 pixels exactly.
    """
    kinds = torch.arange(count, device=classes.device)
    is_class = (classes.reshape(-1, 1) == kinds).float()
    is_called = (predicted.reshape(-1, 1) == kinds).float()
    return (is_class.T @ is_called).long()


def mean_iou(matrix: Tensor) -> Tensor:
    """Mean over classes of TP/(TP + FP + FN); a class that is neither there nor predicted is left out.

    >>> round(mean_iou(torch.tensor([[3, 1], [0, 2]])).item(), 4)             # 3/4 and 2/3
    0.7083
    """
    matrix = matrix.double()
    both = matrix.diagonal()
    union = matrix.sum(0) + matrix.sum(1) - both
    seen = union > 0
    iou = torch.where(seen, both / union.clamp(min=1), torch.zeros_like(both))
    return iou.sum() / seen.sum().clamp(min=1)
