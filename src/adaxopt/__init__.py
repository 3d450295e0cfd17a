"""AdaX for PyTorch, JAX and Keras. A framework is imported when one of its names is first used.

>>> from adaxopt import AdaXW
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from adaxopt.memories import Equal, Fading, Growing, LogTime, Polynomial, Power
    from adaxopt.torch import (
        Adam,
        AdamW,
        AdaX,
        AdaXW,
        Ball,
        Box,
        Padax,
        cast_state_dict,
        clip_grad_norm_,
        create,
        float32_weights,
        load_adamw_state_dict,
        load_released_state_dict,
        param_groups,
        step_in_backward,
    )

__all__ = [
    "AdaX",
    "AdaXW",
    "Adam",
    "AdamW",
    "Ball",
    "Box",
    "Equal",
    "Fading",
    "Growing",
    "LogTime",
    "Padax",
    "Polynomial",
    "Power",
    "cast_state_dict",
    "clip_grad_norm_",
    "create",
    "float32_weights",
    "load_adamw_state_dict",
    "load_released_state_dict",
    "param_groups",
    "step_in_backward",
]

MEMORIES = ("Equal", "Fading", "Growing", "LogTime", "Polynomial", "Power")
"""Names that need no framework."""

if not TYPE_CHECKING:  # with a module-level __getattr__, a type checker accepts every attribute name

    def __getattr__(name: str) -> Any:
        if name in MEMORIES:
            from adaxopt import memories

            return getattr(memories, name)
        if name in __all__:
            from adaxopt import torch

            return getattr(torch, name)
        raise AttributeError(f"module 'adaxopt' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
