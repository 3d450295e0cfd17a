"""The ImageNet studies."""

from __future__ import annotations

from adaxlab.imagenet.rules import CLAIMS
from adaxlab.paper.computation import Computation

__all__ = ["CLAIMS", "STUDIES", "TITLE"]

RUN = "adaxlab.imagenet.studies"
TITLE = "Tiny-ImageNet (adax data get tiny-imagenet) or your own ImageNet, a GPU"
STUDIES = (
    Computation("imagenet/tiny", RUN, "table 2 *", "ResNet-18 at the paper's settings"),
    Computation("imagenet/tuning", RUN, "table 2 *", "six learning rates for each method"),
    Computation("imagenet/tuned", RUN, "table 2 *", "each method at its best lr, 3 seeds"),
    Computation("imagenet/tiny-resnet50", RUN, "table 2 *", "ResNet-50, cosine"),
    Computation("imagenet/resnet18", RUN, "table 2", "ResNet-18, the paper's own recipe"),
    Computation("imagenet/resnet50", RUN, "table 2", "ResNet-50"),
)
