"""Whether many images slow training down: a step with all of them on the GPU, in host memory, and in a mapped file.

    python benchmarks/stream.py --file /tmp/images.bin --out results/stream.json

100,000 random images of 224 x 224 (15 GB) are written to the file first, if it is not there.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any, get_args

import evidence
import numpy as np
from step import CLASSES, training

from adamatch.images.feed import Place
from adamatch.images.store import Pixels
from adamatch.images.tasks import Labelled, Problem, Unlabelled
from adamatch.train import speed

AT_ONCE = 1000  # images that are written
TIMES = 3


def written(path: Path, count: int, size: int) -> Pixels:
    shape = (count, size, size, 3)
    if not path.exists():
        rng = np.random.default_rng(0)
        found = np.memmap(path, np.uint8, "w+", shape=shape)
        for start in range(0, count, AT_ONCE):
            found[start : start + AT_ONCE] = rng.integers(0, 256, found[start : start + AT_ONCE].shape, dtype=np.uint8)
        found.flush()
    return np.memmap(path, np.uint8, "r", shape=shape)


def measure(images: Pixels, place: Place, given: argparse.Namespace) -> dict[str, Any]:
    """ms per step of AdaMatch, each of `TIMES`."""
    pool = Labelled((images,), np.random.default_rng(1).integers(0, CLASSES, len(images)))
    problem = Problem((pool,), Unlabelled((images,)), tuple(map(str, range(CLASSES))))
    recipe: dict[str, Any] = {"batch": given.batch, "images": 32_000}
    began = time.perf_counter()
    _, go = training(given.network, given.size, "adamatch", speed.choose(), posed=problem, place=place, **recipe)
    placed = round(time.perf_counter() - began, 1)
    go(speed.WARM_STEPS + 3)
    times = [round(1000 * go(given.steps) / given.steps, 2) for _ in range(TIMES)]
    return {"place": place, "images": len(images), "seconds to build and place them": placed, "ms": times}


def main() -> None:
    parser = evidence.options(__doc__)
    parser.add_argument("--file", type=Path, required=True)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--network", default="efficientnet-lite0")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=100)
    given = parser.parse_args()
    images, rows = written(given.file, given.count, given.size), []
    for place in get_args(Place)[1:]:
        rows.append(measure(images, place, given))
        print(json.dumps(rows[-1]), flush=True)
    facts = {"network": given.network, "size": given.size, "batch": given.batch, "machine": str(speed.choose())}
    evidence.write(given.out, evidence.dated({**facts, "rows": rows}))


if __name__ == "__main__":
    main()
