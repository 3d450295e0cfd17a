"""Tile sizes of the kernels of each layer: tuned on an H200, correct on any GPU with enough shared memory."""

from __future__ import annotations

from typing import NamedTuple


class Rows(NamedTuple):
    """The tile of a kernel that goes down the rows of images (`rows.py`)."""

    images: int
    """Images per program."""
    span: int
    """Rows of the output per program; with stride 2, rows of the output's gradient."""
    group: int
    """Neighbouring pixels in one row of the product: 1 or 2. Weight gradients, and stride 2, have 2 only."""
    warps: int
    stages: int
    registers: int | None = None
    """The most registers per thread; None: no limit."""

    def shape(self) -> dict[str, int]:
        """Return the constants that all kernels have."""
        return {"IMAGES": self.images, "SPAN": self.span}

    def options(self) -> dict[str, int]:
        """Return the options of the compiler."""
        limit = {} if self.registers is None else {"maxnreg": self.registers}
        return {"num_warps": self.warps, "num_stages": self.stages, **limit}


class Tiles(NamedTuple):
    """Tile sizes of one kind of layer. Each kernel is the one that goes down rows, or else the general one."""

    forward: Rows | tuple[int, int, int, int]
    """Convolution: pixels per step, warps, steps per program, pipeline stages."""
    input: Rows | tuple[int, int, int, int]
    """Input gradient: the same."""
    weight: Rows | tuple[int, int, int]
    """Weight gradient: pixels per step, warps, pipeline stages."""
    rows: int = 128
    """Pixels per program of the element-wise kernels."""


SLOTS = (32, 32, 8)
"""Number of partial sums of a weight gradient, by stage of the network."""

KINDS: dict[tuple[int, int], Tiles] = {
    (4, 16): Tiles(Rows(4, 32, 2, 4, 2), (256, 4, 4, 1), (256, 4, 2)),
    (16, 16): Tiles(Rows(4, 32, 2, 4, 3), Rows(4, 32, 2, 4, 3), Rows(4, 32, 2, 4, 3)),
    (16, 32): Tiles((128, 4, 4, 1), Rows(4, 16, 2, 4, 1), (64, 4, 3)),
    (32, 32): Tiles(Rows(4, 8, 1, 4, 2), Rows(4, 16, 1, 4, 2), (128, 8, 3)),
    (32, 64): Tiles((64, 4, 4, 1), Rows(8, 8, 2, 8, 1, 128), (32, 4, 2)),
    (64, 64): Tiles((128, 4, 1, 3), (128, 4, 1, 3), (64, 4, 3)),
}
"""By (input channels as stored, output channels)."""

FEW = 8
"""Fewer models than this do not fill a GPU with programs that go down rows."""

KINDS_FEW: dict[tuple[int, int], Tiles] = {
    (4, 16): Tiles((256, 4, 4, 1), (256, 4, 4, 1), (128, 4, 2)),
    (16, 16): Tiles((128, 4, 8, 1), (128, 4, 8, 2), (64, 4, 4)),
    (16, 32): Tiles((128, 4, 4, 2), (128, 4, 4, 1), (64, 4, 2)),
    (32, 32): Tiles((128, 4, 8, 1), (128, 4, 4, 1), (128, 8, 3)),
    (32, 64): Tiles((64, 4, 2, 1), (64, 4, 2, 2), (32, 8, 2)),
    (64, 64): Tiles((128, 4, 1, 3), (128, 4, 1, 3), (64, 4, 3)),
}

SLOTS_FEW = (128, 32, 16)
"""Of few models, and of float32."""

KINDS_FLOAT32: dict[tuple[int, int], Tiles] = {
    (4, 16): Tiles((256, 4, 4, 1), (256, 4, 4, 1), (128, 4, 1)),
    (16, 16): Tiles((128, 4, 4, 1), (128, 4, 4, 1), (64, 4, 1)),
    (16, 32): Tiles((64, 4, 4, 1), (128, 4, 4, 1), (32, 4, 1)),
    (32, 32): Tiles((64, 8, 4, 1), (64, 8, 4, 1), (32, 8, 1)),
    (32, 64): Tiles((32, 8, 2, 1), (64, 4, 2, 1), (32, 8, 1)),
    (64, 64): Tiles((64, 4, 1, 1), (64, 4, 1, 1), (32, 4, 1)),
}
"""Smaller tiles for float32. They compile for compute capability 9.0; they are not tuned."""


def programs(tile: Rows | tuple[int, int, int, int], count: int, side: int, *, exact: bool = True) -> int:
    """Return the number of programs for `count` images of side x side pixels; raise ValueError if they do not fit.

    Unless `exact`, the last program that goes down rows may repeat images of the one before.
    """
    if not isinstance(tile, Rows):
        block, _, steps, _ = tile
        return whole(count, side, block * steps)
    if side % tile.span or count < tile.images or (exact and count % tile.images):
        raise ValueError(_misfit(count, side, f"{tile.span} rows of {tile.images} images"))
    return -(-count // tile.images) * (side // tile.span)


def whole(count: int, side: int, pixels: int) -> int:
    """Return the number of programs of `pixels` pixels each; raise ValueError if they do not fit."""
    if count * side**2 % pixels:
        raise ValueError(_misfit(count, side, f"{pixels} pixels"))
    return count * side**2 // pixels


def _misfit(count: int, side: int, tile: str) -> str:
    return (
        f"a batch of {count} images, {side}x{side} pixels in some layer, cannot be divided into tiles of {tile}: "
        "choose another batch size or number of images"
    )


def default(models: int, float32: bool) -> tuple[dict[tuple[int, int], Tiles], tuple[int, ...]]:
    """Return the tiles and the slots of a stack."""
    if float32:
        return KINDS_FLOAT32, SLOTS_FEW
    return (KINDS_FEW, SLOTS_FEW) if models < FEW else (KINDS, SLOTS)
