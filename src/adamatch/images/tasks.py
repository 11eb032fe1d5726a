"""The tasks: which images are trained on with labels, which without, which are tested. No other file tells them apart.

An unlabelled pool has no label field, and only `evaluate` gets test sets.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from adamatch.base.errors import InputError, unknown
from adamatch.images.labels import some
from adamatch.images.store import Labels, Pixels, Store

POOLS = {"uda": 1, "ssl": 1, "ssda": 2, "oracle": 2}  # of labelled images, by task
EVEN = 8  # times that a labelled image is in a student's epoch, at least; some are in it once more


@dataclass(frozen=True)
class Unlabelled:
    """Images and nothing else: parts (each n_i x size x size x 3) that are one pool."""

    parts: tuple[Pixels, ...]

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    @property
    def plain(self) -> tuple[Pixels, ...]:
        """The images themselves: the first view of each, where there are several (n_i x views x ...)."""
        return tuple(part[:, 0] if part.ndim == 5 else part for part in self.parts)


@dataclass(frozen=True)
class Labelled:
    """Images with labels: (n,) class indices or (n, k) probabilities."""

    parts: tuple[Pixels, ...]
    labels: Labels | NDArray[np.float32]
    drawn: Labels | None = None  # the rows of an epoch; None: each once

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Problem:
    """The images of a run, for training and for tests.

    Each labelled pool fills a batch of its own, and the batches are concatenated. `tests` is for `evaluate` alone.
    `probes` are the pools of true labels, where others are a teacher's: CTAugment learns from them.
    """

    labelled: tuple[Labelled, ...]
    unlabelled: Unlabelled
    classes: tuple[str, ...]
    tests: Mapping[str, Store] = field(default_factory=dict)
    chosen: tuple[int, ...] = ()  # which target images were labelled: saved with the run
    notes: tuple[str, ...] = ()
    probes: tuple[Labelled, ...] = ()
    guesses: NDArray[np.float32] | None = None  # (n, k) labels of unlabelled images from before training, times weights


def few_of_many(problem: Problem, most: int) -> bool:
    """Whether few images are labelled (at most `most` per class), and all of them are among the unlabelled ones.

    Then source and target are one domain, whatever the task is called.
    """
    pool = problem.labelled[0]
    if len(problem.labelled) > 1 or len(pool) > min(most * len(problem.classes), len(problem.unlabelled) // 2):
        return False
    seen = {hash(image.tobytes()) for part in problem.unlabelled.parts for image in part}
    return all(hash(image.tobytes()) in seen for part in pool.parts for image in part)


def make_problem(
    task: str, sources: Sequence[Store], target: Store, tests: Mapping[str, Store], *, labels: int = 0, seed: int = 0
) -> Problem:
    """The problem of a task. `sources` are one pool; `labels` is the number of labelled target images per class."""
    if task not in POOLS:
        raise unknown("task", task, POOLS)
    if task in ("uda", "oracle") and labels:
        raise InputError(f"task {task} takes no target labels: leave labels at 0, or choose ssda")
    if task in ("ssl", "ssda") and labels < 1:
        raise InputError(f"task {task} needs labelled target images: give labels=K (K per class), or choose uda")
    pools = [labelled(*sources)] if sources and task != "ssl" else []
    chosen: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    if task == "oracle":
        pools.append(labelled(target))
    elif task != "uda":
        rows, notes = choose_labelled(_labels_of(target), target.classes, labels, seed)
        chosen = tuple(rows.tolist())
        pools.append(Labelled((target.images[rows],), _labels_of(target)[rows]))
    return Problem(tuple(pools), Unlabelled((target.images,)), target.classes, tests, chosen, notes)


def labelled(*stores: Store) -> Labelled:
    """All images of the stores with their labels."""
    return Labelled(tuple(store.images for store in stores), np.concatenate([_labels_of(store) for store in stores]))


def choose_labelled(labels: Labels, classes: Sequence[str], count: int, seed: int) -> tuple[Labels, tuple[str, ...]]:
    """`count` rows of every class, drawn with a seed: the same on every machine. Notes name classes with fewer."""
    rng = np.random.default_rng([seed, count])
    rows, notes, short = list[Labels](), list[str](), list[str]()
    for number, name in enumerate(classes):
        of_class = rng.permutation(np.flatnonzero(labels == number))
        if len(of_class) == 0:
            notes.append(f"class {number} ({name}) has no image here and gets no label")
        elif len(of_class) < count:
            short.append(f"{name} ({len(of_class)})")
        rows.append(np.sort(of_class[:count]))
    if short:
        notes.append(f"fewer than {count} images, all of them labelled, has class {some(short)}")
    return np.concatenate(rows), tuple(notes)


def split_hash(chosen: Sequence[int]) -> str:
    """A short name of a labelled subset, to compare it between machines."""
    return hashlib.sha256(np.asarray(chosen, dtype="<i8").tobytes()).hexdigest()[:12]


def add_labelled(problem: Problem, pool: Labelled, uratio: int, seed: int) -> Problem:
    """Add images that a teacher labelled (`pool`): all labelled images become one pool.

    Proportions are those of the authors' batches: one image of each labelled pool, and `uratio` unlabelled images, of
    which only those in `pool` have a label. Where the numbers do not divide, the images drawn once more are random.
    """
    rng = np.random.default_rng(seed)
    pools = (*problem.labelled, pool)
    parts = tuple(part for each in pools for part in each.parts)
    labels = np.concatenate([probabilities(each.labels, len(problem.classes)) for each in pools])
    # Images of a labelled pool that are drawn while all unlabelled ones are seen once, and how often that is repeated.
    once = max(1, round(len(problem.unlabelled) / uratio))
    times = -(-EVEN * max(map(len, problem.labelled)) // once)
    first, rows = 0, []
    for each in pools:
        often, more = divmod(times * (len(pool) if each is pool else once), max(1, len(each)))
        rows += [first + np.tile(np.arange(len(each)), often), first + rng.permutation(len(each))[:more]]
        first += len(each)
    return replace(problem, labelled=(Labelled(parts, labels, np.concatenate(rows)),), probes=problem.labelled)


def balanced(pool: Labelled) -> Labelled:
    """Oversample rare classes: each is drawn as often as the median class, its images equally often.

    A class is rare if it has less than half of the median's images. A pool without rare classes, with probabilities or
    with `drawn` is returned as it is.
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
    """(n,) class indices or (n, k) probabilities -> (n, k) probabilities."""
    return np.eye(classes, dtype=np.float32)[labels] if labels.ndim == 1 else labels.astype(np.float32)


def _labels_of(store: Store) -> Labels:
    if store.labels is None:
        remedy = "put them in one folder per class, or give a CSV"
        raise InputError(f"labels are needed here and these images have none: {remedy}")
    return store.labels
