"""One step of training with the task `language`, for what is measured outside the lab's loop."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from adaxlab import loop


def take(made: Any, model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any, lr: float) -> Tensor:
    """Loss, gradient, clipping, step at `lr`; the loss before the step."""
    for group in optimizer.param_groups:
        loop.set_lr(group, lr)
    loss, _ = made.loss(model, batch)
    loss.backward()
    made.before_step(model)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.detach()
