"""Folders as `fit` leaves them, without training: images of one colour each, and made-up guesses."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from adamatch.ask import target
from adamatch.ask.target import Said
from adamatch.base.files import sealed

CLASSES = ("blue", "green", "red")
COLOURS = {"blue": (40, 60, 200), "green": (30, 160, 60), "red": (200, 40, 40)}


def run(
    folder: Path, count: int = 60, classes: Sequence[str] = CLASSES, *, wrong: float = 0.2, twin: float | None = 0.4
) -> Path:
    """A run whose model has this part wrong, and its twin that part. The true class of image i is i modulo k."""
    images = folder / "target"
    images.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for number in range(count):
        colour = COLOURS.get(classes[number % len(classes)], (90, 90, 90))
        pixels = np.clip(np.array(colour) + rng.normal(0, 12, (24, 32, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(images / f"{number:03}.png")
    return around([images / f"{number:03}.png" for number in range(count)], folder / "run", classes, wrong, twin)


def around(files: Sequence[Path], folder: Path, classes: Sequence[str], wrong: float, twin: float | None) -> Path:
    """The run of these images."""
    folder.mkdir(exist_ok=True)
    pool = {"root": str(files[0].parent), "files": [each.name for each in files], "white": 0}
    write(folder, classes, pool, len(files), wrong, twin)
    return folder


def write(folder: Path, classes: Sequence[str], pool: object, count: int, wrong: float, twin: float | None) -> None:
    facts = {"version": 1, "classes": list(classes), "sha256": f"{wrong}"}
    (folder / "model.json").write_text(json.dumps(sealed(facts)))
    (folder / "images.json").write_text(json.dumps(sealed({"version": 1, "target": pool, "source": None})))
    target.write(
        folder, _said(count, len(classes), wrong, 1), None if twin is None else _said(count, len(classes), twin, 2)
    )


def truth(name: str, classes: Sequence[str] = CLASSES) -> str:
    return classes[int(Path(name).stem.removeprefix("#")) % len(classes)]


def _said(count: int, classes: int, wrong: float, seed: int) -> Said:
    rng, labels = np.random.default_rng(seed), np.arange(count) % classes
    errors = rng.random(count) < wrong
    return Said((labels + errors) % classes, rng.uniform(0.4, 1, count).astype(np.float32))
