"""Grey of 16 bits: which value is white. One for all images of a source, so that their brightness stays comparable.

Where a file says how many bits it uses (PNG: sBIT, TIFF: BitsPerSample, MaxSampleValue), that holds. Else it is 4095
where no image of a sample goes beyond it (12-bit scans come in 16-bit files, and would be nearly black); else 65535.
"""

import random
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from adamatch.base.regular_files import read_file
from adamatch.images.decode import TWELVE_BITS, opened, white_in, white_of
from adamatch.images.items import encoded, sample
from adamatch.images.listing import File

SAMPLE = 200  # images
FIRST = 3  # of a dataset, of which each image may cost much: where these have 8 bits, all have


def white_among(paths: Sequence[File], where: str, notes: list[str]) -> int:
    """The white of files of 16 bits, which goes to the notes; 0 where none of a sample has 16 bits."""
    return _white(random.Random(0).sample(paths, min(SAMPLE, len(paths))), where, notes)


def white_inside(dataset: Any, notes: list[str]) -> int:
    """The same of a dataset that can be asked for any of its images; 0 for others."""
    return _white(sample(dataset, SAMPLE), "the dataset", notes) if _white(sample(dataset, FIRST), "", []) else 0


def _white(images: Iterable[Any], where: str, notes: list[str]) -> int:
    looks = [_look(image) for image in images]
    said, most = (max((look[part] for look in looks), default=0) for part in (0, 1))
    if not most:
        return said
    white = white_of(most)
    bits = 12 if white == TWELVE_BITS else 16
    notes.append(f"{where}: 16-bit images with values up to {most}: read as {bits} bits, {white} is white")
    return white


def _look(image: Any) -> tuple[int, int]:
    """(white, 0) if a 16-bit image's file states its white, else (0, its largest value); (0, 0) for other images."""
    image = encoded(image)
    if isinstance(image, (str, Path, bytes)):
        with suppress(Exception):  # damaged ones are reported when they are decoded
            content = image if isinstance(image, bytes) else read_file(Path(image))
            with opened(content) as picture:
                white = white_in(picture, content)
                return (white, 0) if white else _look(picture)
        return 0, 0
    if isinstance(image, Image.Image):
        return 0, int(np.asarray(image).max()) if image.mode.startswith("I;16") else 0
    with suppress(Exception):
        values = np.asarray(image)
        return 0, int(values.max()) if values.dtype == np.uint16 and values.size else 0
    return 0, 0
