"""Office-31: `<domain>/images/<class>/*.jpg` in a tar, or in the folder that it unpacks to.

It has no published split, so a fifth of each class, always the same, is the test set.
"""

from functools import partial
from pathlib import Path

from adamatch.base.errors import InputError
from adamatch.datasets.class_folders import by_class, fixed_split, labelled
from adamatch.datasets.source import DataSet, Domain, File, Found, Split, Splits

ARCHIVES = ("domain_adaptation_images.tar.gz", "office31.tar.gz", "domain_adaptation_images.tar", "office31.tar")


def read(found: Found, domain: str) -> Splits:
    folder = found.folder(domain, having="images/bike") or found.folder(domain, having="bike")
    place = found.file(*ARCHIVES) or (folder and folder.parent)
    return {split: partial(_split, place, domain, split) for split in ("train", "test")} if place else {}


def _split(place: Path, domain: str, split: str) -> Split:
    images = by_class(place, domain)
    if not images:
        raise InputError(f"{place} has no images in {domain}/images/<class>/: fetch it again")
    return labelled(place, images, fixed_split(images, f"office31/{domain}")[split], tuple(images))


_SOURCE = "https://cornell.box.com/shared/static/3v2ftdkdhpz1lbbr4uhu0135w7m79p7q"
_FILE = File("office31.tar.gz", (_SOURCE,), checksum="89818e596f3cdda1d56da0f077435faa")
_PAGE = "https://faculty.cc.gatech.edu/~judy/domainadapt/ (domain_adaptation_images.tar.gz)"
_COUNTS = {"amazon": 2817, "dslr": 498, "webcam": 795}
OFFICE_31 = DataSet(
    {domain: Domain((_FILE,), {"train+test": count}, _PAGE) for domain, count in _COUNTS.items()},
    read,
    (64, 32, 128, 224),
    {"office31-64": 64, "office31-224": 224},
)
