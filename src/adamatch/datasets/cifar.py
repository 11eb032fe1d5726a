"""CIFAR-10 and CIFAR-100 (its 100 fine labels): the binary archives, packed or unpacked."""

from functools import partial
from pathlib import Path

import numpy as np

from adamatch.base.errors import InputError
from adamatch.datasets.archive import members
from adamatch.datasets.source import DataSet, Domain, Found, Split, Splits, files_at, from_arrays

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
FOLDERS = {"cifar10": "cifar-10-batches-bin", "cifar100": "cifar-100-binary"}  # what the archives unpack to
PARTS: dict[str, dict[str, tuple[str, ...]]] = {
    "cifar10": {"train": tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test": ("test_batch.bin",)},
    "cifar100": {"train": ("train.bin",), "test": ("test.bin",)},
}
PIXELS = 3 * 32 * 32
PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"


def read(found: Found, domain: str) -> Splits:
    """domain: cifar10 or cifar100."""
    stem = domain.replace("cifar", "cifar-")
    if place := found.file(f"{stem}-binary.tar.gz") or found.folder(FOLDERS[domain]):
        return {split: partial(_split, place, domain, split) for split in PARTS[domain]}
    if others := [name for name in (*found.files, *found.folders) if name.startswith(f"{stem}-")]:
        raise InputError(f"{others[0]} is not {stem}-binary.tar.gz: use `adamatch data download {domain}`")
    return {}


def _split(place: Path, domain: str, split: str) -> Split:
    """Each image after its label, of which CIFAR-100 has two: the coarse one, then the fine one."""
    head, wanted, parts = 1 if domain == "cifar10" else 2, PARTS[domain][split], {}
    for member in members(place):
        if (name := member.name.rpartition("/")[2]) in wanted:
            data = member.read()
            if len(data) % (head + PIXELS):
                raise InputError(f"{member.where} ends within an image: fetch it again")
            parts[name] = np.frombuffer(data, np.uint8).reshape(-1, head + PIXELS)
    if missing := [name for name in wanted if name not in parts]:
        raise InputError(f"{place} has no {missing[0]}: fetch it again")
    rows = np.concatenate([parts[name] for name in wanted])
    images = rows[:, head:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return from_arrays(images, rows[:, head - 1], CLASSES[domain], place)


def _set(name: str, size: int, md5: str, train: int, test: int) -> DataSet:
    """One of the two; its images in each class."""
    hosts = ("https://www.cs.toronto.edu/~kriz", "http://www.cs.toronto.edu/~kriz")
    classes = len(CLASSES[name])
    counts = {"train": (train,) * classes, "test": (test,) * classes}
    files = files_at(hosts, (name.replace("cifar", "cifar-") + "-binary.tar.gz", size, md5))
    return DataSet({name: Domain(files, counts, f"{PAGE} (the binary archive)")}, read, (32,), {name: 32})


CIFAR_10 = _set("cifar10", 170052171, "c32a1d4ab5d03f1284b67883e8d87530", 5000, 1000)
CIFAR_100 = _set("cifar100", 168513733, "03b5dce01913d631647c71ecec9e9cb8", 500, 100)
