"""Triton kernels for batch norm with LeakyReLU on channels_last images: x [N,C,H,W] is read as rows [N*H*W, C].

One or two groups of rows have statistics of their own: the first group ends at row `split` (0: one group only). Programs never
straddle that boundary, partial results are written out and combined in a fixed order: no atomics, the same bits every time.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

AVAILABLE = triton is not None
PARTS = 512  # at most so many partial results a group: one tile of the combining kernels


def jit(function: Any) -> Any:
    return triton.jit(function) if AVAILABLE else function


@jit
def _place(pid, rows, split, SIZE: tl.constexpr, GROUPS: tl.constexpr):
    """First row, last row + 1 and group of program `pid`, when each has `SIZE` rows."""
    first = (split + SIZE - 1) // SIZE
    late = pid >= first
    start = tl.where(late, split + (pid - first) * SIZE, pid * SIZE)
    stop = tl.minimum(tl.where(late, rows, split), start + SIZE)
    return start, stop, tl.where(late, GROUPS - 1, 0)


@jit
def _moments(
    a, b, total, parts, rows, split,
    SIZE: tl.constexpr, GROUPS: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    """Mean and sum of squared deviations of `SIZE` rows; with ADD of a + b, which is stored on the way."""
    pid = tl.program_id(0)
    start, stop, _ = _place(pid, rows, split, SIZE, GROUPS)
    column, row = tl.arange(0, C), tl.arange(0, BLOCK)
    base = start.to(tl.int64) * C
    tile = row[:, None] * C + column[None, :]
    # Sums of x - pivot rather than of x: with a mean far from zero the squares would cancel in float32.
    pivot = tl.load(a + base + column).to(tl.float32)
    if ADD:
        pivot += tl.load(b + base + column).to(tl.float32)
    s1 = tl.full([BLOCK, C], 0.0, tl.float32)
    s2 = tl.full([BLOCK, C], 0.0, tl.float32)
    for i in range(0, SIZE, BLOCK):
        mask = (start + i + row < stop)[:, None]
        x = tl.load(a + base + i * C + tile, mask=mask, other=0.0).to(tl.float32)
        if ADD:
            x += tl.load(b + base + i * C + tile, mask=mask, other=0.0).to(tl.float32)
            rounded = x.to(total.dtype.element_ty)
            tl.store(total + base + i * C + tile, rounded, mask=mask)
            x = rounded.to(tl.float32)
        d = tl.where(mask, x - pivot[None, :], 0.0)
        s1 += d
        s2 += d * d
    n = (stop - start).to(tl.float32)
    shift = tl.sum(s1, 0) / n
    tl.store(parts + pid * 2 * C + column, pivot + shift)
    tl.store(parts + pid * 2 * C + C + column, tl.maximum(tl.sum(s2, 0) - shift * shift * n, 0.0))


@jit
def _combine_moments(
    parts, stats, rows, split, SIZE: tl.constexpr, P: tl.constexpr, GROUPS: tl.constexpr, C: tl.constexpr, WIDTH: tl.constexpr
):
    """Partial moments -> stats [GROUPS, 2, C]: mean and biased variance (Chan et al.'s parallel combination)."""
    group = tl.program_id(1)
    column, i = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH), tl.arange(0, P)
    n = tl.where(group < GROUPS - 1, split, rows - split)
    first = tl.where(group < GROUPS - 1, 0, (split + SIZE - 1) // SIZE)
    count = tl.minimum(tl.maximum(n - i * SIZE, 0), SIZE).to(tl.float32)[:, None]
    place = (first + i)[:, None] * 2 * C + column[None, :]
    mean_i = tl.load(parts + place, mask=count > 0, other=0.0)
    square_i = tl.load(parts + place + C, mask=count > 0, other=0.0)
    n = n.to(tl.float32)
    mean = tl.sum(mean_i * (count / n), 0)
    d = mean_i - mean[None, :]
    tl.store(stats + group * 2 * C + column, mean)
    tl.store(stats + group * 2 * C + C + column, tl.sum(square_i + count * d * d, 0) / n)


@jit
def _apply(x, y, stats, weight, bias, rows, split, eps, slope, GROUPS: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr):
    # Backwards: the rows whose statistics were read last are still in the cache.
    pid = tl.num_programs(0) - 1 - tl.program_id(0)
    start, stop, group = _place(pid, rows, split, BLOCK, GROUPS)
    column, row = tl.arange(0, C), tl.arange(0, BLOCK)
    base = start.to(tl.int64) * C
    tile, mask = row[:, None] * C + column[None, :], (start + row < stop)[:, None]
    mean = tl.load(stats + group * 2 * C + column)
    scale = tl.load(weight + column).to(tl.float32) / tl.sqrt(tl.load(stats + group * 2 * C + C + column) + eps)
    z = (tl.load(x + base + tile, mask=mask, other=0.0).to(tl.float32) - mean[None, :]) * scale[None, :]
    z += tl.load(bias + column).to(tl.float32)[None, :]
    tl.store(y + base + tile, tl.where(z > 0, z, slope * z).to(y.dtype.element_ty), mask=mask)


@jit
def _grad_sums(
    dy, x, parts, stats, weight, bias, rows, split, eps, slope,
    SIZE: tl.constexpr, GROUPS: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sums over `SIZE` rows of dz and dz * xhat; z is recomputed, so that the output need not be kept."""
    pid = tl.program_id(0)
    start, stop, group = _place(pid, rows, split, SIZE, GROUPS)
    column, row = tl.arange(0, C), tl.arange(0, BLOCK)
    base = start.to(tl.int64) * C
    tile = row[:, None] * C + column[None, :]
    mean = tl.load(stats + group * 2 * C + column)[None, :]
    rstd = (1.0 / tl.sqrt(tl.load(stats + group * 2 * C + C + column) + eps))[None, :]
    w, b = tl.load(weight + column).to(tl.float32)[None, :], tl.load(bias + column).to(tl.float32)[None, :]
    s1 = tl.full([BLOCK, C], 0.0, tl.float32)
    s2 = tl.full([BLOCK, C], 0.0, tl.float32)
    for i in range(0, SIZE, BLOCK):
        mask = (start + i + row < stop)[:, None]
        xhat = (tl.load(x + base + i * C + tile, mask=mask, other=0.0).to(tl.float32) - mean) * rstd
        dz = tl.load(dy + base + i * C + tile, mask=mask, other=0.0).to(tl.float32)
        dz = tl.where(xhat * w + b > 0, dz, slope * dz)
        s1 += dz
        s2 += dz * xhat
    tl.store(parts + pid * 2 * C + column, tl.sum(s1, 0))
    tl.store(parts + pid * 2 * C + C + column, tl.sum(s2, 0))


@jit
def _combine_grads(
    parts, means, dweight, dbias, rows, split,
    SIZE: tl.constexpr, P: tl.constexpr, GROUPS: tl.constexpr, C: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Partial sums -> their means in each group [GROUPS, 2, C], and the gradients of weight and bias over all groups."""
    column, i = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH), tl.arange(0, P)
    db = tl.full([WIDTH], 0.0, tl.float32)
    dw = tl.full([WIDTH], 0.0, tl.float32)
    for group in tl.static_range(GROUPS):
        n = tl.where(group < GROUPS - 1, split, rows - split)
        first = tl.where(group < GROUPS - 1, 0, (split + SIZE - 1) // SIZE)
        place, mask = (first + i)[:, None] * 2 * C + column[None, :], (i * SIZE < n)[:, None]
        s1 = tl.sum(tl.load(parts + place, mask=mask, other=0.0), 0)
        s2 = tl.sum(tl.load(parts + place + C, mask=mask, other=0.0), 0)
        tl.store(means + group * 2 * C + column, s1 / n.to(tl.float32))
        tl.store(means + group * 2 * C + C + column, s2 / n.to(tl.float32))
        db += s1
        dw += s2
    tl.store(dweight + column, dw)
    tl.store(dbias + column, db)


@jit
def _grad_input(
    dy, extra, x, dx, stats, means, weight, bias, rows, split, eps, slope,
    GROUPS: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    """dx = weight / std * (dz - mean(dz) - xhat * mean(dz * xhat)), with ADD plus the gradient `extra` of the sum itself."""
    pid = tl.num_programs(0) - 1 - tl.program_id(0)
    start, stop, group = _place(pid, rows, split, BLOCK, GROUPS)
    column, row = tl.arange(0, C), tl.arange(0, BLOCK)
    base = start.to(tl.int64) * C
    tile, mask = row[:, None] * C + column[None, :], (start + row < stop)[:, None]
    mean = tl.load(stats + group * 2 * C + column)[None, :]
    rstd = (1.0 / tl.sqrt(tl.load(stats + group * 2 * C + C + column) + eps))[None, :]
    w, b = tl.load(weight + column).to(tl.float32)[None, :], tl.load(bias + column).to(tl.float32)[None, :]
    m1 = tl.load(means + group * 2 * C + column)[None, :]
    m2 = tl.load(means + group * 2 * C + C + column)[None, :]
    xhat = (tl.load(x + base + tile, mask=mask, other=0.0).to(tl.float32) - mean) * rstd
    dz = tl.load(dy + base + tile, mask=mask, other=0.0).to(tl.float32)
    dz = tl.where(xhat * w + b > 0, dz, slope * dz)
    d = w * rstd * (dz - m1 - xhat * m2)
    if ADD:
        d += tl.load(extra + base + tile, mask=mask, other=0.0).to(tl.float32)
    tl.store(dx + base + tile, d.to(dx.dtype.element_ty), mask=mask)


class Plan:
    """How rows are dealt to programs: `tile` elements are in flight in each, sums go over `size` rows, others over `block`."""

    tile, warps, programs = 4096, 4, 396  # of an H200: 132 multiprocessors, three programs each (measured best of five)

    def __init__(self, x: Tensor, groups: list[int]) -> None:
        pixels = x.shape[2] * x.shape[3]
        self.groups, self.channels = len(groups), x.shape[1]
        self.rows, self.split = sum(groups) * pixels, groups[0] * pixels if len(groups) == 2 else 0
        self.block = min(max(1, self.tile // self.channels), 1 << (self.rows - 1).bit_length())
        longest = max(self.split, self.rows - self.split)
        share = max(-(-self.rows // self.programs), -(-longest // PARTS))
        self.size = -(-share // self.block) * self.block
        self.parts = self.count(self.size)
        self.most = 1 << (-(-longest // self.size) - 1).bit_length()  # the longer group's parts, to a power of two
        self.width = min(8, self.channels)

    def count(self, size: int) -> int:
        return -(-self.split // size) - (-(self.rows - self.split) // size)


def moments(plan: Plan, a: Tensor, b: Tensor | None = None, total: Tensor | None = None) -> Tensor:
    """Images -> stats [groups, 2, C] of a, or of a + b, which is written to `total`."""
    parts = torch.empty(plan.parts, 2, plan.channels, dtype=torch.float32, device=a.device)
    stats = torch.empty(plan.groups, 2, plan.channels, dtype=torch.float32, device=a.device)
    where = (plan.rows, plan.split, plan.size)
    _moments[(plan.parts,)](
        a, b, total, parts, *where, plan.groups, plan.channels, plan.block, total is not None, num_warps=plan.warps
    )
    grid = (plan.channels // plan.width, plan.groups)
    _combine_moments[grid](parts, stats, *where, plan.most, plan.groups, plan.channels, plan.width, num_warps=4)
    return stats


def apply(plan: Plan, x: Tensor, y: Tensor, stats: Tensor, weight: Tensor, bias: Tensor, eps: float, slope: float) -> None:
    grid = (plan.count(plan.block),)
    _apply[grid](
        x, y, stats, weight, bias, plan.rows, plan.split, eps, slope, plan.groups, plan.channels, plan.block,
        num_warps=plan.warps,
    )  # fmt: skip


def grad_means(
    plan: Plan, dy: Tensor, x: Tensor, stats: Tensor, weight: Tensor, bias: Tensor, eps: float, slope: float
) -> tuple[Tensor, Tensor, Tensor]:
    """-> means [groups, 2, C] of dz and dz * xhat, dweight [C], dbias [C]."""
    parts = torch.empty(plan.parts, 2, plan.channels, dtype=torch.float32, device=x.device)
    means, dweight, dbias = torch.empty_like(stats), torch.empty_like(weight), torch.empty_like(bias)
    where = (plan.rows, plan.split, plan.size)
    _grad_sums[(plan.parts,)](
        dy, x, parts, stats, weight, bias, plan.rows, plan.split, eps, slope, plan.size, plan.groups, plan.channels,
        plan.block, num_warps=plan.warps,
    )  # fmt: skip
    _combine_grads[(plan.channels // plan.width,)](
        parts, means, dweight, dbias, *where, plan.most, plan.groups, plan.channels, plan.width, num_warps=4
    )
    return means, dweight, dbias


def grad_input(
    plan: Plan, dy: Tensor, extra: Tensor | None, x: Tensor, dx: Tensor,
    stats: Tensor, means: Tensor, weight: Tensor, bias: Tensor, eps: float, slope: float,
) -> None:  # fmt: skip
    grid = (plan.count(plan.block),)
    _grad_input[grid](
        dy, extra, x, dx, stats, means, weight, bias, plan.rows, plan.split, eps, slope,
        plan.groups, plan.channels, plan.block, extra is not None, num_warps=plan.warps,
    )  # fmt: skip
