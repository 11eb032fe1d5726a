"""How often each class comes: in labels, in predictions, and, by an estimate that corrects these, in the target."""

import numpy as np

from adamatch.images.store import Labels
from adamatch.verdict.calibrated import temperature, with_temperature
from adamatch.verdict.eval_outputs import SMALLEST, Numbers, Probabilities, predictions

ROUNDS = 1000
TOLERANCE = 1e-6  # the largest change of a share at which the rounds end


def of_labels(labels: Labels, classes: int) -> Numbers:
    """[n] -> [k], adding up to 1 (of no label: all 0)."""
    return np.bincount(labels, minlength=classes) / max(1, len(labels))


def of_predictions(probabilities: Probabilities) -> Numbers:
    """The shares of the most likely classes."""
    return of_labels(predictions(probabilities), probabilities.shape[1])


def estimated(target: Probabilities, source: Probabilities, source_labels: Labels) -> Numbers:
    """The most likely shares of the target's classes, if images of a class look alike in both.

    Expectation and maximisation (Saerens et al., 2002) on probabilities that are calibrated with held-out source images
    (Alexandari et al., ICML 2020).
    """
    heat = temperature(source, source_labels)
    p = with_temperature(target, heat)
    trained = np.maximum(with_temperature(source, heat).mean(0), SMALLEST)
    shares = trained
    for _ in range(ROUNDS):
        shifted = p * (shares / trained)
        better = (shifted / shifted.sum(1, keepdims=True)).mean(0)
        if np.abs(better - shares).max() < TOLERANCE:
            break
        shares = better
    found: Numbers = shares / shares.sum()
    return found
