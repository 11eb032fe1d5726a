"""Triton kernels for the weight gradient of narrow 3x3 convolutions (stride 1, padding 1) on channels_last images."""
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import torch
from torch import Tensor

from adamatch.kernels.runtime import jit, launch

try:
    import triton.language as tl
except ImportError:
    tl = None
PIXELS = 64  # of a tile


@jit
def _weight_grad(
    x, dy, parts, images, H: tl.constexpr, W: tl.constexpr,
    CI: tl.constexpr, CO: tl.constexpr, IMAGES: tl.constexpr, KYS: tl.constexpr,
):  # fmt: skip
    """Sums over IMAGES images -> parts [programs, ky, kx, CO, CI]; KYS = 3: all ky at once, 1: one ky a program.

    dW[ky, kx] = sum_q x[q + (ky - 1) W] dy[q - (kx - 1)]: shifts of x by rows and of dy by columns, six tiles, not ten.
    The three shifts of dy are one tile, for pixels next to each other are next to each other in memory; its fourth part
    is padding (tl.arange takes powers of two only).
    """
    pid, ky = tl.program_id(0), tl.program_id(1)
    p, side_channel, ci = tl.arange(0, IMAGES * W), tl.arange(0, 4 * CO), tl.arange(0, CI)
    image, w, side = pid * IMAGES + p // W, p % W, side_channel // CO
    pixel, there = image * H * W + w, (image < images)[:, None]
    neighbour = w[:, None] + side[None, :] - 1
    dy_there = there & (neighbour >= 0) & (neighbour < W) & (side < 3)[None, :]
    dy_tile = dy + (pixel - 1)[:, None] * CO + side_channel[None, :]
    x_tile = x + pixel[:, None] * CI + ci[None, :]
    acc0 = tl.full([4 * CO, CI], 0.0, tl.float32)
    if KYS == 3:
        acc1 = tl.full([4 * CO, CI], 0.0, tl.float32)
        acc2 = tl.full([4 * CO, CI], 0.0, tl.float32)
    for h in range(H):
        d = tl.trans(tl.load(dy_tile + h * W * CO, mask=dy_there, other=0.0))
        if KYS == 3:
            acc0 = tl.dot(d, tl.load(x_tile + (h - 1) * W * CI, mask=there & (h > 0), other=0.0), acc0)
            acc1 = tl.dot(d, tl.load(x_tile + h * W * CI, mask=there, other=0.0), acc1)
            acc2 = tl.dot(d, tl.load(x_tile + (h + 1) * W * CI, mask=there & (h + 1 < H), other=0.0), acc2)
        else:
            inside = there & (h + ky > 0) & (h + ky <= H)
            acc0 = tl.dot(d, tl.load(x_tile + (h + ky - 1) * W * CI, mask=inside, other=0.0), acc0)
    # `side` is the pixel of dy to the left, the middle, the right: kx = 2 - side.
    out = parts + pid * 9 * CO * CI + (2 - side)[:, None] * CO * CI + (side_channel % CO)[:, None] * CI + ci[None, :]
    wanted = (side < 3)[:, None]
    tl.store(out + ky * 3 * CO * CI, acc0, mask=wanted)
    if KYS == 3:
        tl.store(out + 3 * CO * CI, acc1, mask=wanted)
        tl.store(out + 6 * CO * CI, acc2, mask=wanted)


@jit
def _sum_parts(
    parts, dw, s_co, s_ci, s_ky, s_kx,
    N: tl.constexpr, CI: tl.constexpr, CO: tl.constexpr, STEP: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """parts [N, ky, kx, CO, CI] -> dw, in the memory order of the weight."""
    place, i = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH), tl.arange(0, STEP)
    total = tl.full([STEP, WIDTH], 0.0, tl.float32)
    for first in range(0, N, STEP):
        here = parts + (first + i)[:, None] * (9 * CO * CI) + place[None, :]
        total += tl.load(here, mask=(first + i < N)[:, None], other=0.0)
    ci, co, tap = place % CI, (place // CI) % CO, place // (CI * CO)
    to = dw + co * s_co + ci * s_ci + (tap // 3) * s_ky + (tap % 3) * s_kx
    tl.store(to, tl.sum(total, 0).to(dw.dtype.element_ty))


def weight_grad(x: Tensor, dy: Tensor, dw: Tensor) -> None:
    """x [N,CI,H,W], dy [N,CO,H,W] channels_last -> dw [CO,CI,3,3], whatever its strides."""
    n, ci, height, width = x.shape
    co = dy.shape[1]
    kys = 3 if ci * co <= 32 * 32 else 1  # three accumulators [4 CO, CI] fit in the registers
    images = max(1, PIXELS // width)
    programs = -(-n // images)
    parts = torch.empty(programs, 9, co, ci, dtype=torch.float32, device=x.device)
    grid = (programs, 3 // kys)
    launch(_weight_grad, grid, x, dy, parts, n, height, width, ci, co, images, kys, num_warps=4, num_stages=3)
    launch(_sum_parts, (9 * co * ci // 64,), parts, dw, *dw.stride(), programs, ci, co, 64, 64, num_warps=4)
