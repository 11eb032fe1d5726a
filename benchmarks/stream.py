"""Whether many images slow training down: a step with them on the GPU, in the host's memory, and in a mapped file.

    python benchmarks/stream.py --file /tmp/images.bin --out results/stream.json

100,000 random images of 224 x 224 (15 GB) are written to the file first, if it is not there.
"""

import argparse
import datetime
import json
import time
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from adamatch import methods, networks
from adamatch.config.recipe import Recipe
from adamatch.config.run import Run
from adamatch.experiment import versions
from adamatch.images.feed import Place
from adamatch.images.store import Pixels
from adamatch.images.tasks import Labelled, Problem, Unlabelled
from adamatch.train import speed
from adamatch.train.batches import Batches
from adamatch.train.execution import Execution
from adamatch.train.step import Step

CLASSES = 10
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
    torch.manual_seed(0)
    machine, classes = speed.choose(), tuple(map(str, range(CLASSES)))
    recipe = Recipe(network=given.network, size=given.size, batch=given.batch, images=32_000, weight_decay=0.002)
    run = Run(benchmark="none", recipe=recipe)
    pool = Labelled((images,), np.random.default_rng(1).integers(0, CLASSES, len(images)))
    net = networks.build(given.network, CLASSES)
    step = Step(
        net, methods.build("adamatch", classes=CLASSES, net=net, tau=0.9, options={}), run.recipe, machine, print
    )
    captured = speed.Captured(step, machine)
    began = time.perf_counter()
    batches = Batches(run, Problem((pool,), Unlabelled((images,)), classes), step, Execution(machine, place=place))
    placed = time.perf_counter() - began

    def go(count: int) -> float:
        start = time.perf_counter()
        for done in range(count):
            captured(batches.next(done))
        if machine.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start

    go(speed.WARM_STEPS + 3)
    times = [1000 * go(given.steps) / given.steps for _ in range(TIMES)]
    return {
        "place": place,
        "images": len(images),
        "seconds to place them": round(placed, 1),
        "ms": [round(each, 2) for each in times],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, required=True)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--network", default="efficientnet-lite0")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    images, rows = written(given.file, given.count, given.size), []
    for place in get_args(Place)[1:]:
        rows.append(measure(images, place, given))
        print(json.dumps(rows[-1]), flush=True)
    facts = {"network": given.network, "size": given.size, "batch": given.batch, "machine": str(speed.choose())}
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    given.out.write_text(json.dumps({**facts, "versions": versions(), "date": date, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
