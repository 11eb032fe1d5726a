"""Published archives -> stores: one loop for every set, on all cores, in bounded memory, that goes on after a kill."""

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
from adamatch.base.system import cores
from adamatch.datasets.archive import Encoded
from adamatch.datasets.source import Payload, Split
from adamatch.images.decode import read_image, square
from adamatch.images.store import Pixels, Store, Writer

CHUNK, CHUNK_BYTES = 32, 2 << 20  # what a worker gets at a time: so many images, or so many bytes of them
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
    for _ in fill(split, writer, size, workers or cores(), bad):
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


def fill(split: Split, writer: Writer, size: int, workers: int, bad: list[Unreadable]) -> Iterator[int]:
    """Put every image that is not there yet into the store; yields after each portion. What fails goes to `bad`."""
    todo = writer.done == 0
    canvas = Canvas(writer.partial, writer.images.offset, size)  # type: ignore[attr-defined]
    pool: ProcessPoolExecutor | None = None
    running: set[Future[list[Unreadable]]] = set()
    try:
        for portion in portions(split.images(todo)):
            if all(isinstance(p, np.ndarray) and p.shape[:2] == (size, size) for _, p in portion):
                bad += canvas.draw(portion)  # nothing to decode: a copy is cheaper than a process
                yield len(portion)
                continue
            pool = pool or _pool(workers, canvas)
            running.add(pool.submit(_draw, portion))
            if len(running) > 2 * workers:  # bounds what is in memory
                finished, running = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    bad += future.result()
                yield len(finished)
        for future in running:
            bad += future.result()
            yield 1
    except BrokenProcessPool:
        raise InputError("a worker was killed, perhaps for want of memory: run it again with fewer --workers") from None
    finally:
        if pool:
            pool.shutdown(cancel_futures=True)


def portions(items: Iterable[tuple[int, Payload]]) -> Iterator[list[tuple[int, Payload]]]:
    portion: list[tuple[int, Payload]] = []
    held = 0
    for index, payload in items:
        portion.append((index, payload))
        held += (
            payload.nbytes
            if isinstance(payload, np.ndarray)
            else len(payload.data)
            if isinstance(payload, Encoded)
            else 0
        )
        if len(portion) >= CHUNK or held >= CHUNK_BYTES:
            yield portion
            portion, held = [], 0
    if portion:
        yield portion


class Canvas:
    """The images of a store that is being filled. Written with pwrite: a mapped file would count as this process's memory."""

    def __init__(self, partial: Path, offset: int, size: int) -> None:
        self.partial, self.offset, self.size = partial, offset, size
        self.file = os.open(partial / "images.npy", os.O_RDWR)
        self.done: Pixels = np.load(partial / "done.npy", mmap_mode="r+")

    def __reduce__(self) -> tuple[type["Canvas"], tuple[Path, int, int]]:
        return Canvas, (self.partial, self.offset, self.size)

    def __del__(self) -> None:
        os.close(self.file)

    def draw(self, portion: list[tuple[int, Payload]]) -> list[Unreadable]:
        unreadable = []
        for index, payload in portion:
            try:
                image = np.ascontiguousarray(fit(payload, self.size))
            except InputError as error:
                unreadable.append((index, str(error)))
                continue
            try:
                os.pwrite(self.file, image.data, self.offset + index * image.nbytes)
            except OSError as error:
                raise InputError(
                    f"{self.partial} cannot be written ({error.strerror}): make room and run it again"
                ) from None
            self.done[index] = 1
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


_canvas: Canvas  # in a worker: what it draws on


def _pool(workers: int, canvas: Canvas) -> ProcessPoolExecutor:
    # fork, where there is one, starts in milliseconds; spawn imports everything again. Workers use Pillow and NumPy only.
    method = "fork" if sys.platform == "linux" and hasattr(os, "fork") else "spawn"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pool = ProcessPoolExecutor(workers, mp.get_context(method), _start, (canvas,))
        pool.submit(int).result()  # forks now, before there are more threads
    return pool


def _start(canvas: Canvas) -> None:
    global _canvas
    _canvas = Canvas(canvas.partial, canvas.offset, canvas.size)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's affair
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    """A parent that is killed cannot stop its workers, so they watch for it."""
    parent = mp.parent_process()
    if parent is not None:
        wait_for([parent.sentinel])
        os._exit(1)


def _draw(portion: list[tuple[int, Payload]]) -> list[Unreadable]:
    return _canvas.draw(portion)


def without(split: Split, skipped: set[int]) -> Split:
    """The same split without some of its images."""
    kept = np.array([i for i in range(split.count) if i not in skipped])
    place = {int(old): new for new, old in enumerate(kept)}

    def images(wanted: Any) -> Iterator[tuple[int, Payload]]:
        before = np.zeros(split.count, bool)
        before[kept[wanted]] = True
        return ((place[i], payload) for i, payload in split.images(before))

    labels = None if split.labels is None else split.labels[kept]
    return replace(split, count=len(kept), labels=labels, images=images)
