"""The user's images -> a problem: read, split into pools, a tenth of the labelled source held out, hashed."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from adamatch.base.console import progress_bar
from adamatch.base.urls import Url
from adamatch.images.decode import Shape
from adamatch.images.labels import some
from adamatch.images.reading import are_few, read, refusal
from adamatch.images.store import Labels, Store
from adamatch.images.tasks import Problem, Unlabelled, choose_labelled, labelled

HELD_OUT = 0.1  # of the labelled source images, to estimate accuracy on the source
NAMED = 3  # of several sources
DIGESTED = 10_000  # images of which a digest is made


class UserData:
    """Reads the images. Keeps the stores by their role (`seen`), skipped files, and notes for the user.

    `of_none`: files of the target that are of no class.
    """

    def __init__(
        self,
        size: int,
        shape: Shape = "squeeze",
        *,
        of_none: frozenset[Path] = frozenset(),
        skip_bad: bool = False,
        quiet: bool = False,
    ) -> None:
        self.size, self.shape, self.skip_bad, self.quiet = size, shape, skip_bad, quiet
        self.of_none = of_none
        self.skipped: dict[str, str] = {}
        self.many_bad = False  # of some role more files cannot be read than are left out without being asked
        self.notes: list[str] = []
        self.seen: dict[str, Store] = {}
        self.labels_per_class: int | None = None
        self.trained: Labels = np.zeros(0, np.int64)  # rows of the source that are trained on with their labels,
        self.held_out: Labels = np.zeros(0, np.int64)  # and those that are not trained on at all

    @property
    def white(self) -> int:
        """That of the target's images of 16 bits; 0: they have fewer, or their files say it."""
        return int(self.seen.get("target", self.seen["source"]).info.get("white", 0))

    def read(self, role: str, images: Any, *, labelled: bool, classes: tuple[str, ...] | None = None) -> Store:
        with progress_bar(f"reading images: {role.replace('_', ' ')}", quiet=self.quiet) as stage:
            store = read(
                images,
                size=self.size,
                classes=classes,
                labelled=labelled,
                drop_unknown=role == "test",
                shape=self.shape,
                white=self.white if role in ("test", "target_labels") else 0,  # as the target's own
                skip_bad=self.skip_bad,
                check=False,
                progress=stage.at,
            )
        bad = store.info.get("skipped", {})
        self.skipped |= bad
        self.many_bad |= not (self.skip_bad or are_few(len(bad), len(store) + len(bad)))
        self.notes += store.info.get("notes", [])
        self.seen[role] = store
        return store

    def problem(
        self, source: Any, target: Any, target_labels: Any, test: Any, labels_per_class: int | None, seed: int
    ) -> Problem:
        """Labelled pools from the source and the target labels, if any. `target` None: the source's own images."""
        self.labels_per_class = labels_per_class
        whole = self.read("source", source, labelled=True)
        assert whole.labels is not None
        notes: tuple[str, ...] = ()
        rows = np.arange(len(whole))
        if labels_per_class is not None:
            rows, notes = choose_labelled(whole.labels, whole.classes, labels_per_class, seed)
        held_out = self.held_out = _hold_out(whole, rows if labels_per_class else rows[:0], seed)
        trained = self.trained = np.setdiff1d(rows, held_out)
        pools = [labelled(_rows(whole, trained))]
        if target is None:
            images = whole.images[np.setdiff1d(np.arange(len(whole)), held_out)]
        else:
            images = self._without(self.read("target", target, labelled=False)).images
        if target_labels is not None:
            pools.append(labelled(self.read("target_labels", target_labels, labelled=True, classes=whole.classes)))
            if lacking := [name for number, name in enumerate(whole.classes) if number not in pools[1].labels]:
                self.notes.append(
                    f"{name_of(target_labels)} has no image of {some(lacking)}: no target label helps there"
                )
        tests = {"source": _rows(whole, held_out)} if len(held_out) else {}
        if test is not None:
            tests["target"] = self.read("test", test, labelled=True, classes=whole.classes)
        if self.many_bad:  # told of all images at once
            raise refusal(self.skipped, len(self.skipped) + sum(map(len, self.seen.values())))
        chosen = tuple(rows.tolist()) if labels_per_class else ()
        return Problem(tuple(pools), Unlabelled((images,)), whole.classes, tests, chosen, notes)

    def _without(self, store: Store) -> Store:
        """The target without the images that are of no class."""
        kept = np.array([Path(os.path.abspath(file)) not in self.of_none for file in store.info.get("files", ())], bool)
        if kept.all():
            return store
        info = {name: np.array(store.info[name])[kept].tolist() for name in ("files", "sides") if name in store.info}
        self.seen["target"] = Store(store.images[kept], None, store.classes, {**store.info, **info})
        self.notes.append(f"target images of no class, which are left out: {len(kept) - kept.sum()}")
        return self.seen["target"]

    def digest(self, role: str) -> str:
        """Changes when the images or labels do: a run is resumed with the data it began with, or not at all."""
        found = hashlib.sha256()
        for store in (
            [self.seen[role]] if role in self.seen else []
        ):  # a target that is the source has no store of its own
            found.update(repr((store.images.shape, store.classes)).encode())
            found.update(store.images[:: max(1, len(store) // DIGESTED)].tobytes())
            found.update(b"" if store.labels is None else store.labels.tobytes())
        return found.hexdigest()[:8]


def _hold_out(store: Store, needed: Labels, seed: int) -> Labels:
    """A tenth of every class, without the rows that are needed; none of a class with fewer than ten images."""
    assert store.labels is not None
    rng = np.random.default_rng([seed, 17])
    held_out = []
    for number in range(len(store.classes)):
        rows = rng.permutation(np.flatnonzero(store.labels == number))
        held_out.append(np.setdiff1d(rows, needed, assume_unique=True)[: int(len(rows) * HELD_OUT)])
    return np.sort(np.concatenate(held_out))


def _rows(store: Store, rows: Labels) -> Store:
    assert store.labels is not None
    return Store(store.images[rows], store.labels[rows], store.classes)


def name_of(images: Any) -> str:
    """A name for the user. Without the folder's place, which may change: a digest tells which images they are."""
    if isinstance(images, Mapping):
        return some(map(str, images))
    if isinstance(images, (list, tuple)) and images and all(isinstance(each, (str, Path)) for each in images):
        return some(map(name_of, images), NAMED)
    if isinstance(images, Url):
        return urlsplit(images).path.rpartition("/")[2] or images  # its query may be a secret
    return Path(images).resolve().name if isinstance(images, (str, Path)) else type(images).__name__
