"""CIFAR-10 and CIFAR-100: the python and the matlab archives, packed or unpacked. CIFAR-100 with its 100 fine labels."""

import io
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adamatch.base.errors import InputError
from adamatch.datasets import matfile
from adamatch.datasets.archive import members
from adamatch.datasets.pickles import unpickle
from adamatch.datasets.source import Found, Split, Splits, check_labels, from_arrays
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
CIFAR100 = tuple(_FINE.split())
ARCHIVES = {
    "cifar10": ("cifar-10-python.tar.gz", "cifar-10-matlab.tar.gz", "cifar-10-batches-py", "cifar-10-batches-mat"),
    "cifar100": ("cifar-100-python.tar.gz", "cifar-100-matlab.tar.gz", "cifar-100-python", "cifar-100-matlab"),
}
PARTS: dict[str, dict[str, tuple[str, ...]]] = {
    "cifar10": {"train": tuple(f"data_batch_{i}" for i in range(1, 6)), "test": ("test_batch",)},
    "cifar100": {"train": ("train",), "test": ("test",)},
}


def read(found: Found, domain: str) -> Splits:
    """domain: cifar10 or cifar100."""
    packed, folders = ARCHIVES[domain][:2], ARCHIVES[domain][2:]
    place = found.file(*packed) or next((found.folders[name][0] for name in folders if name in found.folders), None)
    return {split: partial(_split, place, domain, split) for split in ("train", "test")} if place else {}


def _split(place: Path, domain: str, split: str) -> Split:
    key = "labels" if domain == "cifar10" else "fine_labels"
    classes = CIFAR10 if domain == "cifar10" else CIFAR100
    parts: dict[str, tuple[Pixels, Labels]] = {}
    for member in members(place):
        stem = member.name.rpartition("/")[2].removesuffix(".mat")
        if stem not in PARTS[domain][split]:
            continue
        if member.name.endswith(".mat"):
            data, labels = matfile.load(io.BytesIO(member.read()), ("data", key), member.where)
        else:
            batch = unpickle(member.read(), member.where)
            data, labels = _array(batch.get(b"data")), _array(batch.get(key.encode()))
        if data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != 3072 or labels.size != len(data):
            raise InputError(f"{member.where} does not hold data (n, 3072) of bytes and {key} (n,): fetch it again")
        parts[stem] = data, check_labels(labels, len(classes), member.where)
    for stem in PARTS[domain][split]:
        if stem not in parts:
            raise InputError(f"{place} has no {stem}: fetch it again")
    images = np.concatenate([parts[stem][0] for stem in PARTS[domain][split]])
    labels = np.concatenate([parts[stem][1] for stem in PARTS[domain][split]])
    return from_arrays(images.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), labels, classes, (place,))


def _array(value: Any) -> NDArray[Any]:
    """An array, or a list of small numbers as one; anything else comes out empty, and so fits nothing."""
    if isinstance(value, np.ndarray):
        return value
    numbers = isinstance(value, list) and all(type(each) is int and 0 <= each < 256 for each in value)
    return np.array(value if numbers else [], np.int64)
