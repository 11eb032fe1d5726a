"""The contract between a method and the loop: what a step is shown, and what it does with it.

Symbols are the paper's: `sl` source labelled, `tu` target unlabelled, `w` and `s` weak and strong view.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

Metrics = dict[str, Tensor]


class Batch(NamedTuple):
    """One step's input: images float [n, 3, h, w], labels as probabilities, progress of the run from 0 to 1."""

    x_sl_w: Tensor  # [n_sl, 3, h, w]
    x_sl_s: Tensor
    y_sl: Tensor  # [n_sl, k]
    x_tu_w: Tensor  # [n_tu, 3, h, w]
    x_tu_s: Tensor
    progress: Tensor  # []
    lam: Tensor  # [2 * n_sl, k], uniform in [0, 1)
    y_tu_first: Tensor = torch.zeros(0)  # [n_tu, k], labels from before training, times their weights; empty: unknown


class Phase(NamedTuple):
    """One update of a step: its loss, and which parameters follow it."""

    loss: Callable[[nn.Module, Batch], tuple[Tensor, Metrics]]
    trains: Literal["all", "features", "heads"] = "all"


class Method(nn.Module):
    """The contract with the loop: what a step does, phase by phase. State that a method carries is its buffers."""

    phases: list[Phase]
    unlabelled: bool = True  # whether it looks at unlabelled images
    weight_decay: bool = True  # whether the recipe's weight decay applies

    @property
    def shares(self) -> Tensor | None:
        """How often each class comes in the target [k], as far as the method knows."""
        return None
