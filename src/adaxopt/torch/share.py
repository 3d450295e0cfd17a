"""The interface between `plan.py` and a backend: `Part` is its input, `Share` the step of these parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from adaxopt.zoo import Method

if TYPE_CHECKING:
    from adaxopt.torch.wake_guard import Inactive


@dataclass
class Part:
    """Parameters that a backend steps together, as local real tensors."""

    method: Method
    group: Mapping[str, Any]
    owners: list[Tensor]
    """The parameters as they are in the param group."""
    entries: list[dict[str, Any]]
    """Their entries in `optimizer.state`."""
    xs: list[Tensor]
    states: list[dict[str, Tensor]]
    dtype: torch.dtype
    """The dtype of gradients."""
    indices: Sequence[int]
    """Indices of the parameters in the optimizer. These and `offsets`, the global indices of their first elements,
    determine the random bits."""
    offsets: Sequence[int]
    inactive: dict[Tensor, Inactive]
    """What is known about coordinates that have received no gradient yet (see `wake_guard`)."""


class Share:
    """The parameters of one part and their step. Each backend defines a subclass."""

    on_host = False
    """Whether the host reads GradScaler's `found_inf` before the step; otherwise the device does."""
    by_address = False
    """Whether `Plan.holds` compares only the addresses of parameters and state, or also their identity, dtypes, shapes
    and strides."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.alike: Callable[..., bool] = lambda *grads: False
        """Whether gradients have the same metadata as the last supported ones; called at every step."""

    def moved(self, grads: Sequence[Tensor | None], scaled: bool) -> bool:
        """Whether a gradient now requires another share."""
        return False

    def step(
        self,
        group: dict[str, Any],
        grads: Sequence[Tensor | None],
        scale: Tensor | None,
        found: Tensor | None,
        known: bool,
    ) -> dict[int, str | None]:
        """Step every parameter that has a gradient.

        Returns the indices of parameters that were skipped because of their gradient, with the reason. `known` says
        that the gradients are `alike`.
        """
        raise NotImplementedError
