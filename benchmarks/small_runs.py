"""Small runs with known answers, for benchmarks/estimates.py: digits at 8 x 8, on a CPU, about a minute each.

    python benchmarks/small_runs.py runs/small
    python benchmarks/small_runs.py runs/small --digits DIR

The second makes the twelve pairs of MNIST, MNIST-M, SVHN and USPS that lie prepared in DIR: 3,000 images each, at 16 x 16.
Each pair is trained with adaptation (NAME.npz) and on the labelled images alone (NAME-twin.npz). Files that are there stay.
"""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise, permutations
from pathlib import Path

import numpy as np
import torch
from torch import nn

from adamatch import experiment
from adamatch.config.presets import recipe
from adamatch.config.run import Run
from adamatch.datasets import benchmarks, rendered
from adamatch.images.store import Labels, Pixels, Store
from adamatch.images.tasks import Problem, pose
from adamatch.train import speed
from adamatch.train.execution import Execution
from adamatch.train.run_folder import RunFolder
from adamatch.verdict import eval_outputs

SIZE = 8
METHODS = {"": "adamatch", "-twin": "supervised"}


DIGITS = ("mnist", "mnistm", "svhn", "usps")
MOST = 3000  # real images of a domain


def network(side: int) -> nn.Module:
    """Small, and quick on a CPU: 2 x 2 places are left."""
    layers: list[nn.Module] = []
    widths = (3, 32, 64) if side == SIZE else (3, 16, 32, 64)
    for before, after in pairwise(widths):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * widths[-1], 10))


def negative(images: Pixels) -> Pixels:
    return 255 - images


def noisy(images: Pixels) -> Pixels:
    noise = np.random.default_rng(0).normal(0, 50, images.shape[:3])[..., None]
    return np.clip(images + noise, 0, 255).astype(np.uint8)


def dim(images: Pixels) -> Pixels:
    return (images // 4 + 40).astype(np.uint8)


def turned(images: Pixels) -> Pixels:
    return np.ascontiguousarray(np.rot90(images, axes=(1, 2)))


def moved(images: Pixels) -> Pixels:
    return np.roll(images, 2, axis=2)


def as_it_is(images: Pixels) -> Pixels:
    return images


def uneven(store: Store) -> Store:
    """Of the classes 5 to 9 a fifth of the images."""
    assert store.labels is not None
    kept = np.flatnonzero((store.labels < 5) | (np.arange(len(store)) % 5 == 0))
    return Store(store.images[kept], store.labels[kept], store.classes)


def few_classes(store: Store) -> Store:
    """Of the classes 0 to 6 alone."""
    assert store.labels is not None
    kept = np.flatnonzero(store.labels < 7)
    return Store(store.images[kept], store.labels[kept], store.classes)


def one_class(store: Store) -> Store:
    assert store.labels is not None
    kept = np.flatnonzero(store.labels == 3)
    return Store(store.images[kept], store.labels[kept], store.classes)


def noise(store: Store) -> Store:
    """Images of another kind, of no class: coarse noise."""
    coarse = np.random.default_rng(0).integers(0, 256, (len(store), 4, 4, 1), dtype=np.uint8)
    return Store(coarse.repeat(2, 1).repeat(2, 2).repeat(3, 3), np.full(len(store), -1), store.classes)


def stripes(store: Store) -> Store:
    """Images of another kind, of no class: bars at any angle."""
    rng = np.random.default_rng(0)
    angle, wave, phase = (rng.uniform(0, top, (len(store), 1, 1)) for top in (np.pi, 1.5, 6.3))
    y, x = np.mgrid[:SIZE, :SIZE]
    bright = np.sin((0.5 + wave) * (x * np.cos(angle) + y * np.sin(angle)) + phase) * 100 + 128
    return Store(bright.astype(np.uint8)[..., None].repeat(3, 3), np.full(len(store), -1), store.classes)


def changed(change: Callable[[Pixels], Pixels], store: Store) -> Store:
    return replace(store, images=change(store.images))


def pairs() -> Mapping[str, tuple[str, Callable[[Store], Store], int]]:
    """Name -> source, what is made of the target's images, seed."""
    changes = (as_it_is, negative, noisy, dim, turned, moved)
    found: dict[str, tuple[str, Callable[[Store], Store], int]] = {}
    for source in ("rendered", "handwritten"):
        for change in changes:
            found[f"{source}-{change.__name__}"] = (source, partial(changed, change), 0)
        found[f"{source}-uneven"] = (source, uneven, 0)
        found[f"{source}-few_classes"] = (source, few_classes, 0)
        for other in (one_class, noise, stripes):
            found[f"{source}-{other.__name__}"] = (source, other, 0)
        found[f"{source}-as_it_is-s1"] = (source, as_store, 1)
    return found


def as_store(store: Store) -> Store:
    return store


def digits(domain: str, root: Path) -> Store:
    """Every few images of a domain, shrunk by means of 2 x 2 pixels."""
    whole = benchmarks.load("digitfive", domain, "train", root)
    assert whole.labels is not None
    rows = np.linspace(0, len(whole) - 1, MOST).astype(np.int64)
    images = whole.images[rows].reshape(MOST, 16, 2, 16, 2, 3).mean((2, 4)).round().astype(np.uint8)
    return Store(images, whole.labels[rows], whole.classes)


def made_up(name: str) -> tuple[Store, Store]:
    """The source and the target of a pair of 8 x 8 digits."""
    source, change, seed = pairs()[name]
    drawn, real = rendered.rendered(2500, SIZE, seed=seed), rendered.handwritten("train", SIZE)
    first, second = (drawn, real) if source == "rendered" else (real, drawn)
    return first, change(second)


def problem(first: Store, target: Store) -> tuple[Problem, Labels]:
    """What is trained on, and the labels of the target images, which it has without them."""
    held = np.arange(len(first)) % 5 == 0
    assert first.labels is not None
    assert target.labels is not None
    tests = {"source": Store(first.images[held], first.labels[held], first.classes)}
    kept = Store(first.images[~held], first.labels[~held], first.classes)
    return pose("uda", [kept], replace(target, labels=None), tests), target.labels


def make(name: str, stores: tuple[Store, Store], out: Path, images: int) -> None:
    posed, labels = problem(*stores)
    held, side, seed = posed.tests["source"].labels, stores[0].images.shape[1], int(name.endswith("-s1"))
    assert held is not None
    for ending, method in METHODS.items():
        path = out / f"{name}{ending}.npz"
        if path.exists():
            continue
        how = replace(recipe("handwriting", images=images), size=side)
        run = Run(source=name, target=name, method=method, seed=seed, recipe=how)
        folder = RunFolder(out / "folders" / f"{name}{ending}")
        torch.manual_seed(seed)
        experiment.solve(run, posed, folder, Execution(speed.choose("cpu"), quiet=True), net=network(side))
        said = eval_outputs.load(folder.path)
        np.savez_compressed(
            path,
            labels=labels[eval_outputs.rows(len(labels))],
            held=held[eval_outputs.rows(len(held))],
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
    parser.add_argument("--only", default="", help="pairs whose names begin so")
    parser.add_argument("--digits", type=Path, help="where digitfive lies prepared; its pairs instead")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.digits:
        stores = {domain: digits(domain, given.digits) for domain in DIGITS}
        chosen = {f"{a}-{b}": (stores[a], stores[b]) for a, b in permutations(DIGITS, 2)}
    else:
        chosen = {name: made_up(name) for name in pairs()}
    for name, both in chosen.items():
        if name.startswith(given.only):
            make(name, both, given.out, given.images)


if __name__ == "__main__":
    main()
