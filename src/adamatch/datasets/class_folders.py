"""Images in one folder per class, in an archive or on the disk; a split of our own where none is published."""

from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path

import numpy as np

from adamatch.datasets.archive import is_image, members
from adamatch.datasets.source import Split, from_names


@cache
def image_names(archive: Path) -> tuple[str, ...]:
    """Every image in a zip, a tar or a folder."""
    return tuple(member.name for member in members(archive) if is_image(member.name))


def by_class(archive: Path, domain: str, classes: Sequence[str] = ()) -> dict[str, list[str]]:
    """{class: names} of the images in `.../domain/class/` or `.../domain/images/class/`; of these classes, if any."""
    found: dict[str, list[str]] = {}
    for name in image_names(archive):
        first, second, label, _ = ("", "", "", *name.split("/"))[-4:]
        is_class = label in classes if classes else label != "images"
        if is_class and domain in ((first, second) if second == "images" else (second,)):
            found.setdefault(label, []).append(name)
    return dict(sorted(found.items()))


def fixed_split(names: Mapping[str, Sequence[str]], salt: str) -> dict[str, list[str]]:
    """{class: its images} -> {"train": 80%, "test": 20%}, by class, the same everywhere and for every library version.

    The images of a class are sorted; the fifth whose positions have the smallest SHA-256 (salted) is the test set.
    """
    parts: dict[str, list[str]] = {"train": [], "test": []}
    for label, images in names.items():
        hashes = [sha256(f"{salt}/{label}/{i}".encode(errors="surrogateescape")).digest() for i in range(len(images))]
        test = set(sorted(range(len(images)), key=hashes.__getitem__)[: round(len(images) * 0.2)])
        for i, name in enumerate(sorted(images)):
            parts["test" if i in test else "train"].append(name)
    return parts


def labelled(
    archive: Path, images: Mapping[str, Sequence[str]], names: Sequence[str], classes: tuple[str, ...]
) -> Split:
    """The split of the images called `names`, each of the class whose folder it lies in."""
    label = {name: classes.index(folder) for folder, members in images.items() for name in members}
    return from_names(archive, names, np.array([label[name] for name in names], np.int64), classes)
