"""Any number of images, a portion at a time: the next one is read while the one before is worked on."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from adamatch.base.errors import InputError
from adamatch.images.arrays import as_square
from adamatch.images.decode import Shape
from adamatch.images.depth import white_among, white_inside
from adamatch.images.folders import is_store, read, read_files
from adamatch.images.items import is_hub, items, length, refuse
from adamatch.images.store import Pixels, Store
from adamatch.images.tables import Asked, list_any, listed, names_files

PORTION, BYTES = 1024, 2**26  # at most so many images at a time, of so many bytes in all


class How(NamedTuple):
    """How images become pixels."""

    size: int
    shape: Shape = "squeeze"
    skip_bad: bool = False
    white: int = 0  # that of 16 bits, where it is known

    @property
    def portion(self) -> int:
        return max(1, min(PORTION, BYTES // (self.size * self.size * 3)))


def stream(source: Any, how: How) -> tuple[int, Iterator[Store]]:
    """How many images there are (0 where only going through them tells), and stores of them, without labels.

    Each store's info has the `files` (numbers, where images have no names) and what was `skipped`; the first may have `notes`.
    Files and items of datasets are read a portion at a time; what is in memory already, or a store, is taken as it is.
    """
    notes: list[str] = []
    source = listed(source)
    if names_files(source) and not is_store(source):
        paths = list_any(source, Asked(labelled=False, missing=how.skip_bad))[0]
        where = str(source) if isinstance(source, (str, Path)) else "the images"
        how = how._replace(white=how.white or white_among(paths, where, notes))
        return len(paths), _ahead(_files(paths, how), notes)
    if isinstance(source, (str, Path, Store, Image.Image, tuple)) or (hasattr(source, "shape") and not is_hub(source)):
        store = read(source, size=how.size, labelled=False, shape=how.shape, white=how.white)
        return len(store), iter([_numbered(store.images, 0)])
    if not (hasattr(source, "__getitem__") or hasattr(source, "__iter__")):
        raise InputError(f"cannot read images from {type(source).__name__}: give a folder, CSV file, array or dataset")
    refuse(source)
    how = how._replace(white=how.white or white_inside(source, "the dataset", notes))
    return length(source), _ahead(_items(source, how), notes)


def _files(paths: Sequence[Path], how: How) -> Iterator[Store]:
    found, skipped = 0, ""
    for start in range(0, len(paths), how.portion):
        chosen = paths[start : start + how.portion]
        part = read_files(chosen, size=how.size, shape=how.shape, white=how.white, skip_bad=how.skip_bad)
        found += len(part)
        skipped = skipped or next(iter(part.info["skipped"].values()), "")
        yield part
    if not found:
        raise InputError(f"none of {len(paths)} images can be read, for example: {skipped}")


def _items(dataset: Any, how: How) -> Iterator[Store]:
    done, part = 0, list[Pixels]()
    for image, _ in items(dataset, labelled=False, white=how.white):
        part.append(as_square(image, how.size, how.shape, f"image {done + len(part)} of the dataset", how.white))
        if len(part) == how.portion:
            yield _numbered(np.stack(part), done)
            done, part = done + len(part), []
    if part:
        yield _numbered(np.stack(part), done)
    elif not done:
        raise InputError("the dataset is empty")


def _numbered(images: Pixels, first: int) -> Store:
    return Store(images, None, (), {"files": [str(first + number) for number in range(len(images))], "skipped": {}})


def _ahead(parts: Iterator[Store], notes: list[str]) -> Iterator[Store]:
    here = copy_context()  # arguments are called in the thread as they are here

    def read_next() -> Store | None:
        return here.run(next, parts, None)

    with ThreadPoolExecutor(1) as thread:
        job = thread.submit(read_next)
        while (part := job.result()) is not None:
            job = thread.submit(read_next)
            yield replace(part, info={**part.info, "notes": notes})
            notes = []
