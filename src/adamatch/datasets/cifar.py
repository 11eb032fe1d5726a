"""CIFAR-10 and CIFAR-100 (its 100 fine labels): the binary and the matlab archives, packed or unpacked."""

import io
from functools import partial
from pathlib import Path

import numpy as np

from adamatch.base.errors import InputError
from adamatch.datasets import numeric
from adamatch.datasets.archive import members
from adamatch.datasets.source import DataSet, Domain, Found, Split, Splits, check_labels, files_at, from_arrays
from adamatch.images.store import Labels, Pixels

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_FINE = (
    "apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can "
    "castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin "
    "elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster "
    "man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck "
    "pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk "
    "skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger "
    "tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm"
)
CLASSES = {"cifar10": CIFAR10, "cifar100": tuple(_FINE.split())}
FOLDERS = {"cifar10": "cifar-10-batches-{}", "cifar100": "cifar-100-{}"}  # what the archives unpack to
PARTS: dict[str, dict[str, tuple[str, ...]]] = {
    "cifar10": {"train": tuple(f"data_batch_{i}" for i in range(1, 6)), "test": ("test_batch",)},
    "cifar100": {"train": ("train",), "test": ("test",)},
}
PIXELS = 3 * 32 * 32
PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"


def read(found: Found, domain: str) -> Splits:
    """domain: cifar10 or cifar100."""
    stem = domain.replace("cifar", "cifar-")
    short = {"binary": "bin", "matlab": "mat", "python": "py"} if domain == "cifar10" else {}
    archive, matlab, pickled = (
        found.file(f"{stem}-{kind}.tar.gz") or found.folder(FOLDERS[domain].format(short.get(kind, kind)))
        for kind in ("binary", "matlab", "python")
    )
    if place := archive or matlab:
        return {split: partial(_split, place, domain, split) for split in ("train", "test")}
    if pickled:
        raise InputError(
            f"{pickled} holds Python pickles, which can run code: get {stem}-binary.tar.gz from {PAGE} instead "
            f"(`adamatch data download {domain}`)"
        )
    return {}


def _split(place: Path, domain: str, split: str) -> Split:
    parts: dict[str, tuple[Pixels, Labels]] = {}
    classes, wanted = CLASSES[domain], PARTS[domain][split]
    for member in members(place):
        stem, _, kind = member.name.rpartition("/")[2].partition(".")
        if stem in wanted and kind in ("bin", "mat"):
            data, labels = (_binary if kind == "bin" else _matlab)(member.read(), domain, member.where)
            if data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != PIXELS or labels.size != len(data):
                raise InputError(f"{member.where} does not hold images of {PIXELS} bytes and labels: fetch it again")
            parts[stem] = data, check_labels(labels, len(classes), member.where)
    for stem in wanted:
        if stem not in parts:
            raise InputError(f"{place} has no {stem}: fetch it again")
    images = np.concatenate([parts[stem][0] for stem in wanted])
    labels = np.concatenate([parts[stem][1] for stem in wanted])
    return from_arrays(images.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), labels, classes, (place,))


def _binary(data: bytes, domain: str, where: str) -> tuple[numeric.Array, numeric.Array]:
    """Each image after its label, of which CIFAR-100 has two: the coarse one, then the fine one."""
    head = 1 if domain == "cifar10" else 2
    if len(data) % (head + PIXELS):
        raise InputError(f"{where} has {len(data)} bytes, no multiple of {head + PIXELS}: fetch it again")
    rows = np.frombuffer(data, np.uint8).reshape(-1, head + PIXELS)
    return rows[:, head:], rows[:, head - 1]


def _matlab(data: bytes, domain: str, where: str) -> tuple[numeric.Array, numeric.Array]:
    images, labels = numeric.mat(io.BytesIO(data), ("data", "labels" if domain == "cifar10" else "fine_labels"), where)
    return images, labels


def _set(name: str, size: int, md5: str, train: int, test: int) -> DataSet:
    """One of the two; its images in each class."""
    hosts = ("https://www.cs.toronto.edu/~kriz", "http://www.cs.toronto.edu/~kriz")
    classes = len(CLASSES[name])
    counts = {"train": (train,) * classes, "test": (test,) * classes}
    files = files_at(hosts, (name.replace("cifar", "cifar-") + "-binary.tar.gz", size, md5))
    return DataSet({name: Domain(files, counts, f"{PAGE} (the binary or the matlab archive)")}, read, (32,), {name: 32})


CIFAR_10 = _set("cifar10", 170052171, "c32a1d4ab5d03f1284b67883e8d87530", 5000, 1000)
CIFAR_100 = _set("cifar100", 168513733, "03b5dce01913d631647c71ecec9e9cb8", 500, 100)
