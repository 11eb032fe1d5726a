"""The class distribution of the target, estimated without labels from what the network says of it. Not in the paper."""

from torch import Tensor, nn

from adamatch.methods import parts
from adamatch.methods.averages import Running


class Aligned(nn.Module):
    """What alignment itself has made of the target: the average of aligned predictions."""

    def __init__(self, classes: int, window: int) -> None:
        super().__init__()
        self.average = Running(classes, 1 - 1 / window)

    def forward(self, assumed: Tensor) -> Tensor:
        """The estimate [k], from the batches so far; `assumed` is the distribution that it takes the place of."""
        return self.average.value

    def see(self, y: Tensor, y_tilde: Tensor, threshold: Tensor | float) -> None:
        """One more batch: its predictions [n, k] before and after alignment, and from when on they are confident."""
        self.average(y_tilde.mean(0))


class Confident(nn.Module):
    """What the network is confident of, by itself, counts as it is; the rest is as assumed."""

    def __init__(self, classes: int, window: int) -> None:
        super().__init__()
        self.average = Running(classes, 1 - 1 / window, start=0.0)  # of each class, the part of all images

    def forward(self, assumed: Tensor) -> Tensor:
        sure = self.average.value
        return sure + (1 - sure.sum()) * assumed

    def see(self, y: Tensor, y_tilde: Tensor, threshold: Tensor | float) -> None:
        self.average((parts.hard(y) * parts.confident(y, threshold)[:, None]).mean(0))


KINDS: dict[str, type[Aligned] | type[Confident]] = {"estimated": Aligned, "confident": Confident}


def make(align: str, classes: int, window: int) -> Aligned | Confident | None:
    """By the name of what is aligned to; None where that is no estimate."""
    return KINDS[align](classes, window) if align in KINDS else None
