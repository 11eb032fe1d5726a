"""The images of a source or a target as the page needs them: their names, labels and looks, and each as a picture."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Self, get_args

import numpy as np
from PIL import Image

from adamatch.base.errors import InputError
from adamatch.images.decode import SIXTEEN_BITS, Shape, read_image, square
from adamatch.images.store import Pixels
from adamatch.report.looks import Looks, measure, spread
from adamatch.report.record import counts, number, texts


@dataclass(frozen=True)
class Pool:
    """`parts` hold the images where they are in memory; else they are read from `files` again, if there are any."""

    count: int
    root: str = ""  # the folder that names of files are relative to
    files: tuple[str, ...] = ()
    labels: tuple[int, ...] = ()
    trained: tuple[int, ...] = ()  # rows whose labels are learnt from, in the order of the labelled pool; empty: all
    held_out: tuple[int, ...] = ()  # rows that are not trained on
    shape: Shape = "squeeze"
    white: int = 0  # of 16-bit files
    looks: Looks = field(default_factory=dict)
    parts: tuple[Pixels, ...] = ()

    @classmethod
    def of(cls, parts: Sequence[Pixels], files: Sequence[str] = (), **more: Any) -> Self:
        """Of images in memory; their files, where they came from files, are in the same order."""
        count = sum(map(len, parts))
        files = files if len(files) == count else ()
        root = _root(files)
        names = tuple(os.path.relpath(os.path.abspath(file), root) for file in files)
        pool = cls(count, root, names, parts=tuple(parts), **more)
        rows = spread(count)
        seen = measure([pool.pixels(row) for row in rows], [pool.path(row) for row in rows] if files else [])
        return cls(count, root, names, parts=tuple(parts), looks=seen, **more)

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

    def image(self, row: int, side: int) -> Image.Image | None:
        """A square, at most `side` large where it is read from its file; None if it is gone."""
        if not 0 <= row < self.count:
            return None
        if self.files and (not self.parts or self.parts[0].shape[1] < side):  # what is in memory may be small
            try:
                picture = read_image(self.path(row), white=self.white or SIXTEEN_BITS)
                return Image.fromarray(square(picture, min(side, *picture.size), self.shape))
            except InputError:
                pass
        return Image.fromarray(np.array(self.pixels(row))) if self.parts else None

    def to_json(self) -> dict[str, Any]:
        return {
            "count": self.count,
            "root": self.root or None,
            "files": list(self.files) or None,
            "labels": list(self.labels) or None,
            "trained": list(self.trained),
            "held_out": list(self.held_out),
            "shape": self.shape,
            "white": self.white,
            "looks": self.looks,
        }

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Self:
        """Raises ValueError, or so, where it is not what `to_json` gives."""
        (count,), looks, shape, root = counts([facts["count"]]), facts["looks"], facts["shape"], facts.get("root") or ""
        numbers = [number(value) for values in looks.values() for value in values]
        files, labels = texts(facts.get("files") or []), counts(facts.get("labels") or [])
        if (
            None in numbers
            or shape not in get_args(Shape)
            or not isinstance(root, str)
            or "\0" in "".join((root, *files))
        ):
            raise ValueError("not a pool of images")
        if len(files) not in (0, count) or len(labels) not in (0, count):
            raise ValueError("as many names and labels as images, or none")
        (white,) = counts([facts.get("white", 0)])
        trained, held_out = (counts(facts.get(name) or [], count) for name in ("trained", "held_out"))
        return cls(count, root, files, labels, trained, held_out, shape, white, looks)


def _root(files: Sequence[str]) -> str:
    if not files:
        return ""
    try:
        shared = os.path.commonpath([os.path.abspath(os.path.dirname(file)) for file in files])
    except ValueError:  # on several drives
        shared = os.path.abspath(os.curdir)
    return shared
