"""The images of a source or a target as the page shows them: names, labels, appearance, and thumbnails."""

import base64
import io
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from PIL import Image

from adamatch.base.errors import InputError
from adamatch.base.system import cores
from adamatch.images.decode import SIXTEEN_BITS, Shape, read_image, short_side, square
from adamatch.images.store import Pixels

MEASURED = 400  # images of each kind whose appearance is measured
LUMA = np.array([0.299, 0.587, 0.114], np.float32) / 255
SIDE, LARGE = 96, 384  # pixels of a picture, at most; of one that is kept larger, for a closer look
QUALITY = 70  # of its WebP
SMALL = 48  # images below this are shown with their pixels visible, and kept without loss

Appearance = Mapping[str, list[float]]


@dataclass(frozen=True)
class Pool:
    """Images in memory (`parts`), or else in `files`."""

    count: int
    root: str = ""  # the folder that names of files are relative to
    files: tuple[str, ...] = ()
    labels: tuple[int, ...] = ()
    trained: tuple[int, ...] = ()  # rows whose labels are learnt from, in the order of the labelled pool; empty: all
    shape: Shape = "squeeze"
    white: int = 0  # of 16-bit files
    appearance: Appearance = field(default_factory=dict)
    parts: tuple[Pixels, ...] = ()

    @classmethod
    def of(cls, parts: Sequence[Pixels], files: Sequence[str] = (), **more: Any) -> Self:
        """Of images in memory; `files` are in the same order."""
        count = sum(map(len, parts))
        files = files if len(files) == count else ()
        pool = replace(cls.of_files(files, **more), count=count, parts=tuple(parts))
        rows = spread(count, MEASURED)
        appearance = measure([pool.pixels(row) for row in rows], [pool.path(row) for row in rows] if files else [])
        return replace(pool, appearance=appearance)

    @classmethod
    def of_files(cls, files: Sequence[str], **more: Any) -> Self:
        """Of images that are not in memory."""
        root = _root(files)
        return cls(len(files), root, tuple(os.path.relpath(os.path.abspath(file), root) for file in files), **more)

    def name(self, row: int) -> str:
        """A file's name, or an image's number."""
        return self.files[row] if self.files else f"image {row}"

    def path(self, row: int) -> Path:
        return Path(self.root, self.files[row])

    def pixels(self, row: int) -> Pixels:
        """From memory."""
        ends = list(accumulate(map(len, self.parts)))
        part = next(i for i, end in enumerate(ends) if row < end)
        found: Pixels = self.parts[part][row - ends[part]]  # from its end
        return found

    def image(self, row: int, side: int = SIDE) -> Image.Image | None:
        """A square image of at least `side` pixels, if there are so many; None where its file is gone."""
        if not 0 <= row < self.count:
            return None
        if self.files and (not self.parts or self.parts[0].shape[1] < side):  # what is in memory may be small
            with suppress(InputError):
                picture = read_image(self.path(row), white=self.white or SIXTEEN_BITS)
                return Image.fromarray(square(picture, min(side, *picture.size), self.shape))
        return Image.fromarray(np.array(self.pixels(row))) if self.parts else None

    def to_json(self) -> dict[str, Any]:
        names = ("count", "root", "files", "labels", "trained", "shape", "white", "appearance")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Self:
        values: dict[str, Any] = {name: tuple(each) if isinstance(each, list) else each for name, each in facts.items()}
        return cls(**values)


def _root(files: Sequence[str]) -> str:
    if not files:
        return ""
    try:
        return os.path.commonpath([os.path.abspath(os.path.dirname(file)) for file in files])
    except ValueError:  # on several drives
        return os.path.abspath(os.curdir)


def spread(count: int, most: int) -> list[int]:
    """At most `most` of `count` rows, evenly spaced."""
    return sorted({round(row) for row in np.linspace(0, count - 1, min(count, most)).tolist()}) if count else []


def measure(images: Sequence[Pixels], files: Sequence[Path]) -> Appearance:
    """Of images uint8 (h, w, 3) as they are trained on; the size is that of the files, if there are any."""
    found: dict[str, list[float]] = {"brightness": [], "contrast": [], "sharpness": [], "size": []}
    for image in images:
        grey = image @ LUMA
        edges = [np.abs(np.diff(grey, axis=axis)).mean() if grey.shape[axis] > 1 else 0.0 for axis in (0, 1)]
        for name, value in (("brightness", grey.mean()), ("contrast", grey.std()), ("sharpness", sum(edges) / 2)):
            found[name].append(round(float(value), 4))
    for file in files:
        with suppress(Exception):  # gone or damaged: reported elsewhere
            found["size"].append(float(short_side(file)))
    return found


class Thumbnail(NamedTuple):
    address: str  # a WebP as a data address
    small: bool  # to be shown with its pixels visible


def thumbnails(pool: Pool | None, rows: Sequence[int], large: int = 0) -> dict[int, Thumbnail]:
    """By row, the first `large` of them for a closer look; images that cannot be read are left out."""
    if pool is None:
        return {}
    rows = list(dict.fromkeys(rows))
    sides = [LARGE if number < large else SIDE for number in range(len(rows))]
    with ThreadPoolExecutor(cores()) as workers:
        found = workers.map(lambda row, side: _thumbnail(pool.image(row, side), side), rows, sides)
        return {row: each for row, each in zip(rows, found, strict=True) if each is not None}


def _thumbnail(image: Image.Image | None, side: int) -> Thumbnail | None:
    if image is None:
        return None
    small = max(image.size) < SMALL
    if not small:
        image.thumbnail((side, side))
    held = io.BytesIO()
    image.save(held, "WEBP", lossless=small, quality=QUALITY, method=4)
    return Thumbnail("data:image/webp;base64," + base64.b64encode(held.getvalue()).decode(), small)
