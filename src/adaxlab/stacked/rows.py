"""Triton kernels that go down the rows of images: see `forward.py` for layouts and names.

A program goes down SPAN rows of IMAGES images. Each row of the input is loaded once, multiplied by the three rows of
taps, and added to three rows of the output, of which the first is then complete:

    out, first, second = first + row @ taps[2], second + row @ taps[1], row @ taps[0]

so two unfinished rows of the output stay in registers, and the next rows of the input are on their way to shared memory
(Triton's pipeline of loads). One row of a product is G neighbouring pixels of one image: with G = 2 a window of 4
pixels, contiguous in memory; with G = 1 one pixel, and the three columns of taps (b, c, d) are three products. With
G = 2, c and d are not used, and neither are products of the first two rows with taps of rows above the image's part;
the compiler removes both.

Zeros are added for the compiler. `first + 0` and `second + 0` make products end within a round of the loop: ptxas would
otherwise do each instruction of them by itself, because registers in flight cannot change places. `g1 + 0` is there
because Triton does not pipeline a loop that hands on a value unchanged for two rounds.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _taps(w, ky, shift, j, o, CI: tl.constexpr, CO: tl.constexpr):
    """Return the matrix of a row of taps: window pixel j // CI to output pixel o // CO; 0 where there is no tap."""
    kx = (j // CI)[:, None] + shift - (o // CO)[None, :]
    at = w + ((ky * 3 + kx) * CI + (j % CI)[:, None]) * CO + (o % CO)[None, :]
    return tl.load(at, mask=(kx >= 0) & (kx < 3), other=0.0)


@triton.jit
def _mirrored(w, ky, last, j, o, CI: tl.constexpr, CO: tl.constexpr, STRIDE: tl.constexpr):
    """Return the same for the input gradient: window pixel j // CO of dy to pixel o // CI of the input.

    `last` is the tap between the first two pixels.
    """
    kx = last - (j // CO * STRIDE)[:, None] + (o // CI)[None, :]
    at = w + ((ky * 3 + kx) * CI + (o % CI)[None, :]) * CO + (j % CO)[:, None]
    return tl.load(at, mask=(kx >= 0) & (kx < 3), other=0.0)


@triton.jit
def _add_column(a, b0, b1, b2, out, first, second, PRECISION: tl.constexpr):
    """Add the product of the pixels `a` and one column of taps to the three rows of the output."""
    out = tl.dot(a, b2, out, input_precision=PRECISION)
    first = tl.dot(a, b1, first, input_precision=PRECISION)
    second = tl.dot(a, b0, second, input_precision=PRECISION)
    return out, first, second


@triton.jit
def _add(
    at, b0, b1, b2, c0, c1, c2, d0, d1, d2, out, first, second, G: tl.constexpr, C: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Add one row of the input, with C channels, to the three rows of the output that it belongs to."""
    out, first, second = _add_column(tl.load(at), b0, b1, b2, out, first, second, PRECISION)
    if G == 1:
        out, first, second = _add_column(tl.load(at + C), c0, c1, c2, out, first, second, PRECISION)
        out, first, second = _add_column(tl.load(at + 2 * C), d0, d1, d2, out, first, second, PRECISION)
    return out, first, second


@triton.jit
def _fold(values):
    """Return [rows, n] as [rows / 16, 8, n], rows 8 apart added: a thread has both, and needs half the registers."""
    return tl.sum(tl.reshape(values, [values.shape[0] // 16, 2, 8, values.shape[1]]), 1)


@triton.jit
def _sum(values, G: tl.constexpr, C: tl.constexpr):
    """Return the sum of what `_fold` returned per channel; one row has G pixels."""
    return tl.sum(tl.reshape(tl.sum(tl.sum(values, 1), 0), [G, C]), 0)


@triton.jit
def _write_sums(
    total, scaled, stats, part, model, channels, offset, plane, tile, G: tl.constexpr, C: tl.constexpr
):
    """Write what `_fold` returned, dz and dz times the batch norm's input, as a program's sums of dz and dz * xhat."""
    c = tl.arange(0, C)
    table = stats + model * channels + offset + c
    s = _sum(total, G, C)
    q = _sum(scaled, G, C)
    programs = tl.num_programs(0)
    place = part + (model * 2 * C + c) * programs + tile
    tl.store(place, s)
    tl.store(place + C * programs, (q - s * tl.load(table)) * tl.load(table + plane))


@triton.jit
def conv_rows(
    x,
    w,
    y,
    part,  # [model, 2, CO, programs]: sum of each program, and sum of squared deviations from its mean
    count,
    cap,
    wstride,
    SIDE: tl.constexpr,
    CI: tl.constexpr,
    CO: tl.constexpr,
    G: tl.constexpr,
    STATS: tl.constexpr,
    IMAGES: tl.constexpr,
    SPAN: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """y = conv3x3(x), padding 1. Without STATS the last program may repeat images of the one before."""
    tile = tl.program_id(0)
    model = tl.program_id(1).to(tl.int64)
    PITCH: tl.constexpr = SIDE + 2
    ACROSS: tl.constexpr = SIDE // G
    ROWS: tl.constexpr = IMAGES * ACROSS
    K: tl.constexpr = CI if G == 1 else 2 * G * CI
    N: tl.constexpr = G * CO
    j = tl.arange(0, K)
    o = tl.arange(0, N)
    r = tl.arange(0, ROWS)
    w += model * wstride
    b0 = _taps(w, 0, 0, j, o, CI, CO)
    b1 = _taps(w, 1, 0, j, o, CI, CO)
    b2 = _taps(w, 2, 0, j, o, CI, CO)
    c0 = _taps(w, 0, 1, j, o, CI, CO)
    c1 = _taps(w, 1, 1, j, o, CI, CO)
    c2 = _taps(w, 2, 1, j, o, CI, CO)
    d0 = _taps(w, 0, 2, j, o, CI, CO)
    d1 = _taps(w, 1, 2, j, o, CI, CO)
    d2 = _taps(w, 2, 2, j, o, CI, CO)
    image = tl.minimum(tile // (SIDE // SPAN) * IMAGES, count - IMAGES) + r // ACROSS
    top = tile % (SIDE // SPAN) * SPAN
    column = r % ACROSS * G
    x += model * cap * (PITCH * PITCH * CI)
    y += model * cap * (SIDE * SIDE * CO)
    at = x + (((image * PITCH + top) * PITCH + column) * CI)[:, None] + j[None, :]
    to = y + (((image * SIDE + top) * SIDE + column) * CO)[:, None] + o[None, :]
    zero = tl.zeros([ROWS, N], tl.float32)
    _, first, second = _add(at, b0, b1, b2, c0, c1, c2, d0, d1, d2, zero, zero, zero, G, CI, PRECISION)
    at += PITCH * CI
    _, first, second = _add(at, b0, b1, b2, c0, c1, c2, d0, d1, d2, first, second, zero, G, CI, PRECISION)
    total = tl.zeros([ROWS // 16, 8, N], tl.float32)
    squares = tl.zeros([ROWS // 16, 8, N], tl.float32)
    for _ in range(SPAN):
        at += PITCH * CI
        out, first, second = _add(
            at, b0, b1, b2, c0, c1, c2, d0, d1, d2, first, second, zero, G, CI, PRECISION
        )
        first += 0.0
        second += 0.0
        rounded = out.to(y.dtype.element_ty)
        tl.store(to, rounded)
        to += SIDE * CO
        if STATS:
            f = rounded.to(tl.float32)
            total += _fold(f)
            squares += _fold(f * f)
    if STATS:
        s = _sum(total, G, CO)
        q = _sum(squares, G, CO)
        programs = tl.num_programs(0)
        place = part + (model * 2 * CO + tl.arange(0, CO)) * programs + tile
        tl.store(place, s)
        tl.store(place + CO * programs, tl.maximum(q - s * s / (ROWS * G * SPAN), 0.0))


@triton.jit
def input_rows(
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
    SIDE: tl.constexpr,
    CI: tl.constexpr,
    CO: tl.constexpr,
    G: tl.constexpr,
    SHORTCUT: tl.constexpr,  # 0 none, 1 identity
    IMAGES: tl.constexpr,
    SPAN: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Compute dz = relu'(h) * (input gradient of conv + gradient of shortcut), and its sums for the batch norm below.

    What the end of a row needs (y, h, above) is loaded while the row before is computed.
    """
    tile = tl.program_id(0)
    model = tl.program_id(1).to(tl.int64)
    plane = tl.num_programs(1) * channels
    PITCH: tl.constexpr = SIDE + 2
    ACROSS: tl.constexpr = SIDE // G
    ROWS: tl.constexpr = IMAGES * ACROSS
    K: tl.constexpr = CO if G == 1 else 2 * G * CO
    N: tl.constexpr = G * CI
    j = tl.arange(0, K)
    o = tl.arange(0, N)
    r = tl.arange(0, ROWS)
    w += model * wstride
    b0 = _mirrored(w, 2, 2, j, o, CI, CO, 1)
    b1 = _mirrored(w, 1, 2, j, o, CI, CO, 1)
    b2 = _mirrored(w, 0, 2, j, o, CI, CO, 1)
    c0 = _mirrored(w, 2, 1, j, o, CI, CO, 1)
    c1 = _mirrored(w, 1, 1, j, o, CI, CO, 1)
    c2 = _mirrored(w, 0, 1, j, o, CI, CO, 1)
    d0 = _mirrored(w, 2, 0, j, o, CI, CO, 1)
    d1 = _mirrored(w, 1, 0, j, o, CI, CO, 1)
    d2 = _mirrored(w, 0, 0, j, o, CI, CO, 1)
    table = stats + model * channels + offset + o % CI
    scale = tl.load(table + 2 * plane)[None, :]
    shift = tl.load(table + 3 * plane)[None, :]
    image = tile // (SIDE // SPAN) * IMAGES + r // ACROSS
    top = tile % (SIDE // SPAN) * SPAN
    column = r % ACROSS * G
    dy += model * cap * (PITCH * PITCH * CO)
    base = model * cap * (SIDE * SIDE * CI)
    y += base
    dz += base
    above += base
    h += model * cap * (PITCH * PITCH * CI)
    at = dy + (((image * PITCH + top) * PITCH + column) * CO)[:, None] + j[None, :]
    flat = (((image * SIDE + top) * SIDE + column) * CI)[:, None] + o[None, :]
    bordered = (((image * PITCH + top + 1) * PITCH + column + 1) * CI)[:, None] + o[None, :]
    next_y = tl.load(y + flat)
    if SHORTCUT:
        next_h = tl.load(h + bordered)
        next_above = tl.load(above + flat)
    zero = tl.zeros([ROWS, N], tl.float32)
    _, first, second = _add(at, b0, b1, b2, c0, c1, c2, d0, d1, d2, zero, zero, zero, G, CO, PRECISION)
    at += PITCH * CO
    _, first, second = _add(at, b0, b1, b2, c0, c1, c2, d0, d1, d2, first, second, zero, G, CO, PRECISION)
    total = tl.zeros([ROWS // 16, 8, N], tl.float32)
    scaled = tl.zeros([ROWS // 16, 8, N], tl.float32)
    for step in range(SPAN):
        more = (step + 1 + 0 * o < SPAN)[None, :]
        here = dz + flat
        flat += SIDE * CI
        f = next_y.to(tl.float32)
        next_y = tl.load(y + flat, mask=more, other=0.0)
        if SHORTCUT:
            bordered += PITCH * CI
            live = next_h.to(tl.float32) > 0
            shortcut = next_above.to(tl.float32)
            next_h = tl.load(h + bordered, mask=more, other=0.0)
            next_above = tl.load(above + flat, mask=more, other=0.0)
        else:
            live = f * scale + shift > 0
        at += PITCH * CO
        out, first, second = _add(
            at, b0, b1, b2, c0, c1, c2, d0, d1, d2, first, second, zero, G, CO, PRECISION
        )
        first += 0.0
        second += 0.0
        if SHORTCUT:
            out += shortcut
        rounded = tl.where(live, out, 0.0).to(dz.dtype.element_ty)
        tl.store(here, rounded)
        g = rounded.to(tl.float32)
        total += _fold(g)
        scaled += _fold(g * f)
    _write_sums(total, scaled, stats, part, model, channels, offset, plane, tile, G, CI)


@triton.jit
def input_strided(
    dy,
    w,
    above,
    h,
    y,
    dz,
    stats,
    part,  # [model, 2, CI, programs]
    count,
    cap,
    wstride,
    channels,
    offset,
    SIDE: tl.constexpr,  # rows of dy; the input has twice as many
    CI: tl.constexpr,
    CO: tl.constexpr,
    IMAGES: tl.constexpr,
    SPAN: tl.constexpr,  # rows of dy
    PRECISION: tl.constexpr,
):
    """Compute the same as `input_rows` with stride 2 and the subsampled shortcut.

    A window of two pixels of dy gives two neighbouring pixels of the input; a row of dy and the next one give two rows.
    """
    tile = tl.program_id(0)
    model = tl.program_id(1).to(tl.int64)
    plane = tl.num_programs(1) * channels
    PITCH: tl.constexpr = SIDE + 2
    LONG: tl.constexpr = 2 * SIDE
    LONG_PITCH: tl.constexpr = 2 * SIDE + 2
    ROWS: tl.constexpr = IMAGES * SIDE
    N: tl.constexpr = 2 * CI
    j = tl.arange(0, 2 * CO)
    o = tl.arange(0, N)
    r = tl.arange(0, ROWS)
    w += model * wstride
    even = _mirrored(w, 1, 1, j, o, CI, CO, 2)
    odd = _mirrored(w, 2, 1, j, o, CI, CO, 2)
    odd_below = _mirrored(w, 0, 1, j, o, CI, CO, 2)
    image = tile // (SIDE // SPAN) * IMAGES + r // SIDE
    top = tile % (SIDE // SPAN) * SPAN
    column = r % SIDE
    dy += model * cap * (PITCH * PITCH * CO)
    y += model * cap * (LONG * LONG * CI)
    dz += model * cap * (LONG * LONG * CI)
    h += model * cap * (LONG_PITCH * LONG_PITCH * CI)
    above += model * cap * (SIDE * SIDE * CO) + CI // 2
    at = dy + (((image * PITCH + top + 1) * PITCH + column + 1) * CO)[:, None] + j[None, :]
    flat = (((image * LONG + 2 * top) * LONG + 2 * column) * CI)[:, None] + o[None, :]
    bordered = (((image * LONG_PITCH + 2 * top + 1) * LONG_PITCH + 2 * column + 1) * CI)[:, None] + o[None, :]
    there = (((image * SIDE + top) * SIDE + column) * CO)[:, None] + o[None, :]
    first = (o < CI)[None, :]
    zero = tl.zeros([ROWS, N], tl.float32)
    total = tl.zeros([ROWS // 16, 8, N], tl.float32)
    scaled = tl.zeros([ROWS // 16, 8, N], tl.float32)
    for step in range(SPAN):
        here = flat + step * (2 * LONG * CI)
        mask = bordered + step * (2 * LONG_PITCH * CI)
        y0 = tl.load(y + here)
        y1 = tl.load(y + here + LONG * CI)
        shortcut = tl.load(above + there + step * (SIDE * CO), mask=first, other=0.0)
        a = tl.load(at + step * (PITCH * CO))
        below = tl.load(at + (step + 1) * (PITCH * CO))
        live0 = tl.load(h + mask).to(tl.float32) > 0
        live1 = tl.load(h + mask + LONG_PITCH * CI).to(tl.float32) > 0
        out = tl.dot(a, even, zero, input_precision=PRECISION) + shortcut.to(tl.float32)
        first_row = tl.where(live0, out, 0.0).to(dz.dtype.element_ty)
        tl.store(dz + here, first_row)
        out = tl.dot(a, odd, zero, input_precision=PRECISION)
        out = tl.dot(below, odd_below, out, input_precision=PRECISION)
        second_row = tl.where(live1, out, 0.0).to(dz.dtype.element_ty)
        tl.store(dz + here + LONG * CI, second_row)
        g0 = first_row.to(tl.float32)
        g1 = second_row.to(tl.float32)
        total += _fold(g0 + g1)
        scaled += _fold(g0 * y0.to(tl.float32) + g1 * y1.to(tl.float32))
    _write_sums(total, scaled, stats, part, model, channels, offset, plane, tile, 2, CI)


@triton.jit
def weight_rows(
    x,  # the convolution's input
    dz,
    y,
    dy,  # written: the gradient of the convolution's output
    coefficients,
    part,  # [2 * share, model, segment]
    count,
    cap,
    segment,  # parameters of one model in this part
    woffset,
    channels,
    offset,
    SIDE: tl.constexpr,
    CI: tl.constexpr,
    CO: tl.constexpr,
    IMAGES: tl.constexpr,
    SPAN: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Compute the batch-norm backward pass and, from the same registers, dW = x^T dy over a share of the rows.

    One row of the product is 2 neighbouring pixels. A share without images, in a small batch, writes zeros.
    """
    share = tl.program_id(0)
    shares = tl.num_programs(0)
    model = tl.program_id(1).to(tl.int64)
    models = tl.num_programs(1)
    PITCH: tl.constexpr = SIDE + 2
    ACROSS: tl.constexpr = SIDE // 2
    ROWS: tl.constexpr = IMAGES * ACROSS
    BANDS: tl.constexpr = SIDE // SPAN
    K: tl.constexpr = 4 * CI
    N: tl.constexpr = 2 * CO
    j = tl.arange(0, K)
    o = tl.arange(0, N)
    r = tl.arange(0, ROWS)
    x += model * cap * (PITCH * PITCH * CI)
    y += model * cap * (SIDE * SIDE * CO)
    dz += model * cap * (SIDE * SIDE * CO)
    dy += model * cap * (PITCH * PITCH * CO)
    table = coefficients + model * channels + offset + o % CO
    plane = models * channels
    ca = tl.load(table)[None, :]
    cb = tl.load(table + plane)[None, :]
    cc = tl.load(table + 2 * plane)[None, :]
    zero = tl.zeros([ROWS, N], dy.dtype.element_ty)
    w0 = tl.zeros([K, N], tl.float32)
    w1 = tl.zeros([K, N], tl.float32)
    w2 = tl.zeros([K, N], tl.float32)
    for unit in range(share, count // IMAGES * BANDS, shares):
        image = unit // BANDS * IMAGES + r // ACROSS
        top = unit % BANDS * SPAN
        column = r % ACROSS * 2
        at = x + (((image * PITCH + top) * PITCH + column) * CI)[:, None] + j[None, :]
        flat = (((image * SIDE + top) * SIDE + column) * CO)[:, None] + o[None, :]
        here = dy + (((image * PITCH + top + 1) * PITCH + column + 1) * CO)[:, None] + o[None, :]
        g1 = zero
        g2 = zero
        for row in range(SPAN + 2):
            inside = (row + 0 * o < SPAN)[None, :]
            below = flat + tl.minimum(row, SPAN - 1) * (SIDE * CO)
            f = ca * tl.load(dz + below).to(tl.float32) + cb * tl.load(y + below).to(tl.float32) + cc
            g = tl.where(inside, f, 0.0).to(dy.dtype.element_ty)
            tl.store(here + row * (PITCH * CO), g, mask=inside)
            a = tl.trans(tl.load(at + row * (PITCH * CI)))
            w0 = tl.dot(a, g, w0, input_precision=PRECISION)
            w1 = tl.dot(a, g1, w1, input_precision=PRECISION)
            w2 = tl.dot(a, g2, w2, input_precision=PRECISION)
            g2 = g1 + zero  # not just g1: see above
            g1 = g
    kx = (j // CI)[:, None] - (o // CO)[None, :]
    slot = (share * 2 + o // CO)[None, :] * models + model
    at = part + slot * segment + woffset + (kx * CI + (j % CI)[:, None]) * CO + (o % CO)[None, :]
    real = (kx >= 0) & (kx < 3)
    tl.store(at, w0, mask=real)
    tl.store(at + 3 * CI * CO, w1, mask=real)
    tl.store(at + 6 * CI * CO, w2, mask=real)
