"""STL-10: stl10_binary.tar.gz, or the folder that it unpacks to; 100,000 unlabelled images are a split of their own."""

from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import numpy as np

from adamatch.base.errors import InputError
from adamatch.datasets import source
from adamatch.datasets.archive import members, open_member

CLASSES = ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck")
SIDE = 96
BYTES = 3 * SIDE * SIDE
FILES = {
    "train": ("train_X.bin", "train_y.bin"),
    "test": ("test_X.bin", "test_y.bin"),
    "unlabelled": ("unlabeled_X.bin", ""),
}


def read(found: source.Found, domain: str) -> source.Splits:
    place = found.file("stl10_binary.tar.gz") or found.folder("stl10_binary")
    return {split: partial(_split, place, split) for split in FILES} if place else {}


def _split(place: Path, split: str) -> source.Split:
    pixels, labels = FILES[split]
    sizes, texts = _parts(place)
    count, rest = divmod(sizes.get(pixels, -1), BYTES)
    if rest or (labels and len(texts.get(labels, b"")) != count):
        raise InputError(f"{place} lacks a whole {pixels}{labels and f' or its {labels}'}: fetch it again")
    numbers = None
    if labels:  # they count from 1
        numbers = source.check_labels(np.frombuffer(texts[labels], np.uint8) - 1, 10, str(place))

    def each() -> Iterator[tuple[int, source.Payload]]:
        with open_member(place, pixels) as file:
            for row in range(count):
                data = file.read(BYTES)
                if len(data) != BYTES:
                    raise InputError(f"{place}: {pixels} ends too early: fetch it again")
                # stored by channel, then column, then row
                yield row, np.frombuffer(data, np.uint8).reshape(3, SIDE, SIDE).transpose(2, 1, 0)

    return source.Split(count, numbers, CLASSES, each, (place,))


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


_FILES = source.files_at(
    ("http://ai.stanford.edu/~acoates/stl10", "https://ai.stanford.edu/~acoates/stl10"),
    ("stl10_binary.tar.gz", 2640397119, "f31fd99273a1acb8609c8db427cebb1de3f71de77758cdc0e22956e1289b9866"),
)
_COUNTS: source.Counts = {"train": (500,) * 10, "test": (800,) * 10, "unlabelled": 100000}
STL_10 = source.DataSet(
    {"stl10": source.Domain(_FILES, _COUNTS, "https://cs.stanford.edu/~acoates/stl10/")},
    read,
    (32, 64, 96),
    {"stl10": 32},
    unlabelled="unlabelled",
)
