"""What adaptation changed: the predictions of a network beside those of its twin, trained on labelled images alone."""

from typing import NamedTuple

import numpy as np

from adamatch.images.store import Labels
from adamatch.verdict.eval_outputs import Probabilities, predictions


class Changed(NamedTuple):
    """Of n target images: which rows changed (those that both are surest of first), and from which class to which."""

    rows: Labels
    moves: Labels  # [k, k]: images that the twin takes for class i and the network for class j
    agreement: float  # the part of images that both take for the same class
    kappa: float  # Cohen's: 0 for the agreement of two that know nothing, 1 where all agree


def changed(ours: Probabilities, twins: Probabilities) -> Changed:
    """Probabilities [n, k] of the network and of its twin on the same images."""
    from sklearn.metrics import cohen_kappa_score, confusion_matrix  # takes a second to import

    mine, its = predictions(ours), predictions(twins)
    rows = np.flatnonzero(mine != its)
    sureness = np.minimum(ours.max(1), twins.max(1))[rows]
    kappa = float(cohen_kappa_score(mine, its)) if len(rows) else 1.0
    moves = confusion_matrix(its, mine, labels=range(ours.shape[1]))
    return Changed(rows[np.argsort(-sureness, kind="stable")], moves, float((mine == its).mean()), kappa)
