"""What the twin shows, the same network trained on labelled images alone: which predictions changed, and wrong names.

Pseudo-labels can give a whole group of images the name of another class: all elephants are called person, and with
confidence. The network alone does not show it. Its twin may be wrong about most of these images, too. But its
probabilities there are a mixture, and there is more of the right name in it than in other groups.
"""

from typing import NamedTuple

import numpy as np

from adamatch.images.store import Labels
from adamatch.verdict.eval_outputs import EvalOutputs, Probabilities, predictions

ENOUGH = 20  # sum of the twin's probabilities of a class, from which on it is looked for
EXCESS = 0.05  # part of that sum which is in a group, beyond the group's part of the images
TIMES = 1.5  # and so many times the excess in the group of that name
FREQUENT = 1.5  # a class that the network predicts so many times as often as 1 / k has not lost its name


class Changed(NamedTuple):
    """Of n target images: which rows changed (those that both are surest of first), and from which class to which."""

    rows: Labels
    moves: Labels  # [k, k]: images that the twin takes for class i and the network for class j
    agreement: float  # the part of images that both take for the same class
    kappa: float  # Cohen's: 0 for the agreement of two that know nothing, 1 where all agree


def changed(ours: Probabilities, twins: Probabilities) -> Changed:
    """Probabilities [n, k] of the network and of its twin on the same images."""
    mine, its, k = predictions(ours), predictions(twins), ours.shape[1]
    rows = np.flatnonzero(mine != its)
    sureness = np.minimum(ours.max(1), twins.max(1))[rows]
    moves = np.bincount(its * k + mine, minlength=k * k).reshape(k, k)
    differ = len(mine) ** 2 - int(moves.sum(0) @ moves.sum(1))  # by chance, times the number of images
    kappa = 1 - len(rows) * len(mine) / differ if len(rows) else 1.0
    return Changed(rows[np.argsort(-sureness, kind="stable")], moves, float((mine == its).mean()), kappa)


class Group(NamedTuple):
    """Rows of images that the network takes for one class and that may be another; first where the twin is surest."""

    likely: int
    predicted: int
    rows: Labels


def misnamed(outputs: EvalOutputs) -> list[Group]:
    """One for each class that the twin finds more in the images of another name than in those of its own.

    Of several such others, that in which it is most frequent. Without a twin there are none.
    """
    if outputs.twin is None:
        return []
    mine, its = predictions(outputs.last), outputs.twin.last.astype(np.float64)
    groups = np.eye(its.shape[1])[mine]  # [n, k]
    sizes, total = groups.mean(0), its.sum(0)
    parts = groups.T @ its / np.maximum(total, 1)  # [group, class]: of the twin's probability of a class
    excess = parts - sizes[:, None]
    found = []
    for likely in range(its.shape[1]):
        much = (excess[:, likely] >= EXCESS) & (excess[:, likely] >= TIMES * excess[likely, likely])
        if total[likely] >= ENOUGH and sizes[likely] < FREQUENT / len(sizes) and much.any():
            predicted = int((much * parts[:, likely] / np.maximum(sizes, 1 / len(mine))).argmax())
            rows = np.flatnonzero(mine == predicted)
            found.append(Group(likely, predicted, rows[np.argsort(-its[rows, likely], kind="stable")]))
    return found
