"""What a network predicts at each evaluation: written into outputs/ during a run, and read from there for the verdict.

Labels of the target have no place here, and no function of this folder takes any.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from adamatch.base import ranks
from adamatch.base.errors import InputError
from adamatch.base.files import make_folder, read_checked, read_sealed, sealed, write_atomically, write_whole
from adamatch.base.regular_files import arrays_in
from adamatch.config.run import Run
from adamatch.evaluate import predict_together
from adamatch.images.store import Labels, Pixels, Store
from adamatch.images.tasks import Unlabelled
from adamatch.train.speed import Machine

MOST = 4000  # images of each kind, spread evenly
FOLDER = "outputs"
CLASSES = "classes.json"
SMALLEST = 1e-7  # smaller probabilities count as this: 16 bits round them to 0

Probabilities = NDArray[np.floating]
Numbers = NDArray[np.float64]


class OutputWriter:
    """`writer(net, step)` writes outputs/step-N.npz: probabilities [n, k] of "target" and of held-out "source" images.

    outputs/classes.json holds the names of the classes ("classes"), the labels of the held-out images ("source"), and a
    key of each target image ("images"), by which another run on it is recognised. Keys are made of `originals`: with
    frozen blocks, `target` holds features.
    """

    def __init__(
        self,
        classes: tuple[str, ...],
        target: Unlabelled,
        originals: Unlabelled,
        held_out: Store | None,
        folder: Path,
        machine: Machine,
    ) -> None:
        self.folder, self.machine = folder / FOLDER, machine
        self.facts: dict[str, Any] = {"classes": classes, "images": [_key(image) for image in sample(originals.plain)]}
        sampled = {"target": sample(target.plain)}
        if held_out is not None and held_out.labels is not None:
            sampled["source"] = sample((held_out.images,))
            self.facts["source"] = held_out.labels[sampled_rows(len(held_out))].tolist()
        self.images: dict[str, Tensor] = {
            name: torch.from_numpy(each).to(machine.device) for name, each in sampled.items()
        }

    def __call__(self, net: nn.Module, step: int) -> None:
        found = {name: predict_together(net, images, self.machine) for name, images in self.images.items()}
        if ranks.rank() == 0:
            make_folder(self.folder)
            if not (self.folder / CLASSES).exists():
                write_atomically(self.folder / CLASSES, json.dumps(sealed(self.facts)))
            compact = {name: values.astype(np.float16) for name, values in found.items()}
            write_whole(self.folder / f"step-{step:09d}.npz", lambda part: save_arrays(part, **compact))


@dataclass(frozen=True)
class EvalOutputs:
    """Probabilities at e evaluations of a run, of n unlabelled target and m held-out source images."""

    steps: tuple[int, ...]
    target: Probabilities  # [e, n, k]
    source: Probabilities  # [e, m, k]
    source_labels: Labels  # [m]
    twin: Self | None = None  # the outputs of the same network, trained on the labelled images alone
    pretrained: bool = True  # whether the network began from learned weights, such as ImageNet's

    @property
    def last(self) -> Probabilities:
        """Of target images, at the last evaluation: [n, k]."""
        found: Probabilities = self.target[-1]
        return found

    @property
    def holds_every_class(self) -> bool:
        """Whether an image of every class was held out: of the others the network's errors are not known."""
        return bool(np.bincount(self.source_labels, minlength=self.target.shape[2]).all())

    def at(self, index: int) -> Self:
        """Of one evaluation alone; the twin stays whole."""
        one = [index]
        return replace(self, steps=(self.steps[index],), target=self.target[one], source=self.source[one])

    def of(self, rows: Sequence[int] | Labels) -> Self:
        """Of these target images alone."""
        return replace(self, target=self.target[:, rows], twin=self.twin and self.twin.of(rows))

    def with_twin(self, twin: Self | None) -> Self:
        """Beside the twin's, if that is of the same images."""
        shapes = [(each.target.shape[1:], each.source.shape[1:]) for each in (self, twin or self)]
        return replace(self, twin=twin if shapes[0] == shapes[1] else None)


def read(folder: Path) -> EvalOutputs | None:
    """All outputs in a run's folder; None where there are none."""
    found = load(folder)
    if not found:
        return None
    target = normalised(np.stack([each["target"] for each in found.values()]))
    labels, source = facts(folder).source, np.zeros((len(found), 0, target.shape[2]), np.float32)
    if len(labels):
        source = normalised(np.stack([each["source"] for each in found.values()]))
    return EvalOutputs(tuple(found), target, source, labels, pretrained=_is_pretrained(folder))


def load(folder: Path) -> dict[int, Mapping[str, Probabilities]]:
    """What was written, by step."""
    found: dict[int, Mapping[str, Probabilities]] = {}
    for path in sorted((folder / FOLDER).glob("step-*.npz")):
        try:
            found[int(path.stem.removeprefix("step-"))] = arrays_in(read_checked(path))
        except Exception as error:  # NumPy and zipfile raise errors of all kinds, where a file is damaged
            why = str(error).partition("\n")[0]
            raise InputError(f"{path} is damaged ({why}): remove it, to do without that evaluation") from None
    return found


class Facts(NamedTuple):
    """What outputs/classes.json says: names of the classes, keys of target images, labels of held-out source images."""

    classes: tuple[str, ...]
    images: tuple[str, ...]
    source: Labels


def facts(folder: Path) -> Facts:
    """Of a run; all empty where it has no outputs yet."""
    path = folder / FOLDER / CLASSES
    try:
        found = read_sealed(path)
    except FileNotFoundError:
        found = {}
    except ValueError:
        raise InputError(f"{path} is damaged: train again, or copy it anew") from None
    classes, images = (tuple(found.get(name, ())) for name in ("classes", "images"))
    return Facts(classes, images, np.array(found.get("source", []), np.int64))


def sampled_rows(count: int) -> Labels:
    """Which of `count` images the network is asked about."""
    return np.unique(np.linspace(0, count - 1, min(count, MOST)).round().astype(np.int64))


def sample(parts: Sequence[Pixels]) -> Pixels:
    """These images, of parts that are read as one."""
    starts = np.cumsum([0, *map(len, parts)])
    rows = sampled_rows(int(starts[-1]))
    inside = np.split(rows, np.searchsorted(rows, starts[1:-1]))
    return np.concatenate([part[mine - start] for part, mine, start in zip(parts, inside, starts, strict=False)])


def normalised(probabilities: Probabilities) -> Probabilities:
    """In 16 bits rows do not quite add up to one."""
    wide = probabilities.astype(np.float32)
    wide /= np.maximum(wide.sum(-1, keepdims=True), SMALLEST)
    return wide


def predictions(probabilities: Probabilities) -> Labels:
    """[..., k] -> the most likely classes [...]."""
    found: Labels = probabilities.argmax(-1).astype(np.int64)
    return found


def accuracy(probabilities: Probabilities, labels: Labels) -> float:
    """The part that is right, 0 to 1; nan of none."""
    return float((predictions(probabilities) == labels).mean()) if len(labels) else float("nan")


def agreement(a: Probabilities, b: Probabilities) -> float:
    """The part of images [n] on which two networks agree."""
    return float((predictions(a) == predictions(b)).mean())


def _is_pretrained(folder: Path) -> bool:
    """Whether a run began from learned weights."""
    try:
        return Run.read(folder / "run.json").weights != ""
    except (OSError, ValueError):
        return False


def save_arrays(path: Path, **arrays: Any) -> None:
    """An .npz file of just this name."""
    with path.open("wb") as file:  # NumPy would give the file another name
        np.savez_compressed(file, **arrays)


def _key(image: Pixels) -> str:
    step = max(1, len(image) // 16)  # some of the pixels are enough
    return hashlib.sha256(image[::step, ::step].tobytes()).hexdigest()[:12]
