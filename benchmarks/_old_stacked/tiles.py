"""Tile sizes of the kernels of each layer: tuned on an H200, correct on any GPU with enough shared memory."""

from __future__ import annotations

from typing import NamedTuple


class Tiles(NamedTuple):
    """Tile sizes of one kind of layer."""

    forward: tuple[int, int, int, int]
    """Convolution: pixels per step, warps, steps per program, pipeline stages."""
    input: tuple[int, int, int, int]
    """Input gradient: the same."""
    weight: tuple[int, int, int]
    """Weight gradient: pixels per step, warps, pipeline stages."""
    rows: int = 128
    """Pixels per program of the element-wise kernels."""


SLOTS = (128, 32, 16)
"""Number of partial sums of a weight gradient, by stage of the network."""

KINDS: dict[tuple[int, int], Tiles] = {
    (4, 16): Tiles((256, 4, 4, 1), (256, 4, 4, 1), (128, 4, 2)),
    (16, 16): Tiles((128, 4, 8, 1), (128, 4, 8, 2), (64, 4, 4)),
    (16, 32): Tiles((128, 4, 4, 2), (128, 4, 4, 1), (64, 4, 2)),
    (32, 32): Tiles((128, 4, 8, 1), (128, 4, 4, 1), (128, 8, 3)),
    (32, 64): Tiles((64, 4, 2, 1), (64, 4, 2, 2), (32, 8, 2)),
    (64, 64): Tiles((128, 4, 1, 3), (128, 4, 1, 3), (64, 4, 3)),
}
"""By (input channels as stored, output channels)."""

KINDS_FLOAT32: dict[tuple[int, int], Tiles] = {
    (4, 16): Tiles((256, 4, 4, 1), (256, 4, 4, 1), (128, 4, 1)),
    (16, 16): Tiles((128, 4, 4, 1), (128, 4, 4, 1), (64, 4, 1)),
    (16, 32): Tiles((64, 4, 4, 1), (128, 4, 4, 1), (32, 4, 1)),
    (32, 32): Tiles((64, 8, 4, 1), (64, 8, 4, 1), (32, 8, 1)),
    (32, 64): Tiles((32, 8, 2, 1), (64, 4, 2, 1), (32, 8, 1)),
    (64, 64): Tiles((64, 4, 1, 1), (64, 4, 1, 1), (32, 4, 1)),
}
"""Smaller tiles for float32. They compile for compute capability 9.0; they are not tuned."""
