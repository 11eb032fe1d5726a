"""Office-31 and PACS: images in one folder per class, in an archive or on the disk.

Neither has one published split, so a fifth of each class, always the same, is the test set.
"""

from collections.abc import Mapping, Sequence
from functools import cache, partial
from hashlib import sha256
from pathlib import Path

from adamatch.base.errors import InputError
from adamatch.datasets.archive import is_image, members
from adamatch.datasets.source import DataSet, Domain, File, Found, Split, Splits, from_names

OFFICE_ARCHIVES = ("domain_adaptation_images.tar.gz", "office31.tar.gz", "domain_adaptation_images.tar", "office31.tar")
PACS_CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")


def office31(found: Found, domain: str) -> Splits:
    """`<domain>/images/<class>/*.jpg`."""
    folder = found.folder(domain, having="images/bike") or found.folder(domain, having="bike")
    return splits(found.file(*OFFICE_ARCHIVES) or (folder and folder.parent), "office31", domain)


def pacs(found: Found, domain: str) -> Splits:
    """`<domain>/<class>/*.jpg` or `.png`."""
    folder = found.folder(domain, having=PACS_CLASSES[0])
    return splits(found.file("PACS.zip", "pacs.zip") or (folder and folder.parent), "pacs", domain, PACS_CLASSES)


def splits(place: Path | None, name: str, domain: str, classes: tuple[str, ...] = ()) -> Splits:
    """The splits of a set in this archive or folder, if there is one; `classes` empty: one for each folder."""
    return {each: partial(_split, place, name, domain, each, classes) for each in ("train", "test")} if place else {}


def _split(place: Path, name: str, domain: str, split: str, classes: tuple[str, ...]) -> Split:
    """The images of the fixed split; without `classes`, each folder is one."""
    images = by_class(place, domain, classes)
    if not images:
        raise InputError(f"{place} has no images in {domain}/<class>/: fetch it again")
    label = {name: number for number, each in enumerate(classes or images) for name in images.get(each, ())}
    names = fixed_split(images, f"{name}/{domain}")[split]
    return from_names(place, names, [label[each] for each in names], classes or tuple(images))


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


_SIZES = (64, 32, 128, 224)
_SOURCE = "https://cornell.box.com/shared/static/3v2ftdkdhpz1lbbr4uhu0135w7m79p7q"
_FILE = File("office31.tar.gz", (_SOURCE,), checksum="89818e596f3cdda1d56da0f077435faa")
_PAGE = "https://faculty.cc.gatech.edu/~judy/domainadapt/ (domain_adaptation_images.tar.gz)"
_COUNTS = {"amazon": 2817, "dslr": 498, "webcam": 795}
OFFICE_31 = DataSet(
    {domain: Domain((_FILE,), {"train+test": count}, _PAGE) for domain, count in _COUNTS.items()},
    office31,
    _SIZES,
    {"office31-64": 64, "office31-224": 224},
)
_PACS_PAGE = "https://domaingeneralization.github.io/#data (PACS.zip, or its folders <domain>/<class>/*.jpg)"
_PACS_COUNTS = {
    "art_painting": (379, 255, 285, 184, 201, 295, 449),
    "cartoon": (389, 457, 346, 135, 324, 288, 405),
    "photo": (189, 202, 182, 186, 199, 280, 432),
    "sketch": (772, 740, 753, 608, 816, 80, 160),
}
PACS = DataSet(
    {
        domain: Domain((File("PACS.zip"),), {"train+test": counts}, _PACS_PAGE)
        for domain, counts in _PACS_COUNTS.items()
    },
    pacs,
    _SIZES,
    {"pacs64": 64},
)
