"""CTAugment's rates one hit at a time, in float64."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Rates:
    """One array of rates per parameter of every operation, all 1 at the start."""

    def __init__(self, operations: Iterable[str], threshold: float = 0.8, decay: float = 0.99) -> None:
        bins = {"identity": (), "posterize": (8,), "rescale": (17, 6)}
        self.rates: dict[str, list[Floats]] = {name: [np.ones(n) for n in bins.get(name, (17,))] for name in operations}
        self.threshold, self.decay = threshold, decay

    def probabilities(self, name: str, parameter: int = 0) -> Floats:
        p = self.rates[name][parameter] + (1 - self.decay)
        p = p / p.max()
        p[p < self.threshold] = 0
        normalised: Floats = p / p.sum()
        return normalised

    def update(self, chain: Iterable[tuple[str, tuple[float, float]]], proximity: float) -> None:
        """One image: its operations in order, each with its two levels."""
        for name, levels in chain:
            for level, rate in zip(levels, self.rates[name], strict=False):
                hit = int(level * len(rate) * 0.999)
                rate[hit] = rate[hit] * self.decay + proximity * (1 - self.decay)
