"""Image folders and CSV lists -> stores; `read` takes these and everything else that holds images."""

import hashlib
import random
import shutil
import statistics
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image

from adamatch.base.cli_names import flag
from adamatch.base.errors import InputError
from adamatch.base.system import cores
from adamatch.images.arrays import choose, from_arrays, from_dataset
from adamatch.images.decode import SIXTEEN_BITS, Shape, read_image, short_side, square
from adamatch.images.depth import white_among, white_inside
from adamatch.images.items import is_hub
from adamatch.images.listing import Listing, list_csv, list_images
from adamatch.images.store import Labels, Pixels, Store, Writer
from adamatch.images.tables import Asked, list_any, names_files

__all__ = ["from_arrays", "from_dataset", "list_csv", "list_images", "median_side", "read", "read_folder"]

Progress = Callable[[int, int], None]
CHUNK = 32


def read_folder(
    source: Any,
    *,
    size: int,
    classes: Sequence[str] | None = None,
    labelled: bool | None = None,
    leave: bool = False,
    shape: Shape = "squeeze",
    white: int = 0,
    skip_bad: bool = False,
    workers: int | Literal["auto"] = "auto",
    cache: str | Path | None = None,
    progress: Progress | None = None,
) -> Store:
    """Files -> a store, in memory or under `cache` (where an interrupted reading is resumed).

    A folder, a CSV list, one image, several of these, paths with labels, a DataFrame: all that `tables.names_files` knows.
    `leave`: labelled images of other classes than `classes` are left out, and said in the store's notes.
    `white`: that of 16-bit files; 0: found by a look at them (data/depth.py), and said.
    """
    if size < 1:
        raise InputError(f"images of {size} x {size} were asked for: the size must be at least 1")
    asked = Asked(labelled, classes, skip_bad, leave)
    listing = list_any(source, asked)
    paths, labels, names = listing
    threads = cores() if workers == "auto" else max(workers, 1)
    where = str(Path(source)) if isinstance(source, (str, Path)) else type(source).__name__
    white = white or white_among(paths, where, asked.notes)
    fill = partial(_fill, paths, _Reading(shape, white, skip_bad, threads, progress))
    origin: dict[str, Any] = {"origin": where} | ({"shape": shape} if shape != "squeeze" else {})
    origin |= {"white": white} if white else {}
    if cache is not None:
        store = _cached(Path(cache), fill, listing, size, skip_bad, origin)
        return replace(store, info={**store.info, "notes": asked.notes})
    images, done = np.empty((len(paths), size, size, 3), np.uint8), np.zeros(len(paths), np.uint8)
    skipped = fill(images, done)
    if skipped:
        kept = np.flatnonzero(done)
        images, labels = images[kept], None if labels is None else labels[kept]
    return Store(images, labels, names, origin | _files(paths, done, skipped) | {"notes": asked.notes})


def read(
    source: Any,
    *,
    size: int | None = None,
    classes: Sequence[str] | None = None,
    labelled: bool | None = None,
    leave: bool = False,
    shape: Shape = "squeeze",
    white: int = 0,
    skip_bad: bool = False,
    workers: int | Literal["auto"] = "auto",
    cache: str | Path | None = None,
    progress: Progress | None = None,
) -> Store:
    """All that holds images -> a store: files (see `read_folder`), a store (or its folder), an image, arrays, a dataset."""
    if names_files(source) and not is_store(source):
        return read_folder(
            source,
            size=size or median_side(source),
            classes=classes,
            labelled=labelled,
            leave=leave,
            shape=shape,
            white=white,
            skip_bad=skip_bad,
            workers=workers,
            cache=cache,
            progress=progress,
        )
    if isinstance(source, (str, Path)):
        source = Store.whole(source)
    name = str(source.info.get("origin", "the store")) if isinstance(source, Store) else "the data"
    if not isinstance(source, Store):
        if isinstance(source, Image.Image):
            source = [source]
        if isinstance(source, tuple) and len(source) == 2:
            source = from_arrays(source[0], source[1], classes, size, shape, white=white)
        elif hasattr(source, "shape") and not is_hub(source):
            source = from_arrays(source, size=size, shape=shape, white=white)
        elif hasattr(source, "__getitem__") or hasattr(source, "__iter__"):
            source = _from_dataset(
                source, white, size=size, classes=classes, labelled=labelled, shape=shape, progress=progress
            )
        else:
            raise InputError(
                f"cannot read images from {type(source).__name__}: give a folder, CSV file, array or dataset"
            )
    return choose(source, size=size, classes=classes, labelled=labelled, name=name, leave=leave)


def _from_dataset(source: Any, white: int, **how: Any) -> Store:
    notes: list[str] = []
    white = white or white_inside(source, "the dataset", notes)
    store = from_dataset(source, white=white, **how)
    return replace(store, info={**store.info, "notes": notes, **({"white": white} if white else {})})


def is_store(source: Any) -> bool:
    return isinstance(source, (str, Path)) and (Path(source) / "store.json").is_file()


def median_side(source: Any, sample: int = 200) -> int:
    """The median short side of up to `sample` images among files that are named; only their headers are read."""
    paths = list_any(source, Asked(labelled=False, missing=True))[0]
    sides = []
    for chosen in random.Random(0).sample(paths, min(sample, len(paths))):
        with suppress(Exception):  # damaged ones are reported when they are decoded
            sides.append(short_side(chosen))
    if not sides:
        where = source if isinstance(source, (str, Path)) else "the list"
        raise InputError(f"{where} holds no image that can be read (for example {paths[0]})")
    return int(statistics.median(sides))


@dataclass(frozen=True)
class _Reading:
    """How files become pixels."""

    shape: Shape
    white: int  # that of 16 bits; 0: there are none, or they say it themselves
    skip_bad: bool
    threads: int
    progress: Progress | None


def read_files(paths: Sequence[Path], *, size: int, shape: Shape, white: int, skip_bad: bool) -> Store:
    """A part of many files, without labels; it may be that none of them can be read."""
    images, done = np.empty((len(paths), size, size, 3), np.uint8), np.zeros(len(paths), np.uint8)
    skipped = _decode(paths, _Reading(shape, white, skip_bad, cores(), None), images, done)
    return Store(images[done == 1] if skipped else images, None, (), _files(paths, done, skipped))


def _fill(paths: Sequence[Path], how: _Reading, images: Pixels, done: Pixels) -> dict[Path, str]:
    """Decode what is not done yet; returns what was left out, and why. It must not be all."""
    skipped = _decode(paths, how, images, done)
    if len(skipped) == len(paths):
        raise InputError(f"none of {len(paths)} images can be read, for example: {next(iter(skipped.values()))}")
    return skipped


def _decode(paths: Sequence[Path], how: _Reading, images: Pixels, done: Pixels) -> dict[Path, str]:
    """In threads: Pillow decodes and resizes outside the GIL."""
    size, remedy = images.shape[1], f"replace it, or use {flag('skip_bad')} to leave it out"

    def decode(rows: Sequence[int]) -> dict[Path, str]:
        bad = {}
        for row in rows:
            try:
                images[row] = square(read_image(paths[row], white=how.white or SIXTEEN_BITS), size, how.shape)
                done[row] = 1
            except InputError as error:
                if not how.skip_bad:
                    raise InputError(f"{error}: {remedy}") from None
                bad[paths[row]] = str(error)
        return bad

    left = np.flatnonzero(done == 0).tolist()
    finished = len(paths) - len(left)
    skipped: dict[Path, str] = {}
    with ThreadPoolExecutor(how.threads) as pool:
        jobs = [(rows, pool.submit(decode, rows)) for rows in (left[i : i + CHUNK] for i in range(0, len(left), CHUNK))]
        try:
            for rows, job in jobs:
                skipped |= job.result()
                finished += len(rows)
                if how.progress:
                    how.progress(finished, len(paths))
        except BaseException:  # also an interruption: do not decode the rest first
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return skipped


def _cached(
    cache: Path,
    fill: Callable[[Pixels, Pixels], dict[Path, str]],
    listing: Listing,
    size: int,
    skip_bad: bool,
    origin: dict[str, Any],
) -> Store:
    paths, labels, names = listing
    if cache.exists() and not (cache / "store.json").is_file() and any(cache.iterdir()):
        raise InputError(f"{cache} holds something else than a store: choose another folder for the cache")
    plan = _plan(paths, labels, names, size, origin)
    with suppress(InputError):
        ready = Store.whole(cache)
        if ready.info.get("plan") == plan and (skip_bad or not ready.info["skipped"]):
            return ready
    make = partial(
        Writer, size=size, classes=names, labelled=labels is not None, info=origin | {"plan": plan}, plan=plan
    )
    writer = make(cache, count=len(paths))
    skipped = fill(writer.images, writer.done)
    files = _files(paths, writer.done, skipped)
    if not skipped:
        if writer.labels is not None and labels is not None:
            writer.labels[:] = labels
        return writer.commit(**files)
    # A store cannot shrink: what could be read moves into a second one, and until then the first can be resumed.
    kept = np.flatnonzero(writer.done)
    shorter = make(cache.with_name(f"{cache.name}.kept"), count=len(kept))
    for start in range(0, len(kept), 1024):
        shorter.images[start : start + 1024] = writer.images[kept[start : start + 1024]]
    if shorter.labels is not None and labels is not None:
        shorter.labels[:] = labels[kept]
    shorter.done[:] = 1
    shorter.path = cache
    store = shorter.commit(**files)
    shutil.rmtree(writer.partial)
    return store


def _files(paths: Sequence[Path], done: Pixels, skipped: dict[Path, str]) -> dict[str, Any]:
    return {
        "files": [str(paths[row]) for row in np.flatnonzero(done).tolist()],
        "skipped": {str(path): why for path, why in skipped.items()},
    }


def _plan(paths: Sequence[Path], labels: Labels | None, names: Sequence[str], size: int, origin: dict[str, Any]) -> str:
    """Changes when a file, a label, the size or the shape does."""
    digest = hashlib.sha256(repr((size, tuple(names), origin)).encode())
    for path in paths:
        status = path.stat() if path.exists() else None  # a list may name what is gone
        facts = (str(path), status and (status.st_size, status.st_mtime_ns))
        digest.update(f"{facts}\n".encode())
    digest.update(b"" if labels is None else labels.tobytes())
    return digest.hexdigest()
