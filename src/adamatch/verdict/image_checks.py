"""What shows in the images themselves: empty ones, and nearly the same ones in source and target."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from adamatch.images.store import Labels, Pixels

EMPTY = 3.0  # standard deviation of the brightness, of 255, below which an image shows nothing
GRID = 32  # rows and columns of pixels that are looked at, at least
SIDE = 8  # a hash has SIDE x SIDE bits
RISE = 8  # of 255: a bit is set where brightness rises by more from a place to the next
NEAR = 6  # bits by which hashes of nearly the same images may differ
FINE = 16  # rows and columns of pixels that decide
CLOSE = 0.1  # part of their mean distance from the image's mean by which pixels may differ: drawings are mostly white
CHUNK = 256


def empty(images: Pixels) -> Labels:
    """Rows of images (n, h, w, 3) that are of one colour, or nearly: a grid of their pixels tells."""
    step = max(1, min(images.shape[1:3]) // GRID)
    return np.flatnonzero([image[::step, ::step].std(axis=(0, 1)).max() < EMPTY for image in images])


def nearly_same(first: Pixels, second: Pixels) -> NDArray[np.int64]:
    """Pairs of rows (n, 2): an image of `first` and one of `second` that looks the same, the nearest.

    Difference hashes find candidates, and pixels decide. Empty images are left out: they are all the same.
    """
    rows, others = (np.setdiff1d(np.arange(len(images)), empty(images)) for images in (first, second))
    if not len(rows) or not len(others):
        return np.zeros((0, 2), np.int64)
    (hashes, pixels), (other_hashes, other_pixels) = map(_looks, (first[rows], second[others]))
    found = []
    for start in range(0, len(rows), CHUNK):
        near = np.bitwise_count(hashes[start : start + CHUNK, None] ^ other_hashes) <= NEAR
        for mine in np.flatnonzero(near.any(1)):
            candidates, own = np.flatnonzero(near[mine]), pixels[start + mine]
            distances = np.abs(other_pixels[candidates] - own).mean(1)
            if distances.min() < CLOSE * np.abs(own - own.mean()).mean():
                found.append((rows[start + mine], others[candidates[distances.argmin()]]))
    return np.array(found, np.int64).reshape(-1, 2)


def _looks(images: Pixels) -> tuple[NDArray[np.uint64], NDArray[np.float32]]:
    """Difference hashes [n]: whether brightness rises from each place to the next; and pixels [n, FINE * FINE]."""
    coarse = _brightness(images, SIDE + 1, SIDE)
    rises = (coarse[:, :, 1:] > coarse[:, :, :-1] + RISE).reshape(len(images), -1)
    hashes = np.packbits(rises, axis=1).view(np.uint64)[:, 0]
    return hashes, _brightness(images, FINE, FINE).reshape(len(images), -1)


def _brightness(images: Pixels, width: int, height: int) -> NDArray[np.float32]:
    """[n, height, width], from 0 to 255."""
    box = Image.Resampling.BOX
    small = [Image.fromarray(image).convert("L").resize((width, height), box) for image in images]
    return np.stack([np.asarray(each, np.float32) for each in small])
