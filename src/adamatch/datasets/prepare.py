"""Published archives -> stores, in one way for every set."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from adamatch.base.errors import InputError
from adamatch.base.files import writing
from adamatch.datasets.archive import Encoded
from adamatch.datasets.source import Payload, Split
from adamatch.images.decode import read_image, square
from adamatch.images.reading import CHUNK, decode_into
from adamatch.images.store import Pixels, Store, Writer


def store_split(
    find: Callable[[], Split], path: Path, size: int, *, info: Mapping[str, Any], skip_bad: bool = False
) -> Iterator[tuple[int, int]]:
    """Write one split as a store at `path`, yielding (images done, images in all); a finished one is left alone.

    A store holds every image or, with `skip_bad`, says which ones it lacks.
    """
    if (path / "store.json").is_file():
        yield (len(Store.open(path)),) * 2
        return
    split = find()
    if not split.count:
        raise InputError(f"{split.files[0]} holds no images: fetch it again")
    info = {**info, "from": [file.name for file in split.files]}
    writer = Writer(path, count=split.count, size=size)
    bad: dict[int, str] = {}
    for done, found in enumerate(decode_into(writer.images, split.images(), lambda image: fit(image, size)), 1):
        bad |= found
        yield min(done * CHUNK, split.count), split.count
    if not bad:
        with writing(path):
            writer.commit(split.labels, split.classes, info)
    elif skip_bad:
        del writer  # Windows removes no folder with an open file
        rest, info["skipped"] = without(split, set(bad)), sorted(bad.values())
        yield from store_split(lambda: rest, path, size, info=info)
    else:
        raise InputError(
            f"{len(bad)} of {split.count:,} images cannot be read ({bad[min(bad)]}): "
            "fetch the archive again, or leave them out with --skip-bad"
        )


def fit(payload: Payload, size: int) -> Pixels:
    """Any payload -> (size, size, 3)."""
    if isinstance(payload, Encoded):
        return square(read_image(payload.data, payload.where), size)
    if isinstance(payload, Path):
        return square(read_image(payload), size)
    pixels = np.repeat(payload[:, :, None], 3, axis=2) if payload.ndim == 2 else payload
    return pixels if pixels.shape[:2] == (size, size) else square(Image.fromarray(pixels), size)


def without(split: Split, skipped: set[int]) -> Split:
    """The same split without some of its images."""
    kept = [row for row in range(split.count) if row not in skipped]
    new = {row: number for number, row in enumerate(kept)}
    labels = None if split.labels is None else split.labels[kept]

    def images() -> Iterator[tuple[int, Payload]]:
        return ((new[row], payload) for row, payload in split.images() if row in new)

    return replace(split, count=len(kept), labels=labels, images=images)
