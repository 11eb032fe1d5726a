"""Moving pixels as Pillow does: affine maps with nearest sampling, and crop-and-resize, one setting per image."""

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

ONE = 1 << 16  # Pillow samples affine maps in 16.16 fixed point
WEIGHT_BITS = 22  # and resizes 8-bit images with 22-bit integer weights
TAPS = 6  # the widest filter, Lanczos, reaches three pixels to each side
LARGEST_ANGLE = 45

Floats = NDArray[np.float64]


def affine(x: Tensor, matrix: tuple[Tensor, ...]) -> Tensor:
    """Nearest sampling at (a X + b Y + c, d X + e Y + f), black outside; x uint8 [B,C,H,W], matrix six int32 [B]."""
    B, C, H, W = x.shape
    a, b, c, d, e, f = (v.reshape(B, 1, 1) for v in matrix)
    X = torch.arange(W, device=x.device, dtype=torch.int32).reshape(1, 1, W)
    Y = torch.arange(H, device=x.device, dtype=torch.int32).reshape(1, H, 1)
    column = (a * X + b * Y + c) >> 16
    row = (d * X + e * Y + f) >> 16
    inside = (column >= 0) & (column < W) & (row >= 0) & (row < H)
    source = row.clamp(0, H - 1) * W + column.clamp(0, W - 1)
    moved = x.reshape(B, C, H * W).gather(2, source.long().reshape(B, 1, H * W).expand(B, C, H * W))
    return moved.reshape(B, C, H, W) * inside.unsqueeze(1)


def fixed(v: Tensor) -> Tensor:
    """Fixed point as Pillow rounds it; v double, any shape -> int32."""
    return (v * ONE + 0.5).floor().int()


def rotations(size: int) -> Tensor:
    """The matrices of rotations by -45 to 45 whole degrees about the centre, int32 [91,6]."""
    rows = []
    for degrees in range(-LARGEST_ANGLE, LARGEST_ANGLE + 1):
        angle = -math.radians(degrees % 360)
        a, b = round(math.cos(angle), 15), round(math.sin(angle), 15)
        d, e = round(-math.sin(angle), 15), a
        half = size / 2
        c = a * -half + b * -half + half
        f = d * -half + e * -half + half
        rows.append([a, b, c + a * 0.5 + b * 0.5, d, e, f + d * 0.5 + e * 0.5])
    return fixed(torch.tensor(rows, dtype=torch.float64))


def resize(x: Tensor, first: Tensor, weight: Tensor) -> Tensor:
    """Weighted sums along rows, then along columns; x uint8 [B,C,S,S], first int64 [B,S], weight int32 [B,TAPS,S]."""
    return _resize_rows(_resize_rows(x, first, weight).mT.contiguous(), first, weight).mT.contiguous()


def _resize_rows(x: Tensor, first: Tensor, weight: Tensor) -> Tensor:
    B, _, _, W = x.shape
    x = x.int()
    total = torch.full(x.shape, 1 << (WEIGHT_BITS - 1), dtype=torch.int32, device=x.device)
    for tap in range(TAPS):
        column = (first + tap).clamp(max=W - 1).reshape(B, 1, 1, W)
        total = total.addcmul_(x.gather(3, column.expand(x.shape)), weight[:, tap].reshape(B, 1, 1, W))
    return (total >> WEIGHT_BITS).clamp(0, 255).to(torch.uint8)


def resize_taps(size: int) -> tuple[Tensor, Tensor]:
    """First tap int64 [M,6,size] and weights int32 [M,6,TAPS,size] of cutting off M = size/4 + 1 margins and resizing.

    The second axis is the method, in the published order: Lanczos, bicubic, bilinear, box, Hamming, nearest.
    """
    margins = round(size / 4) + 1
    first = np.zeros((margins, len(FILTERS) + 1, size), np.int64)
    weight = np.zeros((margins, len(FILTERS) + 1, TAPS, size), np.int32)
    first[0], weight[0, :, 0] = np.arange(size), 1 << WEIGHT_BITS
    for margin in range(1, margins):
        inner = size - 2 * margin
        for method, (support, kernel) in enumerate(FILTERS):
            start, real = _taps(inner, size, support, kernel)
            first[margin, method] = margin + start
            weight[margin, method] = np.trunc(real * (1 << WEIGHT_BITS) + np.copysign(0.5, real)).T
        step = np.full(size, inner / size)
        step[0] *= 0.5
        first[margin, -1] = margin + np.cumsum(step).astype(np.int64)
        weight[margin, -1, 0] = 1 << WEIGHT_BITS
    return torch.from_numpy(first), torch.from_numpy(weight)


def _taps(
    inner: int, size: int, support: float, kernel: Callable[[Floats], Floats]
) -> tuple[NDArray[np.int64], Floats]:
    """First source pixel [size] and normalised weights [size,TAPS] for enlarging `inner` pixels to `size`."""
    centre = (np.arange(size) + 0.5) * (inner / size)
    start = np.maximum((centre - support + 0.5).astype(np.int64), 0)
    end = np.minimum((centre + support + 0.5).astype(np.int64), inner)
    pixel = start[:, None] + np.arange(TAPS)
    weight = np.where(pixel < end[:, None], kernel(pixel - centre[:, None] + 0.5), 0.0)
    return start, weight / weight.sum(1, keepdims=True)


def _lanczos(t: Floats) -> Floats:
    return np.where((t >= -3) & (t < 3), np.sinc(t) * np.sinc(t / 3), 0.0)


def _bicubic(t: Floats) -> Floats:
    t, a = np.abs(t), -0.5
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = (((t - 5) * t + 8) * t - 4) * a
    return np.where(t < 1, near, np.where(t < 2, far, 0.0))


def _bilinear(t: Floats) -> Floats:
    return np.where(np.abs(t) < 1, 1 - np.abs(t), 0.0)


def _box(t: Floats) -> Floats:
    return np.where((t > -0.5) & (t <= 0.5), 1.0, 0.0)


def _hamming(t: Floats) -> Floats:
    return np.where(np.abs(t) < 1, np.sinc(t) * (0.54 + 0.46 * np.cos(np.pi * t)), 0.0)


FILTERS = ((3.0, _lanczos), (2.0, _bicubic), (1.0, _bilinear), (0.5, _box), (1.0, _hamming))
