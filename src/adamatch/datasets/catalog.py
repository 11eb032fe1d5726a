"""What can be fetched: sets, domains, files with their sources and checksums, counts, licences. Facts only.

Checksums and sizes are the published ones (the sets' own pages, torchvision, TensorFlow Datasets, pytorch-adapt). None means
that none is published. Files without a source can only be had by hand, from the page that is named.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from adamatch.base.errors import unknown

# Images per split: their number, or the number in each class. "train+test": the split is ours, the sum is published.
Counts = Mapping[str, int | tuple[int, ...]]


@dataclass(frozen=True)
class File:
    name: str
    sources: tuple[str, ...] = ()
    size: int | None = None
    sha256: str | None = None
    md5: str | None = None


@dataclass(frozen=True)
class Domain:
    """`files`: what `download` fetches; `page`: where a person gets them; `subset`: the counts of a customary part."""

    files: tuple[File, ...]
    counts: Counts
    page: str
    licence: str = "not stated"
    subset: Counts = field(default_factory=dict)


@dataclass(frozen=True)
class DataSet:
    title: str
    domains: Mapping[str, Domain]
    classes: int
    sizes: tuple[int, ...]  # the usual one first


def get(name: str) -> DataSet:
    if name not in SETS:
        raise unknown("data set", name, SETS)
    return SETS[name]


def _at(*folders: str, **file: str | int) -> File:
    name = str(file["name"])
    sources = tuple(f"{folder}/{name}" for folder in folders)
    size, sha256, md5 = file.get("size"), file.get("sha256"), file.get("md5")
    return File(name, sources, int(size) if size else None, str(sha256) if sha256 else None, str(md5) if md5 else None)


_MNIST_AT = (
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    "https://storage.googleapis.com/cvdf-datasets/mnist",
    "http://yann.lecun.com/exdb/mnist",
)
_MNIST = Domain(
    (
        _at(
            *_MNIST_AT,
            name="train-images-idx3-ubyte.gz",
            size=9912422,
            md5="f68b3c2dcbeaaa9fbdd348bbdeb94873",
            sha256="440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        ),
        _at(
            *_MNIST_AT,
            name="train-labels-idx1-ubyte.gz",
            size=28881,
            md5="d53e105ee54ea40749a09fcbcd1e9432",
            sha256="3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        ),
        _at(
            *_MNIST_AT,
            name="t10k-images-idx3-ubyte.gz",
            size=1648877,
            md5="9fb629c4189551a2d022fa330f9573f3",
            sha256="8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        ),
        _at(
            *_MNIST_AT,
            name="t10k-labels-idx1-ubyte.gz",
            size=4542,
            md5="ec29112dd5afa0611ce80d1b7f02629c",
            sha256="f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    ),
    {
        "train": (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
        "test": (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
    },
    "http://yann.lecun.com/exdb/mnist/",
    "CC BY-SA 3.0",
)

_USPS_AT = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass"
_USPS = Domain(
    (
        _at(_USPS_AT, name="usps.bz2", md5="ec16c51db3855ca6c91edd34d0e9b197"),
        _at(_USPS_AT, name="usps.t.bz2", md5="8ea070ee2aca1ac39742fdd1ef5ed118"),
    ),
    {
        "train": (1194, 1005, 731, 658, 652, 556, 664, 645, 542, 644),
        "test": (359, 264, 198, 166, 200, 160, 170, 147, 166, 177),
    },
    "https://hastie.su.domains/ElemStatLearn/data.html (zip.train.gz and zip.test.gz; usps.h5 serves too)",
)

_CUSTOMARY = {"train": 25000, "test": 9000}  # the part of MNIST-M, SVHN and Synthetic Digits in most Digit-Five papers
_MNISTM = Domain(
    (
        File(
            "mnist_m.tar.gz",
            ("https://cornell.box.com/shared/static/jado7quprg6hzzdubvwzh9umr75damwi",),
            md5="859df31c91afe82e80e5012ba928f279",
        ),
    ),
    {"train": 59001, "test": 9001},
    "http://yaroslav.ganin.net/",
    subset=_CUSTOMARY,
)

_SVHN_AT = ("http://ufldl.stanford.edu/housenumbers", "https://ufldl.stanford.edu/housenumbers")
_SVHN_FILES = (
    _at(
        *_SVHN_AT,
        name="train_32x32.mat",
        size=182040794,
        md5="e26dedcc434d2e4c54c9b2d4a06d8373",
        sha256="435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
    ),
    _at(
        *_SVHN_AT,
        name="test_32x32.mat",
        size=64275384,
        md5="eb5a983be6a315427106f1b164d9cef3",
        sha256="cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
    ),
    _at(
        *_SVHN_AT,
        name="extra_32x32.mat",
        size=1329278602,
        md5="a93ce644f1a588dc4d68dda5feec44a7",
        sha256="a133a4beb38a00fcdda90c9489e0c04f900b660ce8a316a5e854838379a71eb3",
    ),
)
_SVHN_COUNTS = {
    "train": (4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659),
    "test": (1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595),
    "extra": (45550, 90560, 74740, 60765, 50633, 53490, 41582, 43997, 35358, 34456),
}
_SVHN_PAGE, _SVHN_LICENCE = "http://ufldl.stanford.edu/housenumbers/", "non-commercial"
_SVHN = Domain(
    _SVHN_FILES[:2], {s: _SVHN_COUNTS[s] for s in ("train", "test")}, _SVHN_PAGE, _SVHN_LICENCE, subset=_CUSTOMARY
)

_SYN = Domain(
    (File("SynthDigits.zip"),),
    {"train": 479400, "test": 9553},
    "http://yaroslav.ganin.net/ (SynthDigits.zip; it may be unpacked: synth_train_32x32.mat, synth_test_32x32.mat)",
    subset=_CUSTOMARY,
)

_BU = ("http://csr.bu.edu/ftp/visda/2019/multi-source", "https://csr.bu.edu/ftp/visda/2019/multi-source")


def _domainnet(name: str, counts: tuple[int, int], folder: str, *facts: tuple[int, str]) -> Domain:
    """facts: size and SHA-256 of the zip, the list of the training set and that of the test set."""
    places = ((folder, f"{name}.zip"), ("/domainnet/txt", f"{name}_train.txt"), ("/domainnet/txt", f"{name}_test.txt"))
    files = tuple(
        _at(*(host + at for host in _BU), name=file, size=size, sha256=sha256)
        for (at, file), (size, sha256) in zip(places, facts, strict=True)
    )
    licence = "non-profit research"
    return Domain(
        files, {"train": counts[0], "test": counts[1]}, "http://ai.bu.edu/DomainNet/ (cleaned version)", licence
    )


_DOMAINNET = {
    "clipart": _domainnet(
        "clipart",
        (33525, 14604),
        "/groundtruth",
        (1270909081, "f8f248a3e8bbc9868c523ae24e6601b4c2ad102afc60c0efeb4f3255df22354d"),
        (1443819, "affdadf5f95a7583e6b98030a3d35007e2613ee4dd942393c5a705ec2b429312"),
        (628917, "62c8e36aaba1c41ad9e249099739707220a44c08f167b37ef420f34a31628a6b"),
    ),
    "infograph": _domainnet(
        "infograph",
        (36023, 15582),
        "",
        (4338659804, "891e14f476317e97b6f06d6498c11d0a5b8d0c8b57210765ed9beb072da611fa"),
        (1683098, "36b44cbd41a2915e0dc73b4f4be8862a6f3c220f93c8d63fb2439beeae3aefda"),
        (728028, "413cfa54ac92e7e6b242f4f09fbd9c8ace85c4deaf3cb6c81ff6b68264460136"),
    ),
    "painting": _domainnet(
        "painting",
        (50416, 21850),
        "/groundtruth",
        (3679366174, "fa47e6d405503ea0286cabd767f176bd30e988b63ddd7b9db16cf030c9770015"),
        (2241901, "f1da38d50a702fddf1329f85bc607d7a2abcae7e6aec75e1fd49cc1bd340d47b"),
        (971888, "11472b13b5188e09f06918b12eebb660588c97a20e43e268d9b02e3e37eb8f97"),
    ),
    "quickdraw": _domainnet(
        "quickdraw",
        (120750, 51750),
        "",
        (459920701, "9f37df2a8c3733703dbb35ad9964202a65f675ca30137756457537536b485d84"),
        (5164600, "3a5edd3bc215772010eebc87f158707703dd7e48091d13b816af81326a9d1c0f"),
        (2213400, "2a00a60650a453c65c356da748fec54084a197272137c440e7d52d08947357bf"),
    ),
    "real": _domainnet(
        "real",
        (120906, 52041),
        "",
        (6062039589, "d7fe010b430c5b510f85d657d38c4a1924822695fabea4fef57bd00dba251d63"),
        (4440944, "19d483256d24aef19e581b65eda8333fd918aef3eb733fe499ff384120e3a289"),
        (1911327, "2b3f75bcde309aeb5931292084b2162e936b5f189e3bb1ad716f0f74c460864c"),
    ),
    "sketch": _domainnet(
        "sketch",
        (48212, 20916),
        "",
        (2633992926, "23a7dbae7016b343e934399beaa8a68728fb5e570ebe2c71df9b75cf91c499fc"),
        (1960222, "72f4bc6afa5702a1ccba800d0053c1427de87439dfaf246dbc9a2e71abfec54f"),
        (850581, "3fb48fca18c507c4321f007c3f62b308ec232ff6928cbfe2af64e76ec366e840"),
    ),
}

_OFFICE_FILE = File(
    "office31.tar.gz",
    ("https://cornell.box.com/shared/static/3v2ftdkdhpz1lbbr4uhu0135w7m79p7q",),
    md5="89818e596f3cdda1d56da0f077435faa",
)
_OFFICE_PAGE = "https://faculty.cc.gatech.edu/~judy/domainadapt/ (domain_adaptation_images.tar.gz)"
_OFFICE = {
    name: Domain((_OFFICE_FILE,), {"train+test": count}, _OFFICE_PAGE)
    for name, count in (("amazon", 2817), ("dslr", 498), ("webcam", 795))
}

_PACS_PAGE = "https://domaingeneralization.github.io/#data (PACS.zip, or its folders <domain>/<class>/*.jpg)"
_PACS = {
    name: Domain((File("PACS.zip"),), {"train+test": counts}, _PACS_PAGE)
    for name, counts in (
        ("art_painting", (379, 255, 285, 184, 201, 295, 449)),
        ("cartoon", (389, 457, 346, 135, 324, 288, 405)),
        ("photo", (189, 202, 182, 186, 199, 280, 432)),
        ("sketch", (772, 740, 753, 608, 816, 80, 160)),
    )
}

_KRIZ = ("https://www.cs.toronto.edu/~kriz", "http://www.cs.toronto.edu/~kriz")
_KRIZ_PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html (the python or the matlab archive)"
_CIFAR10 = Domain(
    (_at(*_KRIZ, name="cifar-10-python.tar.gz", md5="c58f30108f718f92721af3b95e74349a"),),
    {"train": (5000,) * 10, "test": (1000,) * 10},
    _KRIZ_PAGE,
)
_CIFAR100 = Domain(
    (_at(*_KRIZ, name="cifar-100-python.tar.gz", md5="eb9058c3a382ffc7106e4002c42a8d85"),),
    {"train": (500,) * 100, "test": (100,) * 100},
    _KRIZ_PAGE,
)
_STL10 = Domain(
    (
        _at(
            "http://ai.stanford.edu/~acoates/stl10",
            "https://ai.stanford.edu/~acoates/stl10",
            name="stl10_binary.tar.gz",
            size=2640397119,
            md5="91f7769df0f17e558f3565bffb0c7dfb",
            sha256="f31fd99273a1acb8609c8db427cebb1de3f71de77758cdc0e22956e1289b9866",
        ),
    ),
    {"train": (500,) * 10, "test": (800,) * 10, "unlabelled": 100000},
    "https://cs.stanford.edu/~acoates/stl10/",
)

SETS = {
    "digitfive": DataSet(
        "DigitFive", {"mnist": _MNIST, "mnistm": _MNISTM, "svhn": _SVHN, "syn": _SYN, "usps": _USPS}, 10, (32,)
    ),
    "domainnet": DataSet("DomainNet, cleaned", _DOMAINNET, 345, (64, 32, 128, 224)),
    "office31": DataSet("Office-31", _OFFICE, 31, (64, 32, 128, 224)),
    "pacs": DataSet("PACS", _PACS, 7, (64, 32, 128, 224)),
    "cifar10": DataSet("CIFAR-10", {"cifar10": _CIFAR10}, 10, (32,)),
    "cifar100": DataSet("CIFAR-100", {"cifar100": _CIFAR100}, 100, (32,)),
    "stl10": DataSet("STL-10", {"stl10": _STL10}, 10, (32, 64, 96)),
    "svhn": DataSet(
        "SVHN with its extra part", {"svhn": Domain(_SVHN_FILES, _SVHN_COUNTS, _SVHN_PAGE, _SVHN_LICENCE)}, 10, (32,)
    ),
}
