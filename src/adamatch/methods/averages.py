"""Averages of class distributions over the batches of a run (of all ranks), kept as buffers."""

import torch
from torch import Tensor, nn

from adamatch.base import ranks


class Running(nn.Module):
    """Exponential average of batch means [k], from uniform: E[Y_SL,w] with the authors' decay."""

    value: Tensor

    def __init__(self, classes: int, decay: float = 0.999) -> None:
        super().__init__()
        self.decay = decay
        self.register_buffer("value", torch.full((classes,), 1 / classes))

    def forward(self, mean: Tensor) -> Tensor:
        """Take one more batch mean in; returns the average, this batch included."""
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


class Spread(nn.Module):
    """Exponential averages of the mean and the variance of a number over batches, from `first` and 1."""

    mean: Tensor
    variance: Tensor

    def __init__(self, first: float, decay: float) -> None:
        super().__init__()
        self.decay = decay
        self.register_buffer("mean", torch.tensor(first))
        self.register_buffer("variance", torch.tensor(1.0))

    def forward(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Take one more batch of values [n] in; returns mean and variance, this batch included."""
        mean = ranks.mean(values.mean())
        variance = ranks.mean((values - mean).square().mean())
        self.mean.lerp_(mean.to(self.mean), 1 - self.decay)
        self.variance.lerp_(variance.to(self.variance), 1 - self.decay)
        return self.mean.clone(), self.variance.clone()
