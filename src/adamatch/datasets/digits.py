"""DigitFive as published: MNIST, USPS, MNIST-M, SVHN and Synthetic Digits, each in the files that people have.

The paper's rules: MNIST is padded by 2, USPS goes from 16 to 32 (bicubic), grey becomes RGB.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import cache, partial
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from adamatch.base.errors import InputError, unknown
from adamatch.base.regular_files import open_file
from adamatch.datasets import matfile, numeric
from adamatch.datasets.archive import members, open_member
from adamatch.datasets.source import (
    Found,
    Payload,
    Split,
    Splits,
    Wanted,
    check_labels,
    from_arrays,
    from_names,
    parse_list,
)
from adamatch.images.store import Labels

CLASSES = tuple("0123456789")
BLOCK = 1024  # images of a .mat file that are in memory at a time


def read(found: Found, domain: str) -> Splits:
    """The splits of one of the five domains; plain arrays `<domain>/{train,test}.npz` serve too."""
    readers = {"mnist": mnist, "usps": usps, "mnistm": mnist_m, "svhn": svhn, "syn": synthetic_digits}
    if domain not in readers:
        raise unknown("digit domain", domain, readers)
    return readers[domain](found) or _plain_arrays(found, domain)


def mnist(found: Found) -> Splits:
    splits: Splits = {}
    for split, stem in (("train", "train"), ("test", "t10k")):
        images, labels = (
            found.file(*(f"{stem}-{what}{dot}idx{n}-ubyte{gz}" for gz in (".gz", "") for dot in "-."), near=("mnist",))
            for what, n in (("images", 3), ("labels", 1))
        )
        if images and labels:
            splits[split] = partial(_mnist, images, labels)
    return splits


def _mnist(images: Path, labels: Path) -> Split:
    pixels = np.pad(_of_mnist(numeric.idx(images, 3), images), ((0, 0), (2, 2), (2, 2)))
    return from_arrays(pixels, check_labels(numeric.idx(labels, 1), 10, str(labels)), CLASSES, (images, labels))


def _of_mnist(images: NDArray[np.uint8], path: Path) -> NDArray[np.uint8]:
    if images.shape[1:3] != (28, 28):
        raise InputError(f"{path} has images of {images.shape[1:3]}, and MNIST's are of (28, 28): fetch it again")
    return images


def usps(found: Found) -> Splits:
    """usps.h5 (values 0 to 1), or zip.train.gz and zip.test.gz, or usps.bz2 and usps.t.bz2 (both -1 to 1)."""
    if whole := found.file("usps.h5"):
        return {split: partial(_usps_h5, whole, split) for split in ("train", "test")}
    tables = {"train": found.file("zip.train.gz", "usps.bz2"), "test": found.file("zip.test.gz", "usps.t.bz2")}
    return {split: partial(_usps_table, path) for split, path in tables.items() if path}


def _usps_h5(path: Path, split: str) -> Split:
    data, target = numeric.h5(path, f"{split}/data", f"{split}/target")
    if data.ndim != 2 or data.shape[1] != 256:
        raise InputError(f"{path}: {split}/data has the shape {data.shape}, not (n, 256): fetch it again")
    return _grey(data.astype(np.float64), check_labels(target, 10, str(path)), path)


def _usps_table(path: Path) -> Split:
    table = numeric.table(path, 257)
    one = path.suffix == ".bz2"  # libsvm's copy counts its labels from 1
    return _grey((table[:, 1:] + 1) / 2, check_labels(table[:, 0] - one, 10, str(path)), path)


def _grey(values: NDArray[np.float64], labels: Labels, path: Path) -> Split:
    """values: (n, 256), 0 to 1."""
    if not values.size:
        raise InputError(f"{path} holds no images: fetch it again")
    if not (values.min() >= -1e-6 and values.max() <= 1 + 1e-6):
        raise InputError(
            f"{path} has values from {values.min():g} to {values.max():g}, out of their range: fetch it again"
        )
    pixels = np.rint(values.clip(0, 1) * 255).astype(np.uint8).reshape(-1, 16, 16)
    return from_arrays(pixels, labels, CLASSES, (path,))


def mnist_m(found: Found) -> Splits:
    """mnist_m.tar.gz, or the folder that it unpacks to."""
    archive = found.file("mnist_m.tar.gz")
    if archive:
        return {split: partial(_mnist_m, archive, split) for split in ("train", "test")}
    lists = {split: found.file(f"mnist_m_{split}_labels.txt") for split in ("train", "test")}
    return {split: partial(_mnist_m, path.parent, split) for split, path in lists.items() if path}


def _mnist_m(archive: Path, split: str) -> Split:
    name = f"mnist_m_{split}_labels.txt"
    place, text = next(((at, text) for at, text in _lists(archive).items() if at.endswith(name)), ("", b""))
    if not place:
        raise InputError(f"{archive} has no {name}: fetch it again")
    names, labels = parse_list(text, f"{archive}: {place}")
    folder = place.removesuffix("_labels.txt")
    return from_names(archive, [f"{folder}/{n}" for n in names], check_labels(np.array(labels), 10, place), CLASSES)


@cache
def _lists(archive: Path) -> dict[str, bytes]:
    return {member.name: member.read() for member in members(archive) if member.name.endswith("_labels.txt")}


def svhn(found: Found) -> Splits:
    """{train,test,extra}_32x32.mat; label 10 means 0."""
    paths = {split: found.file(f"{split}_32x32.mat", near=("svhn",)) for split in ("train", "test", "extra")}
    return {split: partial(_mat, path, partial(_open, path)) for split, path in paths.items() if path}


def synthetic_digits(found: Found) -> Splits:
    """synth_{train,test}_32x32.mat, or SynthDigits.zip with both."""
    splits: Splits = {}
    for name, split in (("synth_train_32x32.mat", "train"), ("synth_test_32x32.mat", "test")):
        if path := found.file(name):
            splits[split] = partial(_mat, path, partial(_open, path))
        elif path := found.file("SynthDigits.zip"):
            splits[split] = partial(_mat, path, partial(open_member, path, name))
    return splits


def _open(path: Path) -> IO[bytes]:
    return open_file(path, None)


def _mat(path: Path, start: Callable[[], AbstractContextManager[IO[bytes]]]) -> Split:
    """X (32, 32, 3, n) uint8 and y (n, 1), 10 meaning 0. X is read in blocks: SVHN's extra part has 1.6 GB."""
    with start() as file:
        heads = {}
        for variable in matfile.variables(file, str(path)):
            heads[variable.name] = (variable.shape, variable.kind, variable.whole() if variable.name == "y" else None)
    shape, kind, _ = heads.get("X", ((), "", None))
    labels = heads.get("y", ((), "", None))[2]
    if labels is None or shape != (32, 32, 3, labels.size) or kind != "u1":
        raise InputError(f"{path} does not hold X (32, 32, 3, n) of bytes and y (n, 1): fetch it again")
    count = labels.size

    def each(wanted: Wanted) -> Iterator[tuple[int, Payload]]:
        with start() as file:
            x = next(variable for variable in matfile.variables(file, str(path)) if variable.name == "X")
            for first in range(0, count, BLOCK):
                n = min(BLOCK, count - first)
                block = x.take(n * 32 * 32 * 3).reshape((32, 32, 3, n), order="F").transpose(3, 0, 1, 2)
                for i in np.flatnonzero(wanted[first : first + n]):
                    yield first + int(i), block[i]

    return Split(count, check_labels(labels, 11, str(path)) % 10, CLASSES, each, (path,))


def _plain_arrays(found: Found, domain: str) -> Splits:
    """images (n, h, w) or (n, h, w, 3) uint8 and labels (n,), in `<domain>/train.npz` and `<domain>/test.npz`."""
    splits: Splits = {}
    for split in ("train", "test"):
        for path in found.files.get(f"{split}.npz", []):
            if path.parent.name.replace("_", "") == domain:
                splits[split] = partial(_npz, path, pad=2 * (domain == "mnist"))
    return splits


def _npz(path: Path, pad: int) -> Split:
    images, labels = numeric.npz(path, "images", "labels")
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or images.shape[3:] not in ((), (3,)) or not images.size:
        raise InputError(f"{path}: images is {images.shape} of {images.dtype}, not (n, h, w) or (n, h, w, 3) of uint8")
    images = _of_mnist(images, path) if pad else images
    pixels = np.pad(images, ((0, 0), (pad, pad), (pad, pad), (0, 0))[: images.ndim]).astype(np.uint8)
    return from_arrays(pixels, check_labels(labels, 10, str(path)), CLASSES, (path,))
