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
from adamatch.data.store import Labels, Pixels
from adamatch.data.tasks import Problem
from adamatch.errors import InputError
from adamatch.evaluate import predict_together
from adamatch.files import make_folder, write_whole
from adamatch.train.speed import Machine

MOST = 4000  # images of each kind, spread evenly
FOLDER = "outputs"

Probabilities = NDArray[np.float16]


class Outputs:
    """`outputs(net, step)` writes outputs/step-N.npz: probabilities [n, k] of "target" and of held-out "source" images."""

    def __init__(self, problem: Problem, folder: Path, machine: Machine) -> None:
        self.folder, self.machine = folder / FOLDER, machine
        held_out = problem.tests.get("source")
        looked_at = {"target": _spread(problem.unlabelled.plain)}
        if held_out is not None:
            looked_at["source"] = _spread((held_out.images,))
        self.images: dict[str, Tensor] = {name: torch.from_numpy(each).to(machine.device) for name, each in looked_at.items()}

    def __call__(self, net: nn.Module, step: int) -> None:
        found = {name: predict_together(net, images, self.machine) for name, images in self.images.items()}
        if ranks.rank() == 0:
            make_folder(self.folder)
            compact: dict[str, Any] = {name: values.astype(np.float16) for name, values in found.items()}
            write_whole(self.folder / f"step-{step:09d}.npz", lambda part: _write(part, compact))


def load(folder: Path) -> dict[int, Mapping[str, Probabilities]]:
    """What was written, by step."""
    found: dict[int, Mapping[str, Probabilities]] = {}
    for path in sorted((folder / FOLDER).glob("step-*.npz")):
        try:
            with np.load(path, allow_pickle=False) as arrays:
                found[int(path.stem.removeprefix("step-"))] = dict(arrays)
        except Exception as error:  # NumPy and zipfile raise errors of all kinds, where a file is damaged
            why = str(error).partition("\n")[0]
            raise InputError(f"{path} is damaged ({why}): remove it, to do without that evaluation") from None
    return found


def _write(path: Path, arrays: Mapping[str, Any]) -> None:
    with path.open("wb") as file:  # NumPy would give the file another name
        np.savez_compressed(file, **arrays)


def rows(count: int) -> Labels:
    """Which of `count` images are looked at."""
    return np.unique(np.linspace(0, count - 1, min(count, MOST)).round().astype(np.int64))


def _spread(parts: tuple[Pixels, ...]) -> Pixels:
    starts = np.cumsum([0, *map(len, parts)])
    chosen = rows(int(starts[-1]))
    inside = [(chosen >= start) & (chosen < end) for start, end in pairwise(starts)]
    return np.concatenate([part[chosen[mine] - start] for part, mine, start in zip(parts, inside, starts, strict=False)])
