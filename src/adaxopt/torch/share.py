"""Parameters that a backend steps together: what `plan.py` gives a backend, and what it asks of it at every step."""

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
    """Parameters that a backend steps together, as reals of this process."""

    method: Method
    group: Mapping[str, Any]
    owners: list[Tensor]
    """What the optimizer knows them as."""
    entries: list[dict[str, Any]]
    """Their state, as the optimizer holds it."""
    xs: list[Tensor]
    states: list[dict[str, Tensor]]
    dtype: torch.dtype
    """Of gradients."""
    indices: Sequence[int]
    """Places in the optimizer, and of the first element in the whole tensor: random bits are drawn from them."""
    offsets: Sequence[int]
    inactive: dict[Tensor, Inactive]
    """What is known of late-activated coordinates."""


class Share:
    """The parameters of one part, ready to be stepped. A backend's own is a subclass."""

    on_host = False
    """Whether the host reads GradScaler's `found_inf` before the step; otherwise the device does."""
    by_address = False
    """Whether `Plan.holds` compares addresses of parameters and state alone; otherwise also which tensors they are,
    their dtypes, shapes and strides."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.alike: Callable[..., bool] = lambda *grads: False
        """Whether gradients look as those that were last found to be servable: asked at every step."""

    def moved(self, grads: Sequence[Tensor | None], scaled: bool) -> bool:
        """Whether a gradient belongs into another share."""
        return False

    def step(
        self,
        group: dict[str, Any],
        grads: Sequence[Tensor | None],
        scale: Tensor | None,
        found: Tensor | None,
        known: bool,
    ) -> dict[int, str | None]:
        """Step every parameter that has a gradient; return positions that were left alone because of theirs, and why.

        `known`: the gradients are `alike`.
        """
        raise NotImplementedError
