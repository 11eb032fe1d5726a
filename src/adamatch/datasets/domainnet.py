"""DomainNet as published: a zip per domain, and two lists `<domain>_{train,test}.txt` of `domain/class/file label`."""

from functools import cache, partial
from pathlib import Path

import numpy as np

from adamatch.base.errors import InputError
from adamatch.base.regular_files import read_file
from adamatch.datasets.source import Found, Split, Splits, check_labels, from_names, parse_list

DOMAINS = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")


def read(found: Found, domain: str) -> Splits:
    """The splits whose lists are there; images from the zip, or from the folder that it unpacks to."""
    archive = found.file(f"{domain}.zip", near=("domainnet",))
    lists = {split: found.file(f"{domain}_{split}.txt") for split in ("train", "test")}
    return {split: partial(_split, found, domain, archive, path) for split, path in lists.items() if path}


def _split(found: Found, domain: str, archive: Path | None, listing: Path) -> Split:
    names, numbers = parse_list(read_file(listing), str(listing))
    if not names:
        raise InputError(f"{listing} is empty: fetch it again")
    place = archive or next((f.parent for f in found.folders.get(domain, []) if (f.parent / names[0]).is_file()), None)
    if place is None:
        raise InputError(f"{listing} is there, but neither {domain}.zip nor the folder {domain}: fetch {domain}.zip")
    classes = class_names(found)
    return from_names(place, names, check_labels(np.array(numbers), len(classes), str(listing)), classes, (listing,))


@cache
def class_names(found: Found) -> tuple[str, ...]:
    """Class names out of all the lists together: a single one may lack a class (painting_train and painting_test do)."""
    seen: dict[int, str] = {}
    for name in (f"{domain}_{split}.txt" for domain in DOMAINS for split in ("train", "test")):
        if listing := found.file(name):
            for image, label in zip(*parse_list(read_file(listing), str(listing)), strict=True):
                folder = image.split("/")[-2] if "/" in image else ""
                if seen.setdefault(label, folder) != folder:
                    raise InputError(
                        f"{listing}: class {label} is {folder!r} here and {seen[label]!r} elsewhere: fetch it again"
                    )
    return tuple(seen.get(label, f"class {label}") for label in range(max(seen, default=-1) + 1))
