"""How images look, in four numbers: what tells a source from a target before any network does."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from adamatch.images.decode import short_side
from adamatch.images.store import Pixels

MOST = 400  # images of each kind that are measured
LUMA = np.array([0.299, 0.587, 0.114], np.float32) / 255
Looks = Mapping[str, list[float]]


def spread(count: int, most: int = MOST) -> list[int]:
    """At most so many rows of `count`, evenly."""
    return sorted({round(row) for row in np.linspace(0, count - 1, min(count, most)).tolist()}) if count else []


def measure(images: Sequence[Pixels], files: Sequence[Path]) -> Looks:
    """images: uint8 (h, w, 3) each, as they are trained on; files: where their own size can be read, or none."""
    found: dict[str, list[float]] = {"brightness": [], "contrast": [], "sharpness": [], "size": []}
    for image in images:
        grey = image @ LUMA
        edges = [np.abs(np.diff(grey, axis=axis)).mean() if grey.shape[axis] > 1 else 0.0 for axis in (0, 1)]
        for name, value in (("brightness", grey.mean()), ("contrast", grey.std()), ("sharpness", sum(edges) / 2)):
            found[name].append(round(float(value), 4))
    for file in files:
        with suppress(Exception):  # gone or damaged: it has been said elsewhere
            found["size"].append(float(short_side(file)))
    return found
