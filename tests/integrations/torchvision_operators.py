"""Give timm a torchvision that imports, in this test environment only.

timm imports torchvision, whose build for a torch without CUDA is not on every index. Another build stands in a folder
of its own (out of the other frameworks' way); its compiled part does not load here, and its Python part stops at two
operators that nobody declared. Their schemas are all that timm's import needs, and none of its models call them.
"""

import importlib.util
import sys
from pathlib import Path

import torch

FOLDER = Path(sys.prefix) / "torchvision-for-timm"
OPERATORS = ("nms", "qnms")


def declare():
    """Do nothing where torchvision is properly installed."""
    if importlib.util.find_spec("torchvision") is not None:
        return
    if not FOLDER.exists():
        raise ImportError(
            f"timm needs torchvision: pip install --no-deps --target {FOLDER} torchvision==0.28.0"
        )
    sys.path.append(str(FOLDER))
    declare.library = torch.library.Library("torchvision", "DEF")  # kept: it ends with its owner
    for name in OPERATORS:
        declare.library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
