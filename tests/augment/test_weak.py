"""Shift, mirror and cutout against NumPy, one image at a time."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from adamatch.augment.weak import cutout, shift_mirror

SIZES = (8, 16, 32, 64)


def images(count: int, size: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (count, size, size, 3), dtype=np.uint8)


def tensor(x: NDArray[np.uint8]) -> torch.Tensor:
    return torch.from_numpy(x).permute(0, 3, 1, 2)


def shifted(image: NDArray[np.uint8], u: NDArray[np.float32], mirror: bool) -> NDArray[np.uint8]:
    """Pad by reflection, crop, flip."""
    side = len(image)
    pad = side // 8
    wide = np.pad(image, ((pad, pad), (pad, pad), (0, 0)), mode="reflect")
    y, x = int(u[0] * (2 * pad + 1)), int(u[1] * (2 * pad + 1))
    crop = wide[y : y + side, x : x + side]
    return crop[:, ::-1] if mirror and u[2] >= 0.5 else crop


def holed(image: NDArray[np.uint8], u: NDArray[np.float32]) -> NDArray[np.uint8]:
    """A square of half the side around a pixel, clipped."""
    side, half = len(image), len(image) // 4
    y, x = int(u[0] * side), int(u[1] * side)
    image = image.copy()
    image[max(0, y - half) : y + half, max(0, x - half) : x + half] = 127
    return image


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("mirror", [True, False])
def test_shift_and_mirror_equal_padding_cropping_flipping(size: int, mirror: bool) -> None:
    x, u = images(64, size), np.random.default_rng(1).random((64, 3), dtype=np.float32)
    found = shift_mirror(tensor(x), torch.from_numpy(u), mirror=mirror).permute(0, 2, 3, 1).numpy()
    for image, each, result in zip(x, u, found, strict=True):
        assert np.array_equal(result, shifted(image, each, mirror))


@pytest.mark.parametrize("size", SIZES)
def test_cutout_greys_a_clipped_square(size: int) -> None:
    x, u = images(64, size), np.random.default_rng(2).random((64, 2), dtype=np.float32)
    found = cutout(tensor(x), torch.from_numpy(u)).permute(0, 2, 3, 1).numpy()
    for image, each, result in zip(x, u, found, strict=True):
        assert np.array_equal(result, holed(image, each))


def test_every_place_and_side_is_drawn_equally_often() -> None:
    n = 9000
    column = np.broadcast_to(np.arange(16, dtype=np.uint8)[None, None, :, None], (n, 16, 16, 3)).copy()
    u = torch.rand(n, 3, generator=torch.Generator().manual_seed(0))
    found = shift_mirror(tensor(column), u).permute(0, 2, 3, 1).numpy()[:, 0, :, 0].astype(int)
    flipped = found[:, 8] < found[:, 7]
    assert abs(flipped.mean() - 0.5) < 0.03
    middle = np.where(flipped, found[:, 7], found[:, 8])  # 8 plus the shift, of -2 to 2
    counts = np.bincount(middle - 6, minlength=5)
    assert len(counts) == 5
    assert counts.min() > 0.9 * n / 5
