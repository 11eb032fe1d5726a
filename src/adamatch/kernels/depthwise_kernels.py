"""Triton kernels for depthwise convolutions (3x3 or 5x5, stride 1 or 2, any padding) on channels_last images.

A tile is P places of COLS channels, and each place four pixels: below each other, or two by two, which at a stride of 2
are one pixel of the smaller image. What is loaded for one of the four is used for the others too, from registers;
neighbours in a line come from the cache. `taps` is the weight as float32 [K, K, C]. Sums are float32 and in a fixed
order, without atomics.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from torch import Tensor

from adamatch.kernels.runtime import jit, launch

try:
    import triton.language as tl
except ImportError:
    tl = None

TILE, SMALL_TILE = 2048, 1024  # elements; small where a thread's registers would not hold the sums of more


@jit
def _place(start, blocks, height, width, P: tl.constexpr, COLS: tl.constexpr):
    """Channels of this program; image, line and column of P places from `start` on, in images of `height` lines."""
    c = tl.program_id(0) % blocks * COLS + tl.arange(0, COLS)
    p = start + tl.arange(0, P)
    return c, p // (width * height), p // width % height, p % width


@jit
def _load(x, there, image, h, w, c, H, W, C):
    """Pixels [P, COLS] as float32, zero outside of the image."""
    inside = there & (h >= 0) & (h < H) & (w >= 0) & (w < W)
    place = ((image * H + h) * W + w) * C
    return tl.load(x + place[:, None] + c[None, :], mask=inside[:, None] & (c < C)[None, :], other=0.0).to(tl.float32)


@jit
def _store(y, value, there, image, h, w, c, H, W, C):
    inside = there & (h < H) & (w < W)
    place = ((image * H + h) * W + w) * C
    tl.store(y + place[:, None] + c[None, :], value.to(y.dtype.element_ty), mask=inside[:, None] & (c < C)[None, :])


@jit
def _tap(taps, ky, kx, c, C, K: tl.constexpr, FLIP: tl.constexpr):
    """Weights [1, COLS]; FLIP turns them by 180 degrees."""
    tap = K * K - 1 - (ky * K + kx) if FLIP else ky * K + kx
    return tl.load(taps + tap * C + c, mask=c < C, other=0.0)[None, :]


@jit
def _of(i: tl.constexpr, a0, a1, a2, a3, a4):
    """The i-th of five."""
    if i == 0:  # noqa: SIM116  # a kernel has no dictionaries
        return a0
    elif i == 1:
        return a1
    elif i == 2:
        return a2
    elif i == 3:
        return a3
    else:
        return a4


@jit
def _convolve(
    x, taps, y, images, H, W, OH, OW, C, blocks, pad_h, pad_w,
    K: tl.constexpr, S: tl.constexpr, FLIP: tl.constexpr, P: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """x [images, H, W, C] -> y [images, OH, OW, C]; a place is four pixels of y below each other."""
    quarter = (OH + 3) // 4
    start = tl.program_id(0) // blocks * P
    c, image, h, ow = _place(start, blocks, quarter, OW, P, COLS)
    oh, there = h * 4, image < images
    a0 = tl.full([P, COLS], 0.0, tl.float32)
    a1 = tl.full([P, COLS], 0.0, tl.float32)
    a2 = tl.full([P, COLS], 0.0, tl.float32)
    a3 = tl.full([P, COLS], 0.0, tl.float32)
    for kx in range(K):
        w0 = _tap(taps, 0, kx, c, C, K, FLIP)
        w1 = _tap(taps, 1, kx, c, C, K, FLIP)
        w2 = _tap(taps, 2, kx, c, C, K, FLIP)
        w3, w4 = w0, w0
        if K == 5:
            w3 = _tap(taps, 3, kx, c, C, K, FLIP)
            w4 = _tap(taps, 4, kx, c, C, K, FLIP)
        for line in tl.static_range(K + 3 * S):
            t = _load(x, there, image, oh * S + line - pad_h, ow * S + kx - pad_w, c, H, W, C)
            if line < K:
                a0 += t * _of(line, w0, w1, w2, w3, w4)
            if line >= S and line < K + S:
                a1 += t * _of(line - S, w0, w1, w2, w3, w4)
            if line >= 2 * S and line < K + 2 * S:
                a2 += t * _of(line - 2 * S, w0, w1, w2, w3, w4)
            if line >= 3 * S:
                a3 += t * _of(line - 3 * S, w0, w1, w2, w3, w4)
    _store(y, a0, there, image, oh, ow, c, OH, OW, C)
    _store(y, a1, there, image, oh + 1, ow, c, OH, OW, C)
    _store(y, a2, there, image, oh + 2, ow, c, OH, OW, C)
    _store(y, a3, there, image, oh + 3, ow, c, OH, OW, C)


@jit
def _spread(
    dy, taps, dx, images, H, W, OH, OW, C, blocks,
    PAD_H: tl.constexpr, PAD_W: tl.constexpr, K: tl.constexpr, P: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Input gradient at stride 2: dy [images, OH, OW, C] -> dx [images, H, W, C]; a place is two by two pixels of dx.

    Pixel 2i + a of a line meets pixel i + d of dy where 2(i + d) = 2i + a + pad - ky: each ky = a + pad - 2d has one d.
    """
    start = tl.program_id(0) // blocks * P
    c, image, i, j = _place(start, blocks, (H + 1) // 2, (W + 1) // 2, P, COLS)
    there = image < images
    a0 = tl.full([P, COLS], 0.0, tl.float32)
    a1 = tl.full([P, COLS], 0.0, tl.float32)
    a2 = tl.full([P, COLS], 0.0, tl.float32)
    a3 = tl.full([P, COLS], 0.0, tl.float32)
    for m in tl.static_range((K - 1 - PAD_H) // 2 + (1 + PAD_H) // 2 + 1):
        for n in tl.static_range((K - 1 - PAD_W) // 2 + (1 + PAD_W) // 2 + 1):
            dh, dw = m - (K - 1 - PAD_H) // 2, n - (K - 1 - PAD_W) // 2
            ky, kx = PAD_H - 2 * dh, PAD_W - 2 * dw  # of a = 0; one more of a = 1
            t = _load(dy, there, image, i + dh, j + dw, c, OH, OW, C)
            if ky >= 0 and ky < K and kx >= 0 and kx < K:
                a0 += t * _tap(taps, ky, kx, c, C, K, False)
            if ky >= 0 and ky < K and kx + 1 >= 0 and kx + 1 < K:
                a1 += t * _tap(taps, ky, kx + 1, c, C, K, False)
            if ky + 1 >= 0 and ky + 1 < K and kx >= 0 and kx < K:
                a2 += t * _tap(taps, ky + 1, kx, c, C, K, False)
            if ky + 1 >= 0 and ky + 1 < K and kx + 1 >= 0 and kx + 1 < K:
                a3 += t * _tap(taps, ky + 1, kx + 1, c, C, K, False)
    _store(dx, a0, there, image, 2 * i, 2 * j, c, H, W, C)
    _store(dx, a1, there, image, 2 * i, 2 * j + 1, c, H, W, C)
    _store(dx, a2, there, image, 2 * i + 1, 2 * j, c, H, W, C)
    _store(dx, a3, there, image, 2 * i + 1, 2 * j + 1, c, H, W, C)


def convolve(x: Tensor, taps: Tensor, y: Tensor, stride: int, padding: list[int], *, flip: bool = False) -> None:
    """x [N,C,H,W] -> y [N,C,OH,OW], both channels_last; padding: above and to the left."""
    n, channels, height, width = x.shape
    cols, blocks = columns(channels)
    p = TILE // cols
    places = n * -(-y.shape[2] // 4) * y.shape[3]
    sizes = (n, height, width, *y.shape[2:], channels, blocks, *padding, taps.shape[0], stride, flip, p, cols)
    launch(_convolve, (-(-places // p) * blocks,), x, taps, y, *sizes, num_warps=4)


def input_grad(dy: Tensor, taps: Tensor, dx: Tensor, stride: int, padding: list[int]) -> None:
    size = taps.shape[0]
    if stride == 1:
        convolve(dy, taps, dx, 1, [size - 1 - before for before in padding], flip=True)
        return
    n, channels, height, width = dx.shape
    cols, blocks = columns(channels)
    p = SMALL_TILE // cols
    places = n * -(-height // 2) * -(-width // 2)
    sizes = (n, height, width, *dy.shape[2:], channels, blocks, *padding, size, p, cols)
    launch(_spread, (-(-places // p) * blocks,), dy, taps, dx, *sizes, num_warps=4)


def columns(channels: int) -> tuple[int, int]:
    """How many channels a program takes, and how many blocks that makes: 64, unless over an eighth were padding."""
    cols = 64 if 7 * -(-channels // 64) * 64 <= 8 * channels else 32
    return cols, -(-channels // cols)
