"""Settings of an ImageNet run other than optimizer, schedule and length: the network and its input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from adaxlab.errors import LabError, check_known
from adaxlab.models.imagenet import LAYERS, STEMS

PRECISIONS = ("bf16", "tf32", "fp32", "fp64")
SCHEDULE = {"name": "step", "warmup": 0.05, "milestones": [0.3, 0.6, 0.9], "gamma": 0.1}
"""The paper's ResNet-18 schedule: linear warmup over 25,000 of 500,000 steps, lr x0.1 at 150,000, 300,000, 450,000."""


@dataclass(frozen=True)
class ImageNetRecipe:
    """Options of the task `imagenet` that affect the result of a run."""

    model: str = "resnet18"
    stem: str = "small"
    size: int = 64
    """Side of the network's input."""
    stored: int = 64
    """Side of the images in the cache."""
    groups: int = 1
    """Number of parts of a batch with separate batch-norm statistics; the paper's 8 GPUs had 8 parts of 32."""
    width: int = 64
    precision: str = "bf16"
    holdout: float = 0.1
    """Fraction of the training images that a tuning run holds out for its evaluation."""

    def __post_init__(self) -> None:
        for key, known in {"model": tuple(LAYERS), "stem": STEMS, "precision": PRECISIONS}.items():
            check_known(key, known, getattr(self, key))
        if self.size > self.stored:
            raise LabError(f"size={self.size}: must be <= stored={self.stored}, the images in the cache")
        for key in ("size", "groups", "width"):
            if getattr(self, key) < 1:
                raise LabError(f"{key}={getattr(self, key)}: must be >= 1")
        if not 0 < self.holdout < 1:
            raise LabError(f"holdout={self.holdout}: must be between 0 and 1")

    def network(self) -> dict[str, Any]:
        """Return the options of `adaxlab.models.imagenet.resnet`."""
        return {"name": self.model, "stem": self.stem, "groups": self.groups, "width": self.width}
