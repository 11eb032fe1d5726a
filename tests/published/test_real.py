"""The real sets: $ADAMATCH_TEST_DATA names a folder with mnist, usps, mnist_m, svhn and pacs as downloaded.

Each is read a second time here, with other code, and every byte of every store is compared.
"""

import gzip
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from published.formats import Array

from adamatch.datasets.catalog import plan
from adamatch.datasets.prepare import store_split
from adamatch.datasets.verify import verify
from adamatch.images.store import Store

PLACE = Path(os.environ.get("ADAMATCH_TEST_DATA", "nowhere"))
pytestmark = [
    pytest.mark.skipif(not PLACE.is_dir(), reason="set ADAMATCH_TEST_DATA to a folder with the real sets"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for name in ("digitfive", "pacs"):
        for job in plan(name, PLACE, folder)[0]:
            for _ in store_split(job.find, job.path, job.size, info=job.info):
                pass
    return folder


def three(grey: Array) -> Array:
    return np.repeat(grey[..., None], 3, axis=-1)


def mnist(split: str) -> tuple[Array, Array]:
    stem = {"train": "train", "test": "t10k"}[split]
    raw = [
        gzip.decompress((PLACE / "mnist" / f"{stem}-{x}-ubyte.gz").read_bytes()) for x in ("images-idx3", "labels-idx1")
    ]
    images, labels = np.frombuffer(raw[0][16:], np.uint8).reshape(-1, 28, 28), np.frombuffer(raw[1][8:], np.uint8)
    padded = np.zeros((len(images), 32, 32), np.uint8)
    padded[:, 2:-2, 2:-2] = images
    return three(padded), labels


def usps(split: str) -> tuple[Array, Array]:
    import h5py

    with h5py.File(PLACE / "usps" / "usps.h5") as file:
        data, labels = file[split]["data"][:], file[split]["target"][:]
    grey = (data.reshape(-1, 16, 16) * 255 + 0.5).astype(np.uint8)
    return three(
        np.stack([np.asarray(Image.fromarray(g).resize((32, 32), Image.Resampling.BICUBIC)) for g in grey])
    ), labels


def mnistm(split: str) -> tuple[Array, Array]:
    with tarfile.open(PLACE / "mnist_m" / "mnist_m.tar.gz") as archive:
        lines = archive.extractfile(f"mnist_m/mnist_m_{split}_labels.txt").read().decode().split()  # type: ignore[union-attr]
        where = {name: i for i, name in enumerate(lines[::2])}
        images = np.zeros((len(where), 32, 32, 3), np.uint8)
    with tarfile.open(PLACE / "mnist_m" / "mnist_m.tar.gz") as archive:
        for member in archive:
            if f"/mnist_m_{split}/" in member.name:
                images[where[member.name.split("/")[-1]]] = np.asarray(Image.open(archive.extractfile(member)))  # type: ignore[arg-type]
    return images, np.array(lines[1::2], int)


def svhn(split: str) -> tuple[Array, Array]:
    import scipy.io

    mat = scipy.io.loadmat(PLACE / "svhn" / f"{split}_32x32.mat")
    labels = mat["y"][:, 0].astype(int)
    return np.moveaxis(mat["X"], 3, 0), np.where(labels == 10, 0, labels)


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize(
    ("domain", "read", "counts"),
    [
        ("mnist", mnist, {"train": 60000, "test": 10000}),
        ("usps", usps, {"train": 7291, "test": 2007}),
        ("mnistm", mnistm, {"train": 25000, "test": 9000}),
        ("svhn", svhn, {"train": 25000, "test": 9000}),
    ],
    ids=["mnist", "usps", "mnistm", "svhn"],
)
def test_digits_byte_for_byte(root: Path, domain: str, read, counts: dict[str, int], split: str) -> None:  # type: ignore[no-untyped-def]
    store = Store.open(root / "digitfive" / domain / f"{split}-32")
    images, labels = read(split)
    assert len(store) == counts[split]
    assert np.array_equal(store.images, images)
    assert np.array_equal(store.labels, labels)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("domain", "count"), [("art_painting", 2048), ("cartoon", 2344), ("photo", 1670), ("sketch", 3929)]
)
def test_pacs_byte_for_byte(root: Path, domain: str, count: int) -> None:
    stores = [Store.open(root / "pacs" / domain / f"{split}-64") for split in ("train", "test")]
    found = [(int(y), x.tobytes()) for store in stores for x, y in zip(store.images, store.labels, strict=True)]  # type: ignore[arg-type]
    files = sorted((PLACE / "pacs" / domain).rglob("*.png"))
    expected = [(stores[0].classes.index(file.parent.name), np.asarray(Image.open(file)).tobytes()) for file in files]
    assert len(found) == count
    assert sorted(found) == sorted(expected)
    assert (
        stores[0].classes == stores[1].classes == ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
    )


@pytest.mark.parametrize("name", ["digitfive", "pacs"])
def test_verify_is_clean(root: Path, name: str) -> None:
    findings = list(verify(root, name))
    assert [finding for finding in findings if finding[0] == "error"] == []
    assert len([finding for finding in findings if finding[0] == "note"]) == (4 if name == "digitfive" else 0), (
        "the customary subsets"
    )
