"""PACS: `<domain>/<class>/*.jpg` or `.png`, in PACS.zip or in the folders that it unpacks to.

Where the published lists `<domain>_train_kfold.txt` and `<domain>_crossval_kfold.txt` lie beside it, they are the training and
the test set (the published test list is no test set in our sense: it holds the training images too). Where they do not, a fifth
of each class, always the same (`source.fixed_split`), is the test set.
"""

from functools import partial
from pathlib import Path

from adamatch.base.errors import InputError
from adamatch.base.regular_files import read_file
from adamatch.datasets.office31 import class_folders
from adamatch.datasets.source import Found, Split, Splits, by_class, fixed_split, parse_list

CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")


def read(found: Found, domain: str) -> Splits:
    place = found.file("PACS.zip", "pacs.zip")
    if place is None:
        folders = [folder for folder in found.folders.get(domain, []) if (folder / CLASSES[0]).is_dir()]
        place = folders[0].parent if folders else None
    lists = {
        "train": found.file(f"{domain}_train_kfold.txt"),
        "test": found.file(f"{domain}_crossval_kfold.txt", f"{domain}_val_kfold.txt"),
    }
    chosen = lists if all(lists.values()) else dict.fromkeys(lists)
    return {split: partial(_split, place, domain, split, path) for split, path in chosen.items()} if place else {}


def _split(place: Path, domain: str, split: str, listing: Path | None) -> Split:
    images = by_class(place, domain, CLASSES)
    if not images:
        raise InputError(f"{place} has no images in {domain}/<class>/ (dog, elephant, ...): fetch it again")
    if listing is None:
        return class_folders(place, images, CLASSES, fixed_split(images, f"pacs/{domain}")[split])
    member = {"/".join(name.split("/")[-3:]): name for names in images.values() for name in names}
    names, _ = parse_list(read_file(listing), str(listing))
    for name in names:
        if name not in member:
            raise InputError(f"{listing} names {name}, which {place} does not have: fetch it again")
    return class_folders(place, images, CLASSES, [member[name] for name in names])
