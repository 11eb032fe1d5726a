"""Small pictures inside the page: WebP of at most 96 x 96, as data addresses."""

import base64
import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from PIL import Image

from adamatch.report.pool import Pool

SIDE = 96
QUALITY = 70
SMALL = 48  # images below this are shown with their pixels visible, and kept without loss


class Thumbnail(NamedTuple):
    address: str
    small: bool  # to be shown with its pixels visible


def thumbnails(pool: Pool, rows: Sequence[int]) -> dict[int, Thumbnail]:
    """Of the rows that can be shown."""
    with ThreadPoolExecutor(2) as workers:
        found = workers.map(lambda row: _thumbnail(pool.image(row, SIDE)), rows)
        return {row: each for row, each in zip(rows, found, strict=True) if each is not None}


def _thumbnail(image: Image.Image | None) -> Thumbnail | None:
    if image is None:
        return None
    small = max(image.size) < SMALL
    if not small:
        image = image.copy()
        image.thumbnail((SIDE, SIDE))
    held = io.BytesIO()
    image.save(held, "WEBP", lossless=small, quality=QUALITY, method=4)
    return Thumbnail("data:image/webp;base64," + base64.b64encode(held.getvalue()).decode(), small)
