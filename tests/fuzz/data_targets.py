"""Every format that holds images, labels or starting weights."""

import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fuzz import damage
from fuzz.target import Target
from PIL import Image
from published import formats
from safetensors.torch import save_file

from adamatch import networks
from adamatch.base.errors import InputError
from adamatch.datasets.archive import members
from adamatch.datasets.catalog import SETS
from adamatch.datasets.prepare import fit
from adamatch.datasets.source import Found
from adamatch.images.decode import kinds, read_image, short_side
from adamatch.images.reading import read
from adamatch.networks.weights import load_weights

LOOKED_AT = 64  # images of a split

EXIF = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"  # turned by 90 degrees
IMAGES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "jpeg": ("JPEG", "RGB", {"quality": 90, "exif": EXIF}),
    "jpeg, progressive": ("JPEG", "L", {"progressive": True}),
    "png": ("PNG", "RGB", {}),
    "png, palette": ("PNG", "P", {"transparency": 3}),
    "png, sixteen bits": ("PNG", "I;16", {}),
    "webp": ("WEBP", "RGBA", {"lossless": True}),
    "webp, lossy": ("WEBP", "RGB", {}),
    "gif": ("GIF", "P", {"save_all": True}),
    "bmp": ("BMP", "RGB", {}),
    "tiff": ("TIFF", "RGBA", {"compression": "tiff_lzw"}),
    "tiff, float": ("TIFF", "F", {}),
    "ppm": ("PPM", "RGB", {}),
    "jpeg 2000": ("JPEG2000", "RGB", {}),
    "tga": ("TGA", "RGB", {"compression": "tga_rle"}),
    "avif": ("AVIF", "RGB", {}),
}


def _image(kind: str, mode: str, options: dict[str, Any], folder: Path) -> Path:
    pixels = formats.random_images(1, 20, 30, 3)[0]
    pixels[:, :15] = (200, 30, 90)
    image = Image.fromarray(pixels).convert("L" if mode == "I;16" else mode)
    if mode == "I;16":
        image = Image.fromarray(np.asarray(image).astype(np.uint16) * 257)
    more = {"append_images": [image.rotate(90)]} if "save_all" in options else {}
    image.save(folder / "image", kind, **options, **more)
    return folder / "image"


def _read_image(path: Path) -> Any:
    with suppress(Exception):  # as in median_side: what is wrong will be said when it is decoded
        short_side(path)
    return np.asarray(read_image(path))


def _list(folder: Path) -> Path:
    for number, image in enumerate(formats.random_images(3, 9, 9, 3)):
        (folder / f"{number}.png").write_bytes(formats.encoded(image))
    (folder / "list.csv").write_text('path,label\n0.png,cat\n"1.png",dog\n2.png,"a cat, too"\n')
    return folder / "list.csv"


def _read_list(path: Path) -> Any:
    store = read(path, size=8)
    return store.images, store.labels, store.classes


def _archive(name: str, folder: Path) -> Path:
    files = {"a/b/one.png": b"1" * 700, "a/two.png": b"", "three.txt": b"x" * 3000}
    (formats.zipped if name.endswith(".zip") else formats.tar)(folder / name, files)
    return folder / name


def _read_archive(path: Path) -> Any:
    return {member.name: member.read() for member in members(path)}


def published(
    file: str, where: str, write: Callable[[Path], Any], *inside: damage.Damage, checked: bool = True
) -> Target:
    """A file of a published set, read as `prepare` does; `where` is the set, its domain and the split."""
    name, domain, part = where.split("/")

    def make(folder: Path) -> Path:
        write(folder)
        return folder / file

    def read(path: Path) -> Any:
        found = SETS[name].read(Found(path.parent), domain)
        if part not in found:
            raise InputError(f"{path}: no {part}")
        of, size = found[part](), 96 if name == "stl10" else 32
        return of.labels, of.classes, [(row, fit(payload, size)) for row, payload in islice(of.images(), LOOKED_AT)]

    return Target(make, read, checked, inside)


def _svhn(compressed: bool, folder: Path) -> None:
    (folder / "train_32x32.mat").write_bytes(formats.svhn_bytes(6, compressed=compressed)[0])


def _domainnet(folder: Path) -> None:
    one, two, three, four = formats.random_images(4, 12, 12, 3)
    parts = {"train": {"cat/0.png": one, "dog/1.png": two, "cat/2.png": three}, "test": {"dog/9.png": four}}
    formats.domainnet(folder, "sketch", parts, ["cat", "dog"], "PNG")


def _office(folder: Path) -> None:
    images = zip(("mug/0", "bike/1", "mug/2", "bike/3"), formats.random_images(4, 12, 12, 3), strict=True)
    formats.tar(folder / "office31.tar", {f"dslr/images/{name}.png": formats.encoded(image) for name, image in images})


def _cifar(folder: Path) -> None:
    parts = {"test": (formats.random_images(3, 32, 32, 3), formats.random_labels(3))}
    formats.cifar(folder / "cifar-100-binary.tar.gz", parts)


@cache
def _net() -> torch.nn.Module:
    torch.manual_seed(0)
    return networks.build("wrn-tiny", 3)


def _weights(form: str, folder: Path) -> Path:
    state, path = _net().state_dict(), folder / ("w.safetensors" if form == "safetensors" else "w.pt")
    if form == "safetensors":
        save_file(state, path)
    else:
        torch.save({"state_dict": state}, path, _use_new_zipfile_serialization=form == "zip")
    return path


def _read_weights(path: Path) -> Any:
    net = networks.build("wrn-tiny", 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return str(load_weights(net, path)), dict(net.state_dict())


TAR_GZ, BYTES_GZ = damage.within_gzip(damage.tar), damage.within_gzip(damage.raw)
TARGETS: dict[str, Target] = {
    **{
        name: Target(
            partial(_image, *facts), _read_image, facts[0] == "PNG", (damage.png,) if facts[0] == "PNG" else ()
        )
        for name, facts in IMAGES.items()
        if facts[0] in kinds()
    },
    "list of images": Target(_list, _read_list, inside=(damage.text,)),
    "zip": Target(partial(_archive, "x.zip"), _read_archive, True, (damage.zipped,)),
    "tar": Target(partial(_archive, "x.tar"), _read_archive, inside=(damage.tar,)),
    "tar.gz": Target(partial(_archive, "x.tar.gz"), _read_archive, True, (TAR_GZ,)),
    **{
        f"idx.gz, {what}": published(
            f"train-{what}-ubyte.gz", "digitfive/mnist/train", partial(formats.mnist, split="train", count=6), BYTES_GZ
        )
        for what in ("images-idx3", "labels-idx1")
    },
    "hdf5": published("usps.h5", "digitfive/usps/train", partial(formats.usps_h5, count=4), checked=False),
    "table.gz": published(
        "zip.train.gz",
        "digitfive/usps/train",
        lambda folder: formats.usps_text(folder, "train", "zip", 4),
        *(damage.within_gzip(damage.text), BYTES_GZ),
    ),
    "table.bz2": published(
        "usps.bz2",
        "digitfive/usps/train",
        lambda folder: formats.usps_text(folder, "train", "libsvm", 4),
        damage.within_bz2(damage.text),
    ),
    "mnist_m.tar.gz": published(
        "mnist_m.tar.gz",
        "digitfive/mnistm/train",
        lambda folder: formats.mnist_m(folder / "mnist_m.tar.gz", 3),
        *(TAR_GZ, BYTES_GZ),
    ),
    "mat": published("train_32x32.mat", "svhn/svhn/train", partial(_svhn, False), checked=False),
    "mat, packed": published("train_32x32.mat", "svhn/svhn/train", partial(_svhn, True), checked=False),
    "domainnet's zip": published("sketch.zip", "domainnet/sketch/train", _domainnet, damage.zipped),
    "domainnet's list": published("sketch_train.txt", "domainnet/sketch/train", _domainnet, damage.text, checked=False),
    "office31.tar": published("office31.tar", "office31/dslr/train", _office, damage.tar, checked=False),
    "stl10": published(
        "stl10_binary.tar.gz",
        "stl10/stl10/train",
        lambda folder: formats.stl10(folder / "stl10_binary.tar.gz", {"train": 2}),
        TAR_GZ,
    ),
    "cifar": published("cifar-100-binary.tar.gz", "cifar100/cifar100/test", _cifar, *(TAR_GZ, BYTES_GZ)),
    "weights, safetensors": Target(partial(_weights, "safetensors"), _read_weights, inside=(damage.safetensors,)),
    "weights, torch": Target(partial(_weights, "zip"), _read_weights, inside=(damage.zipped,)),
    "weights, torch before 1.6": Target(partial(_weights, "old"), _read_weights, inside=(damage.pickled,)),
}
