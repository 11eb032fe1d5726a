"""PACS: `<domain>/<class>/*.jpg` or `.png`, in PACS.zip or in the folders that it unpacks to.

Where the published lists `<domain>_train_kfold.txt` and `<domain>_crossval_kfold.txt` lie beside it, they are the
training and the test set (the published test list holds the training images, too, and is not used). Where they do not,
a fifth of each class, always the same, is the test set.
"""

from functools import partial
from pathlib import Path

from adamatch.base.errors import InputError
from adamatch.base.regular_files import read_file
from adamatch.datasets.class_folders import by_class, fixed_split, labelled
from adamatch.datasets.source import DataSet, Domain, File, Found, Split, Splits, parse_list

CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")


def read(found: Found, domain: str) -> Splits:
    folder = found.folder(domain, having=CLASSES[0])
    place = found.file("PACS.zip", "pacs.zip") or (folder and folder.parent)
    train = found.file(f"{domain}_train_kfold.txt")
    test = found.file(f"{domain}_crossval_kfold.txt", f"{domain}_val_kfold.txt")
    lists = {"train": train, "test": test} if train and test else {"train": None, "test": None}
    return {split: partial(_split, place, domain, split, path) for split, path in lists.items()} if place else {}


def _split(place: Path, domain: str, split: str, listing: Path | None) -> Split:
    images = by_class(place, domain, CLASSES)
    if not images:
        raise InputError(f"{place} has no images in {domain}/<class>/ (dog, elephant, ...): fetch it again")
    if listing is None:
        return labelled(place, images, fixed_split(images, f"pacs/{domain}")[split], CLASSES)
    member = {"/".join(name.split("/")[-3:]): name for names in images.values() for name in names}
    names, _ = parse_list(read_file(listing), str(listing))
    for name in names:
        if name not in member:
            raise InputError(f"{listing} names {name}, which {place} does not have: fetch it again")
    return labelled(place, images, [member[name] for name in names], CLASSES)


_PAGE = "https://domaingeneralization.github.io/#data (PACS.zip, or its folders <domain>/<class>/*.jpg)"
_COUNTS = {
    "art_painting": (379, 255, 285, 184, 201, 295, 449),
    "cartoon": (389, 457, 346, 135, 324, 288, 405),
    "photo": (189, 202, 182, 186, 199, 280, 432),
    "sketch": (772, 740, 753, 608, 816, 80, 160),
}
PACS = DataSet(
    {domain: Domain((File("PACS.zip"),), {"train+test": counts}, _PAGE) for domain, counts in _COUNTS.items()},
    read,
    (64, 32, 128, 224),
    {"pacs64": 64},
)
