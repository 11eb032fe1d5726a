"""Published archives -> stores: one loop for every set, on all cores, that goes on after a kill."""

import hashlib
import multiprocessing as mp
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from adamatch.base.errors import InputError
from adamatch.base.files import writing
from adamatch.base.regular_files import mapped
from adamatch.base.system import cores
from adamatch.datasets.archive import Encoded
from adamatch.datasets.source import Payload, Split, Wanted
from adamatch.images.decode import read_image, square
from adamatch.images.store import Pixels, Store, Writer

CHUNK, CHUNK_BYTES = 32, 2 << 20  # what a worker gets at a time: so many images, or so many bytes of them
Portion = list[tuple[int, Payload]]
Unreadable = tuple[int, str]


def store_split(
    find: Callable[[], Split],
    path: Path,
    size: int,
    *,
    info: Mapping[str, Any],
    workers: int | None = None,
    skip_bad: bool = False,
) -> Iterator[tuple[int, int]]:
    """Write one split as a store at `path`, yielding (images done, images in all); a finished one is left alone.

    A store holds every image or, with `skip_bad`, says which ones it lacks.
    """
    if (path / "store.json").is_file():
        yield (len(Store.open(path)),) * 2
        return
    split = find()
    if not split.count:
        raise InputError(f"{split.files[0] if split.files else path} holds no images: fetch it again")
    files = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in split.files]
    plan = repr((files, hashlib.sha256(repr(split.names).encode()).hexdigest()))
    head = dict(info) | {"from": [file.name for file in split.files]}
    labelled = split.labels is not None
    writer = Writer(path, count=split.count, size=size, classes=split.classes, labelled=labelled, info=head, plan=plan)
    if writer.labels is not None and split.labels is not None:
        writer.labels[:] = split.labels
    bad: list[Unreadable] = []
    for unreadable in fill(split, writer, size, workers or cores()):
        bad += unreadable
        yield int(np.count_nonzero(writer.done)), split.count
    if not bad:
        writer.commit()
    elif skip_bad:
        kept = without(split, {index for index, _ in bad})
        head["skipped"] = sorted(message for _, message in bad)
        yield from store_split(lambda: kept, path, size, info=head, workers=workers)
    else:
        raise InputError(
            f"{len(bad)} of {split.count:,} images cannot be read ({min(bad)[1]}): "
            "fetch the archive again, or leave them out with --skip-bad"
        )


def fill(split: Split, writer: Writer, size: int, workers: int) -> Iterator[list[Unreadable]]:
    """Put every image that is not there yet into the store; after each portion, yields what of it could not be read."""
    store = writer.partial, writer.images.offset, size  # type: ignore[attr-defined]
    pool: ProcessPoolExecutor | None = None
    running: set[Future[list[Unreadable]]] = set()
    try:
        for portion in portions(split.images(writer.done == 0)):
            if all(isinstance(p, np.ndarray) and p.shape[:2] == (size, size) for _, p in portion):
                yield draw(portion, *store)  # nothing to decode: a copy is cheaper than a process
                continue
            pool = pool or _pool(workers)
            running.add(pool.submit(draw, portion, *store))
            if len(running) > 2 * workers:  # bounds what is in memory
                finished, running = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    yield future.result()
        for future in running:
            yield future.result()
    except BrokenProcessPool:
        raise InputError("a worker was killed, perhaps for want of memory: run it again with fewer --workers") from None
    finally:
        if pool:
            pool.shutdown(cancel_futures=True)


def portions(items: Iterable[tuple[int, Payload]]) -> Iterator[Portion]:
    portion: Portion = []
    held = 0
    for index, payload in items:
        portion.append((index, payload))
        held += len(payload.data) if isinstance(payload, Encoded) else getattr(payload, "nbytes", 0)
        if len(portion) >= CHUNK or held >= CHUNK_BYTES:
            yield portion
            portion, held = [], 0
    if portion:
        yield portion


def draw(portion: Portion, partial: Path, offset: int, size: int) -> list[Unreadable]:
    """Put images into a store that is being filled; written, as a mapped file would count as this process's memory."""
    unreadable = []
    done: Pixels = mapped(partial / "done.npy", "r+")
    with (partial / "images.npy").open("r+b") as file:
        for index, payload in portion:
            try:
                image = fit(payload, size)
            except InputError as error:
                unreadable.append((index, str(error)))
                continue
            with writing(partial):
                file.seek(offset + index * image.nbytes)
                file.write(image.tobytes())
                file.flush()
            done[index] = 1
    return unreadable


def fit(payload: Payload, size: int) -> Pixels:
    """Any payload -> (size, size, 3)."""
    if isinstance(payload, Encoded):
        return square(read_image(payload.data, payload.where), size)
    if isinstance(payload, Path):
        return square(read_image(payload), size)
    pixels = payload if isinstance(payload, np.ndarray) else payload()
    if pixels.ndim == 2:
        pixels = np.repeat(pixels[:, :, None], 3, axis=2)
    return pixels if pixels.shape[:2] == (size, size) else square(Image.fromarray(pixels), size)


def _pool(workers: int) -> ProcessPoolExecutor:
    # fork starts in milliseconds; spawn imports everything again. Workers use Pillow and NumPy only.
    method = "fork" if sys.platform == "linux" else "spawn"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pool = ProcessPoolExecutor(workers, mp.get_context(method), _start)
        pool.submit(int).result()  # forks now, before there are more threads
    return pool


def _start() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's affair
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    """A parent that is killed cannot stop its workers, so they watch for it."""
    parent = mp.parent_process()
    if parent is not None:
        wait_for([parent.sentinel])
        os._exit(1)


def without(split: Split, skipped: set[int]) -> Split:
    """The same split without some of its images."""
    kept = np.array([i for i in range(split.count) if i not in skipped])
    place = {int(old): new for new, old in enumerate(kept)}

    def images(wanted: Wanted) -> Iterator[tuple[int, Payload]]:
        before = np.zeros(split.count, bool)
        before[kept[wanted]] = True
        return ((place[i], payload) for i, payload in split.images(before))

    return replace(split, count=len(kept), labels=None if split.labels is None else split.labels[kept], images=images)
