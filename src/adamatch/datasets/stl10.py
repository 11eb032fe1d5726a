"""STL-10: stl10_binary.tar.gz, or the folder that it unpacks to; its 100,000 unlabelled images are a split of their own."""

from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import numpy as np

from adamatch.base.errors import InputError
from adamatch.datasets.archive import members, open_member
from adamatch.datasets.source import Found, Payload, Split, Splits, Wanted, check_labels

CLASSES = ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck")
SIDE = 96
BYTES = 3 * SIDE * SIDE
FILES = {
    "train": ("train_X.bin", "train_y.bin"),
    "test": ("test_X.bin", "test_y.bin"),
    "unlabelled": ("unlabeled_X.bin", ""),
}


def read(found: Found, domain: str) -> Splits:
    place = found.file("stl10_binary.tar.gz") or next(iter(found.folders.get("stl10_binary", [])), None)
    return {split: partial(_split, place, split) for split in FILES} if place else {}


def _split(place: Path, split: str) -> Split:
    pixels, labels = FILES[split]
    sizes, texts = _parts(place)
    if pixels not in sizes or (labels and labels not in texts):
        raise InputError(f"{place} has no {pixels} {f'or no {labels}' if labels else ''}: fetch it again")
    count = sizes[pixels] // BYTES
    if sizes[pixels] % BYTES or (labels and len(texts[labels]) != count):
        raise InputError(f"{place}: {pixels} is not {count} images of 96 x 96 with as many labels: fetch it again")
    numbers = (
        check_labels(np.frombuffer(texts[labels], np.uint8).astype(np.int64) - 1, 10, str(place)) if labels else None
    )

    def each(wanted: Wanted) -> Iterator[tuple[int, Payload]]:
        with open_member(place, pixels) as file:
            for i in range(count):
                data = file.read(BYTES)
                if len(data) != BYTES:
                    raise InputError(f"{place}: {pixels} ends too early: fetch it again")
                if wanted[i]:  # stored by channel, then column, then row
                    yield i, np.frombuffer(data, np.uint8).reshape(3, SIDE, SIDE).transpose(2, 1, 0)

    return Split(count, numbers, CLASSES, each, (place,))


@cache
def _parts(place: Path) -> tuple[dict[str, int], dict[str, bytes]]:
    """Sizes of all the files, and the contents of the small ones (the labels)."""
    sizes: dict[str, int] = {}
    texts: dict[str, bytes] = {}
    for member in members(place):
        name = member.name.rpartition("/")[2]
        sizes[name] = member.size
        if name.endswith("_y.bin"):
            texts[name] = member.read()
    return sizes, texts
