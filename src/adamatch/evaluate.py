"""Accuracy on labelled test sets, which no other module reads."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import pad

from adamatch.augment.views import normalise
from adamatch.base import ranks
from adamatch.base.errors import InputError
from adamatch.images.store import Labels, Pixels, Store
from adamatch.train.speed import Machine

BATCH = 1024  # images at a time, at most
# Pixels at a time: with more, a CPU spends half of its time on memory; with fewer, a GPU waits for the next kernel.
PIXELS, PIXELS_ON_GPU = 2**18, 2**25
RESIDENT = 2**31  # bytes of test images that stay on the device between evaluations


@torch.inference_mode()
def predict(net: nn.Module, images: Pixels | Tensor, machine: Machine) -> NDArray[np.float32]:
    """Probabilities (n, k) of images uint8 (n, size, size, 3); `net` is in evaluation mode."""
    rows = []
    pixels = PIXELS_ON_GPU if machine.device.type == "cuda" else PIXELS
    batch = max(1, min(BATCH, pixels // (images.shape[1] * images.shape[2])))
    for start in range(0, max(1, len(images)), batch):  # without images: an array (0, k)
        part = images[start : start + batch]
        x = torch.as_tensor(np.array(part) if isinstance(part, np.ndarray) else part).to(machine.device)
        with machine.autocast():
            rows.append(net(normalise(x.permute(0, 3, 1, 2))).float().softmax(1))
    return torch.cat(rows).cpu().numpy()


def predict_together(net: nn.Module, images: Pixels | Tensor, machine: Machine) -> NDArray[np.float32]:
    """The same, where every rank predicts its share of the images; all get all of it."""
    mine = torch.from_numpy(predict(net, ranks.share(images), machine))
    longest = -(-len(images) // ranks.count())
    return ranks.gathered(pad(mine, (0, 0, 0, longest - len(mine))))[: len(images)].numpy()


class Evaluation:
    """`evaluation(net)` gives {test set: accuracy in percent}."""

    def __init__(self, tests: Mapping[str, Store], machine: Machine) -> None:
        self.machine, self.labels = machine, {name: _labels(store) for name, store in tests.items()}
        self.images: dict[str, Pixels | Tensor] = {name: store.images for name, store in tests.items()}
        if sum(store.images.nbytes for store in tests.values()) < RESIDENT:
            held = {name: torch.as_tensor(np.array(images)) for name, images in self.images.items()}
            self.images = {name: images.to(machine.device) for name, images in held.items()}

    def __call__(self, net: nn.Module) -> dict[str, float]:
        found = {name: predict_together(net, images, self.machine) for name, images in self.images.items()}
        return {name: 100 * float((y.argmax(1) == self.labels[name]).mean()) for name, y in found.items()}


@dataclass(frozen=True)
class Score:
    """accuracy in percent; confusion[i, j] = images of class i that were taken for class j.

    Of each of the n images: its path (or number), its class and the predicted one as numbers, and the probability of
    that; each [n].
    """

    accuracy: float
    confusion: NDArray[np.int64]
    classes: tuple[str, ...]
    paths: tuple[str, ...]
    truth: Labels
    predicted: Labels
    confidence: NDArray[np.float32]
    skipped: Mapping[str, str] = field(default_factory=dict)  # images that could not be read, and why
    notes: tuple[str, ...] = ()  # what else was left out

    @property
    def balanced_accuracy(self) -> float:
        """The mean accuracy of the classes that have images, in percent: rare ones count as much as frequent ones."""
        return float(np.nanmean([accuracy for _, _, accuracy in self.per_class()]))

    @property
    def macro_f1(self) -> float:
        """The mean F1 of the classes that are there or predicted, in percent. F1: 2 right / (images + predictions)."""
        both = self.confusion.sum(0) + self.confusion.sum(1)
        return float(100 * (2 * np.diagonal(self.confusion)[both > 0] / both[both > 0]).mean())

    def per_class(self) -> list[tuple[str, int, float]]:
        """Name, number of images and accuracy in percent of each class (nan where there is no image)."""
        counts = self.confusion.sum(1)
        right = np.diagonal(self.confusion)
        return [
            (name, int(n), 100 * int(hits) / int(n) if n else float("nan"))
            for name, n, hits in zip(self.classes, counts, right, strict=True)
        ]

    def mistakes(self) -> NDArray[np.int64]:
        """Rows of the images that got a wrong class, the most confident first."""
        rows = np.flatnonzero(self.truth != self.predicted)
        found: NDArray[np.int64] = rows[np.argsort(-self.confidence[rows], kind="stable")]
        return found


def score(probabilities: NDArray[np.float32], store: Store) -> Score:
    """Compare predictions (n, k) with a store's labels."""
    labels, k, files = _labels(store), len(store.classes), store.info.get("files", ())
    paths = tuple(files) if len(files) == len(labels) else tuple(map(str, range(len(labels))))
    guesses = probabilities.argmax(1)
    confusion = np.bincount(labels * k + guesses, minlength=k * k).reshape(k, k)
    accuracy = 100 * float((guesses == labels).mean())
    return Score(accuracy, confusion, store.classes, paths, labels, guesses, probabilities.max(1))


def _labels(store: Store) -> Labels:
    if store.labels is None or not len(store):
        raise InputError(
            "there is nothing to evaluate against: the images have no labels (one folder per class, or a CSV)"
        )
    return store.labels
