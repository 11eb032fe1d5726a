"""Every format that holds images, labels or starting weights."""

import functools
import pickle
import warnings
from collections.abc import Callable
from contextlib import suppress
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
from adamatch.datasets.pickles import unpickle
from adamatch.datasets.prepare import fit
from adamatch.datasets.readers import READERS
from adamatch.datasets.source import Found
from adamatch.images.decode import kinds, read_image, short_side
from adamatch.images.reading import read
from adamatch.networks.weights import load_weights

LOOKED_AT = 64  # images of a split

IMAGES = {
    "jpeg": (
        "JPEG",
        "RGB",
        {"quality": 90, "exif": b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"},
    ),
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


def split(name: str, domain: str, part: str = "train", size: int = 32) -> Callable[[Path], Any]:
    """A split of a published set, as `prepare` reads it."""

    def read(path: Path) -> Any:
        found = READERS[name](Found(path.parent), domain)
        if part not in found:
            raise InputError(f"{path}: no {part}")
        of = found[part]()
        wanted = np.arange(of.count) < LOOKED_AT
        return of.labels, of.classes, [(index, fit(payload, size)) for index, payload in of.images(wanted)]

    return read


def made(file: str, write: Callable[[Path], Any]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        write(folder)
        return folder / file

    return make


def _svhn(folder: Path, compressed: bool) -> None:
    (folder / "train_32x32.mat").write_bytes(formats.svhn_bytes(6, compressed=compressed)[0])


def _npz(folder: Path) -> None:
    (folder / "svhn").mkdir()
    np.savez_compressed(
        folder / "svhn/train.npz", images=formats.random_images(6, 32, 32, 3), labels=formats.random_labels(6)
    )


def _domainnet(folder: Path) -> None:
    images = formats.random_images(6, 12, 12, 3)
    parts = {
        "train": {f"{name}/{i}.png": images[i] for i, name in enumerate(("cat", "dog", "cat"))},
        "test": {"dog/9.png": images[5]},
    }
    formats.domainnet(folder, "sketch", parts, ["cat", "dog"], "PNG")


def _office(folder: Path) -> None:
    images = formats.random_images(4, 12, 12, 3)
    files = {
        f"dslr/images/{'bike' if i % 2 else 'mug'}/{i}.png": formats.encoded(image) for i, image in enumerate(images)
    }
    formats.tar(folder / "office31.tar", files)


def _cifar(kind: str, folder: Path) -> None:
    parts = {"test": (formats.random_images(3, 32, 32, 3), formats.random_labels(3))}
    formats.cifar(folder / f"cifar-100-{kind}.tar.gz", parts, "fine_labels", kind)


def _pickle(protocol: int, folder: Path) -> Path:
    batch = {
        b"data": formats.random_images(3, 40),
        b"labels": [1, 2, 3],
        b"names": [b"a", "b"],
        b"f": np.linspace(0, 1, 4),
    }
    (folder / "batch").write_bytes(pickle.dumps(batch, protocol))
    return folder / "batch"


def _read_pickle(path: Path) -> Any:
    return unpickle(path.read_bytes(), str(path))


@functools.cache
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


def _bound(function: Callable[..., Any], *given: Any) -> Callable[..., Any]:
    return functools.partial(function, *given)


inner_tar = damage.within_gzip(damage.tar)
TARGETS: dict[str, Target] = {
    **{
        name: Target(_bound(_image, *facts), _read_image, facts[0] == "PNG", (damage.png,) if facts[0] == "PNG" else ())
        for name, facts in IMAGES.items()
        if facts[0] in kinds()
    },
    "list of images": Target(_list, _read_list, inside=(damage.text,)),
    "zip": Target(_bound(_archive, "x.zip"), _read_archive, True, (damage.zipped,)),
    "tar": Target(_bound(_archive, "x.tar"), _read_archive, inside=(damage.tar,)),
    "tar.gz": Target(_bound(_archive, "x.tar.gz"), _read_archive, True, (inner_tar,)),
    "idx.gz, images": Target(
        made("train-images-idx3-ubyte.gz", lambda folder: formats.mnist(folder, "train", 6)),
        split("digitfive", "mnist"),
        True,
        (damage.within_gzip(damage.raw),),
    ),
    "idx.gz, labels": Target(
        made("train-labels-idx1-ubyte.gz", lambda folder: formats.mnist(folder, "train", 6)),
        split("digitfive", "mnist"),
        True,
        (damage.within_gzip(damage.raw),),
    ),
    "hdf5": Target(made("usps.h5", lambda folder: formats.usps_h5(folder, 4)), split("digitfive", "usps")),
    "table.gz": Target(
        made("zip.train.gz", lambda folder: formats.usps_text(folder, "train", "zip", 4)),
        split("digitfive", "usps"),
        True,
        (damage.within_gzip(damage.text), damage.within_gzip(damage.raw)),
    ),
    "table.bz2": Target(
        made("usps.bz2", lambda folder: formats.usps_text(folder, "train", "libsvm", 4)),
        split("digitfive", "usps"),
        True,
        (damage.within_bz2(damage.text),),
    ),
    "mnist_m.tar.gz": Target(
        made("mnist_m.tar.gz", lambda folder: formats.mnist_m(folder / "mnist_m.tar.gz", 3)),
        split("digitfive", "mnistm"),
        True,
        (inner_tar, damage.within_gzip(damage.raw)),
    ),
    "mat": Target(made("train_32x32.mat", lambda folder: _svhn(folder, False)), split("svhn", "svhn")),
    "mat, packed": Target(made("train_32x32.mat", lambda folder: _svhn(folder, True)), split("svhn", "svhn")),
    "npz": Target(made("svhn/train.npz", _npz), split("digitfive", "svhn"), True, (damage.zipped,)),
    "domainnet's zip": Target(made("sketch.zip", _domainnet), split("domainnet", "sketch"), True, (damage.zipped,)),
    "domainnet's list": Target(
        made("sketch_train.txt", _domainnet), split("domainnet", "sketch"), inside=(damage.text,)
    ),
    "office31.tar": Target(made("office31.tar", _office), split("office31", "dslr"), inside=(damage.tar,)),
    "cifar, pickles": Target(
        made("cifar-100-python.tar.gz", _bound(_cifar, "python")),
        split("cifar100", "cifar100", "test"),
        True,
        (inner_tar, damage.within_gzip(damage.raw)),
    ),
    "cifar, mat": Target(
        made("cifar-100-matlab.tar.gz", _bound(_cifar, "matlab")),
        split("cifar100", "cifar100", "test"),
        True,
        (damage.within_gzip(damage.raw),),
    ),
    "stl10": Target(
        made("stl10_binary.tar.gz", lambda folder: formats.stl10(folder / "stl10_binary.tar.gz", {"train": 2})),
        split("stl10", "stl10", "train", 96),
        True,
        (inner_tar,),
    ),
    **{
        f"pickle, protocol {protocol}": Target(_bound(_pickle, protocol), _read_pickle, inside=(damage.pickled,) * 3)
        for protocol in (0, 2, 5)
    },
    "weights, safetensors": Target(_bound(_weights, "safetensors"), _read_weights, inside=(damage.safetensors,)),
    "weights, torch": Target(_bound(_weights, "zip"), _read_weights, inside=(damage.zipped,)),
    "weights, torch before 1.6": Target(_bound(_weights, "old"), _read_weights, inside=(damage.pickled,)),
}
