"""What shows in the images themselves: empty ones, and nearly the same ones in source and target."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from adamatch.images.store import Labels, Pixels

EMPTY = 3.0  # standard deviation of the brightness, of 255, below which an image shows nothing
GRID = 32  # lines and columns of pixels that are looked at, at least
SIDE = 8  # a hash has SIDE x SIDE bits
RISE = 8  # of 255: by so much brightness rises from a place to the next where a bit is set
NEAR = 6  # bits by which hashes of nearly the same images may differ
FINE = 16  # lines and columns of pixels that decide
CLOSE = (
    0.1  # they may differ by this part of how far an image's pixels lie from their own mean: drawings are mostly white
)
CHUNK = 256

Hashes = NDArray[np.uint64]


def empty(images: Pixels) -> Labels:
    """Rows of images (n, h, w, 3) that are of one colour, or nearly: a grid of their pixels tells."""
    step = max(1, min(images.shape[1:3]) // GRID)
    return np.flatnonzero([image[::step, ::step].std(axis=(0, 1)).max() < EMPTY for image in images])


def nearly_same(first: Pixels, second: Pixels) -> NDArray[np.int64]:
    """Pairs of rows (n, 2): an image of `first` and one of `second` that looks the same; of each of `first` the nearest.

    Difference hashes find candidates, and pixels decide. Empty images are left out: they are all the same.
    """
    rows = [np.setdiff1d(np.arange(len(images)), empty(images)) for images in (first, second)]
    if not len(rows[0]) or not len(rows[1]):
        return np.zeros((0, 2), np.int64)
    hashes, pixels = zip(
        *(_seen(images[kept]) for images, kept in zip((first, second), rows, strict=True)), strict=True
    )
    found = []
    for start in range(0, len(rows[0]), CHUNK):
        apart = np.bitwise_count(hashes[0][start : start + CHUNK, None] ^ hashes[1][None])
        for mine in np.flatnonzero((apart <= NEAR).any(1)):
            others = np.flatnonzero(apart[mine] <= NEAR)
            own = pixels[0][start + mine]
            away = np.abs(pixels[1][others] - own).mean(1)
            if away.min() < CLOSE * np.abs(own - own.mean()).mean():
                found.append((rows[0][start + mine], rows[1][others[away.argmin()]]))
    return np.array(found, np.int64).reshape(-1, 2)


def _seen(images: Pixels) -> tuple[Hashes, NDArray[np.float32]]:
    """Difference hashes [n], whether brightness rises from each place to the next; and brightness itself [n, FINE * FINE]."""
    coarse, fine = _brightness(images, SIDE + 1, SIDE), _brightness(images, FINE, FINE)
    rises = (coarse[:, :, 1:] > coarse[:, :, :-1] + RISE).reshape(len(images), -1)
    bits: Hashes = np.packbits(rises, axis=1).view(np.uint64)[:, 0]
    return bits, fine.reshape(len(images), -1)


def _brightness(images: Pixels, columns: int, lines: int) -> NDArray[np.float32]:
    """[n, lines, columns], from 0 to 255."""
    size, box = (columns, lines), Image.Resampling.BOX
    return np.stack([np.asarray(Image.fromarray(image).convert("L").resize(size, box)) for image in images]).astype(
        np.float32
    )
