"""Triton kernels for batch norm with LeakyReLU or ReLU6 on channels_last images, x [N,C,H,W] read as rows [N*H*W, C].

A program takes COLS channels, a power of two: all C of them, or a block, of which the last may be masked in part.

One or two groups of rows have statistics of their own: the first group ends at row `split` (0: one group only). No
program straddles that boundary. Partial results are combined in a fixed order, without atomics: always the same bits.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import torch
from torch import Tensor

from adamatch.kernels.runtime import jit, launch

try:
    import triton.language as tl
except ImportError:
    tl = None


Settings = tuple[float, float, float | None]  # eps, slope, ceiling
PARTS = 512  # at most so many partial results a group: one tile of the combining kernels


class Plan:
    """How rows go to programs: `tile` elements are in flight in each, sums go over `size` rows, others over `block`."""

    tile, warps, programs = 4096, 4, 396  # of an H200: 132 multiprocessors, three programs each (measured best of five)

    def __init__(self, x: Tensor, groups: list[int]) -> None:
        pixels = x.shape[2] * x.shape[3]
        self.groups, self.channels = len(groups), x.shape[1]
        self.rows, self.split = sum(groups) * pixels, groups[0] * pixels if len(groups) == 2 else 0
        self.columns = columns(self.channels)
        self.blocks = -(-self.channels // self.columns)
        self.whole = self.channels % self.columns == 0  # no block of columns is partly empty
        self.block = min(max(1, self.tile // self.columns), 1 << (self.rows - 1).bit_length())
        longest = max(self.split, self.rows - self.split)
        share = max(-(-self.rows // max(1, self.programs // self.blocks)), -(-longest // PARTS))
        self.size = _few(-(-share // self.block), self.columns == self.channels) * self.block
        self.parts = self.count(self.size)
        self.most = 1 << (-(-longest // self.size) - 1).bit_length()  # the longer group's parts, to a power of two
        self.width = min(8, self.channels)
        self.even = self.channels % self.width == 0
        # What kernels take: of sums and of what follows them, and of combining partial sums, in so many programs.
        self.where = (self.rows, self.split, self.channels)
        self.tiles = (self.groups, self.whole, self.even, self.columns, self.block)
        self.partial = (self.rows, self.split, self.size, self.channels, self.most, self.groups, self.even, self.width)
        self.wide = -(-self.channels // self.width)

    def count(self, size: int) -> int:
        return -(-self.split // size) - (-(self.rows - self.split) // size)


def columns(channels: int) -> int:
    """How many a program takes: all, or a block of them such that at most an eighth of all blocks is padding."""
    whole = 1 << (channels - 1).bit_length()
    widths = (whole,) if channels == whole <= 1024 else (256, 128, 64, 32)
    return next((width for width in widths if 7 * -(-channels // width) * width <= 8 * channels), whole)


def _few(count: int, exact: bool) -> int:
    """Rounded up to three binary digits, unless `exact`: compiling a kernel for each takes a quarter of a second."""
    unit = 1 if exact else 1 << max(0, count.bit_length() - 3)
    return -(-count // unit) * unit


@jit
def _place(pid, rows, split, size, GROUPS: tl.constexpr):
    """First row, last row + 1 and group of program `pid`, when each has `size` rows."""
    first = (split + size - 1) // size
    late = pid >= first
    start = tl.where(late, split + (pid - first) * size, pid * size)
    stop = tl.minimum(tl.where(late, rows, split), start + size)
    return start, stop, tl.where(late, GROUPS - 1, 0)


@jit
def _program(C, COLS: tl.constexpr, EVEN: tl.constexpr, BACKWARDS: tl.constexpr):
    """Number of this program among those of its columns, its columns, and C; blocks of the same rows are neighbours."""
    pid = tl.program_id(0)
    if BACKWARDS:
        pid = tl.num_programs(0) - 1 - pid
    if EVEN:
        C = C // 8 * 8  # as it is; the compiler now knows that eight channels are read at once
    blocks = (C + COLS - 1) // COLS
    return pid // blocks, pid % blocks * COLS + tl.arange(0, COLS), C


@jit
def _inside(rows, column, C, WHOLE: tl.constexpr):
    """Mask of a tile, from that of its rows."""
    if WHOLE:
        return rows[:, None]
    else:
        return rows[:, None] & (column < C)[None, :]


@jit
def _read(pointer, column, C, WHOLE: tl.constexpr):
    """A value of each column."""
    if WHOLE:
        return tl.load(pointer + column).to(tl.float32)
    else:
        return tl.load(pointer + column, mask=column < C, other=0.0).to(tl.float32)


@jit
def _write(pointer, column, value, C, WHOLE: tl.constexpr):
    if WHOLE:
        tl.store(pointer + column, value)
    else:
        tl.store(pointer + column, value, mask=column < C)


@jit
def _through(z, dy, slope, CEILING: tl.constexpr):
    """Gradient before the activation, of that after it."""
    dz = tl.where(z > 0, dy, slope * dy)
    if CEILING is not None:
        dz = tl.where(z > CEILING, 0.0, dz)
    return dz


@jit
def _moments(
    a, b, total, parts, rows, split, C,
    SIZE: tl.constexpr, GROUPS: tl.constexpr, WHOLE: tl.constexpr, EVEN: tl.constexpr, COLS: tl.constexpr,
    BLOCK: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    """Mean and sum of squared deviations of `SIZE` rows; with ADD of a + b, which is stored on the way."""
    pid, column, C = _program(C, COLS, EVEN, False)
    start, stop, _ = _place(pid, rows, split, SIZE, GROUPS)
    row = tl.arange(0, BLOCK)
    base = start.to(tl.int64) * C
    tile = row[:, None] * C + column[None, :]
    # Sums of x - pivot rather than of x: with a mean far from zero the squares would cancel in float32.
    pivot = _read(a + base, column, C, WHOLE)
    if ADD:
        pivot += _read(b + base, column, C, WHOLE)
    s1 = tl.full([BLOCK, COLS], 0.0, tl.float32)
    s2 = tl.full([BLOCK, COLS], 0.0, tl.float32)
    for i in range(0, SIZE, BLOCK):
        mask = _inside(start + i + row < stop, column, C, WHOLE)
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
    _write(parts + pid * 2 * C, column, pivot + shift, C, WHOLE)
    _write(parts + pid * 2 * C + C, column, tl.maximum(tl.sum(s2, 0) - shift * shift * n, 0.0), C, WHOLE)


@jit
def _combine_moments(
    parts, stats, rows, split, size, C,
    P: tl.constexpr, GROUPS: tl.constexpr, WHOLE: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Partial moments -> stats [GROUPS, 2, C]: mean and biased variance (Chan et al.'s parallel combination)."""
    group = tl.program_id(1)
    column, i = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH), tl.arange(0, P)
    n = tl.where(group < GROUPS - 1, split, rows - split)
    first = tl.where(group < GROUPS - 1, 0, (split + size - 1) // size)
    count = tl.minimum(tl.maximum(n - i * size, 0), size).to(tl.float32)[:, None]
    place = (first + i)[:, None] * 2 * C + column[None, :]
    there = _inside(i * size < n, column, C, WHOLE)
    mean_i = tl.load(parts + place, mask=there, other=0.0)
    square_i = tl.load(parts + place + C, mask=there, other=0.0)
    n = n.to(tl.float32)
    mean = tl.sum(mean_i * (count / n), 0)
    d = mean_i - mean[None, :]
    _write(stats + group * 2 * C, column, mean, C, WHOLE)
    _write(stats + group * 2 * C + C, column, tl.sum(square_i + count * d * d, 0) / n, C, WHOLE)


@jit
def _apply(
    x, y, stats, weight, bias, rows, split, C, eps, slope,
    CEILING: tl.constexpr, GROUPS: tl.constexpr, WHOLE: tl.constexpr, EVEN: tl.constexpr, COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The normalised activation."""
    # Backwards: the rows whose statistics were read last are still in the cache.
    pid, column, C = _program(C, COLS, EVEN, True)
    start, stop, group = _place(pid, rows, split, BLOCK, GROUPS)
    row = tl.arange(0, BLOCK)
    base = start.to(tl.int64) * C
    tile, mask = row[:, None] * C + column[None, :], _inside(start + row < stop, column, C, WHOLE)
    mean = _read(stats + group * 2 * C, column, C, WHOLE)
    scale = _read(weight, column, C, WHOLE) / tl.sqrt(_read(stats + group * 2 * C + C, column, C, WHOLE) + eps)
    z = (tl.load(x + base + tile, mask=mask, other=0.0).to(tl.float32) - mean[None, :]) * scale[None, :]
    z += _read(bias, column, C, WHOLE)[None, :]
    z = tl.where(z > 0, z, slope * z)
    if CEILING is not None:
        z = tl.minimum(z, CEILING)
    tl.store(y + base + tile, z.to(y.dtype.element_ty), mask=mask)


@jit
def _grad_sums(
    dy, x, parts, stats, weight, bias, rows, split, C, eps, slope,
    CEILING: tl.constexpr, SIZE: tl.constexpr, GROUPS: tl.constexpr, WHOLE: tl.constexpr, EVEN: tl.constexpr,
    COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sums over `SIZE` rows of dz and dz * xhat; z is recomputed, so that the output need not be kept."""
    pid, column, C = _program(C, COLS, EVEN, False)
    start, stop, group = _place(pid, rows, split, SIZE, GROUPS)
    row = tl.arange(0, BLOCK)
    base = start.to(tl.int64) * C
    tile = row[:, None] * C + column[None, :]
    mean = _read(stats + group * 2 * C, column, C, WHOLE)[None, :]
    rstd = (1.0 / tl.sqrt(_read(stats + group * 2 * C + C, column, C, WHOLE) + eps))[None, :]
    w, b = _read(weight, column, C, WHOLE)[None, :], _read(bias, column, C, WHOLE)[None, :]
    s1 = tl.full([BLOCK, COLS], 0.0, tl.float32)
    s2 = tl.full([BLOCK, COLS], 0.0, tl.float32)
    for i in range(0, SIZE, BLOCK):
        mask = _inside(start + i + row < stop, column, C, WHOLE)
        xhat = (tl.load(x + base + i * C + tile, mask=mask, other=0.0).to(tl.float32) - mean) * rstd
        dz = tl.load(dy + base + i * C + tile, mask=mask, other=0.0).to(tl.float32)
        dz = _through(xhat * w + b, dz, slope, CEILING)
        s1 += dz
        s2 += dz * xhat
    _write(parts + pid * 2 * C, column, tl.sum(s1, 0), C, WHOLE)
    _write(parts + pid * 2 * C + C, column, tl.sum(s2, 0), C, WHOLE)


@jit
def _combine_grads(
    parts, means, dweight, dbias, rows, split, size, C,
    P: tl.constexpr, GROUPS: tl.constexpr, WHOLE: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Partial sums -> their means in each group [GROUPS, 2, C], and gradients of weight and bias over all groups."""
    column, i = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH), tl.arange(0, P)
    db = tl.full([WIDTH], 0.0, tl.float32)
    dw = tl.full([WIDTH], 0.0, tl.float32)
    for group in tl.static_range(GROUPS):
        n = tl.where(group < GROUPS - 1, split, rows - split)
        first = tl.where(group < GROUPS - 1, 0, (split + size - 1) // size)
        place, mask = (first + i)[:, None] * 2 * C + column[None, :], _inside(i * size < n, column, C, WHOLE)
        s1 = tl.sum(tl.load(parts + place, mask=mask, other=0.0), 0)
        s2 = tl.sum(tl.load(parts + place + C, mask=mask, other=0.0), 0)
        _write(means + group * 2 * C, column, s1 / n.to(tl.float32), C, WHOLE)
        _write(means + group * 2 * C + C, column, s2 / n.to(tl.float32), C, WHOLE)
        db += s1
        dw += s2
    _write(dweight, column, dw, C, WHOLE)
    _write(dbias, column, db, C, WHOLE)


@jit
def _grad_input(
    dy, extra, x, dx, stats, means, weight, bias, rows, split, C, eps, slope,
    CEILING: tl.constexpr, GROUPS: tl.constexpr, WHOLE: tl.constexpr, EVEN: tl.constexpr, COLS: tl.constexpr,
    BLOCK: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    """dx = weight / std * (dz - mean(dz) - xhat * mean(dz * xhat)), with ADD plus `extra`, that of the sum itself."""
    pid, column, C = _program(C, COLS, EVEN, True)
    start, stop, group = _place(pid, rows, split, BLOCK, GROUPS)
    row = tl.arange(0, BLOCK)
    base = start.to(tl.int64) * C
    tile, mask = row[:, None] * C + column[None, :], _inside(start + row < stop, column, C, WHOLE)
    mean = _read(stats + group * 2 * C, column, C, WHOLE)[None, :]
    rstd = (1.0 / tl.sqrt(_read(stats + group * 2 * C + C, column, C, WHOLE) + eps))[None, :]
    w, b = _read(weight, column, C, WHOLE)[None, :], _read(bias, column, C, WHOLE)[None, :]
    m1 = _read(means + group * 2 * C, column, C, WHOLE)[None, :]
    m2 = _read(means + group * 2 * C + C, column, C, WHOLE)[None, :]
    xhat = (tl.load(x + base + tile, mask=mask, other=0.0).to(tl.float32) - mean) * rstd
    dz = tl.load(dy + base + tile, mask=mask, other=0.0).to(tl.float32)
    dz = _through(xhat * w + b, dz, slope, CEILING)
    d = w * rstd * (dz - m1 - xhat * m2)
    if ADD:
        d += tl.load(extra + base + tile, mask=mask, other=0.0).to(tl.float32)
    tl.store(dx + base + tile, d.to(dx.dtype.element_ty), mask=mask)


def moments(plan: Plan, a: Tensor, b: Tensor | None = None, total: Tensor | None = None) -> Tensor:
    """Images -> stats [groups, 2, C] of a, or of a + b, which is written to `total`."""
    parts = torch.empty(plan.parts, 2, plan.channels, dtype=torch.float32, device=a.device)
    stats = torch.empty(plan.groups, 2, plan.channels, dtype=torch.float32, device=a.device)
    grid, how = (plan.parts * plan.blocks,), (plan.size, *plan.tiles, total is not None)
    launch(_moments, grid, a, b, total, parts, *plan.where, *how, num_warps=plan.warps)
    launch(_combine_moments, (plan.wide, plan.groups), parts, stats, *plan.partial, num_warps=4)
    return stats


def apply(plan: Plan, x: Tensor, y: Tensor, stats: Tensor, weight: Tensor, bias: Tensor, settings: Settings) -> None:
    """The normalised activation of x -> y."""
    grid, how = (plan.count(plan.block) * plan.blocks,), (*settings, *plan.tiles)
    launch(_apply, grid, x, y, stats, weight, bias, *plan.where, *how, num_warps=plan.warps)


def grad_means(
    plan: Plan, dy: Tensor, x: Tensor, stats: Tensor, weight: Tensor, bias: Tensor, settings: Settings
) -> tuple[Tensor, Tensor, Tensor]:
    """-> means [groups, 2, C] of dz and dz * xhat, dweight [C], dbias [C]."""
    parts = torch.empty(plan.parts, 2, plan.channels, dtype=torch.float32, device=x.device)
    means, dweight, dbias = torch.empty_like(stats), torch.empty_like(weight), torch.empty_like(bias)
    grid, how = (plan.parts * plan.blocks,), (*settings, plan.size, *plan.tiles)
    launch(_grad_sums, grid, dy, x, parts, stats, weight, bias, *plan.where, *how, num_warps=plan.warps)
    launch(_combine_grads, (plan.wide,), parts, means, dweight, dbias, *plan.partial, num_warps=4)
    return means, dweight, dbias


def grad_input(
    plan: Plan, dy: Tensor, extra: Tensor | None, x: Tensor, dx: Tensor,
    stats: Tensor, means: Tensor, weight: Tensor, bias: Tensor, settings: Settings,
) -> None:  # fmt: skip
    """The gradient of x, plus `extra` -> dx."""
    grid, how = (plan.count(plan.block) * plan.blocks,), (*settings, *plan.tiles, extra is not None)
    launch(_grad_input, grid, dy, extra, x, dx, stats, means, weight, bias, *plan.where, *how, num_warps=plan.warps)
