"""Grey of 16 bits: which value is white. One for all images of a source, so that their brightness stays comparable.

Where a file says how many bits it uses (PNG: sBIT, TIFF: BitsPerSample, MaxSampleValue), that holds. Else it is 4095 where no
image that is looked at goes beyond it, since 12-bit scans come in 16-bit files and would be nearly black; else 65535.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from adamatch.base.regular_files import read_file
from adamatch.images.decode import TWELVE_BITS, opened, white_in, white_of
from adamatch.images.items import images_of

LOOKED_AT = 200  # images
FIRST = 3  # of a dataset, of which each image may cost much: where these have 8 bits, all have


def white_among(paths: Sequence[Path], where: str, notes: list[str]) -> int:
    """What is white in files of 16 bits, said in the notes; 0 where none of those that are looked at has 16 bits."""
    chosen = random.Random(0).sample(paths, min(LOOKED_AT, len(paths)))
    return _white(map(_look, chosen), where, notes)


def white_inside(dataset: Any, where: str, notes: list[str]) -> int:
    """The same of a dataset that can be asked for any of its images; 0 for others."""
    if not any(map(any, map(_look, images_of(dataset, FIRST)))):
        return 0
    return _white(map(_look, images_of(dataset, LOOKED_AT)), where, notes)


class _Seen(NamedTuple):
    """Of an image of 16 bits: the largest value that it may have, where it says so, else the largest that it has."""

    white: int = 0
    largest: int = 0


def _white(looks: Iterable[_Seen], where: str, notes: list[str]) -> int:
    seen = list(looks)
    said, most = (max(values, default=0) for values in zip(*seen, strict=True))
    if not most:
        return said
    white = white_of(most)
    bits = 12 if white == TWELVE_BITS else 16
    notes.append(f"{where}: 16-bit images with values up to {most}: read as {bits} bits, {white} is white")
    return white


def _look(image: Any) -> _Seen:
    if isinstance(image, Mapping):  # HuggingFace's, not decoded
        image = image.get("bytes") or image.get("path")
    if isinstance(image, (str, Path, bytes)):
        with suppress(Exception):  # damaged ones are reported when they are decoded
            content = image if isinstance(image, bytes) else read_file(Path(image))
            with opened(content) as picture:
                white = white_in(picture, content)
                return _Seen(white=white) if white else _look(picture)
        return _Seen()
    if isinstance(image, Image.Image):
        return _Seen(largest=int(np.asarray(image).max()) if image.mode.startswith("I;16") else 0)
    values = np.asarray(image)
    return _Seen(largest=int(values.max()) if values.dtype == np.uint16 and values.size else 0)
