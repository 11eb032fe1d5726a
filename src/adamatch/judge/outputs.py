"""What a network says, evaluation after evaluation, of images whose target labels nobody knows: what verdicts rest on."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from adamatch import ranks
from adamatch.data.store import Labels, Pixels, Store
from adamatch.data.tasks import Unlabelled
from adamatch.evaluate import predict_together
from adamatch.train.speed import Machine

MOST = 4000  # images of each kind, spread evenly
FOLDER, HELD = "outputs", "held.npy"

Probabilities = NDArray[np.float16]


class Outputs:
    """`outputs(net, step)` writes outputs/step-N.npz: probabilities [n, k] of "target" and of held-out "source" images.

    Labels of the latter are in outputs/held.npy.
    """

    def __init__(self, target: Unlabelled, held_out: Store | None, folder: Path, machine: Machine) -> None:
        self.folder, self.machine = folder / FOLDER, machine
        labels = held_out.labels if held_out else None
        self.held = None if labels is None else labels[rows(len(labels))]
        looked_at = {"target": spread(target.parts)}
        if held_out is not None:
            looked_at["source"] = spread((held_out.images,))
        self.images: dict[str, Tensor] = {name: torch.from_numpy(each).to(machine.device) for name, each in looked_at.items()}

    def __call__(self, net: nn.Module, step: int) -> None:
        found = {name: predict_together(net, images, self.machine) for name, images in self.images.items()}
        if ranks.rank() == 0:
            self.folder.mkdir(parents=True, exist_ok=True)
            compact: dict[str, Any] = {name: values.astype(np.float16) for name, values in found.items()}
            if self.held is not None and not (self.folder / HELD).exists():
                np.save(self.folder / HELD, self.held)
            np.savez_compressed(self.folder / f"step-{step:09d}.npz", **compact)


def load(folder: Path) -> dict[int, Mapping[str, Probabilities]]:
    """What was written, by step."""
    found: dict[int, Mapping[str, Probabilities]] = {}
    for path in sorted((folder / FOLDER).glob("step-*.npz")):
        with np.load(path, allow_pickle=False) as arrays:
            found[int(path.stem.removeprefix("step-"))] = dict(arrays)
    return found


def held(folder: Path) -> Labels:
    """Labels of the held-out source images; none where none were held out."""
    path = folder / FOLDER / HELD
    found: Labels = np.load(path, allow_pickle=False) if path.exists() else np.zeros(0, np.int64)
    return found


def rows(count: int) -> Labels:
    """Which of `count` images are looked at."""
    return np.unique(np.linspace(0, count - 1, min(count, MOST)).round().astype(np.int64))


def spread(parts: tuple[Pixels, ...]) -> Pixels:
    """These images, of parts that are read as one."""
    starts = np.cumsum([0, *map(len, parts)])
    chosen = rows(int(starts[-1]))
    inside = [(chosen >= start) & (chosen < end) for start, end in pairwise(starts)]
    return np.concatenate([part[chosen[mine] - start] for part, mine, start in zip(parts, inside, starts, strict=False)])
