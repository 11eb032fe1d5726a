"""Groups of target images that may have got the wrong name as a whole, from what the twin says of them.

Pseudo-labels can give a whole group of images the name of another class: all elephants are called person, and with confidence.
The network alone does not show it. Its twin may be wrong about most of these images, too. But what it says of them is a
mixture, and there is more of the right name in it than in other groups.
"""

from typing import NamedTuple

import numpy as np

from adamatch.images.store import Labels
from adamatch.verdict.evidence import Evidence, guesses

ENOUGH = 20  # images' worth of what the twin says, to look for a class
MUCH = 0.05  # of what the twin says of a class in all images: so much more than its size lets expect is in a group
MORE = 1.5  # and so many times what is in the group of that name
FULL = 1.5  # even shares of all images: a class that the network gives so many has not lost its name


class Group(NamedTuple):
    """Images that the network calls `called`, some or all of which may be `rather`; those that the twin is surest of first."""

    rather: int
    called: int
    rows: Labels


def misnamed(evidence: Evidence) -> list[Group]:
    """One for each class that the twin finds, more than in the images of that name, in those of another.

    Of several such others, that in which it is most frequent.
    """
    if evidence.twin is None:
        return []
    mine, said = guesses(evidence.last), evidence.twin.last.astype(np.float64)
    groups = np.eye(said.shape[1])[mine]  # [n, k]
    sizes, spoken = groups.mean(0), said.sum(0)
    parts = groups.T @ said / np.maximum(spoken, 1)  # [group, class]: of what is said of a class
    surplus = parts - sizes[:, None]
    found = []
    for rather in range(said.shape[1]):
        much = (surplus[:, rather] >= MUCH) & (surplus[:, rather] >= MORE * surplus[rather, rather])
        if spoken[rather] >= ENOUGH and sizes[rather] < FULL / len(sizes) and much.any():
            called = int((much * parts[:, rather] / np.maximum(sizes, 1 / len(mine))).argmax())
            rows = np.flatnonzero(mine == called)
            found.append(Group(rather, called, rows[np.argsort(-said[rows, rather], kind="stable")]))
    return found
