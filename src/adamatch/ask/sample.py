"""Which images are asked about: a systematic sample of a list in which similar images are neighbours.

Every image has the same chance, so that the part of the answers that are right is an estimate of the accuracy. The
list is ordered by whether model and twin differ, by predicted class and by confidence: equal steps through it take from
each of these groups its share, also where there are more classes than questions.
"""

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


def order(predicted: Rows, confidence: NDArray[np.floating], differs: NDArray[np.bool_]) -> Rows:
    """All rows, where neighbours are alike. Confidence rises in one group and falls in the next: no step is large."""
    groups = np.unique(predicted.astype(np.int64) + (1 << 32) * differs, return_inverse=True)[1]
    falls = groups % 2 == 1
    found: Rows = np.lexsort((np.where(falls, -1.0, 1.0) * confidence, groups))
    return found


def draw(ordered: Rows, number: int, rng: np.random.Generator) -> Rows:
    """So many of these rows, in equal steps from a random start: each has the chance number / len(ordered).

    In a random order, so that the first of them are a sample, too.
    """
    number = min(number, len(ordered))
    places = ((rng.random() + np.arange(number)) * (len(ordered) / max(1, number))).astype(np.int64)
    return rng.permutation(ordered[np.minimum(places, len(ordered) - 1)])
