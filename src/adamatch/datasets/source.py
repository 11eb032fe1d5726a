"""What a published data set is: its facts, and the splits that its reader finds among the files in a folder."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adamatch.base.errors import InputError
from adamatch.datasets.archive import Encoded, contents
from adamatch.images.listing import walk
from adamatch.images.store import Labels, Pixels

# Images per split: their number, or the number in each class. "train+test": the split is ours, the sum is published.
Counts = Mapping[str, int | tuple[int, ...]]
# An encoded image (its bytes, or the file that holds them), or pixels (h, w) or (h, w, 3).
Payload = Encoded | Path | Pixels
Numbers = NDArray[Any] | Sequence[int]


@dataclass(frozen=True)
class File:
    """`checksum`: the published SHA-256 or MD5, "" where there is none. No sources: to be downloaded by hand."""

    name: str
    sources: tuple[str, ...] = ()
    size: int | None = None
    checksum: str = ""


def files_at(hosts: Sequence[str], *facts: tuple[str, int | None, str]) -> tuple[File, ...]:
    """Files that each of these hosts has; facts: name, size in bytes, checksum."""
    return tuple(File(name, tuple(f"{host}/{name}" for host in hosts), size, known) for name, size, known in facts)


@dataclass(frozen=True)
class Domain:
    """`files`: what `download` fetches; `page`: where a person gets them; `subset`: the counts of a customary part."""

    files: tuple[File, ...]
    counts: Counts
    page: str
    licence: str = "not stated"
    subset: Counts = field(default_factory=dict)


@dataclass(frozen=True)
class Split:
    """One split of one domain, as found: `images()` yields (row, image), each row once, in any order."""

    count: int
    labels: Labels | None
    classes: tuple[str, ...]
    images: Callable[[], Iterator[tuple[int, Payload]]]
    files: tuple[Path, ...]


# What a reader returns: the splits whose files are there, each opened only when it is asked for.
Splits = dict[str, Callable[[], Split]]


class Found:
    """The files and folders below a folder, by name."""

    def __init__(self, folder: str | Path) -> None:
        self.top = Path(folder)
        if not self.top.is_dir():
            raise InputError(f"{self.top} is not a folder: name the one that holds the archives")
        self.files: dict[str, list[Path]] = {}
        self.folders: dict[str, list[Path]] = {}
        for here, folders, files in walk(self.top):
            for names, found in ((folders, self.folders), (files, self.files)):
                for name in names:
                    found.setdefault(name, []).append(here / name)

    def file(self, *names: str, near: str = "") -> Path | None:
        """The one file with the first of these names that exists; `near`: a folder that decides between several."""
        for name in names:
            places = self.files.get(name, [])
            if len(places) > 1 and near:
                places = [path for path in places if near in map(str.lower, path.parts)] or places
            if len(places) > 1:
                raise InputError(
                    f"{places[0]} and {places[1]} have the same name: point --from at a folder with one of them"
                )
            if places:
                return places[0]
        return None

    def folder(self, *names: str, having: str = "") -> Path | None:
        """The first folder with one of these names, in which there is `having`."""
        places = (path for name in names for path in self.folders.get(name, []))
        return next((path for path in places if (path / having).exists()), None)


@dataclass(frozen=True)
class DataSet:
    """`read(found, domain)`: what is there of a domain. `sizes`: sides of images in use, the usual one first."""

    domains: Mapping[str, Domain]
    read: Callable[[Found, str], Splits]
    sizes: tuple[int, ...]
    benchmarks: Mapping[str, int]  # {name of a benchmark: side of its images}
    unlabelled: str = ""  # a split of further images, which SSL takes as unlabelled ones beside those of "train"


def check_labels(labels: Numbers, classes: int, where: str) -> Labels:
    """Labels as int64 (n,), or an error where one names no class."""
    flat = np.asarray(labels).reshape(-1)
    if flat.dtype.kind not in "biuf" or not np.isin(flat, np.arange(classes)).all():
        raise InputError(f"{where} has labels that are not whole numbers from 0 to {classes - 1}: fetch it again")
    return flat.astype(np.int64)


def from_arrays(images: Pixels, labels: Numbers | None, classes: tuple[str, ...], *files: Path) -> Split:
    """A split whose pixels (n, h, w) or (n, h, w, 3) are in memory, out of these files; the last one has the labels."""
    checked = None if labels is None else check_labels(labels, len(classes), str(files[-1]))
    if checked is not None and len(checked) != len(images):
        raise InputError(f"{files[0]} has {len(images)} images and {len(checked)} labels: fetch it again")
    return Split(len(images), checked, classes, lambda: enumerate(images), files)


def from_names(archive: Path, names: Sequence[str], labels: Numbers, classes: tuple[str, ...], *lists: Path) -> Split:
    """A split whose images are these members of a zip, a tar or a folder, in this order; their labels are of a list."""
    files, rows = (archive, *lists), {name: row for row, name in enumerate(names)}
    checked = check_labels(labels, len(classes), str(files[-1]))
    return Split(len(names), checked, classes, lambda: contents(archive, rows), files)


def parse_list(text: bytes, where: str) -> tuple[list[str], list[int]]:
    """Lines of `name label`, as most published sets list their splits."""
    names, labels = [], []
    try:
        lines = text.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{where} is no text in UTF-8 ({error}): fetch it again") from None
    for number, line in enumerate(map(str.strip, lines), 1):
        name, _, label = line.rpartition(" ")
        if line and not (name and label.isdecimal() and len(label) <= 5):
            raise InputError(f"{where}, line {number}: {line[:80]!r} is not a name and a label: fetch it again")
        if line:
            names.append(name.strip())
            labels.append(int(label))
    return names, labels
