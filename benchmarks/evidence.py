"""What the scripts of this folder share: their command line, and result files whose rows say how they were measured."""

import argparse
import datetime
import json
import multiprocessing
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from adamatch import networks
from adamatch.finalise import versions
from adamatch.images.store import Pixels
from adamatch.images.tasks import Problem
from adamatch.networks.pretrained import imagenet
from adamatch.networks.weights import load_weights

Row = dict[str, Any]
MEASURED = ("accuracy", "seconds", "machine", "versions", "date")  # what a row repeats of a run's result


def options(text: str | None, out: str | None = "") -> argparse.ArgumentParser:
    """A command line that shows the script's docstring, and --out: `out` is its default; "": needed; None: no --out."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    if out is not None:
        parser.add_argument("--out", type=Path, required=not out, default=Path(out) if out else None)
    return parser


def write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")


def collect(
    path: Path, names: Sequence[str], every: Iterable[tuple[Any, ...]], measure: Callable[..., Row], processes: int = 1
) -> list[Row]:
    """The rows of a result file. Those that are missing are measured, each in a new process, and written as they come.

    `names` are the columns that tell rows apart; `every` has their values, in the order of the file.
    """
    rows: list[Row] = json.loads(path.read_text()) if path.exists() else []
    order = {key: number for number, key in enumerate(every)}

    def key(row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in names)

    missing = order.keys() - set(map(key, rows))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, max_tasks_per_child=1) as pool:
        for future in as_completed([pool.submit(measure, *each) for each in order if each in missing]):
            rows = sorted([*rows, future.result()], key=lambda row: order.get(key(row), len(order)))
            write(path, rows)
            print(*key(future.result()), f"{future.result()['accuracy']:.1f}", sep="\t", flush=True)
    return rows


def dated(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {**facts, "versions": versions(), "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")}


def pretrained(network: str, classes: int) -> nn.Module:
    """With ImageNet's weights."""
    net = networks.build(network, classes)
    load_weights(net, imagenet(network))
    return net.eval()


def shrunk(problem: Problem, side: int, tested: int) -> Problem:
    """Images of `side` pixels, means of squares, and at most `tested` test images: what a CPU bears."""

    def small(images: Pixels) -> NDArray[np.uint8]:
        by = images.shape[1] // side
        parts = [images[first : first + 5000] for first in range(0, len(images), 5000)]  # as float32 they take room
        means = [part.astype(np.float32).reshape(-1, side, by, side, by, 3).mean((2, 4)) for part in parts]
        found: NDArray[np.uint8] = np.rint(np.concatenate(means)).astype(np.uint8)
        return found

    pools = tuple(replace(pool, parts=tuple(map(small, pool.parts))) for pool in problem.labelled)
    unlabelled = replace(problem.unlabelled, parts=tuple(map(small, problem.unlabelled.parts)))
    tests = {}
    for name, store in problem.tests.items():
        assert store.labels is not None
        tests[name] = replace(store, images=small(store.images[:tested]), labels=store.labels[:tested])
    return replace(problem, labelled=pools, unlabelled=unlabelled, tests=tests)
