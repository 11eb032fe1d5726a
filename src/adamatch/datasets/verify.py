"""Is a prepared set what was published? Counts, checksums, what could not be read, duplicates, and a picture to look at."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from adamatch.base.errors import InputError
from adamatch.base.files import checksum
from adamatch.datasets import catalog
from adamatch.datasets.catalog import Counts
from adamatch.images.store import Store

BLOCK = 512  # images in memory at a time
COMMON = 0.01  # the part of a test set that may also be in the training set; published sets do share some images


@dataclass(frozen=True)
class Finding:
    """`error`: the store is not what it should be; `note`: worth knowing."""

    level: Literal["ok", "note", "error"]
    store: str
    text: str


def stores(root: Path, name: str) -> dict[tuple[str, int], dict[str, Path]]:
    """Prepared stores of a set: {(domain, size): {split: path}}."""
    found: dict[tuple[str, int], dict[str, Path]] = {}
    for head in sorted((root / name).glob("*/*/store.json")):
        split, _, size = head.parent.name.rpartition("-")
        if split and size.isdigit():
            found.setdefault((head.parent.parent.name, int(size)), {})[split] = head.parent
    return found


def verify(root: Path, name: str) -> Iterator[Finding]:
    """Everything that can be said of the prepared stores of a set, one finding after the other."""
    prepared = stores(root, name)
    if not prepared:
        raise InputError(
            f"{root / name} holds no prepared store: make one with `adamatch data prepare {name} --from DIR`"
        )
    known = catalog.SETS[name].domains if name in catalog.SETS else {}
    for (domain, size), splits in prepared.items():
        opened: dict[str, Store] = {}
        for split, path in splits.items():
            label = f"{name}/{domain}/{split}-{size}"
            store, findings = _sound(path, label)
            yield from findings
            if store is not None:
                opened[split] = store
                yield from _skipped(store, label)
        if domain in known:
            yield from _counted(opened, known[domain].counts, known[domain].subset, f"{name}/{domain}", size)
        if {"train", "test"} <= set(opened):
            yield _shared(opened["train"], opened["test"], f"{name}/{domain}")


def _sound(path: Path, label: str) -> tuple[Store | None, list[Finding]]:
    """Does it open, do its checksums hold, do its parts fit each other?"""
    try:
        store = Store.open(path)
        sums = json.loads((path / "store.json").read_text())["sha256"]
    except (InputError, KeyError) as error:
        return None, [Finding("error", label, f"{error}")]
    wrong = [name for name, known in sums.items() if not (path / name).is_file() or checksum(path / name) != known]
    if wrong:
        return None, [
            Finding("error", label, f"{wrong[0]} was changed since it was written: delete {path} and prepare it again")
        ]
    n, labels = len(store), store.labels
    if store.images.dtype != np.uint8 or store.images.shape != (n, store.size, store.size, 3):
        return None, [Finding("error", label, f"images are {store.images.shape} of {store.images.dtype}")]
    if labels is not None and (len(labels) != n or (n and not 0 <= labels.min() <= labels.max() < len(store.classes))):
        return None, [Finding("error", label, "labels do not fit images and classes")]
    return store, [Finding("ok", label, f"{n:,} images of {store.size} x {store.size}; checksums hold")]


def _skipped(store: Store, label: str) -> Iterator[Finding]:
    if skipped := store.info.get("skipped"):
        yield Finding("error", label, f"{len(skipped)} images could not be read and are left out (first: {skipped[0]})")
    if store.labels is not None:
        empty = np.flatnonzero(np.bincount(store.labels, minlength=len(store.classes)) == 0)
        if len(empty):
            names = ", ".join(f"{i} ({store.classes[i]})" for i in empty[:5])
            yield Finding("note", label, f"{len(empty)} classes have no image: {names}")


def _counted(opened: dict[str, Store], counts: Counts, subset: Counts, label: str, size: int) -> Iterator[Finding]:
    """Held against the published counts, or those of a customary subset."""
    for key, published in counts.items():
        parts = [opened[split] for split in key.split("+") if split in opened]
        if len(parts) < len(key.split("+")):
            continue
        total = sum(len(part) for part in parts)
        expected = published if isinstance(published, int) else sum(published)
        where = f"{label}/{key}-{size}"
        if total != expected:
            if subset.get(key) == total:
                yield Finding("note", where, f"the customary subset of {total:,} of the {expected:,} published images")
            else:
                yield Finding("error", where, f"{total:,} images, but {expected:,} were published")
            continue
        if isinstance(published, int):
            yield Finding("ok", where, f"{total:,} images, as published")
            continue
        each = sum(np.bincount(part.labels, minlength=len(published)) for part in parts if part.labels is not None)
        if tuple(np.atleast_1d(each)) == published:
            yield Finding("ok", where, f"{total:,} images, as published in each of {len(published)} classes")
        else:
            yield Finding("error", where, f"images per class are {np.atleast_1d(each).tolist()}, not {list(published)}")


def hashes(store: Store) -> list[bytes]:
    """A hash of each image's pixels."""
    return [
        hashlib.blake2b(image.tobytes(), digest_size=16).digest()
        for start in range(0, len(store), BLOCK)
        for image in np.asarray(store.images[start : start + BLOCK])
    ]


def _shared(train: Store, test: Store, label: str) -> Finding:
    """Test images that are, pixel for pixel, also in the training set."""
    first: dict[bytes, int] = {}
    for i, value in enumerate(hashes(train)):
        first.setdefault(value, i)
    twins = [(first[value], i) for i, value in enumerate(hashes(test)) if value in first]
    where = f"{label}/test-{test.size}"
    if not twins:
        return Finding("ok", where, "no image is in the training set too")
    text = f"{len(twins)} images are in the training set too (first: train {twins[0][0]} = test {twins[0][1]})"
    return Finding("error" if len(twins) > COMMON * len(test) else "note", where, text)


def picture(store: Store, per_class: int = 10, side: int = 48) -> Image.Image:
    """Samples of each class in rows under its name, drawn with a fixed seed; several columns where there are many classes."""
    rng = np.random.default_rng(0)
    side = max(side, min(store.size, 64))
    labels = store.labels if store.labels is not None else np.zeros(len(store), np.int64)
    names = store.classes if store.labels is not None else ("unlabelled",)
    per_class = per_class if len(names) <= 60 else 5
    columns = -(-len(names) // 30)
    rows = -(-len(names) // columns)
    line = 14
    sheet = Image.new("RGB", (columns * (per_class * (side + 2) + 10), rows * (side + line + 4)), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(11)
    for index, name in enumerate(names):
        left, top = index // rows * (per_class * (side + 2) + 10), index % rows * (side + line + 4)
        members = np.flatnonzero(labels == index)
        draw.text(
            (left + 2, top),
            f"{name if name == str(index) else f'{index} {name}'}  ({len(members):,})",
            fill="black",
            font=font,
        )
        for k, i in enumerate(sorted(rng.permutation(members)[:per_class])):
            image = Image.fromarray(np.asarray(store.images[i])).resize((side, side), Image.Resampling.NEAREST)
            sheet.paste(image, (left + k * (side + 2), top + line))
    return sheet
