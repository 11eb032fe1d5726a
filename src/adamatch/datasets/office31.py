"""Office-31: `<domain>/images/<class>/*.jpg` in a tar, or in the folder that it unpacks to.

It has no published split, so a fifth of each class, always the same (`source.fixed_split`), is the test set.
"""

from functools import partial
from pathlib import Path

import numpy as np

from adamatch.base.errors import InputError
from adamatch.datasets.source import Found, Split, Splits, by_class, fixed_split, from_names

ARCHIVES = ("domain_adaptation_images.tar.gz", "office31.tar.gz", "domain_adaptation_images.tar", "office31.tar")


def read(found: Found, domain: str) -> Splits:
    place = found.file(*ARCHIVES)
    if place is None:
        folders = [
            f for f in found.folders.get(domain, []) if (f / "images" / "bike").is_dir() or (f / "bike").is_dir()
        ]
        place = folders[0].parent if folders else None
    return {split: partial(_split, place, domain, split) for split in ("train", "test")} if place else {}


def _split(place: Path, domain: str, split: str) -> Split:
    images = by_class(place, domain)
    if not images:
        raise InputError(f"{place} has no images in {domain}/images/<class>/: fetch it again")
    return class_folders(place, images, tuple(images), fixed_split(images, f"office31/{domain}")[split])


def class_folders(place: Path, images: dict[str, list[str]], classes: tuple[str, ...], names: list[str]) -> Split:
    """The images called `names`, each of the class whose folder it lies in."""
    label = {name: classes.index(folder) for folder, members in images.items() for name in members}
    return from_names(place, names, np.array([label[name] for name in names], np.int64), classes)
