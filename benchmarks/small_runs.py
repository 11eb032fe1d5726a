"""Small runs with known answers, for benchmarks/estimates.py: digits at 8 x 8, on a CPU, about a minute each.

    python benchmarks/small_runs.py runs/small

Each pair is trained with adaptation (NAME.npz) and on the labelled images alone (NAME-twin.npz). Files that are there stay.
"""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

from adamatch import experiment
from adamatch.data.store import Labels, Pixels, Store
from adamatch.data.tasks import Problem, pose
from adamatch.judge import outputs
from adamatch.sets import rendered
from adamatch.train import speed
from adamatch.train.execution import Execution
from adamatch.train.folder import RunFolder
from adamatch.train.run import Run, recipe

SIZE = 8
METHODS = {"": "adamatch", "-twin": "supervised"}


def network() -> nn.Module:
    """Small, and quick on a CPU."""
    layers: list[nn.Module] = []
    for before, after in ((3, 32), (32, 64)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(256, 10))


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


def problem(source: str, change: Callable[[Store], Store], seed: int) -> tuple[Problem, Labels]:
    """A problem of digits, and the labels of the target images that it has without them."""
    drawn, real = rendered.rendered(2500, SIZE, seed=seed), rendered.handwritten("train", SIZE)
    first, second = (drawn, real) if source == "rendered" else (real, drawn)
    held = np.arange(len(first)) % 5 == 0
    assert first.labels is not None
    tests = {"source": Store(first.images[held], first.labels[held], first.classes)}
    kept = Store(first.images[~held], first.labels[~held], first.classes)
    target = change(second)
    assert target.labels is not None
    return pose("uda", [kept], replace(target, labels=None), tests), target.labels


def make(name: str, out: Path, images: int) -> None:
    source, change, seed = pairs()[name]
    posed, labels = problem(source, change, seed)
    held = posed.tests["source"].labels
    assert held is not None
    for ending, method in METHODS.items():
        path = out / f"{name}{ending}.npz"
        if path.exists():
            continue
        run = Run(source=source, target=name, method=method, seed=seed, recipe=recipe("handwriting", images=images))
        folder = RunFolder(out / "folders" / f"{name}{ending}")
        torch.manual_seed(seed)
        experiment.solve(run, posed, folder, Execution(speed.choose("cpu"), quiet=True), net=network())
        said = outputs.load(folder.path)
        np.savez_compressed(
            path,
            labels=labels[outputs.rows(len(labels))],
            held=held[outputs.rows(len(held))],
            steps=np.array(list(said)),
            target=np.stack([each["target"] for each in said.values()]),
            source=np.stack([each["source"] for each in said.values()]),
        )
        print(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--images", type=int, default=9_600, help="labelled images to train for")
    parser.add_argument("--only", default="", help="pairs whose names begin so")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for name in (each for each in pairs() if each.startswith(given.only)):
        make(name, given.out, given.images)


if __name__ == "__main__":
    main()
