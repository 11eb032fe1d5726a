"""The tasks: which images are trained on with labels, which without, and what is tested. No other file knows them apart.

An unlabelled pool has no labels at all, and test sets are handed to nobody but `evaluate`.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from adamatch.base.errors import InputError, unknown
from adamatch.images.store import Labels, Pixels, Store

POOLS = {"uda": 1, "ssl": 1, "ssda": 2, "oracle": 2}  # of labelled images, by task
NAMED = 5  # classes that a note names
EVEN = 8  # times that each labelled image is in a student's epoch, at least: some are in it once more


@dataclass(frozen=True)
class Unlabelled:
    """Images and nothing else: parts (each n_i x size x size x 3) that are read as one."""

    parts: tuple[Pixels, ...]

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    @property
    def plain(self) -> tuple[Pixels, ...]:
        """The images as they are: the first view of each, where several were made (n_i x views x ...)."""
        return tuple(part[:, 0] if part.ndim == 5 else part for part in self.parts)


@dataclass(frozen=True)
class Labelled:
    """Images with labels: (n,) class numbers or (n, k) probabilities."""

    parts: tuple[Pixels, ...]
    labels: Labels | NDArray[np.float32]
    drawn: Labels | None = None  # the rows of an epoch, some perhaps more than once; None: each once

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Problem:
    """What a run trains on and is tested on.

    Each labelled pool fills a batch of its own, and the batches are concatenated. `tests` is for `evaluate` alone.
    `probes` are the pools whose labels are known, where others are guessed: what CTAugment learns from.
    """

    labelled: tuple[Labelled, ...]
    unlabelled: Unlabelled
    classes: tuple[str, ...]
    tests: Mapping[str, Store] = field(default_factory=dict)
    chosen: tuple[int, ...] = ()  # which target images were labelled: saved with the run
    notes: tuple[str, ...] = ()
    probes: tuple[Labelled, ...] = ()
    guesses: NDArray[np.float32] | None = (
        None  # of unlabelled images (n, k): labels from before training, times weights
    )


def few_of_many(problem: Problem, most: int) -> bool:
    """Whether at most so many images of a class are labelled, on average, and all of them are among more unlabelled ones.

    Then there is one domain, whatever the task is called.
    """
    pool = problem.labelled[0]
    if len(problem.labelled) > 1 or len(pool) > min(most * len(problem.classes), len(problem.unlabelled) // 2):
        return False
    seen = {hash(image.tobytes()) for part in problem.unlabelled.parts for image in part}
    return all(hash(image.tobytes()) in seen for part in pool.parts for image in part)


def pose(
    task: str, sources: Sequence[Store], target: Store, tests: Mapping[str, Store], *, labels: int = 0, seed: int = 0
) -> Problem:
    """The problem of a task: `sources` are read as one; `labels` is the number of labelled target images per class."""
    _check(task, labels)
    unlabelled = Unlabelled((target.images,))
    from_source = [labelled(*sources)] if sources else []
    chosen: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    if task == "uda":
        pools = from_source
    elif task == "oracle":
        pools = [*from_source, labelled(target)]
    else:
        rows, notes = choose(_labels_of(target), target.classes, labels, seed)
        chosen = tuple(int(row) for row in rows)
        few = Labelled((target.images[rows],), _labels_of(target)[rows])
        pools = [few] if task == "ssl" else [*from_source, few]
    return Problem(tuple(pools), unlabelled, target.classes, tests, chosen, notes)


def labelled(*stores: Store) -> Labelled:
    """All images of the stores with their labels."""
    return Labelled(tuple(store.images for store in stores), np.concatenate([_labels_of(store) for store in stores]))


def choose(labels: Labels, classes: Sequence[str], count: int, seed: int) -> tuple[Labels, tuple[str, ...]]:
    """`count` rows of every class, drawn with a seed: the same on every machine and rank. Classes with fewer are noted."""
    rng = np.random.default_rng([seed, count])
    rows: list[Labels] = []
    notes: list[str] = []
    short: list[str] = []
    for number, name in enumerate(classes):
        of_class = rng.permutation(np.flatnonzero(labels == number))
        if len(of_class) == 0:
            notes.append(f"class {number} ({name}) has no image here and gets no label")
        elif len(of_class) < count:
            short.append(f"{name} ({len(of_class)})")
        rows.append(np.sort(of_class[:count]))
    if short:
        others = f" and {len(short) - NAMED} more" if len(short) > NAMED else ""
        notes.append(f"fewer than {count} images, all of them labelled, has class {', '.join(short[:NAMED])}{others}")
    return np.concatenate(rows), tuple(notes)


def split_hash(chosen: Sequence[int]) -> str:
    """A short name of a labelled subset, to compare between machines."""
    return hashlib.sha256(np.asarray(chosen, dtype="<i8").tobytes()).hexdigest()[:12]


def add_labelled(problem: Problem, pool: Labelled, uratio: int, seed: int) -> Problem:
    """The same problem with one labelled pool: its labelled images, and the unlabelled ones that a teacher labelled (`pool`).

    They are drawn as in batches of the authors' code: for each image of a labelled pool one of every other, and those of
    `uratio` unlabelled ones that have got a label. Which labelled images come once more than others is drawn. Probes are of
    the images that had their labels before.
    """
    rng = np.random.default_rng(seed)
    pools = (*problem.labelled, pool)
    parts = tuple(part for each in pools for part in each.parts)
    labels = np.concatenate([probabilities(each.labels, len(problem.classes)) for each in pools])
    each_once = max(
        1, round(len(problem.unlabelled) / uratio)
    )  # of a labelled pool, while all unlabelled images are seen once
    times = -(-EVEN * max(map(len, problem.labelled)) // each_once)  # until every labelled image is seen often enough
    first, rows = 0, []
    for each in pools:
        often, more = divmod(times * (len(pool) if each is pool else each_once), max(1, len(each)))
        rows += [first + np.tile(np.arange(len(each)), often), first + rng.permutation(len(each))[:more]]
        first += len(each)
    return replace(problem, labelled=(Labelled(parts, labels, np.concatenate(rows)),), probes=problem.labelled)


def balanced(pool: Labelled) -> Labelled:
    """The same pool, with rare classes drawn as often as the median one: their images come several times, evenly.

    Rare are those of which there is less than half of that. A pool in which none is rare, whose labels are probabilities, or
    that says itself what is drawn, stays as it is.
    """
    if pool.drawn is not None or pool.labels.ndim > 1:
        return pool
    classes = [np.flatnonzero(pool.labels == number) for number in np.unique(pool.labels)]
    median = int(np.ceil(np.median([len(rows) for rows in classes])))
    if min(map(len, classes)) >= median / 2:
        return pool
    drawn = [np.resize(rows, median) if len(rows) < median / 2 else rows for rows in classes]
    return replace(pool, drawn=np.concatenate(drawn))


def probabilities(labels: Labels | NDArray[np.float32], classes: int) -> NDArray[np.float32]:
    """(n,) class numbers or (n, k) probabilities -> (n, k) probabilities."""
    return np.eye(classes, dtype=np.float32)[labels] if labels.ndim == 1 else labels.astype(np.float32)


def _check(task: str, labels: int) -> None:
    if task not in POOLS:
        raise unknown("task", task, POOLS)
    if task in ("uda", "oracle") and labels:
        raise InputError(f"task {task} takes no target labels: leave labels at 0, or choose ssda")
    if task in ("ssl", "ssda") and labels < 1:
        raise InputError(f"task {task} needs labelled target images: give labels=K (K per class), or choose uda")


def _labels_of(store: Store) -> Labels:
    if store.labels is None:
        raise InputError(
            "labels are needed here and these images have none: put them in one folder per class, or give a CSV"
        )
    return store.labels
