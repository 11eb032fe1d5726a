"""What adaptation changed: the predictions of a network beside those of its twin, trained on the labelled images alone."""

from typing import NamedTuple

import numpy as np

from adamatch.images.store import Labels
from adamatch.verdict.calibrated import Rows
from adamatch.verdict.evidence import Numbers, guesses


class Changed(NamedTuple):
    """Of n target images: which rows changed (those that both are surest of first), and from which class to which."""

    rows: Labels
    moves: Labels  # [k, k]: images that the twin takes for class i and the network for class j
    agreement: float  # the part of images that both take for the same class
    beyond_chance: float  # the same, 0 for what two that know nothing would reach, 1 for all (Cohen's kappa)


def changed(ours: Rows, twins: Rows) -> Changed:
    """Probabilities [n, k] of the network and of its twin on the same images."""
    classes = ours.shape[1]
    mine, its = guesses(ours), guesses(twins)
    moves = np.bincount(its * classes + mine, minlength=classes * classes).reshape(classes, classes)
    rows = np.flatnonzero(mine != its)
    surest = np.minimum(ours.max(1), twins.max(1))[rows]
    same = float((mine == its).mean())
    return Changed(rows[np.argsort(-surest, kind="stable")], moves, same, kappa(moves))


def kappa(counts: Labels) -> float:
    """Cohen's, of a table [k, k]: 1 where all agree, and where only one class is ever named by both."""
    total = max(1, int(counts.sum()))
    shares: Numbers = counts / total
    chance = float(shares.sum(0) @ shares.sum(1))
    return (float(np.trace(shares)) - chance) / (1 - chance) if chance < 1 else 1.0
