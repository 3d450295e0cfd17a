"""Triton kernels, backward: see `forward.py` for layouts and names.

Each layer has three kernels: the first finishes the sums of the batch-norm backward pass; the second computes that pass
and the weight gradient; the third computes the input gradient with shortcut, ReLU mask and the sums for the previous
layer.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def head_gradient(
    dfeature,  # [model, image, C] float32: gradient of the pooled feature, divided by the number of pixels
    h,
    y,
    dz,
    stats,
    part,  # [model, 2, C, programs]: sums of dz and of dz * normalised y
    count,
    cap,
    channels,
    offset,
    SIDE: tl.constexpr,
    C: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Propagate the gradient of the pooled feature to the pixels, through the last ReLU."""
    tile = tl.program_id(0)
    model = tl.program_id(1).to(tl.int64)
    plane = tl.num_programs(1) * channels
    PITCH: tl.constexpr = SIDE + 2
    p = tile * BLOCK + tl.arange(0, BLOCK)
    image = p // (SIDE * SIDE)
    c = tl.arange(0, C)
    flat = model * cap * (SIDE * SIDE * C) + (p * C)[:, None] + c[None, :]
    q = (image * PITCH + p // SIDE % SIDE + 1) * PITCH + p % SIDE + 1
    live = tl.load(h + model * cap * (PITCH * PITCH * C) + (q * C)[:, None] + c[None, :]).to(tl.float32) > 0
    g = tl.load(dfeature + model * count * C + (image * C)[:, None] + c[None, :])
    out = tl.where(live, g, 0.0).to(dz.dtype.element_ty)
    tl.store(dz + flat, out)
    f = out.to(tl.float32)
    table = stats + model * channels + offset + c
    normal = (tl.load(y + flat).to(tl.float32) - tl.load(table)[None, :]) * tl.load(table + plane)[None, :]
    programs = tl.num_programs(0)
    at = part + (model * 2 * C + c) * programs + tile
    tl.store(at, tl.sum(f, 0))
    tl.store(at + C * programs, tl.sum(f * normal, 0))


@triton.jit
def finish_backward(
    part,
    stats,
    coefficients,  # [3, model, channels]: dy = A*dz + B*y + C
    gradient,  # flat gradients, float32
    npix,
    programs,
    wstride,
    gamma,
    channels,
    offset,
    C: tl.constexpr,
    TILES: tl.constexpr,
):
    """Compute the gradients of gamma and beta, and the three coefficients of the batch-norm backward pass.

    dy = gamma/std * (dz - mean(dz) - n*mean(dz*n)), n = (y - mean)/std.
    """
    c = tl.program_id(0)
    model = tl.program_id(1)
    models = tl.num_programs(1)
    i = tl.arange(0, TILES)
    at = part + (model * 2 * C + c) * programs + i
    beta = tl.sum(tl.load(at, mask=i < programs, other=0.0), 0)
    scaled = tl.sum(tl.load(at + C * programs, mask=i < programs, other=0.0), 0)
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
    part,  # [share * G, model, segment]
    count,
    cap,
    segment,  # parameters of one model in this part
    woffset,
    channels,
    offset,
    SIDE: tl.constexpr,
    STRIDE: tl.constexpr,
    CI: tl.constexpr,
    CO: tl.constexpr,
    G: tl.constexpr,
    WRITE: tl.constexpr,
    BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Compute the batch-norm backward pass and, from the same registers, dW = x^T dy over a share of the pixels."""
    share = tl.program_id(0)
    group = tl.program_id(1)  # the row of the tap, if taps are processed one by one (G = 0)
    model = tl.program_id(2).to(tl.int64)
    models = tl.num_programs(2)
    SIN: tl.constexpr = SIDE * STRIDE + 2
    PITCH: tl.constexpr = SIDE + 2
    PAIR: tl.constexpr = G if G else 1
    K: tl.constexpr = 4 * CI if G else CI
    N: tl.constexpr = PAIR * CO
    ROWS: tl.constexpr = BLOCK // PAIR
    pixels = count * (SIDE * SIDE) // tl.num_programs(0)
    j = tl.arange(0, K)
    o = tl.arange(0, N)
    x += model * cap * (SIN * SIN * CI)
    y += model * cap * (SIDE * SIDE * CO)
    dz += model * cap * (SIDE * SIDE * CO)
    dy += model * cap * (PITCH * PITCH * CO)
    table = coefficients + model * channels + offset + o % CO
    plane = models * channels
    ca = tl.load(table)[None, :]
    cb = tl.load(table + plane)[None, :]
    cc = tl.load(table + 2 * plane)[None, :]
    STEP: tl.constexpr = SIN * CI if G else CI
    if G == 0:
        x += group * (SIN * CI)
    w0 = tl.zeros([K, N], tl.float32)
    w1 = tl.zeros([K, N], tl.float32)
    w2 = tl.zeros([K, N], tl.float32)
    for i in range(0, pixels, BLOCK):
        p = share * pixels + i + tl.arange(0, ROWS) * PAIR
        image = p // (SIDE * SIDE)
        row = p // SIDE % SIDE
        column = p % SIDE
        flat = (p * CO)[:, None] + o[None, :]
        f = ca * tl.load(dz + flat).to(tl.float32) + cb * tl.load(y + flat).to(tl.float32) + cc
        g = f.to(dy.dtype.element_ty)
        if WRITE:
            here = dy + (((image * PITCH + row + 1) * PITCH + column + 1) * CO)[:, None] + o[None, :]
            if G:  # noqa: SIM114 (this condition is known at compile time)
                tl.store(here, g)
            elif group == 1:
                tl.store(here, g)
        corner = (image * SIN + row * STRIDE) * SIN + column * STRIDE
        at = x + (corner * CI)[:, None] + j[None, :]
        w0 = tl.dot(tl.trans(tl.load(at)), g, w0, input_precision=PRECISION)
        w1 = tl.dot(tl.trans(tl.load(at + STEP)), g, w1, input_precision=PRECISION)
        w2 = tl.dot(tl.trans(tl.load(at + 2 * STEP)), g, w2, input_precision=PRECISION)
    if G:
        kx = (j // CI)[:, None] - (o // CO * STRIDE)[None, :]
        slot = (share * PAIR + o // CO)[None, :] * models + model
        at = part + slot * segment + woffset + (kx * CI + (j % CI)[:, None]) * CO + (o % CO)[None, :]
        real = (kx >= 0) & (kx < 3)
        tl.store(at, w0, mask=real)
        tl.store(at + 3 * CI * CO, w1, mask=real)
        tl.store(at + 6 * CI * CO, w2, mask=real)
    else:
        at = (
            part
            + (share * models + model) * segment
            + woffset
            + group * (3 * CI * CO)
            + j[:, None] * CO
            + o[None, :]
        )
        tl.store(at, w0)
        tl.store(at + CI * CO, w1)
        tl.store(at + 2 * CI * CO, w2)


@triton.jit
def input_gradient(
    dy,
    w,
    above,  # dz of the block's output: the shortcut's gradient
    h,  # the convolution's input, for a ReLU mask that cannot be computed from `y`
    y,  # the input of the batch norm before that ReLU
    dz,
    stats,
    part,  # [model, 2, CI, programs]
    count,
    cap,
    wstride,
    channels,
    offset,  # of the batch norm of `y`
    SIDE: tl.constexpr,  # input rows
    STRIDE: tl.constexpr,
    CI: tl.constexpr,
    CO: tl.constexpr,
    G: tl.constexpr,
    SHORTCUT: tl.constexpr,
    BLOCK: tl.constexpr,
    STEPS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Compute dz = relu'(h) * (input gradient of conv + gradient of shortcut), and its sums for the batch norm below.

    With stride 2 a program processes pixels of one parity (program axis 2), which all use the same 1, 2 or 4 taps.
    """
    tile = tl.program_id(0)
    model = tl.program_id(1).to(tl.int64)
    parity = tl.program_id(2)
    plane = tl.num_programs(1) * channels
    SOUT: tl.constexpr = SIDE // STRIDE
    PITCH: tl.constexpr = SOUT + 2
    PAIR: tl.constexpr = G if G else 1
    K: tl.constexpr = 4 * CO if G else CO
    N: tl.constexpr = PAIR * CI
    ROWS: tl.constexpr = BLOCK // PAIR
    j = tl.arange(0, K)
    o = tl.arange(0, N)
    dy += model * cap * (PITCH * PITCH * CO)
    base = model * cap * (SIDE * SIDE * CI)
    h += model * cap * ((SIDE + 2) * (SIDE + 2) * CI)
    w += model * wstride
    if G:  # window pixel j // CO contributes to output pixel o // CI by the tap kx; row t by ky = 2 - t
        kx = 2 - (j // CO)[:, None] + (o // CI)[None, :]
        tap = w + (kx * CI + (o % CI)[None, :]) * CO + (j % CO)[:, None]
        real = (kx >= 0) & (kx < 3)
        b0 = tl.load(tap + 6 * CI * CO, mask=real, other=0.0)
        b1 = tl.load(tap + 3 * CI * CO, mask=real, other=0.0)
        b2 = tl.load(tap, mask=real, other=0.0)
    table = stats + model * channels + offset + o % CI
    mean = tl.load(table)[None, :]
    inverse = tl.load(table + plane)[None, :]
    scale = tl.load(table + 2 * plane)[None, :]
    shift = tl.load(table + 3 * plane)[None, :]
    total = tl.zeros([ROWS, N], tl.float32)
    scaled = tl.zeros([ROWS, N], tl.float32)
    for step in range(STEPS):
        p = (tile * STEPS + step) * BLOCK + tl.arange(0, ROWS) * PAIR
        py = parity // 2
        px = parity % 2
        image = p // (SOUT * SOUT)
        low = p // SOUT % SOUT  # p counts output pixels; input pixels are at (stride*row + py, ...)
        left = p % SOUT
        row = low * STRIDE + py
        column = left * STRIDE + px
        flat = base + (((image * SIDE + row) * SIDE + column) * CI)[:, None] + o[None, :]
        f = tl.load(y + flat).to(tl.float32)
        acc = tl.zeros([ROWS, N], tl.float32)
        if SHORTCUT == 0:
            live = f * scale + shift > 0
        else:
            q = (image * (SIDE + 2) + row + 1) * (SIDE + 2) + column + 1
            live = tl.load(h + (q * CI)[:, None] + o[None, :]).to(tl.float32) > 0
        if SHORTCUT == 1:
            acc = tl.load(above + flat).to(tl.float32)
        if SHORTCUT == 2:  # noqa: SIM102 (known at compile time)
            if parity == 0:
                there = (
                    model * cap * (SIDE * SIDE * CI // 2) + (p * (2 * CI))[:, None] + (o + CI // 2)[None, :]
                )
                acc = tl.load(above + there).to(tl.float32)
        at = dy + (((image * PITCH + low) * PITCH + left) * CO)[:, None] + j[None, :]
        if G:
            a0 = tl.load(at)
            a1 = tl.load(at + PITCH * CO)
            a2 = tl.load(at + 2 * PITCH * CO)
            acc = tl.dot(a0, b0, acc, input_precision=PRECISION)
            acc = tl.dot(a1, b1, acc, input_precision=PRECISION)
            acc = tl.dot(a2, b2, acc, input_precision=PRECISION)
        elif STRIDE == 1:
            for t in range(9):
                b = tl.load(w + (8 - t) * (CI * CO) + o[None, :] * CO + j[:, None])
                a = tl.load(at + (t // 3 * PITCH + t % 3) * CO)
                acc = tl.dot(a, b, acc, input_precision=PRECISION)
        else:
            for iy in range(1 + py):  # py = 0: the tap ky = 1; py = 1: ky = 0 one row below, then ky = 2
                for ix in range(1 + px):
                    ky = 1 - py + 2 * iy
                    kx = 1 - px + 2 * ix
                    a = tl.load(at + ((1 + py * (1 - iy)) * PITCH + 1 + px * (1 - ix)) * CO)
                    b = tl.load(w + (ky * 3 + kx) * (CI * CO) + o[None, :] * CO + j[:, None])
                    acc = tl.dot(a, b, acc, input_precision=PRECISION)
        out = tl.where(live, acc, 0.0).to(dz.dtype.element_ty)
        tl.store(dz + flat, out)
        g = out.to(tl.float32)
        total += g
        scaled += g * ((f - mean) * inverse)
    s = tl.sum(tl.reshape(tl.sum(total, 0), [PAIR, CI]), 0)
    q2 = tl.sum(tl.reshape(tl.sum(scaled, 0), [PAIR, CI]), 0)
    ci = tl.arange(0, CI)
    programs = tl.num_programs(0) * tl.num_programs(2)
    place = part + (model * 2 * CI + ci) * programs + tile * tl.num_programs(2) + parity
    tl.store(place, s)
    tl.store(place + CI * programs, q2)
