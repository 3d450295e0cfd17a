"""Triton kernels, forward: augmentation, convolution with batch statistics, normalisation with shortcut and ReLU.

A single ResNet-20 is too small to use a GPU fully, and in plain PyTorch launches and memory traffic dominate. Here
every kernel works on all models at once, and passes over memory are fused:

    forward     conv + batch statistics per tile | finish statistics | normalise + shortcut + ReLU
    backward    finish BN sums | BN backward + weight gradient | input gradient + shortcut + ReLU mask + BN sums

Design:
- Activations are [model, image, row, column, channel]. The inputs of convolutions have a border of one zero pixel that
  is never written, so loads need no mask and the three rows of taps are constant offsets.
- Narrow layers compute G = 2 neighbouring pixels as one row of a matrix product: a window of 4 pixels x CI channels,
  contiguous in memory, times a [4 CI, 2 CO] matrix whose entry is the tap (window pixel - output pixel), or 0.
- Sums are reduced in a fixed order (tiles, then a second kernel), without atomics: results are deterministic.

`cap` is the capacity of the buffers in images; a batch may be smaller. `h`, `x` and `dy` have borders, `y` and `dz`
have none.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def augment(
    images,  # [n, 32, 32, 4] uint8, the fourth channel unused
    labels,  # [n] int64
    order,  # [model, n] int32: the epoch's order of images
    crops,  # [model, n] int32: dy + 9*dx + 81*flip
    cursor,  # int32: the first position of this batch
    table,  # [2, 4] float32: x = raw*table[0] + table[1]
    x,
    y,
    n,
    count,
    cap,
):
    """Gather, pad by 4, crop, flip, normalise. One program per image; padding is black before normalisation."""
    image = tl.program_id(0)
    model = tl.program_id(1).to(tl.int64)
    place = model * n + tl.load(cursor) + image
    source = tl.load(order + place)
    code = tl.load(crops + place)
    flip = code // 81
    tl.store(y + model * count + image, tl.load(labels + source))
    j = tl.arange(0, 4096)
    c = j % 4
    column = (j // 4) % 32
    row = j // 128 + code % 9 - 4
    there = tl.where(flip == 1, 31 - column, column) + (code // 9) % 9 - 4
    inside = (row >= 0) & (row < 32) & (there >= 0) & (there < 32)
    raw = tl.load(images + source.to(tl.int64) * 4096 + (row * 32 + there) * 4 + c, mask=inside, other=0)
    out = raw.to(tl.float32) * tl.load(table + c) + tl.load(table + 4 + c)
    here = (model * cap + image) * (34 * 34 * 4) + ((j // 128 + 1) * 34 + column + 1) * 4 + c
    tl.store(x + here, out.to(x.dtype.element_ty))


@triton.jit
def conv_forward(
    x,
    w,
    y,
    part,  # [model, 2, CO, programs]: sum of each program, and sum of squared deviations from its mean
    count,
    cap,
    wstride,  # parameters of one model
    SIDE: tl.constexpr,  # output rows = columns
    STRIDE: tl.constexpr,
    CI: tl.constexpr,
    CO: tl.constexpr,
    G: tl.constexpr,  # pixels per row of the product; 0: tap by tap
    STATS: tl.constexpr,
    BLOCK: tl.constexpr,  # pixels per step
    STEPS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """y = conv3x3(x), padding 1."""
    tile = tl.program_id(0)
    model = tl.program_id(1).to(tl.int64)
    PITCH: tl.constexpr = SIDE * STRIDE + 2
    PAIR: tl.constexpr = G if G else 1
    K: tl.constexpr = 4 * CI if G else CI
    N: tl.constexpr = PAIR * CO
    ROWS: tl.constexpr = BLOCK // PAIR
    j = tl.arange(0, K)
    o = tl.arange(0, N)
    x += model * cap * (PITCH * PITCH * CI)
    y += model * cap * (SIDE * SIDE * CO)
    w += model * wstride
    if G:
        kx = (j // CI)[:, None] - (o // CO * STRIDE)[None, :]
        tap = w + (kx * CI + (j % CI)[:, None]) * CO + (o % CO)[None, :]
        real = (kx >= 0) & (kx < 3)
        b0 = tl.load(tap, mask=real, other=0.0)
        b1 = tl.load(tap + 3 * CI * CO, mask=real, other=0.0)
        b2 = tl.load(tap + 6 * CI * CO, mask=real, other=0.0)
    total = tl.zeros([ROWS, N], tl.float32)
    squares = tl.zeros([ROWS, N], tl.float32)
    for step in range(STEPS):
        p = (tile * STEPS + step) * BLOCK + tl.arange(0, ROWS) * PAIR
        corner = (p // (SIDE * SIDE) * PITCH + p // SIDE % SIDE * STRIDE) * PITCH + p % SIDE * STRIDE
        at = x + (corner * CI)[:, None] + j[None, :]
        acc = tl.zeros([ROWS, N], tl.float32)
        if G:
            a0 = tl.load(at)
            a1 = tl.load(at + PITCH * CI)
            a2 = tl.load(at + 2 * PITCH * CI)
            acc = tl.dot(a0, b0, acc, input_precision=PRECISION)
            acc = tl.dot(a1, b1, acc, input_precision=PRECISION)
            acc = tl.dot(a2, b2, acc, input_precision=PRECISION)
        else:
            for t in range(9):
                b = tl.load(w + t * (CI * CO) + j[:, None] * CO + o[None, :])
                a = tl.load(at + (t // 3 * PITCH + t % 3) * CI)
                acc = tl.dot(a, b, acc, input_precision=PRECISION)
        out = acc.to(y.dtype.element_ty)
        tl.store(y + (p * CO)[:, None] + o[None, :], out)
        if STATS:
            f = out.to(tl.float32)
            total += f
            squares += f * f
    if STATS:
        s = tl.sum(tl.reshape(tl.sum(total, 0), [PAIR, CO]), 0)
        q = tl.sum(tl.reshape(tl.sum(squares, 0), [PAIR, CO]), 0)
        co = tl.arange(0, CO)
        programs = tl.num_programs(0)
        place = part + (model * 2 * CO + co) * programs + tile
        tl.store(place, s)
        tl.store(place + CO * programs, tl.maximum(q - s * s / (BLOCK * STEPS), 0.0))


@triton.jit
def finish_forward(
    part,
    stats,  # [4, model, channels of the net]: mean, 1/std, scale, shift
    running,  # [2, model, channels]: mean, variance
    weights,  # flat parameters, float32
    npix,  # pixels of one model in this batch
    programs,
    wstride,
    gamma,  # offset of this layer's gamma in the flat parameters
    channels,  # of the whole network: gamma, beta and all tables are [channels]
    offset,  # this layer's first channel
    CO: tl.constexpr,
    TILES: tl.constexpr,
):
    """Compute mean and variance from the tiles (Chan's formula), running statistics, scale and shift."""
    c = tl.program_id(0)
    model = tl.program_id(1)
    models = tl.num_programs(1)
    each = npix // programs
    i = tl.arange(0, TILES)
    at = part + (model * 2 * CO + c) * programs + i
    sums = tl.load(at, mask=i < programs, other=0.0)
    squares = tl.load(at + CO * programs, mask=i < programs, other=0.0)
    mean = tl.sum(sums, 0) / npix
    d = tl.where(i < programs, sums / each - mean, 0.0)
    variance = (tl.sum(squares, 0) + each * tl.sum(d * d, 0)) / npix
    inverse = 1.0 / tl.sqrt(variance + 1e-5)
    scale = tl.load(weights + model * wstride + gamma + c) * inverse
    shift = tl.load(weights + model * wstride + gamma + channels + c) - mean * scale
    here = model * channels + offset + c
    plane = models * channels
    tl.store(stats + here, mean)
    tl.store(stats + plane + here, inverse)
    tl.store(stats + 2 * plane + here, scale)
    tl.store(stats + 3 * plane + here, shift)
    old = tl.load(running + here)
    tl.store(running + here, old + 0.1 * (mean - old))
    old = tl.load(running + plane + here)
    tl.store(running + plane + here, old + 0.1 * (variance * (npix / (npix - 1.0)) - old))


@triton.jit
def activate(
    y,
    residual,
    out,
    stats,
    cap,
    channels,
    offset,
    SIDE: tl.constexpr,
    C: tl.constexpr,
    SHORTCUT: tl.constexpr,  # 0 none, 1 identity, 2 every second pixel, zero-padded channels
    BLOCK: tl.constexpr,
):
    """out = relu(y*scale + shift + shortcut)."""
    model = tl.program_id(1).to(tl.int64)
    plane = tl.num_programs(1) * channels
    PITCH: tl.constexpr = SIDE + 2
    WIDE: tl.constexpr = 2 * SIDE + 2
    p = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    image = p // (SIDE * SIDE)
    row = p // SIDE % SIDE
    column = p % SIDE
    c = tl.arange(0, C)
    table = stats + 2 * plane + model * channels + offset + c
    f = tl.load(y + model * cap * (SIDE * SIDE * C) + (p * C)[:, None] + c[None, :]).to(tl.float32)
    f = f * tl.load(table)[None, :] + tl.load(table + plane)[None, :]
    here = (
        model * cap * (PITCH * PITCH * C)
        + (((image * PITCH + row + 1) * PITCH + column + 1) * C)[:, None]
        + c[None, :]
    )
    if SHORTCUT == 1:
        f += tl.load(residual + here).to(tl.float32)
    if SHORTCUT == 2:
        q = (image * WIDE + 2 * row + 1) * WIDE + 2 * column + 1
        narrow = c - C // 4
        ok = (narrow >= 0) & (narrow < C // 2)
        there = model * cap * (WIDE * WIDE * (C // 2)) + (q * (C // 2))[:, None] + narrow[None, :]
        f += tl.load(residual + there, mask=ok[None, :], other=0.0).to(tl.float32)
    tl.store(out + here, tl.maximum(f, 0.0).to(out.dtype.element_ty))
