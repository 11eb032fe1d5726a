"""Averages of class distributions over the batches of a run (of all ranks), kept as buffers."""

import torch
from torch import Tensor, nn

from adamatch.base import ranks
from adamatch.methods import parts


class Running(nn.Module):
    """Exponential average of batch means [k], from uniform: E[Y_SL,w] with the authors' decay."""

    value: Tensor

    def __init__(self, classes: int, decay: float = 0.999) -> None:
        super().__init__()
        self.decay = decay
        self.register_buffer("value", torch.full((classes,), 1 / classes))

    def forward(self, mean: Tensor) -> Tensor:
        """Adds a batch mean; returns the average, this batch included."""
        self.value.lerp_(ranks.mean(mean).to(self.value), 1 - self.decay)
        return self.value.clone()


class Window(nn.Module):
    """Plain mean of the last batch means [k], from uniform: E[Y_TU,w] over the authors' 128 batches."""

    means: Tensor
    place: Tensor

    def __init__(self, classes: int, length: int = 128) -> None:
        super().__init__()
        self.register_buffer("means", torch.full((length, classes), 1 / classes))
        self.register_buffer("place", torch.zeros(1, dtype=torch.long))

    def forward(self, mean: Tensor) -> Tensor:
        """Put one more batch mean in place of the oldest; returns the mean of all."""
        self.means.index_copy_(0, self.place, ranks.mean(mean).to(self.means)[None])
        self.place.add_(1).remainder_(len(self.means))
        return self.means.mean(0)


class ClassThresholds(nn.Module):
    """The mask with a lower threshold for classes of which few labels pass the common one (FlexMatch, NeurIPS 2021)."""

    def __init__(self, classes: int, window: int) -> None:
        super().__init__()
        self.passed = Running(classes, 1 - 1 / window)  # the part of all images that pass as each class

    def forward(self, y: Tensor, c_tau: Tensor) -> Tensor:
        """Aligned probabilities [n, k] -> 1 or 0 for each image [n]."""
        mask = parts.confident(y, c_tau)
        passed = self.passed((parts.hard(y) * mask[:, None]).mean(0))
        return parts.confident(y, c_tau * learned(passed)[y.argmax(1)])


def learned(passed: Tensor) -> Tensor:
    """How far each class is learned, from 0 to 1, by the part of all images that pass as it [k].

    The most frequent one counts as learned, once more images pass as it than do not pass at all.
    """
    share = passed / torch.maximum(passed.amax(), 1 - passed.sum()).clamp(min=1e-6)
    return share / (2 - share)
