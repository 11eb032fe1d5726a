"""What a reader of a published format hands to `prepare`: labels that are known at once, images that come one by one."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adamatch.base.errors import InputError
from adamatch.datasets.archive import Encoded, contents, is_image, members
from adamatch.images.store import Labels, Pixels

# An encoded image (its bytes, or the file that holds them), pixels (h, w) or (h, w, 3), or something that makes such pixels.
Payload = Encoded | Path | Pixels | Callable[[], Pixels]
Wanted = NDArray[np.bool_]
DIGITS = 5  # of the number of a class


@dataclass(frozen=True)
class Split:
    """One split of one domain, as found: `images(wanted)` yields (index, payload) in any order, where wanted[index]."""

    count: int
    labels: Labels | None
    classes: tuple[str, ...]
    images: Callable[[Wanted], Iterator[tuple[int, Payload]]]
    files: tuple[Path, ...]
    names: tuple[str, ...] = ()  # of its images, where they have some


# What a reader returns: the splits whose files are there, each opened only when it is asked for.
Splits = dict[str, Callable[[], Split]]


class Found:
    """The files below a folder, by name."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise InputError(f"{self.folder} is not a folder: name the one that holds the archives")
        self.files: dict[str, list[Path]] = {}
        self.folders: dict[str, list[Path]] = {}
        seen: set[str] = set()
        for here, folders, files in os.walk(self.folder, followlinks=True):
            real = os.path.realpath(here)
            if real in seen:  # a link that leads back
                folders.clear()
                continue
            seen.add(real)
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in folders:
                self.folders.setdefault(name, []).append(Path(here) / name)
            for name in sorted(files):
                self.files.setdefault(name, []).append(Path(here) / name)

    def file(self, *names: str, near: Sequence[str] = ()) -> Path | None:
        """The one file with the first of these names that exists; `near`: folders that decide between several."""
        for name in names:
            places = self.files.get(name, [])
            if len(places) > 1 and near:
                places = [p for p in places if set(near) & {part.lower() for part in p.parts}] or places
            if len(places) > 1:
                raise InputError(
                    f"{places[0]} and {places[1]} have the same name: point --from at a folder with one of them"
                )
            if places:
                return places[0]
        return None


def check_labels(labels: NDArray[np.generic], classes: int, where: str) -> Labels:
    """Labels as int64 (n,), or an error where one names no class."""
    given = np.asarray(labels).reshape(-1)
    if given.dtype.kind not in "biuf" or not np.isfinite(given).all() or (given != np.rint(given)).any():
        raise InputError(f"{where} has labels that are no numbers of classes: fetch it again")
    if given.dtype.kind == "f":
        given = given.clip(-1, classes)  # beyond them a cast is undefined
    flat: Labels = given.astype(np.int64)
    if flat.size and (flat.min() < 0 or flat.max() >= classes):
        raise InputError(f"{where} has labels {flat.min()} to {flat.max()} for {classes} classes: fetch it again")
    return flat


def from_arrays(images: Pixels, labels: Labels | None, classes: tuple[str, ...], files: Sequence[Path]) -> Split:
    """A split whose pixels (n, h, w) or (n, h, w, 3) are in memory."""
    if labels is not None and len(labels) != len(images):
        raise InputError(f"{files[0]} has {len(images)} images and {len(labels)} labels: fetch it again")

    def each(wanted: Wanted) -> Iterator[tuple[int, Payload]]:
        return ((int(i), images[i]) for i in np.flatnonzero(wanted))

    return Split(len(images), labels, classes, each, tuple(files))


def from_names(
    archive: Path, names: Sequence[str], labels: Labels | None, classes: tuple[str, ...], files: Sequence[Path] = ()
) -> Split:
    """A split whose images are these members of a zip, a tar or a folder, in this order."""

    def each(wanted: Wanted) -> Iterator[tuple[int, Payload]]:
        return contents(archive, {name: i for i, name in enumerate(names) if wanted[i]})

    return Split(len(names), labels, classes, each, (archive, *files), tuple(names))


def parse_list(text: bytes, where: str) -> tuple[list[str], list[int]]:
    """Lines of `name label`, as most published sets list their splits."""
    names, labels = [], []
    try:
        lines = text.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{where} is no text in UTF-8 ({error}): fetch it again") from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            name, _, label = line.strip().rpartition(" ")
            if not name or not label.isdecimal() or len(label) > DIGITS:
                raise InputError(
                    f"{where}, line {number}: {line.strip()[:80]!r} is not a name and a label: fetch it again"
                )
            names.append(name.strip())
            labels.append(int(label))
    return names, labels


@cache
def image_names(archive: Path) -> tuple[str, ...]:
    """Every image in a zip, a tar or a folder."""
    return tuple(member.name for member in members(archive) if is_image(member.name))


def by_class(archive: Path, domain: str, classes: Sequence[str] = ()) -> dict[str, list[str]]:
    """{class: names} of the images in `.../domain/class/` or `.../domain/images/class/`; of these classes where given."""
    found: dict[str, list[str]] = {}
    for name in image_names(archive):
        *above, label, _ = ("", "", *name.split("/"))[-4:]
        if (
            domain in (above if above[1:] == ["images"] else above[1:])
            and label in (classes or (label,))
            and label != "images"
        ):
            found.setdefault(label, []).append(name)
    return dict(sorted(found.items()))


def fixed_split(names: Mapping[str, Sequence[str]], salt: str) -> dict[str, list[str]]:
    """{class: its images} -> {"train": 80%, "test": 20%}, by class, the same on every machine and for every library version.

    The images of a class are sorted; the fifth whose positions have the smallest SHA-256 (salted) is the test set.
    """
    parts: dict[str, list[str]] = {"train": [], "test": []}
    for label, images in names.items():
        ordered = sorted(images)
        hashes = [sha256(f"{salt}/{label}/{i}".encode(errors="surrogateescape")).digest() for i in range(len(ordered))]
        test = set(sorted(range(len(ordered)), key=hashes.__getitem__)[: round(len(ordered) * 0.2)])
        for i, name in enumerate(ordered):
            parts["test" if i in test else "train"].append(name)
    return parts
