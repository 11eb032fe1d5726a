"""Shift, mirror and cutout of a batch. Every random choice comes in as uniforms `u` in [0, 1)."""

import torch
from torch import Tensor

GREY = 127  # what a cutout hole is filled with: zero after (x - 127.5) / 128, as nearly as uint8 can say


def shift_mirror(x: Tensor, u: Tensor, *, mirror: bool = True) -> Tensor:
    """Move by up to an eighth of the side (reflected at the borders), flip left-right half of the time.

    x: uint8 [B, C, H, W], square; u: [B, 3]. Both are one gather.
    """
    side = x.shape[-1]
    pad = side // 8
    where = _reflect(side, pad, x.device)
    offset = (u[:, :2] * (2 * pad + 1)).long()  # [B, 2], vertical then horizontal
    line = torch.arange(side, device=x.device)
    rows, columns = where[line + offset[:, :1]], where[line + offset[:, 1:]]  # [B, side] each
    if mirror:
        columns = torch.where(u[:, 2:] < 0.5, columns, columns.flip(1))
    image = torch.arange(len(x), device=x.device).view(-1, 1, 1)
    # Separated indices put the channels last: the memory order that convolutions want, seen as [B, C, H, W].
    return x[image, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def cutout(x: Tensor, u: Tensor) -> Tensor:
    """Grey out a square of half the side around a random pixel, clipped at the borders.

    x: uint8 [B, C, H, W]; u: [B, 2], vertical then horizontal.
    """
    side = x.shape[-1]
    half = (1 + int(side * 0.499)) // 2  # the published size at full level
    return grey_square(x, (u * side).long(), half)


def grey_square(x: Tensor, centre: Tensor, half: Tensor | int) -> Tensor:
    """A square of 2 `half` pixels ([B, 1, 1], or for all images) around centre [B, 2], clipped at the borders."""
    line = torch.arange(x.shape[-1], device=x.device)
    inside = (line >= centre[:, :, None] - half) & (line < centre[:, :, None] + half)  # [B, 2, side]
    hole = inside[:, 0, :, None] & inside[:, 1, None, :]
    return x.masked_fill(hole[:, None], GREY)


def _reflect(side: int, pad: int, device: torch.device) -> Tensor:
    """Pixel at each position of a line padded by reflection: a table, because Inductor mishandles abs() here."""
    ends = torch.arange(pad, 0, -1, device=device), torch.arange(side - 2, side - 2 - pad, -1, device=device)
    return torch.cat([ends[0], torch.arange(side, device=device), ends[1]])
