"""Small archives in the published formats, written with the ordinary libraries, and what is in them."""

import gzip
import io
import struct
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from adamatch.datasets.prepare import store_split
from adamatch.datasets.source import Split
from adamatch.images.store import Store, Writer

Array = NDArray[Any]


def store(path: Path, images: Array, labels: Array | None = None, classes: Sequence[str] = "", **info: object) -> Path:
    """A finished store."""
    writer = Writer(path, count=len(images), size=images.shape[1])
    writer.images[:] = images
    writer.commit(labels, classes, info)
    return path


def prepared(split: Split | Callable[[], Split], path: Path, size: int = 32, **how: Any) -> Store:
    """A split through the whole way, into a store."""
    for _ in store_split((lambda: split) if isinstance(split, Split) else split, path, size, **{"info": {}, **how}):
        pass
    return Store.open(path)


def random_images(count: int, *shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)


def random_labels(count: int, classes: int = 10, seed: int = 0) -> Array:
    return np.random.default_rng(seed + 1000).permutation(np.arange(count) % classes)


def encoded(image: Array, kind: str = "PNG") -> bytes:
    out = io.BytesIO()
    Image.fromarray(image).save(out, kind, quality=95)
    return out.getvalue()


def tar(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def zipped(path: Path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def mnist(folder: Path, split: str, count: int = 20) -> tuple[Array, Array]:
    images, labels = random_images(count, 28, 28), random_labels(count)
    stem = {"train": "train", "test": "t10k"}[split]
    with gzip.open(folder / f"{stem}-images-idx3-ubyte.gz", "wb") as file:
        file.write(struct.pack(">IIII", 2051, *images.shape) + images.tobytes())
    with gzip.open(folder / f"{stem}-labels-idx1-ubyte.gz", "wb") as file:
        file.write(struct.pack(">II", 2049, count) + labels.astype(np.uint8).tobytes())
    return images, labels


def usps_h5(folder: Path, count: int = 12) -> dict[str, tuple[Array, Array]]:
    import h5py

    made = {}
    with h5py.File(folder / "usps.h5", "w") as file:
        for i, split in enumerate(("train", "test")):
            images, labels = made[split] = random_images(count, 16, 16, seed=i), random_labels(count, seed=i)
            file[f"{split}/data"] = images.reshape(count, -1).astype(np.float32) / 255
            file[f"{split}/target"] = labels
    return made


def usps_text(folder: Path, split: str, kind: str, count: int = 12) -> tuple[Array, Array]:
    """kind: "zip" (ElemStatLearn) or "libsvm"."""
    import bz2

    images, labels = random_images(count, 16, 16), random_labels(count)
    lines = []
    for label, row in zip(labels, images.reshape(count, -1) / 255 * 2 - 1, strict=True):
        if kind == "zip":
            lines.append(f"{label:.4f} " + " ".join(f"{v:.4f}" for v in row) + " \n")
        else:
            lines.append(f"{label + 1} " + " ".join(f"{i + 1}:{v:.6f}" for i, v in enumerate(row)) + " \n")
    text = "".join(lines).encode()
    if kind == "zip":
        (folder / f"zip.{split}.gz").write_bytes(gzip.compress(text))
    else:
        (folder / {"train": "usps.bz2", "test": "usps.t.bz2"}[split]).write_bytes(bz2.compress(text))
    return images, labels


def mnist_m(path: Path, count: int = 15) -> dict[str, tuple[Array, Array]]:
    made, members = {}, {}
    for i, split in enumerate(("train", "test")):
        images, labels = random_images(count, 32, 32, 3, seed=i), random_labels(count, seed=i)
        for k, image in enumerate(images):
            members[f"mnist_m/mnist_m_{split}/{k:08d}.png"] = encoded(image)
        members[f"mnist_m/mnist_m_{split}_labels.txt"] = "".join(
            f"{k:08d}.png {label}\n" for k, label in enumerate(labels)
        ).encode()
        made[split] = images, labels
    tar(path, members)
    return made


def svhn_bytes(count: int = 20, seed: int = 0, compressed: bool = True) -> tuple[bytes, Array, Array]:
    import scipy.io

    images, labels = random_images(count, 32, 32, 3, seed=seed), random_labels(count, seed=seed)
    out = io.BytesIO()
    y = np.where(labels == 0, 10, labels).astype(np.uint8)[:, None]
    scipy.io.savemat(out, {"X": images.transpose(1, 2, 3, 0), "y": y}, do_compression=compressed)
    return out.getvalue(), images, labels


def domainnet(
    folder: Path, domain: str, images: dict[str, dict[str, Array]], classes: list[str], kind: str = "JPEG"
) -> None:
    """images: {split: {"class/file": image}}; classes in the order of their numbers."""
    members = {f"{domain}/{name}": encoded(image, kind) for part in images.values() for name, image in part.items()}
    zipped(folder / f"{domain}.zip", members)
    for split, part in images.items():
        lines = [f"{domain}/{name} {classes.index(name.split('/')[0])}\n" for name in part]
        (folder / f"{domain}_{split}.txt").write_text("".join(lines))


def cifar(path: Path, parts: dict[str, tuple[Array, Array]]) -> None:
    """parts: {member: (images (n, 32, 32, 3), labels)}."""
    members, many = {}, "100" in path.name
    folder = "cifar-100-binary" if many else "cifar-10-batches-bin"
    for name, (images, labels) in parts.items():
        data = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
        column = labels.astype(np.uint8)[:, None]
        members[f"{folder}/{name}.bin"] = np.hstack([column * 0 + 7] * many + [column, data]).tobytes()
    tar(path, members)


def stl10(path: Path, counts: dict[str, int]) -> dict[str, tuple[Array, Array]]:
    made, members = {}, {"stl10_binary/class_names.txt": b"airplane\n"}
    for i, (split, count) in enumerate(counts.items()):
        images, labels = random_images(count, 96, 96, 3, seed=i), random_labels(count, seed=i)
        members[f"stl10_binary/{split}_X.bin"] = images.transpose(0, 3, 2, 1).tobytes()
        if split != "unlabeled":
            members[f"stl10_binary/{split}_y.bin"] = (labels + 1).astype(np.uint8).tobytes()
        made[split] = images, labels
    tar(path, members)
    return made
