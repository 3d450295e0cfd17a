"""How a network is trained: the paper's recipe for ImageNet, as shares of the run, so that it can be shortened."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from adaxlab.errors import LabError, unknown

SHAPES = ("step", "cosine")
PRECISIONS = ("bf16", "tf32", "fp32", "fp64")


@dataclass(frozen=True)
class Recipe:
    """Network, pictures, length and learning rate: what all runs of a study share.

    The paper's ResNet-18 runs 500,000 steps of 256 pictures: linear warmup over the first 25,000 (5%), lr x0.1 at
    150,000, 300,000 and 450,000 (30%, 60%, 90%). Its ResNet-50 has the same warmup, then a cosine to 1e-6. Weight decay
    is on all parameters, norms and biases included.
    """

    model: str = "resnet18"
    stem: str = "small"
    size: int = 64
    """Side of the crop that the network sees."""
    stored: int = 64
    """Side of the pictures in the cache."""
    epochs: int = 20
    batch: int = 256
    shape: str = "step"
    warmup: float = 0.05
    milestones: tuple[float, ...] = (0.3, 0.6, 0.9)
    final_lr: float = 1e-6
    """Where a cosine ends."""
    groups: int = 1
    """Parts of a batch with statistics of their own in the norms; the paper's 8 GPUs had 8 parts of 32."""
    width: int = 64

    def __post_init__(self) -> None:
        if self.shape not in SHAPES:
            raise unknown("shape", self.shape, SHAPES)
        if self.size > self.stored:
            raise LabError(f"size={self.size}: must be <= stored={self.stored}, the pictures in the cache")
        for key in ("size", "epochs", "batch", "groups"):
            if getattr(self, key) < 1:
                raise LabError(f"{key}={getattr(self, key)}: must be >= 1")

    def schedule(self, lr: float) -> dict[str, Any]:
        """The lab's schedule at this lr.

        >>> Recipe(shape="cosine").schedule(0.1)
        {'name': 'cosine', 'warmup': 0.05, 'final': 1e-05}
        """
        if self.shape == "cosine":
            return {"name": "cosine", "warmup": self.warmup, "final": float(f"{self.final_lr / lr:.6g}")}
        return {"name": "step", "warmup": self.warmup, "milestones": list(self.milestones), "gamma": 0.1}

    def steps(self, images: int) -> int:
        """T: steps of a run on so many pictures.

        >>> Recipe().steps(100_000), Recipe(epochs=100).steps(1_281_167)
        (7820, 500500)
        """
        return self.epochs * math.ceil(images / self.batch)

    def network(self) -> dict[str, Any]:
        """Options of `adaxlab.models.imagenet.resnet`."""
        return {"name": self.model, "stem": self.stem, "groups": self.groups, "width": self.width}
