"""All that a verdict rests on: what a network said, evaluation after evaluation, and the labels of held-out source images.

Labels of the target have no place here, and none of the functions of this folder takes any.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from adamatch.config.run import Run
from adamatch.images.store import Labels
from adamatch.verdict import eval_outputs

Floats = NDArray[np.float32]
Numbers = NDArray[np.float64]
SMALLEST = 1e-7  # a probability below it counts as this: in 16 bits it would be nothing


@dataclass(frozen=True)
class Evidence:
    """e evaluations of a run: probabilities of n unlabelled target and m held-out source images; `held` are labels of these."""

    steps: tuple[int, ...]
    target: Floats  # [e, n, k]
    source: Floats  # [e, m, k]
    held: Labels  # [m]
    twin: Self | None = None  # the same of a network that was trained on the labelled images alone
    started: bool = True  # whether the network began from learned weights, such as ImageNet's

    @property
    def last(self) -> Floats:
        """[n, k]"""
        said: Floats = self.target[-1]
        return said

    @property
    def holds_every_class(self) -> bool:
        """Whether an image of every class was held out: of the others the network's errors are not known."""
        return bool(np.bincount(self.held, minlength=self.target.shape[2]).all())

    def at(self, index: int) -> Self:
        """What is known where evaluation `index` is the last; the twin is always whole."""
        end = index % len(self.steps) + 1
        return replace(self, steps=self.steps[:end], target=self.target[:end], source=self.source[:end])

    def only_last(self) -> Self:
        """Its last evaluation alone."""
        return replace(self, steps=self.steps[-1:], target=self.target[-1:], source=self.source[-1:])

    def of(self, rows: Sequence[int]) -> Self:
        """Of these target images alone."""
        chosen = list(rows)
        return replace(self, target=self.target[:, chosen], twin=self.twin and self.twin.of(chosen))

    def with_twin(self, twin: Self | None) -> Self:
        """The same beside its twin, if that has looked at the same images."""
        shapes = [(each.target.shape[1:], each.source.shape[1:]) for each in (self, twin or self)]
        return replace(self, twin=twin if shapes[0] == shapes[1] else None)


def read(folder: Path) -> Evidence | None:
    """What a run's folder holds; None where it holds nothing."""
    found = eval_outputs.load(folder)
    if not found:
        return None
    target = normalised(np.stack([each["target"] for each in found.values()]))
    labels = eval_outputs.held(folder, next(iter(found.values())))
    if all("source" in each for each in found.values()) and len(labels):
        source = normalised(np.stack([each["source"] for each in found.values()]))
    else:
        source, labels = np.zeros((len(found), 0, target.shape[2]), np.float32), labels[:0]
    return Evidence(tuple(found), target, source, labels, started=_started(folder))


def _started(folder: Path) -> bool:
    """Whether a run began from weights that have learned before."""
    try:
        return Run.read(folder / "run.json").weights != ""
    except (OSError, ValueError):
        return False


def normalised(said: NDArray[np.floating]) -> Floats:
    """In 16 bits rows do not quite add up to one."""
    wide: Floats = said.astype(np.float32)
    wide /= np.maximum(wide.sum(-1, keepdims=True), SMALLEST)
    return wide


def guesses(probabilities: NDArray[np.floating]) -> Labels:
    """[..., k] -> the most likely classes [...]."""
    found: Labels = probabilities.argmax(-1).astype(np.int64)
    return found


def accuracy(probabilities: NDArray[np.floating], labels: Labels) -> float:
    """The part that is right, 0 to 1; nan of none."""
    return float((guesses(probabilities) == labels).mean()) if len(labels) else float("nan")
