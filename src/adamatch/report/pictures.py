"""Pictures of the demonstration: augmented images, and predictions of both models."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch
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
    rows: list[Row] = []
    for name, store in (("source", source), ("target", target)):
        images = np.array(store.images[:: max(1, len(store) // columns)][:columns])
        u = torch.rand(len(images), make.draws, generator=generator)
        weak, strong = make(torch.from_numpy(images).permute(0, 3, 1, 2), u)
        rows += [Row(name, images), Row("weak", _pixels(weak)), Row("strong", _pixels(strong))]
    return _grid(rows, "Images with weak and strong augmentation, as in training", path, columns, 1.05)


def predictions(probabilities: Mapping[str, NDArray[np.float32]], test: Store, path: Path, columns: int = 12) -> Path:
    """Test images with each model's predictions (probabilities [n, k]): an even sample, and some they disagree on."""
    assert test.labels is not None
    predicted = np.stack([each.argmax(1) for each in probabilities.values()])
    disagree = np.flatnonzero((predicted != predicted[0]).any(0))
    blocks = [("an even sample", np.linspace(0, len(test) - 1, columns).astype(int))]
    if len(disagree) >= columns:
        blocks.append(("images on which they disagree", disagree[:columns]))
    rows = []
    for title, chosen in blocks:
        for name, y in probabilities.items():
            texts = tuple(f"{test.classes[y[i].argmax()]}  {y[i].max():.0%}" for i in chosen)
            colours = tuple(RIGHT if y[i].argmax() == test.labels[i] else WRONG for i in chosen)
            rows.append(Row(f"{name.replace('_', ' ')}\n({title})", test.images[chosen], texts, colours))
    return _grid(rows, "Predictions of each model (green: right, red: wrong)", path, columns, 1.4)


class Row(NamedTuple):
    """Images side by side; above each a text in a colour, if there are any."""

    label: str
    images: NDArray[np.uint8]
    texts: tuple[str, ...] = ()
    colours: tuple[str, ...] = ()


def _grid(rows: Sequence[Row], title: str, path: Path, columns: int, height: float) -> Path:
    figure, axes = plt.subplots(len(rows), columns, figsize=(columns, len(rows) * height), squeeze=False)
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[], frame_on=False)
    for row, line in zip(rows, axes, strict=True):
        line[0].set_ylabel(row.label, fontsize=8 if row.texts else 11, rotation=0, ha="right", va="center")
        for axis, image in zip(line, row.images, strict=False):
            axis.imshow(image, interpolation="nearest")
        for axis, text, colour in zip(line, row.texts, row.colours, strict=False):
            axis.set_title(text, fontsize=9, color=colour, pad=2)
    figure.suptitle(title, fontsize=12, y=0.95)
    figure.savefig(path, dpi=110, bbox_inches="tight")
    plt.close(figure)
    return path


def _pixels(x: Tensor) -> NDArray[np.uint8]:
    """Normalised [n, 3, h, w] -> uint8 (n, h, w, 3)."""
    return (x * 128 + 127.5).round().clamp(0, 255).byte().permute(0, 2, 3, 1).numpy()
