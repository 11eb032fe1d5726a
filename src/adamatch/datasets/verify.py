"""Is a prepared set what was published? Counts, checksums, unreadable images, duplicates."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from adamatch.base.errors import InputError
from adamatch.datasets.catalog import SETS, stores
from adamatch.datasets.source import Domain
from adamatch.images.store import Store

COMMON = 0.01  # the part of a test set that may also be in the training set; published sets do share some images


@dataclass(frozen=True)
class Finding:
    """`error`: the store is not what it should be; `note`: worth knowing."""

    level: Literal["ok", "note", "error"]
    store: str
    text: str


def verify(root: Path, name: str) -> Iterator[Finding]:
    """Everything that can be said of the prepared stores of a set, one finding after the other."""
    prepared = stores(root, name)
    if not prepared:
        remedy = f"make one with `adamatch data prepare {name} --from DIR`"
        raise InputError(f"{root / name} holds no prepared store: {remedy}")
    for (domain, size), splits in prepared.items():
        opened: dict[str, Store] = {}
        for split, path in splits.items():
            label = f"{name}/{domain}/{split}-{size}"
            try:
                opened[split] = Store.open(path, whole=True)
            except InputError as error:
                yield Finding("error", label, str(error))
            else:
                yield Finding("ok", label, f"{len(opened[split]):,} images of {size} x {size}; checksums hold")
                yield from _missing(opened[split], label)
        if name in SETS and domain in SETS[name].domains:
            yield from _counted(opened, SETS[name].domains[domain], f"{name}/{domain}", size)
        if {"train", "test"} <= set(opened):
            yield _shared(opened["train"], opened["test"], f"{name}/{domain}/test-{size}")


def _missing(store: Store, label: str) -> Iterator[Finding]:
    """Images that were skipped, and classes without any."""
    if skipped := store.info.get("skipped"):
        yield Finding("error", label, f"{len(skipped)} images could not be read and are left out (first: {skipped[0]})")
    if store.labels is not None:
        empty = np.flatnonzero(np.bincount(store.labels, minlength=len(store.classes)) == 0)
        if len(empty):
            names = ", ".join(f"{i} ({store.classes[i]})" for i in empty[:5])
            yield Finding("note", label, f"{len(empty)} classes have no image: {names}")


def _counted(opened: dict[str, Store], domain: Domain, label: str, size: int) -> Iterator[Finding]:
    """Held against the published counts, or those of a customary subset."""
    for key, published in domain.counts.items():
        if not set(key.split("+")) <= set(opened):
            continue
        parts = [opened[split] for split in key.split("+")]
        total, expected, where = sum(map(len, parts)), int(np.sum(published)), f"{label}/{key}-{size}"
        found: int | tuple[int, ...] = total
        if isinstance(published, tuple):
            labels = np.concatenate([part.labels for part in parts if part.labels is not None])
            found = tuple(np.bincount(labels, minlength=len(published)).tolist())
        if total != expected and domain.subset.get(key) == total:
            yield Finding("note", where, f"the customary subset of {total:,} of the {expected:,} published images")
        elif total != expected:
            yield Finding("error", where, f"{total:,} images, but {expected:,} were published")
        elif found != published:
            yield Finding("error", where, f"images per class are {found}, not {published}")
        else:
            yield Finding("ok", where, f"{total:,} images, as published{' in each class' * (found != total)}")


def _shared(train: Store, test: Store, label: str) -> Finding:
    """Test images that are, pixel for pixel, also in the training set."""
    first: dict[bytes, int] = {}
    for i, value in enumerate(_hashes(train)):
        first.setdefault(value, i)
    twins = [(first[value], i) for i, value in enumerate(_hashes(test)) if value in first]
    if not twins:
        return Finding("ok", label, "no image is in the training set too")
    text = f"{len(twins)} images are in the training set too (first: train {twins[0][0]} = test {twins[0][1]})"
    return Finding("error" if len(twins) > COMMON * len(test) else "note", label, text)


def _hashes(store: Store) -> Iterator[bytes]:
    return (hashlib.blake2b(image.tobytes(), digest_size=16).digest() for image in store.images)
