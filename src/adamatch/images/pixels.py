"""What shows in the pixels: images that are empty, the same, or nearly the same."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from adamatch.images.store import Labels, Pixels

EMPTY = 3.0  # standard deviation of the brightness, of 255, below which an image shows nothing
ONE_COLOUR = 2  # of 255: values of one colour differ by less
GRID = 32  # rows and columns of pixels that are looked at, at least
SIDE = 8  # a hash has SIDE x SIDE bits
RISE = 8  # of 255: a bit is set where brightness rises by more from a place to the next
NEAR = 6  # bits by which hashes of nearly the same images may differ
FINE = 16  # rows and columns of pixels that decide
CLOSE = 0.1  # part of their mean distance from the image's mean by which pixels may differ: drawings are mostly white
CHUNK = 256

Images = Pixels | Sequence[Pixels]  # (n, h, w, 3), or as many of (h, w, 3)


def empty(images: Images) -> Labels:
    """Rows of images (n, h, w, 3) that are of one colour, or nearly: a grid of their pixels tells."""
    step = max(1, len(images[0]) // GRID) if len(images) else 1
    return np.flatnonzero([image[::step, ::step].std(axis=(0, 1)).max() < EMPTY for image in images])


def one_colour(images: Images, rows: Labels) -> Labels:
    """Those of the rows whose images are of one colour in every pixel."""
    return np.array([row for row in rows if np.ptp(images[row], axis=(0, 1)).max() < ONE_COLOUR], np.int64)


def first_same(images: Images, among: Images) -> Labels:
    """For each image the first row of `among` with the same pixels; -1 where there is none."""
    seen: dict[int, int] = {}
    for row, image in enumerate(among):
        seen.setdefault(hash(image.tobytes()), row)
    rows = [seen.get(hash(image.tobytes()), -1) for image in images]
    return np.array(rows, np.int64)


def nearly_same(first: Images, second: Images) -> NDArray[np.int64]:
    """Pairs of rows (n, 2): an image of `first` and one of `second` that looks the same, the nearest.

    Difference hashes find candidates, and pixels decide. Empty images are left out: they are all the same.
    """
    rows, others = (np.setdiff1d(np.arange(len(images)), empty(images)) for images in (first, second))
    if not len(rows) or not len(others):
        return np.zeros((0, 2), np.int64)
    hashes, pixels = _looks([first[row] for row in rows])
    other_hashes, other_pixels = _looks([second[row] for row in others])
    found = []
    for start in range(0, len(rows), CHUNK):
        near = np.bitwise_count(hashes[start : start + CHUNK, None] ^ other_hashes) <= NEAR
        for mine in np.flatnonzero(near.any(1)):
            candidates, own = np.flatnonzero(near[mine]), pixels[start + mine]
            distances = np.abs(other_pixels[candidates] - own).mean(1)
            if distances.min() < CLOSE * np.abs(own - own.mean()).mean():
                found.append((rows[start + mine], others[candidates[distances.argmin()]]))
    return np.array(found, np.int64).reshape(-1, 2)


def _looks(images: Images) -> tuple[NDArray[np.uint64], NDArray[np.float32]]:
    """Difference hashes [n]: whether brightness rises from each place to the next; and pixels [n, FINE * FINE]."""
    grey = [Image.fromarray(image).convert("L") for image in images]
    coarse = _reduced(grey, SIDE + 1, SIDE)
    rises = (coarse[:, :, 1:] > coarse[:, :, :-1] + RISE).reshape(len(images), -1)
    hashes = np.packbits(rises, axis=1).view(np.uint64)[:, 0]
    return hashes, _reduced(grey, FINE, FINE).reshape(len(images), -1)


def _reduced(images: Sequence[Image.Image], width: int, height: int) -> NDArray[np.float32]:
    """[n, height, width], from 0 to 255."""
    return np.stack([np.asarray(each.resize((width, height), Image.Resampling.BOX), np.float32) for each in images])
