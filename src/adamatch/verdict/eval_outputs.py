"""What a network says, evaluation after evaluation, of images whose target labels nobody knows: what verdicts rest on."""

import hashlib
import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from adamatch.base import ranks
from adamatch.base.errors import InputError
from adamatch.base.files import make_folder, read_json, write_atomically, write_whole
from adamatch.evaluate import predict_together
from adamatch.images.store import Labels, Pixels, Store
from adamatch.images.tasks import Unlabelled
from adamatch.train.speed import Machine

MOST = 4000  # images of each kind, spread evenly
FOLDER = "outputs"
KINDS = ("target", "source")
CLASSES = "classes.json"  # names of the classes, and the labels of the held-out source images that are looked at
IMAGES = "images"  # in it: by what the target images are known again

Probabilities = NDArray[np.float16]


class Outputs:
    """`outputs(net, step)` writes outputs/step-N.npz: probabilities [n, k] of "target" and of held-out "source" images.

    Labels of the latter, and the names of the classes, are in outputs/classes.json. So is what tells target images in other
    runs: the pixels that were `given`, which above frozen blocks are not what the network sees.
    """

    def __init__(
        self,
        classes: tuple[str, ...],
        target: Unlabelled,
        given: Unlabelled,
        held_out: Store | None,
        folder: Path,
        machine: Machine,
    ) -> None:
        self.folder, self.machine = folder / FOLDER, machine
        self.names: dict[str, Any] = {"classes": classes}
        looked_at = {"target": spread(target.plain)}
        self.names[IMAGES] = [_key(image) for image in spread(given.plain)]
        if held_out is not None:
            looked_at["source"] = spread((held_out.images,))
            if held_out.labels is not None:
                self.names["source"] = held_out.labels[rows(len(held_out))].tolist()
        self.images: dict[str, Tensor] = {
            name: torch.from_numpy(each).to(machine.device) for name, each in looked_at.items()
        }

    def __call__(self, net: nn.Module, step: int) -> None:
        found = {name: predict_together(net, images, self.machine) for name, images in self.images.items()}
        if ranks.rank() == 0:
            make_folder(self.folder)
            compact: dict[str, Any] = {name: values.astype(np.float16) for name, values in found.items()}
            if not (self.folder / CLASSES).exists():
                write_atomically(self.folder / CLASSES, json.dumps(self.names))
            write_whole(self.folder / f"step-{step:09d}.npz", lambda part: _write(part, compact))


def load(folder: Path) -> dict[int, Mapping[str, Probabilities]]:
    """What was written, by step: of each kind as many images and classes as at the first."""
    found: dict[int, Mapping[str, Probabilities]] = {}
    for path in sorted((folder / FOLDER).glob("step-*.npz")):
        try:
            with np.load(path, allow_pickle=False) as arrays:
                said = {name: arrays[name] for name in KINDS if name in arrays}
            _check(said, next(iter(found.values()), said))
            found[int(path.stem.removeprefix("step-"))] = said
        except Exception as error:  # NumPy and zipfile raise errors of all kinds, where a file is damaged
            why = str(error).partition("\n")[0]
            raise InputError(f"{path} is damaged ({why}): remove it, to do without that evaluation") from None
    return found


def _check(said: Mapping[str, Any], first: Mapping[str, Any]) -> None:
    if "target" not in said:
        raise ValueError("nothing in it is called target")
    for name, values in said.items():
        if values.ndim != 2 or values.dtype != np.float16 or not len(values) or not np.isfinite(values).all():
            raise ValueError(f"{name} is not probabilities")
        if name in first and values.shape != first[name].shape:
            raise ValueError(f"{name} is of another size than at the first evaluation")


def _write(path: Path, arrays: Mapping[str, Any]) -> None:
    with path.open("wb") as file:  # NumPy would give the file another name
        np.savez_compressed(file, **arrays)


def images(folder: Path) -> tuple[str, ...]:
    """By what the target images are known again in other runs at the same size; none where an older version wrote it."""
    try:
        found = read_json(folder / FOLDER / CLASSES).get(IMAGES, [])
        return tuple(found) if all(isinstance(each, str) for each in found) else ()
    except (OSError, ValueError, AttributeError, TypeError):
        return ()


def _key(image: Pixels) -> str:
    apart = max(1, len(image) // 16)  # some of the pixels are enough
    return hashlib.sha256(image[::apart, ::apart].tobytes()).hexdigest()[:12]


def held(folder: Path, said: Mapping[str, Any]) -> Labels:
    """Labels of the held-out source images of which something was said; none where none were held out."""
    path = folder / FOLDER / CLASSES
    if "source" not in said or not path.exists():
        return np.zeros(0, np.int64)
    count, classes = said["source"].shape
    try:
        labels = read_json(path).get("source", [])
        sound = len(labels) in (0, count) and all(type(each) is int and 0 <= each < classes for each in labels)
    except (ValueError, AttributeError, TypeError):
        sound = False
    if not sound:
        raise InputError(f"{path} is damaged: train again, or copy it anew")
    return np.asarray(labels, np.int64)


def rows(count: int) -> Labels:
    """Which of `count` images are looked at."""
    return np.unique(np.linspace(0, count - 1, min(count, MOST)).round().astype(np.int64))


def spread(parts: tuple[Pixels, ...]) -> Pixels:
    """These images, of parts that are read as one."""
    starts = np.cumsum([0, *map(len, parts)])
    chosen = rows(int(starts[-1]))
    inside = [(chosen >= start) & (chosen < end) for start, end in pairwise(starts)]
    return np.concatenate(
        [part[chosen[mine] - start] for part, mine, start in zip(parts, inside, starts, strict=False)]
    )
