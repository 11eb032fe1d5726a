"""What the answers on target images show: shares of classes, what adaptation changed, and which images to look at."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adamatch.images.store import Labels
from adamatch.report.image_statistics import Notes
from adamatch.report.pool import Pool
from adamatch.report.record import Record
from adamatch.verdict import eval_outputs

MOVES = 8  # the most frequent changes from one class to another
PAIRS = 12  # the most frequent mistakes, where a table of all would be too large
WIDEST = 30  # classes in a table of confusions
LISTED = 100  # classes with the most images, whose shares and images are shown


@dataclass(frozen=True)
class Answers:
    """Of n images: their rows in the pool, the classes answered [n], how sure [n], and the twin's classes [n]."""

    rows: Labels
    classes: Labels
    sure: NDArray[np.float32]
    twin: Labels | None

    @property
    def changed(self) -> NDArray[np.bool_]:
        return np.zeros(len(self.rows), bool) if self.twin is None else self.twin != self.classes


def answers(record: Record, notes: Notes) -> Answers | None:
    """None where a run has not said anything yet."""
    if not record.said:
        return None
    probabilities = record.said["target"].astype(np.float32)
    rows = eval_outputs.sampled_rows(notes.target.count if notes.target else len(probabilities))
    if len(rows) != len(probabilities):  # the images are not those that the run has seen
        rows = np.full(len(probabilities), -1, np.int64)
    twin = None
    if record.twin is not None and record.twin.said and record.twin.said["target"].shape == probabilities.shape:
        twin = record.twin.said["target"].argmax(1)
    return Answers(rows, probabilities.argmax(1), probabilities.max(1), twin)


def shares(found: Answers | None, notes: Notes, record: Record) -> list[dict[str, Any]]:
    """A row for a class: its share, in percent, of the source's labels, the twin's answers and the adapted network's.

    Where the verdict has one, also the estimate of its share of the target.
    """
    classes = record.classes
    columns: dict[str, Labels] = {}
    if notes.source is not None and notes.source.labels:
        columns["source"] = np.array(notes.source.labels, np.int64)
    if found is not None:
        columns |= {"twin": found.twin} if found.twin is not None else {}
        columns["adapted"] = found.classes
    if not columns or not classes:
        return []
    parts = {name: percentages(each, len(classes)) for name, each in columns.items()}
    estimated = record.verdict.get("shares", {}).get("estimated")
    if estimated is not None and len(estimated) == len(classes):
        parts["estimated"] = 100 * np.array(estimated, np.float64)
    listed = most(np.max(list(parts.values()), axis=0))
    return [{"name": classes[i]} | {kind: float(part[i]) for kind, part in parts.items()} for i in listed]


def percentages(labels: Labels, classes: int) -> NDArray[np.float64]:
    """[k]: how often each class comes."""
    return np.bincount(labels, minlength=classes) * 100 / max(1, len(labels))


def most(values: NDArray[Any]) -> list[int]:
    """Which are the largest, at most as many as are listed, in their own order."""
    return sorted(np.argsort(-values, kind="stable")[:LISTED].tolist())


def moves(found: Answers, classes: Sequence[str]) -> list[tuple[str, str, int]]:
    """From which class to which, and how many images: the most frequent first."""
    assert found.twin is not None
    return _pairs(_table(found.twin, found.classes, len(classes)), classes, MOVES)


class Picture(NamedTuple):
    row: int
    told: str  # below the picture
    alt: str


class Gallery(NamedTuple):
    """Images that were taken for one class."""

    name: str
    total: int
    strips: dict[str, list[Picture]]


def galleries(found: Answers, target: Pool, classes: Sequence[str], each: int) -> list[Gallery]:
    """`each` images of a kind for every class; of very many classes those with the most images."""

    def picture(index: int, before: str = "") -> Picture:
        row, sure = int(found.rows[index]), f"{found.sure[index]:.0%}"
        alt = f"{target.name(row)}: {classes[found.classes[index]]}, {sure} sure"
        return Picture(row, f"was {before}", f"{alt}; the twin said {before}") if before else Picture(row, sure, alt)

    made = []
    for kind in most(np.bincount(found.classes, minlength=len(classes))):
        mine = np.flatnonzero(found.classes == kind)
        mine = mine[np.argsort(-found.sure[mine], kind="stable")]
        moved = mine[found.changed[mine]][:each]
        strips = {
            "Surest": [picture(index) for index in mine[:each]],
            "Least sure": [picture(index) for index in mine[each:][::-1][:each]],
            "Changed": [picture(index, classes[found.twin[index]]) for index in moved]
            if found.twin is not None
            else [],
        }
        made.append(Gallery(classes[kind], len(mine), {name: strip for name, strip in strips.items() if strip}))
    return made


class Confusion(NamedTuple):
    """rows: (class, images, accuracy in percent, cells); a cell: (count, share of its row in percent, right or not)."""

    title: str
    accuracy: float
    total: int
    rows: list[tuple[str, int, float, list[tuple[int, int, bool]]]]
    pairs: list[tuple[str, str, int]]  # true class, answer, how many

    @property
    def wide(self) -> bool:
        """Whether the table needs all the width there is."""
        return sum(max(4, len(name)) for name, *_ in self.rows) > 44


def confusion(title: str, counts: NDArray[np.int64], classes: Sequence[str]) -> Confusion | None:
    """counts[class, answer]"""
    if counts.shape != (len(classes), len(classes)) or not counts.sum():
        return None
    rows = []
    for i, name in enumerate(classes) if len(classes) <= WIDEST else ():
        of_class = int(counts[i].sum())
        cells = [(int(n), round(100 * int(n) / max(1, of_class)), i == j) for j, n in enumerate(counts[i])]
        rows.append((name, of_class, 100 * int(counts[i, i]) / max(1, of_class), cells))
    total = int(counts.sum())
    return Confusion(title, 100 * int(np.trace(counts)) / total, total, rows, _pairs(counts, classes, PAIRS))


def confusions(record: Record, notes: Notes) -> list[Confusion]:
    """Of labelled target images, if there were any, and of held-out source images."""
    found = []
    if notes.confusion is not None:
        found.append(confusion("Labelled target images", notes.confusion, record.classes))
    if "source" in record.said and len(record.held):
        table = _table(record.held, record.said["source"].argmax(1), len(record.classes))
        found.append(confusion("Held-out source images", table, record.classes))
    return [each for each in found if each is not None]


def _table(first: Labels, second: Labels, classes: int) -> NDArray[np.int64]:
    return np.bincount(first * classes + second, minlength=classes * classes).reshape(classes, classes)


def _pairs(table: NDArray[np.int64], classes: Sequence[str], most: int) -> list[tuple[str, str, int]]:
    off = table.copy()
    np.fill_diagonal(off, 0)
    order = [divmod(int(at), len(classes)) for at in np.argsort(-off, axis=None, kind="stable")[:most]]
    return [(classes[i], classes[j], int(off[i, j])) for i, j in order if off[i, j] > 0]
