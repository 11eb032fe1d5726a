"""How far pseudo-labels count, from 0 to 1 for each image: the paper's mask, and two later forms of it."""

import torch
from torch import Tensor, nn

from adamatch.methods import parts
from adamatch.methods.averages import Running, Spread


class Mask(nn.Module):
    """1 where the most likely class reaches the threshold, else 0; eq. (8)."""

    def forward(self, y: Tensor, c_tau: Tensor) -> Tensor:
        """Aligned probabilities [n, k] -> [n]."""
        return parts.confident(y, c_tau)


class ByClass(nn.Module):
    """The same, with a lower threshold for classes of which few labels pass the common one (FlexMatch, NeurIPS 2021)."""

    def __init__(self, classes: int, window: int) -> None:
        super().__init__()
        self.passed = Running(classes, 1 - 1 / window)  # the part of all images that pass as each class

    def forward(self, y: Tensor, c_tau: Tensor) -> Tensor:
        mask = parts.confident(y, c_tau)
        passed = self.passed((parts.hard(y) * mask[:, None]).mean(0))
        return parts.confident(y, c_tau * learned(passed)[y.argmax(1)])


class Soft(nn.Module):
    """No threshold: 1 from the mean confidence on target images on, less below it (SoftMatch, ICLR 2023)."""

    def __init__(self, classes: int, window: int) -> None:
        super().__init__()
        self.confidence = Spread(1 / classes, 1 - 1 / window)

    def forward(self, y: Tensor, c_tau: Tensor) -> Tensor:
        return soft_weights(y.amax(1), *self.confidence(y.amax(1)))


KINDS: dict[str, type[ByClass] | type[Soft]] = {"classes": ByClass, "soft": Soft}


def make(threshold: str, classes: int, window: int) -> nn.Module:
    """By the name of AdaMatch's threshold."""
    return KINDS[threshold](classes, window) if threshold in KINDS else Mask()


def learned(passed: Tensor) -> Tensor:
    """How far each class is learned, from 0 to 1, by the part of all images that pass as it [k].

    The most frequent one counts as learned, once more images pass as it than do not pass at all.
    """
    share = passed / torch.maximum(passed.amax(), 1 - passed.sum()).clamp(min=1e-6)
    return share / (2 - share)


def soft_weights(confidence: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """1 from the mean on, below it by a normal curve: [n]."""
    below = torch.clamp(confidence - mean, max=0)
    return torch.exp(-(below**2) / (2 * variance.clamp(min=1e-6)))
