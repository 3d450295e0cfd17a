"""Parameter shapes of the models that steps are timed on."""

from __future__ import annotations

Shapes = list[tuple[int, ...]]


def one_tensor() -> Shapes:
    """2**28 numbers in one tensor: bandwidth and nothing else."""
    return [(1 << 28,)]


def transformer(width: int, layers: int) -> Shapes:
    """Layers of pre-norm attention and a feed-forward net of four times the width, and a last norm."""
    shapes: Shapes = []
    for _ in range(layers):
        shapes += [(width,), (width,), (3 * width, width), (3 * width,), (width, width), (width,)]
        shapes += [(width,), (width,), (4 * width, width), (4 * width,), (width, 4 * width), (width,)]
    return [*shapes, (width,), (width,)]


def gpt2_medium() -> Shapes:
    """355M numbers in 292 tensors: 24 layers of width 1024, tied output."""
    return [(50257, 1024), (1024, 1024), *transformer(1024, 24)]


def gpt2_small() -> Shapes:
    """124M numbers in 148 tensors: 12 layers of width 768, tied output."""
    return [(50257, 768), (1024, 768), *transformer(768, 12)]


def vit_small() -> Shapes:
    """22M numbers in 152 tensors: 12 layers of width 384 over 16 x 16 patches of 224 x 224 images."""
    width = 384
    head: Shapes = [(width, 3, 16, 16), (width,), (1, 1, width), (1, 197, width)]
    return [*head, *transformer(width, 12), (1000, width), (1000,)]


def resnet50() -> Shapes:
    """25.6M numbers in 161 tensors."""
    shapes: Shapes = [(64, 3, 7, 7), (64,), (64,)]
    inside = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            outside = 4 * width
            shapes += [(width, inside, 1, 1), (width,), (width,), (width, width, 3, 3), (width,), (width,)]
            shapes += [(outside, width, 1, 1), (outside,), (outside,)]
            if block == 0:
                shapes += [(outside, inside, 1, 1), (outside,), (outside,)]
            inside = outside
    return [*shapes, (1000, 2048), (1000,)]


def resnet20() -> Shapes:
    """0.27M numbers in 59 tensors: the CIFAR net with parameter-free shortcuts."""
    shapes: Shapes = [(16, 3, 3, 3), (16,), (16,)]
    inside = 16
    for width in (16, 32, 64):
        for _ in range(3):
            shapes += [(width, inside, 3, 3), (width,), (width,), (width, width, 3, 3), (width,), (width,)]
            inside = width
    return [*shapes, (10, 64), (10,)]


MODELS = {
    "256M": one_tensor,
    "GPT-2 medium": gpt2_medium,
    "ResNet-50": resnet50,
    "ResNet-20": resnet20,
}
ADAMW_MODELS = {
    "64M": lambda: [(1 << 26,)],
    "GPT-2 small": gpt2_small,
    "GPT-2 medium": gpt2_medium,
    "ViT-S": vit_small,
    "ResNet-50": resnet50,
}
"""What benchmarks/adamw.py times AdamW on."""
