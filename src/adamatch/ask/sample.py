"""Which images are asked about: one from each of as many equal parts of a list in which similar images are neighbours.

Every image has the same chance, so that the part of the answers that are right is an estimate of the accuracy. The
list is ordered by whether model and twin differ, by predicted class and by confidence: each of these groups gets its
share of the questions, also where there are more classes than questions.

Equal steps from one random start would do the same, but of few images there are only a handful of such samples.
"""

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


def order(predicted: Rows, confidence: NDArray[np.floating], differs: NDArray[np.bool_]) -> Rows:
    """All rows, where neighbours are alike. Confidence rises in one group and falls in the next: no step is large."""
    groups = np.unique(predicted + (1 << 32) * differs, return_inverse=True)[1]
    falls = groups % 2 == 1
    found: Rows = np.lexsort((np.where(falls, -1.0, 1.0) * confidence, groups))
    return found


def draw(ordered: Rows, number: int, rng: np.random.Generator) -> Rows:
    """So many of these rows: each has the chance number / len(ordered).

    The parts need not hold whole numbers of images: one on the border of two is drawn in the second with such a chance
    that it comes at most once, and in all as often as any other (Deville, 1998).
    In a random order, so that the first of them are a sample, too.
    """
    number = min(number, len(ordered))
    length, taken = len(ordered) / max(1, number), list[int]()
    for part in range(number):
        start, end = part * length, (part + 1) * length
        border = int(np.ceil(start - 1e-9)) - 1  # the image that begins before this part
        inside = max(0.0, border + 1 - start)  # as much of it lies here
        again = bool(taken) and taken[-1] == border
        if inside > 1e-9 and not again and rng.random() < inside / (length - (1 - inside)):
            taken.append(border)
        else:
            place = border + 1 + rng.random() * (end - border - 1)
            taken.append(min(int(place), len(ordered) - 1))
    return rng.permutation(ordered[taken])
