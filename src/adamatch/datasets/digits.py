"""DigitFive as published: MNIST, USPS, MNIST-M, SVHN and Synthetic Digits, each in the files that people have.

The paper's rules: MNIST is padded by 2, USPS goes from 16 to 32 (bicubic), grey becomes RGB.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adamatch.base.errors import InputError
from adamatch.base.regular_files import open_file
from adamatch.datasets import numeric, source
from adamatch.datasets.archive import members, open_member

CLASSES = tuple("0123456789")


def read(found: source.Found, domain: str) -> source.Splits:
    readers = {"mnist": mnist, "usps": usps, "mnistm": mnist_m, "svhn": svhn, "syn": synthetic_digits}
    return readers[domain](found)


def mnist(found: source.Found) -> source.Splits:
    splits: source.Splits = {}
    for split, stem in (("train", "train"), ("test", "t10k")):
        images, labels = (
            found.file(*(f"{stem}-{what}{dot}idx{n}-ubyte{gz}" for gz in (".gz", "") for dot in "-."), near="mnist")
            for what, n in (("images", 3), ("labels", 1))
        )
        if images and labels:
            splits[split] = partial(_mnist, images, labels)
    return splits


def _mnist(images: Path, labels: Path) -> source.Split:
    pixels = numeric.idx(images, 3)
    if pixels.shape[1:] != (28, 28):
        raise InputError(f"{images} has images of {pixels.shape[1:]}, and MNIST's are of (28, 28): fetch it again")
    padded = np.pad(pixels, ((0, 0), (2, 2), (2, 2)))
    return source.from_arrays(padded, numeric.idx(labels, 1), CLASSES, images, labels)


def usps(found: source.Found) -> source.Splits:
    """usps.h5 (values 0 to 1), or zip.train.gz and zip.test.gz, or usps.bz2 and usps.t.bz2 (both -1 to 1)."""
    if whole := found.file("usps.h5"):
        return {split: partial(_usps_h5, whole, split) for split in ("train", "test")}
    tables = {"train": found.file("zip.train.gz", "usps.bz2"), "test": found.file("zip.test.gz", "usps.t.bz2")}
    return {split: partial(_usps_table, path) for split, path in tables.items() if path}


def _usps_h5(path: Path, split: str) -> source.Split:
    data, target = numeric.h5(path, f"{split}/data", f"{split}/target")
    if data.ndim != 2 or data.shape[1] != 256:
        raise InputError(f"{path}: {split}/data has the shape {data.shape}, not (n, 256): fetch it again")
    return _grey(data.astype(np.float64), target, path)


def _usps_table(path: Path) -> source.Split:
    table = numeric.table(path, 257)
    one = path.suffix == ".bz2"  # libsvm's copy counts its labels from 1
    return _grey((table[:, 1:] + 1) / 2, table[:, 0] - one, path)


def _grey(values: NDArray[np.float64], labels: source.Numbers, path: Path) -> source.Split:
    """values: (n, 256), 0 to 1."""
    if not values.size:
        raise InputError(f"{path} holds no images: fetch it again")
    if not (values.min() >= -1e-6 and values.max() <= 1 + 1e-6):
        raise InputError(f"{path} has values out of their range, {values.min():g} to {values.max():g}: fetch it again")
    pixels = np.rint(values.clip(0, 1) * 255).astype(np.uint8).reshape(-1, 16, 16)
    return source.from_arrays(pixels, labels, CLASSES, path)


def mnist_m(found: source.Found) -> source.Splits:
    """mnist_m.tar.gz, or the folder that it unpacks to."""
    if archive := found.file("mnist_m.tar.gz"):
        return {split: partial(_mnist_m, archive, split) for split in ("train", "test")}
    lists = {split: found.file(f"mnist_m_{split}_labels.txt") for split in ("train", "test")}
    return {split: partial(_mnist_m, path.parent, split) for split, path in lists.items() if path}


def _mnist_m(archive: Path, split: str) -> source.Split:
    name = f"mnist_m_{split}_labels.txt"
    for member in members(archive):
        if member.name.endswith(name):
            names, labels = source.parse_list(member.read(), member.where)
            folder = member.name.removesuffix("_labels.txt")
            return source.from_names(archive, [f"{folder}/{each}" for each in names], labels, CLASSES)
    raise InputError(f"{archive} has no {name}: fetch it again")


def svhn(found: source.Found, domain: str = "svhn") -> source.Splits:
    """{train,test,extra}_32x32.mat."""
    paths = {split: found.file(f"{split}_32x32.mat", near=domain) for split in ("train", "test", "extra")}
    return {split: partial(_mat, path) for split, path in paths.items() if path}


def synthetic_digits(found: source.Found) -> source.Splits:
    """synth_{train,test}_32x32.mat, or SynthDigits.zip with both."""
    names = {split: f"synth_{split}_32x32.mat" for split in ("train", "test")}
    places = {split: found.file(name, "SynthDigits.zip") for split, name in names.items()}
    return {split: partial(_mat, path, names[split]) for split, path in places.items() if path}


def _mat(path: Path, member: str = "") -> source.Split:
    """X (32, 32, 3, n) uint8 and y (n, 1), 10 meaning 0."""
    with open_member(path, member) if path.suffix == ".zip" else open_file(path, None) as file:
        pixels, labels = numeric.mat(file, ("X", "y"), str(path))
    if pixels.dtype != np.uint8 or pixels.shape != (32, 32, 3, labels.size):
        raise InputError(f"{path} does not hold X (32, 32, 3, n) of bytes and y (n, 1): fetch it again")
    return source.from_arrays(np.moveaxis(pixels, 3, 0), np.where(labels == 10, 0, labels), CLASSES, path)


# What is published of each. The customary subset is that of most papers on DigitFive.
_CUSTOMARY = {"train": 25000, "test": 9000}
_MNIST = source.Domain(
    source.files_at(
        (
            "https://ossci-datasets.s3.amazonaws.com/mnist",
            "https://storage.googleapis.com/cvdf-datasets/mnist",
            "http://yann.lecun.com/exdb/mnist",
        ),
        ("train-images-idx3-ubyte.gz", 9912422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        ("train-labels-idx1-ubyte.gz", 28881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
        ("t10k-images-idx3-ubyte.gz", 1648877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        ("t10k-labels-idx1-ubyte.gz", 4542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    ),
    {
        "train": (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
        "test": (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
    },
    "http://yann.lecun.com/exdb/mnist/",
    "CC BY-SA 3.0",
)
_USPS = source.Domain(
    source.files_at(
        ("https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass",),
        ("usps.bz2", None, "ec16c51db3855ca6c91edd34d0e9b197"),
        ("usps.t.bz2", None, "8ea070ee2aca1ac39742fdd1ef5ed118"),
    ),
    {
        "train": (1194, 1005, 731, 658, 652, 556, 664, 645, 542, 644),
        "test": (359, 264, 198, 166, 200, 160, 170, 147, 166, 177),
    },
    "https://hastie.su.domains/ElemStatLearn/data.html (zip.train.gz and zip.test.gz; usps.h5 serves too)",
)
_MNIST_M_FILE = "https://cornell.box.com/shared/static/jado7quprg6hzzdubvwzh9umr75damwi"
_MNIST_M = source.Domain(
    (source.File("mnist_m.tar.gz", (_MNIST_M_FILE,), checksum="859df31c91afe82e80e5012ba928f279"),),
    {"train": 59001, "test": 9001},
    "http://yaroslav.ganin.net/",
    subset=_CUSTOMARY,
)
_SVHN_EXTRA = source.Domain(
    source.files_at(
        ("http://ufldl.stanford.edu/housenumbers", "https://ufldl.stanford.edu/housenumbers"),
        ("train_32x32.mat", 182040794, "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8"),
        ("test_32x32.mat", 64275384, "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b"),
        ("extra_32x32.mat", 1329278602, "a133a4beb38a00fcdda90c9489e0c04f900b660ce8a316a5e854838379a71eb3"),
    ),
    {
        "train": (4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659),
        "test": (1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595),
        "extra": (45550, 90560, 74740, 60765, 50633, 53490, 41582, 43997, 35358, 34456),
    },
    "http://ufldl.stanford.edu/housenumbers/",
    "non-commercial",
)
_SVHN = replace(
    _SVHN_EXTRA,
    files=_SVHN_EXTRA.files[:2],
    counts={split: _SVHN_EXTRA.counts[split] for split in ("train", "test")},
    subset=_CUSTOMARY,
)
_SYNTHETIC = source.Domain(
    (source.File("SynthDigits.zip"),),
    {"train": 479400, "test": 9553},
    "http://yaroslav.ganin.net/ (SynthDigits.zip; it may be unpacked: synth_train_32x32.mat, synth_test_32x32.mat)",
    subset=_CUSTOMARY,
)
DIGIT_FIVE = source.DataSet(
    {"mnist": _MNIST, "mnistm": _MNIST_M, "svhn": _SVHN, "syn": _SYNTHETIC, "usps": _USPS},
    read,
    (32,),
    {"digitfive": 32},
)
SVHN = source.DataSet({"svhn": _SVHN_EXTRA}, svhn, (32,), {"svhn": 32}, unlabelled="extra")
