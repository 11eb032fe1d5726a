"""Small runs with known answers, for benchmarks/estimates.py: digits at 8 x 8, on a CPU, about a minute each.

    python benchmarks/small_runs.py runs/small
    python benchmarks/small_runs.py runs/small --digits DIR

The second makes the twelve pairs of MNIST, MNIST-M, SVHN and USPS that lie prepared in DIR: 3,000 images each, at
16 x 16. Each pair is trained with adaptation (NAME.npz) and on the labelled images alone (NAME-twin.npz). Files that
are there stay.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise, permutations
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from adamatch import experiment
from adamatch.config.presets import recipe
from adamatch.config.run import Run
from adamatch.datasets import benchmarks, rendered
from adamatch.images.store import Labels, Pixels, Store
from adamatch.images.tasks import make_problem
from adamatch.train import speed
from adamatch.train.execution import Execution
from adamatch.train.run_folder import RunFolder
from adamatch.verdict import eval_outputs

SIZE = 8
METHODS = {"": "adamatch", "-twin": "supervised"}
DIGITS = ("mnist", "mnistm", "svhn", "usps")
MOST = 3000  # real images of a domain


def network(size: int) -> nn.Module:
    """Small, and quick on a CPU: 2 x 2 places are left."""
    layers: list[nn.Module] = []
    widths = (3, 32, 64) if size == SIZE else (3, 16, 32, 64)
    for before, after in pairwise(widths):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * widths[-1], 10))


def noisy(images: Pixels) -> Pixels:
    noise = np.random.default_rng(0).normal(0, 50, images.shape[:3])[..., None]
    return np.clip(images + noise, 0, 255).astype(np.uint8)


def noise(images: Pixels) -> Pixels:
    """Of another kind, and of no class: coarse noise."""
    coarse = np.random.default_rng(0).integers(0, 256, (len(images), 4, 4, 1), dtype=np.uint8)
    return coarse.repeat(2, 1).repeat(2, 2).repeat(3, 3)


def stripes(images: Pixels) -> Pixels:
    """Of another kind, and of no class: bars at any angle."""
    rng = np.random.default_rng(0)
    angle, wave, phase = (rng.uniform(0, top, (len(images), 1, 1)) for top in (np.pi, 1.5, 6.3))
    y, x = np.mgrid[:SIZE, :SIZE]
    bright = np.sin((0.5 + wave) * (x * np.cos(angle) + y * np.sin(angle)) + phase) * 100 + 128
    found: Pixels = bright.astype(np.uint8)[..., None].repeat(3, 3)
    return found


CHANGES: dict[str, Callable[[Pixels], Pixels]] = {
    "as_it_is": lambda images: images,
    "as_it_is-s1": lambda images: images,  # with seed 1
    "negative": lambda images: 255 - images,
    "noisy": noisy,
    "dim": lambda images: (images // 4 + 40).astype(np.uint8),
    "turned": lambda images: np.ascontiguousarray(np.rot90(images, axes=(1, 2))),
    "moved": lambda images: np.roll(images, 2, axis=2),
    "noise": noise,
    "stripes": stripes,
}
KEPT: dict[str, Callable[[Labels], NDArray[np.bool_]]] = {  # which images
    "uneven": lambda labels: (labels < 5) | (np.arange(len(labels)) % 5 == 0),  # a fifth of the classes 5 to 9
    "few_classes": lambda labels: labels < 7,
    "one_class": lambda labels: labels == 3,
}


def made_up(first: str, change: str) -> tuple[Store, Store]:
    """The source and the target of a pair of 8 x 8 digits."""
    drawn = rendered.rendered(2500, SIZE, seed=int(change.endswith("-s1")))
    real = rendered.handwritten("train", SIZE)
    source, target = (drawn, real) if first == "rendered" else (real, drawn)
    if change in KEPT:
        kept = np.flatnonzero(KEPT[change](np.asarray(target.labels)))
        return source, Store(target.images[kept], np.asarray(target.labels)[kept], target.classes)
    labels = np.full(len(target), -1) if change in ("noise", "stripes") else target.labels
    return source, Store(CHANGES[change](target.images), labels, target.classes)


def digits(domain: str, root: Path) -> Store:
    """Every few images of a domain, shrunk by means of 2 x 2 pixels."""
    whole = benchmarks.load("digitfive", domain, "train", root)
    rows = np.linspace(0, len(whole) - 1, MOST).astype(np.int64)
    images = whole.images[rows].reshape(MOST, 16, 2, 16, 2, 3).mean((2, 4)).round().astype(np.uint8)
    return Store(images, np.asarray(whole.labels)[rows], whole.classes)


def make(name: str, source: Store, target: Store, out: Path, images: int) -> None:
    """A fifth of the source is held out; target labels go into the file alone."""
    rows = np.arange(len(source))
    tested, kept = (
        Store(source.images[each], np.asarray(source.labels)[each], source.classes)
        for each in (rows[rows % 5 == 0], rows[rows % 5 > 0])
    )
    problem = make_problem("uda", [kept], replace(target, labels=None), {"source": tested})
    size, seed = source.images.shape[1], int(name.endswith("-s1"))
    for ending, method in METHODS.items():
        path = out / f"{name}{ending}.npz"
        if path.exists():
            continue
        run = Run(source=name, target=name, method=method, seed=seed)
        run = replace(run, recipe=replace(recipe("handwriting", images=images), size=size))
        folder = RunFolder(out / "folders" / f"{name}{ending}")
        torch.manual_seed(seed)
        experiment.solve(run, problem, folder, Execution(speed.choose("cpu"), quiet=True), net=network(size))
        said = eval_outputs.load(folder.path)
        np.savez_compressed(
            path,
            labels=np.asarray(target.labels)[eval_outputs.sampled_rows(len(target))],
            held=np.asarray(tested.labels)[eval_outputs.sampled_rows(len(tested))],
            steps=np.array(list(said)),
            started=False,
            target=np.stack([each["target"] for each in said.values()]),
            source=np.stack([each["source"] for each in said.values()]),
        )
        print(path, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--images", type=int, default=9_600, help="labelled images to train for")
    parser.add_argument("--digits", type=Path, help="where digitfive lies prepared; its pairs instead")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.digits:
        stores = {domain: digits(domain, given.digits) for domain in DIGITS}
        pairs = {f"{a}-{b}": (stores[a], stores[b]) for a, b in permutations(DIGITS, 2)}
    else:
        names = [(first, change) for first in ("rendered", "handwritten") for change in (*CHANGES, *KEPT)]
        pairs = {f"{first}-{change}": made_up(first, change) for first, change in names}
    for name, pair in pairs.items():
        make(name, *pair, given.out, given.images)


if __name__ == "__main__":
    main()
