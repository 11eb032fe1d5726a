"""Pictures of the demonstration: augmented images, and predictions of both models."""

from collections.abc import Mapping
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from adamatch.augment.views import Views
from adamatch.config.recipe import Recipe
from adamatch.images.store import Store

RIGHT, WRONG = "#1a7f37", "#cf222e"


def views(source: Store, target: Store, recipe: Recipe, path: Path, columns: int = 10) -> Path:
    """For some images of both domains: as they are, weakly and strongly augmented."""
    make = Views(recipe.size, strong=recipe.strong, mirror=recipe.mirror)
    generator = torch.Generator().manual_seed(0)
    rows: list[tuple[str, NDArray[np.uint8]]] = []
    for name, store in (("source", source), ("target", target)):
        images = np.array(store.images[:: max(1, len(store) // columns)][:columns])
        u = torch.rand(len(images), make.draws, generator=generator)
        weak, strong = make(torch.from_numpy(images).permute(0, 3, 1, 2), u)
        rows += [(name, images), ("weak", _pixels(weak)), ("strong", _pixels(strong))]
    figure, axes = plt.subplots(len(rows), columns, figsize=(columns, len(rows) * 1.05), squeeze=False)
    for (name, images), line in zip(rows, axes, strict=True):
        for axis, image in zip(line, images, strict=False):
            _show(axis, image)
        for axis in line[len(images) :]:
            axis.set_axis_off()
        line[0].set_ylabel(name, fontsize=11, rotation=0, ha="right", va="center")
    figure.suptitle("Images with weak and strong augmentation, as in training", fontsize=12, y=0.94)
    return _save(figure, path)


def predictions(probabilities: Mapping[str, NDArray[np.float32]], test: Store, path: Path, columns: int = 12) -> Path:
    """Test images with each model's predictions (probabilities [n, k]): an even sample, and some they disagree on."""
    assert test.labels is not None
    predicted = np.stack([each.argmax(1) for each in probabilities.values()])
    disagree = np.flatnonzero((predicted != predicted[0]).any(0))
    blocks = [("images taken evenly", np.linspace(0, len(test) - 1, columns).astype(int))]
    if len(disagree) >= columns:
        blocks.append(("images on which they disagree", disagree[:columns]))
    lines = [(title, rows, *each) for title, rows in blocks for each in probabilities.items()]
    figure, axes = plt.subplots(len(lines), columns, figsize=(columns, len(lines) * 1.4), squeeze=False)
    for line, (title, rows, name, of_model) in zip(axes, lines, strict=True):
        for axis, row in zip(line, rows, strict=True):
            guess = int(of_model[row].argmax())
            _show(axis, test.images[row])
            color = RIGHT if guess == test.labels[row] else WRONG
            text = f"{test.classes[guess]}  {of_model[row].max():.0%}"
            axis.set_title(text, fontsize=9, color=color, pad=2)
        line[0].set_ylabel(f"{name.replace('_', ' ')}\n({title})", fontsize=8, rotation=0, ha="right", va="center")
    figure.suptitle("Predictions of each model (green: right, red: wrong)", fontsize=12, y=0.96)
    return _save(figure, path)


def _pixels(x: Tensor) -> NDArray[np.uint8]:
    """Normalised [n, 3, h, w] -> uint8 (n, h, w, 3)."""
    return (x * 128 + 127.5).round().clamp(0, 255).byte().permute(0, 2, 3, 1).numpy()


def _show(axis: Axes, image: NDArray[np.uint8]) -> None:
    axis.imshow(image, interpolation="nearest")
    axis.set_xticks([])
    axis.set_yticks([])


def _save(figure: Figure, path: Path) -> Path:
    figure.savefig(path, dpi=110, bbox_inches="tight")
    plt.close(figure)
    return path
