"""Anything that holds images -> a store, at once or a portion at a time."""

import os
import random
import statistics
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from PIL import Image

from adamatch.base.cli_names import argument
from adamatch.base.errors import InputError
from adamatch.base.system import cores
from adamatch.images.arrays import from_arrays
from adamatch.images.bit_depth import white_among, white_inside
from adamatch.images.decode import SIXTEEN_BITS, Shape, Square, read_image, short_side, square
from adamatch.images.inputs import given_by_name, normalised
from adamatch.images.items import from_dataset, is_hub, length, refuse, sides, squares
from adamatch.images.labels import some
from adamatch.images.listing import File, Wanted, assign, list_files, names_files, where_of
from adamatch.images.store import Pixels, Store

T = TypeVar("T")
CHUNK = 32  # images that a thread decodes at a time
FEW, LISTED = 0.01, 20  # part of the files that may be unreadable, at most; how many are named
PORTION, BYTES = 1024, 2**26  # of a stream: at most so many images at a time, of so many bytes in all


def read(
    source: Any,
    *,
    size: int,
    classes: Sequence[str] | None = None,
    labelled: bool | None = None,
    drop_unknown: bool = False,
    shape: Shape = "squeeze",
    white: int = 0,
    skip_bad: bool = False,
    check: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Store:
    """Anything that names files (`names_files`), a store or its folder, an image, arrays or a dataset -> a store.

    classes         the classes and their order; None: those that are found
    labelled        True: labels are needed; False: every image, without its label; None: what is there
    drop_unknown    images of other classes are left out, rather than an error
    white           that of 16 bits; 0: found from a sample of the images (bit_depth.py)
    skip_bad        files that cannot be read are left out, however many; else only a few (`are_few`)
    check           False: the caller sees to it that they are few

    The store's info has `files`, `sides` (the short one of each file), `skipped` (why a file was left out), `white`,
    and `notes` for the user.
    """
    source, notes = normalised(source), list[str]()
    wanted = Wanted(labelled, classes, skip_bad, drop_unknown, notes)
    if names_files(source) and not is_store(source):
        paths, labels, names = list_files(source, wanted)
        white = white or white_among(paths, where_of(source), notes)
        store = read_files(paths, Square(size, shape, white), progress=progress)
        skipped = store.info["skipped"]
        if check and not skip_bad and not are_few(len(skipped), len(paths)):
            raise refusal(skipped, len(paths))
        if not len(store):
            raise _none_readable(len(paths), skipped)
        labels = None if labels is None else labels[[str(path) not in skipped for path in paths]]
        return Store(store.images, labels, names, {**store.info, "white": white, "notes": notes})
    if isinstance(source, (str, Path)):
        store = Store.open(source, whole=True)
    elif isinstance(source, Store):
        store = source
    elif isinstance(source, tuple) and len(source) == 2:
        store = from_arrays(*source, classes, size, shape, white=white)
    elif hasattr(source, "shape") and not is_hub(source):
        store = from_arrays(source, size=size, shape=shape, white=white)
    else:
        dataset = [source] if isinstance(source, Image.Image) else source
        refuse(dataset)
        white = white or white_inside(dataset, notes)
        how = Square(size, shape, white)
        store = from_dataset(dataset, how, classes=classes, labelled=labelled, progress=progress)
        store = replace(store, info={"white": white})
    name = str(source) if isinstance(source, (str, Path)) else "the data"
    store = _selected(store, size, wanted, name)
    return replace(store, info={**store.info, "notes": [*store.info.get("notes", ()), *notes]})


def stream(
    source: Any, *, size: int, shape: Shape = "squeeze", white: int = 0, skip_bad: bool = False
) -> tuple[int, Iterator[Store]]:
    """How many images there are (0 where only going through them tells), and stores of them, without labels.

    Files and items of datasets come a portion at a time, the next one read while the one before is worked on. Images
    that are in memory already, or a store, come as they are. info: `files` (numbers, where images have no names),
    `skipped`, and in the first portion `notes`. An image that was given by its own name is never left out.
    """
    notes, named = list[str](), set[str]() if skip_bad else given_by_name(source)
    source = normalised(source)
    portion = max(1, min(PORTION, BYTES // (size * size * 3)))
    if names_files(source) and not is_store(source):
        paths = list_files(source, Wanted(labelled=False, missing=skip_bad))[0]
        white = white or white_among(paths, where_of(source), notes)
        parts = _readable(paths, portion, Square(size, shape, white), None if skip_bad else named)
        return len(paths), _prefetched(parts, notes)
    if isinstance(source, (str, Path, Store, Image.Image, tuple)) or (hasattr(source, "shape") and not is_hub(source)):
        whole = read(source, size=size, labelled=False, shape=shape, white=white).images
        return len(whole), iter([_numbered(whole, 0)])
    refuse(source)
    white = white or white_inside(source, notes)
    images = (image for image, _ in squares(source, Square(size, shape, white), labelled=False))
    return length(source), _prefetched(_portions(images, portion), notes)


def median_side(source: Any, sample: int = 200) -> int:
    """The median short side of a sample, 0 where only reading all images would tell. Of files only heads are read."""
    if isinstance(source, Iterator):  # whose first item would be lost
        return 0
    source = normalised(source)
    if isinstance(source, Store):
        return source.size
    if is_store(source):
        return Store.open(source).size
    if names_files(source):
        paths = list_files(source, Wanted(labelled=False, missing=True))[0]
        found, files = [], [path for path in paths if isinstance(path, Path)]
        for chosen in random.Random(0).sample(files, min(sample, len(files))):
            with suppress(Exception):  # damaged ones are reported when they are decoded
                found.append(short_side(chosen))
        if files and not found:
            raise InputError(f"{where_of(source)} holds no image that can be read (for example {files[0]})")
        return int(statistics.median(found)) if found else 0
    if found := sides(source):
        return int(statistics.median(found))
    shape = getattr(source[0] if isinstance(source, tuple) else source, "shape", ())
    return int(sorted(shape[1:])[-2]) if len(shape) in (3, 4) else 0  # height, width and perhaps channels, in any order


def counted(source: Any, *, labelled: bool) -> tuple[int, int]:
    """How many images and classes there are (0: not known), as far as that is told without reading an image."""
    if is_store(source) or isinstance(source, Store):
        store = source if isinstance(source, Store) else Store.open(source)
        return len(store), len(store.classes)
    if names_files(source):
        paths, _, classes = list_files(source, Wanted(labelled, missing=True))
        return len(paths), len(classes)
    if isinstance(source, tuple) and len(source) == 2 and hasattr(source[0], "shape"):
        labels = source[1].tolist() if hasattr(source[1], "tolist") else source[1]
        one_each = isinstance(labels, list) and not any(isinstance(label, list) for label in labels)
        return len(source[0]), len(set(labels)) if one_each else 0
    return (0 if isinstance(source, Mapping) else length(source)), 0


def is_store(source: Any) -> bool:
    # os.path: of names that are too long, is_file() would raise an error.
    return isinstance(source, (str, Path)) and os.path.isfile(Path(source) / "store.json")


def read_files(paths: Sequence[File], how: Square, progress: Callable[[int, int], None] | None = None) -> Store:
    """Those files that can be read, without labels."""
    images = np.empty((len(paths), how.size, how.size, 3), np.uint8)
    sides: dict[File, int] = {}
    skipped: dict[str, str] = {}

    def decoded(path: File) -> Pixels:
        image = read_image(path, white=how.white or SIXTEEN_BITS)
        sides[path] = min(image.size)
        return square(image, how.size, how.shape)

    for done, bad in enumerate(decode_into(images, enumerate(paths), decoded), 1):
        skipped |= {str(paths[row]): why for row, why in bad.items()}
        if progress:
            progress(min(done * CHUNK, len(paths)), len(paths))
    kept = [path for path in paths if str(path) not in skipped]
    info = {"files": list(map(str, kept)), "sides": [sides[path] for path in kept], "skipped": skipped}
    return Store(images[[str(path) not in skipped for path in paths]] if skipped else images, None, (), info)


def are_few(bad: int, count: int) -> bool:
    """Whether so many unreadable files are left out without being asked: one, or less than a hundredth."""
    return bad <= 1 or bad < FEW * count


def refusal(skipped: Mapping[str, str], count: int) -> InputError:
    """Of files that cannot be read, by their names; of very many, the first ones."""
    what = some(skipped.values(), LISTED)
    if len(skipped) > 1:
        what = f"{len(skipped)} of {count:,} images cannot be read: {what}"
    return InputError(f"{what}: replace what is damaged, or use {argument('skip_bad', True)} to leave it out")


def decode_into(
    images: Pixels, items: Iterable[tuple[int, T]], decode: Callable[[T], Pixels]
) -> Iterator[dict[int, str]]:
    """Set images[row] for each (row, what holds it); after every CHUNK of them, yields the unreadable rows, and why.

    In threads, for Pillow decodes and resizes outside the GIL. At most two chunks per thread are in memory.
    """

    def work(chunk: list[tuple[int, T]]) -> dict[int, str]:
        bad = {}
        for row, each in chunk:
            try:
                images[row] = decode(each)
            except InputError as error:
                bad[row] = str(error)
        return bad

    items, jobs, threads = iter(items), deque[Future[dict[int, str]]](), cores()
    pool = ThreadPoolExecutor(threads)
    try:
        while chunk := list(islice(items, CHUNK)):
            jobs.append(pool.submit(work, chunk))
            if len(jobs) > 2 * threads:
                yield jobs.popleft().result()
        while jobs:
            yield jobs.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _none_readable(count: int, skipped: Mapping[str, str]) -> InputError:
    return InputError(f"none of {count} images can be read, for example: {next(iter(skipped.values()))}")


def _selected(store: Store, size: int, wanted: Wanted, name: str) -> Store:
    """A store at the size, with the wanted classes, and with or without labels."""
    if size != store.size:
        store = replace(store, images=np.stack([square(Image.fromarray(image), size) for image in store.images]))
    if wanted.labelled and store.labels is None:
        raise InputError(f"{name} has no labels, and here they are needed")
    classes = tuple(wanted.classes or store.classes)
    if wanted.labelled is False or store.labels is None:
        return replace(store, labels=None, classes=classes)
    kept, labels = assign([store.classes[label] for label in store.labels], classes, wanted, name)
    images = store.images if len(kept) == len(store) else store.images[kept]
    return replace(store, images=images, labels=labels, classes=classes)


def _readable(paths: Sequence[File], portion: int, how: Square, named: Container[str] | None) -> Iterator[Store]:
    """Stores of so many files. All that are `named` must be readable, and most others; None: any number may be bad."""
    found, skipped = 0, dict[str, str]()
    for start in range(0, len(paths), portion):
        part = read_files(paths[start : start + portion], how)
        found, skipped = found + len(part), skipped | part.info["skipped"]
        meant = {path: why for path, why in skipped.items() if path in (named or ())}
        if meant or (named is not None and not are_few(len(skipped), len(paths))):
            raise refusal(meant or skipped, len(paths))
        yield part
    if not found:
        raise _none_readable(len(paths), skipped)


def _portions(images: Iterator[Pixels], portion: int) -> Iterator[Store]:
    done = 0
    while part := list(islice(images, portion)):
        yield _numbered(np.stack(part), done)
        done += len(part)


def _numbered(images: Pixels, first: int) -> Store:
    return Store(images, None, (), {"files": [str(first + number) for number in range(len(images))], "skipped": {}})


def _prefetched(parts: Iterator[Store], notes: list[str]) -> Iterator[Store]:
    """Read the next part in a thread while one is used; the first has the notes."""
    here = copy_context()  # arguments are called in the thread as they are here

    def read_next() -> Store | None:
        return here.run(next, parts, None)

    with ThreadPoolExecutor(1) as thread:
        job = thread.submit(read_next)
        while (part := job.result()) is not None:
            job = thread.submit(read_next)
            yield replace(part, info={**part.info, "notes": notes})
            notes = []
