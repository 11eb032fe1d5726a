"""Is a prepared set what was published? Checksums, unreadable images, and the number of images, in each class if known.

A finding is its level, the store, and a text. "error": the store is not what it should be; "note": worth knowing.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from adamatch.base.errors import InputError
from adamatch.datasets.catalog import SETS, stores
from adamatch.datasets.source import Domain
from adamatch.images.store import Store

Finding = tuple[str, str, str]


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
                store = opened[split] = Store.open(path, whole=True)
            except InputError as error:
                yield "error", label, str(error)
                continue
            yield "ok", label, f"{len(store):,} images of {size} x {size}; checksums hold"
            if skipped := store.info.get("skipped"):
                yield "error", label, f"{len(skipped)} images could not be read and are left out (first: {skipped[0]})"
        if name in SETS and domain in SETS[name].domains:
            yield from _counted(opened, SETS[name].domains[domain], f"{name}/{domain}", size)


def _counted(opened: dict[str, Store], domain: Domain, label: str, size: int) -> Iterator[Finding]:
    """Compared with the published counts, or those of a customary subset."""
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
            yield "note", where, f"the customary subset of {total:,} of the {expected:,} published images"
        elif total != expected:
            yield "error", where, f"{total:,} images, but {expected:,} were published"
        elif found != published:
            yield "error", where, f"images per class are {found}, not {published}"
        else:
            yield "ok", where, f"{total:,} images, as published{' in each class' * (found != total)}"
