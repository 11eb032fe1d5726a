"""Changing colours as Pillow does: grey values, filters, lookup tables and blends, one setting per image."""

import torch
from torch import Tensor


def grey(x: Tensor) -> Tensor:
    """Luma as convert("L") rounds it; x uint8 [B,3,H,W] -> int32 [B,1,H,W]."""
    red, green, blue = torch.split(x.int(), 1, dim=1)
    return (red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16


def smooth_and_blur(x: Tensor) -> tuple[Tensor, Tensor]:
    """ImageFilter.SMOOTH (3x3, centre 5 of 13) and BLUR (rim of 5x5), borders kept; x uint8 [B,C,H,W] -> two floats."""
    v = x.to(torch.int16)  # sums of 25 pixels fit
    row3 = v[..., :-2] + v[..., 1:-1] + v[..., 2:]
    row5 = row3[..., 1:-1] + v[..., :-4] + v[..., 4:]
    box3 = row3[..., :-2, :] + row3[..., 1:-1, :] + row3[..., 2:, :]
    box5 = row5[..., :-4, :] + row5[..., 1:-3, :] + row5[..., 2:-2, :] + row5[..., 3:-1, :] + row5[..., 4:, :]
    smooth, blur = x.float(), x.float()
    # Halves cannot occur in thirteenths, so float rounding is far from mattering; sixteenths are exact.
    smooth[..., 1:-1, 1:-1] = ((box3 + 4 * v[..., 1:-1, 1:-1]) * (1 / 13) + 0.5).floor()
    blur[..., 2:-2, 2:-2] = ((box5 - box3[..., 1:-1, 1:-1] + 8) >> 4).float()
    return smooth, blur


def blend(a: Tensor, b: Tensor, amount: Tensor) -> Tensor:
    """Image.blend: a + amount (b - a) as float32, clipped and truncated; float tensors -> uint8.

    Pillow's compiler may or may not fuse the multiplication and the addition, and so may ours. Exact in double and then
    rounded once is the fused result on every machine; the other differs by one grey level in about 1 of 700,000 values.
    """
    return (a + amount.double() * (b - a)).float().clamp(0, 255).to(torch.uint8)


def stretches() -> Tensor:
    """v * (255 / d) in double [256 d, 256 v]: autocontrast's products, rounded as Python rounds them."""
    d = torch.arange(256, dtype=torch.float64).clamp(min=1).unsqueeze(1)
    return torch.arange(256, dtype=torch.float64) * (torch.full_like(d, 255.0) / d)


def autocontrast_table(low: Tensor, high: Tensor, stretch: Tensor) -> Tensor:
    """Table that stretches [low, high] (int64 [B,C,1]) to [0, 255], with `stretches()` -> int32 [B,C,256]."""
    products = stretch[(high - low).squeeze(2)]
    table = (products - products.gather(2, low)).int().clamp(0, 255)
    return torch.where(high > low, table, _identity(table))


def equalize_table(pixels: Tensor, high: Tensor) -> Tensor:
    """Table that flattens the histogram; pixels int64 [B,C,N], their maximum int64 [B,C,1] -> int32 [B,C,256]."""
    B, C, _ = pixels.shape
    count = torch.zeros(B, C, 256, dtype=torch.int32, device=pixels.device)
    count = count.scatter_add(2, pixels, torch.ones_like(pixels, dtype=torch.int32))
    below = count.cumsum(2, dtype=torch.int32) - count
    step = below.gather(2, high) // 255
    table = ((below + step // 2) // step.clamp(min=1)).clamp(max=255)
    return torch.where(step > 0, table, _identity(table))


def _identity(table: Tensor) -> Tensor:
    return torch.arange(256, dtype=table.dtype, device=table.device).expand_as(table)
