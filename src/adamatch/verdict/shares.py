"""How often each class comes: in labels, in predictions, and, by an estimate that corrects these, in the target."""

import numpy as np

from adamatch.images.store import Labels
from adamatch.verdict.calibrated import Rows, temperature, warmed
from adamatch.verdict.evidence import SMALLEST, Numbers, guesses

ROUNDS = 1000
STILL = 1e-6  # the largest change of a share after which it is estimated


def of_labels(labels: Labels, classes: int) -> Numbers:
    """[n] -> [k], adding up to 1 (of no label: all 0)."""
    return np.bincount(labels, minlength=classes) / max(1, len(labels))


def of_predictions(probabilities: Rows) -> Numbers:
    """The shares of the most likely classes."""
    return of_labels(guesses(probabilities), probabilities.shape[1])


def estimated(target: Rows, source: Rows, held: Labels) -> Numbers:
    """The most likely shares of the target's classes, if images of a class look alike in both.

    Expectation and maximisation (Saerens et al., 2002) on calibrated probabilities (Alexandari et al., ICML 2020), from what
    the network says of held-out source images.
    """
    heat = temperature(source, held)
    p = warmed(target, heat)
    trained = np.maximum(warmed(source, heat).mean(0), SMALLEST)
    shares = trained
    for _ in range(ROUNDS):
        shifted = p * (shares / trained)
        better = (shifted / shifted.sum(1, keepdims=True)).mean(0)
        if np.abs(better - shares).max() < STILL:
            break
        shares = better
    found: Numbers = shares / shares.sum()
    return found
