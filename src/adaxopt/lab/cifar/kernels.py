"""Triton kernels for a stack of M small ResNets that train side by side.

Activations are [model, image, row, column, channel] in bfloat16 (or float32), weights [model, 3x3 tap, in, out]. A
single ResNet-20 is too small to fill a GPU and plain PyTorch spends its time in launches and in passes over memory;
here every kernel works for all models at once and the passes are fused:

    forward     conv + per-tile batch statistics | finish statistics | normalise + shortcut + ReLU
    backward    finish BN sums | BN backward + weight gradient | input gradient + shortcut + ReLU mask + BN sums

Statistics are reduced in a fixed order (tiles, then a second kernel), without atomics: a run gives the same bits
every time on the same machine. The three 3x3 columns of a narrow layer are merged into one matrix product
(`MERGED`), because 16 channels are contiguous in memory and too short for a tensor core's appetite.
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
    BATCH,
):
    """Gather, pad by 4, crop, flip, normalise. One program is one image; black padding comes before normalising."""
    image = tl.program_id(0)
    model = tl.program_id(1).to(tl.int64)
    place = model * n + tl.load(cursor) + image
    source = tl.load(order + place)
    code = tl.load(crops + place)
    dy = code % 9
    dx = (code // 9) % 9
    flip = code // 81
    tl.store(y + model * BATCH + image, tl.load(labels + source))
    j = tl.arange(0, 4096)
    c = j % 4
    column = (j // 4) % 32
    row = j // 128 + dy - 4
    column = tl.where(flip == 1, 31 - column, column) + dx - 4
    inside = (row >= 0) & (row < 32) & (column >= 0) & (column < 32)
    pixel = source.to(tl.int64) * 4096 + (row * 32 + column) * 4 + c
    raw = tl.load(images + pixel, mask=inside, other=0).to(tl.float32)
    out = raw * tl.load(table + c) + tl.load(table + 4 + c)
    tl.store(x + (model * BATCH + image) * 4096 + j, out.to(x.dtype.element_ty))


@triton.jit
def conv_forward(
    x,
    w,
    y,
    part,  # [model, 2, CO, tiles]: each tile's sum, and its squares about its own mean
    npix,  # output pixels of one model
    wstride,  # weights of one model
    SIDE: tl.constexpr,  # output rows = columns
    STRIDE: tl.constexpr,
    CI: tl.constexpr,
    CO: tl.constexpr,
    MERGED: tl.constexpr,
    K: tl.constexpr,
    STATS: tl.constexpr,
    BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """y = conv3x3(x), padding 1."""
    tile = tl.program_id(0)
    model = tl.program_id(1).to(tl.int64)
    SIN: tl.constexpr = SIDE * STRIDE
    p = tile * BLOCK + tl.arange(0, BLOCK)
    image = p // (SIDE * SIDE)
    row = (p // SIDE) % SIDE * STRIDE
    column = p % SIDE * STRIDE
    j = tl.arange(0, K)
    co = tl.arange(0, CO)
    x += model * npix * (STRIDE * STRIDE * CI)
    w += model * wstride
    acc = tl.zeros([BLOCK, CO], tl.float32)
    for t in tl.static_range(3 if MERGED else 9):
        if MERGED:
            r = row + t - 1
            start = (image * SIN + r) * SIN + column - 1
            kx = j // CI
            wide = column[:, None] + kx[None, :] - 1
            ok = ((r >= 0) & (r < SIN))[:, None] & (wide >= 0) & (wide < SIN) & (kx < 3)[None, :]
            b = tl.load(
                w + t * (3 * CI * CO) + j[:, None] * CO + co[None, :], mask=(kx < 3)[:, None], other=0.0
            )
        else:
            r = row + t // 3 - 1
            across = column + t % 3 - 1
            start = (image * SIN + r) * SIN + across
            ok = ((r >= 0) & (r < SIN) & (across >= 0) & (across < SIN))[:, None]
            b = tl.load(w + t * (CI * CO) + j[:, None] * CO + co[None, :])
        a = tl.load(x + (start * CI)[:, None] + j[None, :], mask=ok, other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    out = acc.to(y.dtype.element_ty)
    tl.store(y + model * npix * CO + (p * CO)[:, None] + co[None, :], out)
    if STATS:
        f = out.to(tl.float32)
        total = tl.sum(f, 0)
        d = f - (total / BLOCK)[None, :]
        tiles = npix // BLOCK
        at = part + (model * 2 * CO + co) * tiles + tile
        tl.store(at, total)
        tl.store(at + CO * tiles, tl.sum(d * d, 0))


@triton.jit
def finish_forward(
    part,
    stats,  # [4, model, channels of the net]: mean, 1/std, scale, shift
    running,  # [2, model, channels]: mean, variance
    weights,  # flat parameters, float32
    npix,
    wstride,
    gamma,  # offset of this layer's gamma in the flat parameters
    channels,  # of the whole net: gamma and beta, and every table, are [channels]
    offset,  # this layer's first channel
    CO: tl.constexpr,
    BLOCK: tl.constexpr,
    TILES: tl.constexpr,
):
    """Mean and variance from the tiles (Chan's formula), running statistics, scale and shift."""
    c = tl.program_id(0)
    model = tl.program_id(1)
    models = tl.num_programs(1)
    tiles = npix // BLOCK
    i = tl.arange(0, TILES)
    at = part + (model * 2 * CO + c) * tiles + i
    sums = tl.load(at, mask=i < tiles, other=0.0)
    squares = tl.load(at + CO * tiles, mask=i < tiles, other=0.0)
    mean = tl.sum(sums, 0) / npix
    d = tl.where(i < tiles, sums / BLOCK - mean, 0.0)
    variance = (tl.sum(squares, 0) + BLOCK * tl.sum(d * d, 0)) / npix
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
    npix,
    channels,
    offset,
    SIDE: tl.constexpr,
    C: tl.constexpr,
    SHORTCUT: tl.constexpr,  # 0 none, 1 identity, 2 every second pixel with zero channels around
    BLOCK: tl.constexpr,
):
    """out = relu(y*scale + shift + shortcut)."""
    tile = tl.program_id(0)
    model = tl.program_id(1).to(tl.int64)
    plane = tl.num_programs(1) * channels
    p = tile * BLOCK + tl.arange(0, BLOCK)
    c = tl.arange(0, C)
    here = model * npix * C + (p * C)[:, None] + c[None, :]
    table = stats + 2 * plane + model * channels + offset + c
    f = tl.load(y + here).to(tl.float32) * tl.load(table)[None, :] + tl.load(table + plane)[None, :]
    if SHORTCUT == 1:
        f += tl.load(residual + here).to(tl.float32)
    if SHORTCUT == 2:
        row = (p // SIDE) % SIDE * 2
        column = p % SIDE * 2
        q = (p // (SIDE * SIDE) * (2 * SIDE) + row) * (2 * SIDE) + column
        narrow = c - C // 4
        ok = (narrow >= 0) & (narrow < C // 2)
        there = model * npix * (2 * C) + (q * (C // 2))[:, None] + narrow[None, :]
        f += tl.load(residual + there, mask=ok[None, :], other=0.0).to(tl.float32)
    tl.store(out + here, tl.maximum(f, 0.0).to(out.dtype.element_ty))


@triton.jit
def head_gradient(
    dfeature,  # [model, image, C] float32: gradient of the pooled feature, divided by the pixels
    h,
    y,
    dz,
    stats,
    part,  # [model, 2, C, tiles]: sums of dz and of dz * normalised y
    npix,
    channels,
    offset,
    SIDE: tl.constexpr,
    C: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Spread the pooled gradient over the pixels, through the last ReLU."""
    tile = tl.program_id(0)
    model = tl.program_id(1).to(tl.int64)
    plane = tl.num_programs(1) * channels
    p = tile * BLOCK + tl.arange(0, BLOCK)
    c = tl.arange(0, C)
    here = model * npix * C + (p * C)[:, None] + c[None, :]
    image = p // (SIDE * SIDE)
    g = tl.load(dfeature + model * (npix // (SIDE * SIDE)) * C + (image * C)[:, None] + c[None, :])
    out = tl.where(tl.load(h + here).to(tl.float32) > 0, g, 0.0).to(dz.dtype.element_ty)
    tl.store(dz + here, out)
    f = out.to(tl.float32)
    table = stats + model * channels + offset + c
    normal = (tl.load(y + here).to(tl.float32) - tl.load(table)[None, :]) * tl.load(table + plane)[None, :]
    tiles = npix // BLOCK
    at = part + (model * 2 * C + c) * tiles + tile
    tl.store(at, tl.sum(f, 0))
    tl.store(at + C * tiles, tl.sum(f * normal, 0))


@triton.jit
def finish_backward(
    part,
    stats,
    coefficients,  # [3, model, channels]: dy = A*dz + B*y + C
    gradient,  # flat gradients, float32
    npix,
    tiles,
    wstride,
    gamma,
    channels,
    offset,
    C: tl.constexpr,
    TILES: tl.constexpr,
):
    """Gradients of gamma and beta, and the three coefficients of batch norm's backward pass.

    dy = gamma/std * (dz - mean(dz) - n*mean(dz*n)), n = (y - mean)/std.
    """
    c = tl.program_id(0)
    model = tl.program_id(1)
    models = tl.num_programs(1)
    i = tl.arange(0, TILES)
    at = part + (model * 2 * C + c) * tiles + i
    beta = tl.sum(tl.load(at, mask=i < tiles, other=0.0), 0)
    scaled = tl.sum(tl.load(at + C * tiles, mask=i < tiles, other=0.0), 0)
    tl.store(gradient + model * wstride + gamma + c, scaled)
    tl.store(gradient + model * wstride + gamma + channels + c, beta)
    here = model * channels + offset + c
    plane = models * channels
    mean = tl.load(stats + here)
    inverse = tl.load(stats + plane + here)
    scale = tl.load(stats + 2 * plane + here)
    slope = -scale * inverse * scaled / npix
    tl.store(coefficients + here, scale)
    tl.store(coefficients + plane + here, slope)
    tl.store(coefficients + 2 * plane + here, -scale * beta / npix - slope * mean)


@triton.jit
def weight_gradient(
    x,  # the convolution's input
    dz,
    y,
    dy,  # written: the gradient of the convolution's output
    coefficients,
    part,  # [split, model, segment]
    npix,
    segment,  # parameters of one model in this part
    woffset,
    channels,
    offset,
    SIDE: tl.constexpr,
    STRIDE: tl.constexpr,
    CI: tl.constexpr,
    CO: tl.constexpr,
    MERGED: tl.constexpr,
    K: tl.constexpr,
    WRITE: tl.constexpr,
    BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Batch norm's backward pass and, from the same registers, dW = x^T dy over a share of the pixels."""
    share = tl.program_id(0)
    group = tl.program_id(1)  # the tap's row, where taps are not merged
    model = tl.program_id(2).to(tl.int64)
    models = tl.num_programs(2)
    SIN: tl.constexpr = SIDE * STRIDE
    count = npix // tl.num_programs(0)
    j = tl.arange(0, K)
    co = tl.arange(0, CO)
    x += model * npix * (STRIDE * STRIDE * CI)
    base = model * npix * CO
    table = coefficients + model * channels + offset + co
    plane = models * channels
    ca = tl.load(table)[None, :]
    cb = tl.load(table + plane)[None, :]
    cc = tl.load(table + 2 * plane)[None, :]
    w0 = tl.zeros([K, CO], tl.float32)
    w1 = tl.zeros([K, CO], tl.float32)
    w2 = tl.zeros([K, CO], tl.float32)
    for i in range(0, count, BLOCK):
        p = share * count + i + tl.arange(0, BLOCK)
        here = base + (p * CO)[:, None] + co[None, :]
        f = ca * tl.load(dz + here).to(tl.float32) + cb * tl.load(y + here).to(tl.float32) + cc
        g = f.to(dy.dtype.element_ty)
        if WRITE:
            if MERGED:  # noqa: SIM114 (one is known at compile time)
                tl.store(dy + here, g)
            elif group == 1:
                tl.store(dy + here, g)
        image = p // (SIDE * SIDE)
        row = (p // SIDE) % SIDE * STRIDE
        column = p % SIDE * STRIDE
        for t in tl.static_range(3):
            if MERGED:
                r = row + t - 1
                start = (image * SIN + r) * SIN + column - 1
                kx = j // CI
                wide = column[:, None] + kx[None, :] - 1
                ok = ((r >= 0) & (r < SIN))[:, None] & (wide >= 0) & (wide < SIN) & (kx < 3)[None, :]
            else:
                r = row + group - 1
                across = column + t - 1
                start = (image * SIN + r) * SIN + across
                ok = ((r >= 0) & (r < SIN) & (across >= 0) & (across < SIN))[:, None]
            a = tl.load(x + (start * CI)[:, None] + j[None, :], mask=ok, other=0.0)
            if t == 0:
                w0 = tl.dot(tl.trans(a), g, w0, input_precision=PRECISION)
            elif t == 1:
                w1 = tl.dot(tl.trans(a), g, w1, input_precision=PRECISION)
            else:
                w2 = tl.dot(tl.trans(a), g, w2, input_precision=PRECISION)
    part += (share * models + model) * segment + woffset
    if MERGED:
        at = part + j[:, None] * CO + co[None, :]
        real = (j < 3 * CI)[:, None]
        tl.store(at, w0, mask=real)
        tl.store(at + 3 * CI * CO, w1, mask=real)
        tl.store(at + 6 * CI * CO, w2, mask=real)
    else:
        at = part + group * (3 * CI * CO) + j[:, None] * CO + co[None, :]
        tl.store(at, w0)
        tl.store(at + CI * CO, w1)
        tl.store(at + 2 * CI * CO, w2)


@triton.jit
def input_gradient(
    dy,
    w,
    above,  # dz of the block's output: the shortcut's gradient
    h,  # the convolution's input, where its ReLU mask cannot be had from `y`
    y,  # the batch norm's input under that ReLU
    dz,
    stats,
    part,  # [model, 2, CI, tiles]
    npix,  # input pixels of one model
    wstride,
    channels,
    offset,  # of the batch norm of `y`
    SIDE: tl.constexpr,  # input rows
    STRIDE: tl.constexpr,
    CI: tl.constexpr,
    CO: tl.constexpr,
    MERGED: tl.constexpr,
    K: tl.constexpr,
    SHORTCUT: tl.constexpr,
    BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """dz = relu'(h) * (conv's input gradient + shortcut's), and its sums for the batch norm below."""
    tile = tl.program_id(0)
    model = tl.program_id(1).to(tl.int64)
    plane = tl.num_programs(1) * channels
    SOUT: tl.constexpr = SIDE // STRIDE
    p = tile * BLOCK + tl.arange(0, BLOCK)
    image = p // (SIDE * SIDE)
    row = (p // SIDE) % SIDE
    column = p % SIDE
    j = tl.arange(0, K)
    ci = tl.arange(0, CI)
    dy += model * (npix // (STRIDE * STRIDE)) * CO
    w += model * wstride
    acc = tl.zeros([BLOCK, CI], tl.float32)
    for t in tl.static_range(3 if MERGED else 9):
        if MERGED:  # column offset j // CO - 1 belongs to the tap kx = 2 - j // CO
            kx = 2 - j // CO
            r = row + 1 - t
            start = (image * SOUT + r) * SOUT + column - 1
            wide = column[:, None] + 1 - kx[None, :]
            ok = ((r >= 0) & (r < SOUT))[:, None] & (wide >= 0) & (wide < SOUT) & (kx >= 0)[None, :]
            tap = ((t * 3 + kx) * CI * CO + j % CO)[:, None] + ci[None, :] * CO
            b = tl.load(w + tap, mask=(kx >= 0)[:, None], other=0.0)
        else:
            r = row + 1 - t // 3
            across = column + 1 - t % 3
            fits = (r >= 0) & (across >= 0) & (r < SIDE) & (across < SIDE)
            if STRIDE == 2:
                fits = fits & (r % 2 == 0) & (across % 2 == 0)
                r = r // 2
                across = across // 2
            start = (image * SOUT + r) * SOUT + across
            ok = fits[:, None]
            b = tl.load(w + t * (CI * CO) + j[:, None] + ci[None, :] * CO)
        a = tl.load(dy + (start * CO)[:, None] + j[None, :], mask=ok, other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    here = model * npix * CI + (p * CI)[:, None] + ci[None, :]
    table = stats + model * channels + offset + ci
    f = tl.load(y + here).to(tl.float32)
    if SHORTCUT == 0:
        live = f * tl.load(table + 2 * plane)[None, :] + tl.load(table + 3 * plane)[None, :] > 0
    else:
        live = tl.load(h + here).to(tl.float32) > 0
    if SHORTCUT == 1:
        acc += tl.load(above + here).to(tl.float32)
    if SHORTCUT == 2:
        even = (row % 2 == 0) & (column % 2 == 0)
        q = (image * (SIDE // 2) + row // 2) * (SIDE // 2) + column // 2
        there = model * (npix // 4) * (2 * CI) + (q * (2 * CI))[:, None] + (ci + CI // 2)[None, :]
        acc += tl.load(above + there, mask=even[:, None], other=0.0).to(tl.float32)
    out = tl.where(live, acc, 0.0).to(dz.dtype.element_ty)
    tl.store(dz + here, out)
    g = out.to(tl.float32)
    normal = (f - tl.load(table)[None, :]) * tl.load(table + plane)[None, :]
    tiles = npix // BLOCK
    at = part + (model * 2 * CI + ci) * tiles + tile
    tl.store(at, tl.sum(g, 0))
    tl.store(at + CI * tiles, tl.sum(g * normal, 0))
