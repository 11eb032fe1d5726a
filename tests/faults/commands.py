"""The commands that are tried: the words after `adamatch`, what they need, and the folder that they write."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from colours import CLASSES, arrays
from PIL import Image
from published import formats

from adamatch import Model, networks
from adamatch.config.presets import recipe
from adamatch.config.run import Run

RECIPE = recipe("handwriting", images=24, batch=8)


@dataclass(frozen=True)
class Command:
    """`make` writes what it needs into a folder; `words` are called there, and write below `out`."""

    words: str
    make: Callable[[Path], object]
    out: str


def runs() -> Iterator[Run]:
    yield Run(source="rendered", target="handwritten", method="baseline_bn", recipe=RECIPE)


def _images(folder: Path) -> None:
    for part in ("source", "target"):
        for number, (image, label) in enumerate(zip(*arrays(30, part == "target"), strict=True)):
            path = folder / part / (CLASSES[label] if part == "source" else "") / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(path)


def _model(folder: Path) -> None:
    import torch

    torch.manual_seed(0)
    Model(networks.build("wrn-tiny", 3).eval(), CLASSES, 8, "wrn-tiny").save(folder / "run")


def _archives(folder: Path) -> None:
    (folder / "in").mkdir()
    formats.mnist(folder / "in", "train")
    os.utime(folder / "in", (0, 0))


def _nothing(folder: Path) -> None:
    pass


FIT = "fit --source source --target target --out run --size 8 --images 12 --batch 4 --device cpu --quiet"
TRAIN = "train --source rendered --target handwritten --out run --images 24 --batch 8 --device cpu --quiet"
GRID = "grid run faults.commands:runs --out runs --keep kept --device cpu"
COMMANDS = {
    "fit": Command(FIT, _images, "run"),
    "train": Command(TRAIN, _nothing, "run"),
    "export": Command("export run", _model, "run"),
    "data prepare": Command("data prepare digitfive --from in --data data", _archives, "data"),
    "grid": Command(GRID, _nothing, ""),
}
