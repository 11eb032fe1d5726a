"""Every published format, in small archives written by the ordinary libraries: counts, labels, classes, every pixel."""

import gzip
import io
import shutil
import struct
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from published import formats
from published.formats import Array

from adamatch.base.errors import InputError
from adamatch.datasets.catalog import SETS, plan
from adamatch.datasets.class_folders import fixed_split
from adamatch.datasets.source import Found, check_labels
from adamatch.images.store import Store


def prepared(name: str, folder: Path, domain: str, split: str, size: int = 32) -> Store:
    """Through the whole way, into a store."""
    path = folder.parent / f"store-{name}-{domain}-{split}-{size}"
    return formats.prepared(SETS[name].read(Found(folder), domain)[split], path, size)


def unpack(archive: Path) -> None:
    """The folders that it holds, in its place."""
    shutil.unpack_archive(archive, archive.parent)
    archive.unlink()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    return tmp_path / "in"


Made = Mapping[str, tuple[Array, Array | None]]  # of each split, images (grey ones without channels) and labels


def mnist(folder: Path) -> Made:
    made = {split: formats.mnist(folder, split) for split in ("train", "test")}
    return {split: (np.pad(images, ((0, 0), (2, 2), (2, 2))), labels) for split, (images, labels) in made.items()}


def usps(kind: str, folder: Path) -> Made:
    splits = ("train", "test")
    made = formats.usps_h5(folder) if kind == "h5" else {s: formats.usps_text(folder, s, kind) for s in splits}
    return {
        split: (np.stack([enlarged(image) for image in images]), labels) for split, (images, labels) in made.items()
    }


def enlarged(image: Array) -> Array:
    return np.asarray(Image.fromarray(image).resize((32, 32), Image.Resampling.BICUBIC))


def svhn(folder: Path) -> Made:
    made = {name: formats.svhn_bytes(seed=i, compressed=i > 0) for i, name in enumerate(("train", "test", "extra"))}
    for split, (data, _, _) in made.items():
        (folder / f"{split}_32x32.mat").write_bytes(data)
    return {split: (images, labels) for split, (_, images, labels) in made.items()}


def synthetic(folder: Path) -> Made:
    made = {split: formats.svhn_bytes(seed=i) for i, split in enumerate(("train", "test"))}
    formats.zipped(folder / "SynthDigits.zip", {f"synth_{name}_32x32.mat": made[name][0] for name in made})
    return {split: (images, labels) for split, (_, images, labels) in made.items()}


def cifar(number: int, members: tuple[str, ...], folder: Path) -> Made:
    parts = {name: (formats.random_images(4, 32, 32, 3), formats.random_labels(4)) for name in members}
    formats.cifar(folder / f"cifar-{number}-binary.tar.gz", dict(sorted(parts.items(), reverse=True)))  # in any order

    def joined(names: Iterable[str]) -> tuple[Array, Array]:
        images, labels = zip(*(parts[name] for name in names), strict=True)
        return np.concatenate(images), np.concatenate(labels)

    return {"train": joined(members[:-1]), "test": joined(members[-1:])}


def stl10(folder: Path) -> Made:
    made = formats.stl10(folder / "stl10_binary.tar.gz", {"train": 3, "test": 4, "unlabeled": 5})
    return {"train": made["train"], "test": made["test"], "unlabelled": (made["unlabeled"][0], None)}


BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
EXACT: dict[str, tuple[str, str, Callable[[Path], Made], int]] = {  # set, domain, what writes it, side
    "mnist": ("digitfive", "mnist", mnist, 32),
    **{f"usps {kind}": ("digitfive", "usps", partial(usps, kind), 32) for kind in ("h5", "zip", "libsvm")},
    "mnistm": ("digitfive", "mnistm", lambda folder: formats.mnist_m(folder / "mnist_m.tar.gz"), 32),
    "svhn": ("svhn", "svhn", svhn, 32),
    "syn": ("digitfive", "syn", synthetic, 32),
    "cifar10": ("cifar10", "cifar10", partial(cifar, 10, BATCHES), 32),
    "cifar100": ("cifar100", "cifar100", partial(cifar, 100, ("train", "test")), 32),
    "stl10": ("stl10", "stl10", stl10, 96),
}


@pytest.mark.parametrize("unpacked", [False, True])
@pytest.mark.parametrize("case", EXACT)
def test_every_image_and_label(folder: Path, case: str, unpacked: bool) -> None:
    name, domain, write, size = EXACT[case]
    made = write(folder / "deep")
    for path in list((folder / "deep").iterdir()) if unpacked else ():
        if path.name.endswith((".zip", ".tar.gz")):
            shutil.unpack_archive(path, path.parent)
        elif path.name.endswith("ubyte.gz"):
            path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        if path.suffix in (".gz", ".zip") and "usps" not in case:
            path.unlink()
    for split, (images, labels) in made.items():
        store = prepared(name, folder, domain, split, size)
        grey = images.ndim == 3
        np.testing.assert_array_equal(store.images, np.repeat(images[..., None], 3, axis=3) if grey else images)
        np.testing.assert_array_equal(store.labels, labels)
        assert len(store.classes) == (100 if name == "cifar100" else 10)


def reference_square(image: Image.Image, size: int) -> Array:
    """An image at least as large as `size`: bilinear to the largest multiple, then the mean of whole blocks."""
    width, height = (side // size * size for side in image.size)
    exact = np.asarray(image.resize((width, height), Image.Resampling.BILINEAR), np.float64)
    mean: Array = exact.reshape(size, height // size, size, width // size, 3).mean(axis=(1, 3))
    return mean


@pytest.mark.parametrize("size", [32, 64, 128, 224])
@pytest.mark.parametrize("unpacked", [False, True])
def test_domainnet(folder: Path, size: int, unpacked: bool) -> None:
    classes = ["aircraft_carrier", "t-shirt", "zigzag"]
    # As in painting: the second class is missing from the training list, the third from the test list.
    images = {
        "train": {
            f"{c}/painting_{i}.jpg": formats.random_images(1, 250, 300, 3, seed=i)[0]
            for i, c in enumerate(("zigzag", classes[0]))
        },
        "test": {f"t-shirt/painting_{i}.jpg": formats.random_images(1, 230, 470, 3, seed=9 + i)[0] for i in range(2)},
    }
    formats.domainnet(folder, "painting", images, classes)
    if unpacked:
        unpack(folder / "painting.zip")
    store = prepared("domainnet", folder, "painting", "train", size)
    assert store.classes == tuple(classes)
    assert store.labels is not None
    np.testing.assert_array_equal(store.labels, [2, 0])
    for found, (name, image) in zip(store.images, images["train"].items(), strict=True):
        decoded = Image.open(io.BytesIO(formats.encoded(image, "JPEG")))
        assert np.abs(found - reference_square(decoded, size)).max() <= 1, name
    assert prepared("domainnet", folder, "painting", "test", size).classes == tuple(classes)


def test_domainnet_says_what_does_not_fit(folder: Path) -> None:
    images = {s: {"a/1.png": formats.random_images(1, 40, 40, 3)[0]} for s in ("train", "test")}
    formats.domainnet(folder, "clipart", images, ["a"], "PNG")
    (folder / "clipart_train.txt").write_text("clipart/a/1.png 0\nclipart/a/lost.png 0\n")
    with pytest.raises(InputError, match=r"clipart\.zip lacks clipart/a/lost\.png \(1 of 2"):
        prepared("domainnet", folder, "clipart", "train")
    (folder / "clipart_train.txt").write_text("clipart/b/1.png 0\n")
    with pytest.raises(InputError, match="class 0 is 'a' here and 'b' elsewhere"):
        prepared("domainnet", folder, "clipart", "train")
    (folder / "clipart_train.txt").write_text("clipart/a/1.png zero\n")
    with pytest.raises(InputError, match=r"clipart_train\.txt, line 1"):
        prepared("domainnet", folder, "clipart", "train")
    (folder / "clipart.zip").unlink()
    with pytest.raises(InputError, match=r"fetch clipart\.zip"):
        prepared("domainnet", folder, "clipart", "test")


@pytest.mark.parametrize("kind", ["tar", "folder", "flat folder"])
def test_office31(folder: Path, kind: str) -> None:
    between = "" if kind == "flat folder" else "/images"
    places = [f"{domain}{between}/{label}" for domain in ("amazon", "dslr") for label in ("back_pack", "bike")]
    images = iter(formats.random_images(40, 40, 40, 3))
    members = {f"{place}/{i:04d}.jpg": formats.encoded(next(images)) for place in places for i in range(10)}
    formats.tar(folder / "domain_adaptation_images.tar.gz", members)
    if kind != "tar":
        unpack(folder / "domain_adaptation_images.tar.gz")
    stores = [prepared("office31", folder, "amazon", split) for split in ("train", "test")]
    assert [len(store) for store in stores] == [16, 4]
    assert stores[0].classes == ("back_pack", "bike")
    for store, per_class in zip(stores, (8, 2), strict=True):
        assert store.labels is not None
        assert np.bincount(store.labels).tolist() == [per_class, per_class]
    every = {image.tobytes() for store in stores for image in store.images}
    assert len(every) == 20, "each image is in one split, and only there"


def pacs_members(per_class: int = 5) -> dict[str, bytes]:
    classes = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
    return {
        f"kfold/photo/{c}/{i:03d}.png": formats.encoded(formats.random_images(1, 30, 30, 3, seed=k * 10 + i)[0])
        for k, c in enumerate(classes)
        for i in range(per_class)
    }


@pytest.mark.parametrize("kind", ["zip", "folder"])
def test_pacs(folder: Path, kind: str) -> None:
    members = pacs_members()
    formats.zipped(folder / "PACS.zip", members)
    if kind == "folder":
        unpack(folder / "PACS.zip")
    train, test = (prepared("pacs", folder, "photo", split) for split in ("train", "test"))
    assert (len(train), len(test)) == (28, 7)
    assert test.labels is not None
    assert test.labels.tolist() == list(range(7))


def test_of_cifars_other_archives_it_says_where_the_binary_one_is(folder: Path) -> None:
    (folder / "cifar-10-batches-mat").mkdir()
    (folder / "cifar-100-python.tar.gz").touch()
    for name, other, stem in (("cifar10", "10-batches-mat", "cifar-10"), ("cifar100", "100-python", "cifar-100")):
        remedy = rf"get {stem}-binary\.tar\.gz \(`adamatch data download {name}`\)"
        with pytest.raises(InputError, match=rf"cifar-{other}.* is not the binary archive: {remedy}"):
            plan(name, folder, folder)


@pytest.mark.parametrize("case", EXACT)
def test_a_file_cut_short_is_an_error_that_names_it(folder: Path, case: str) -> None:
    name, domain, write, size = EXACT[case]
    *_, split = write(folder)
    files = [path for path in folder.iterdir() if path.is_file()]
    for path in files:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(InputError) as error:
        prepared(name, folder, domain, split, size)
    assert any(path.name in str(error.value) for path in files), error.value
    assert not list(folder.parent.glob("store-*/store.json"))


def test_the_plan_says_what_is_missing_and_where_it_is(folder: Path, tmp_path: Path) -> None:
    formats.mnist(folder, "train")
    jobs, missing = plan("digitfive", folder, tmp_path / "data")
    assert [job.path for job in jobs] == [tmp_path / "data" / "digitfive" / "mnist" / "train-32"]
    assert len(missing) == 5
    assert any(line.startswith("digitfive/mnist: no files for test") and "yann.lecun.com" in line for line in missing)
    assert any(line.startswith("digitfive/syn: no files for train, test (SynthDigits.zip)") for line in missing)


def test_nothing_at_all_is_an_error(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no files of pacs.*domaingeneralization"):
        plan("pacs", folder, tmp_path)
    with pytest.raises(InputError, match="did you mean 'domainnet'"):
        plan("domain-net", folder, tmp_path)
    with pytest.raises(InputError, match="did you mean 'mnistm'"):
        plan("digitfive", folder, tmp_path, ["mnist_m"])
    with pytest.raises(InputError, match="is not a folder"):
        plan("pacs", folder / "nowhere", tmp_path)
    with pytest.raises(InputError, match="8 to 1024"):
        plan("pacs", folder, tmp_path, size=4)


def test_two_files_of_one_name(folder: Path) -> None:
    """Fashion-MNIST has MNIST's file names; the folder decides, and where it cannot, the person does."""
    for name in ("mnist", "fashion"):
        (folder / name).mkdir()
        formats.mnist(folder / name, "train")
    assert "train" in SETS["digitfive"].read(Found(folder), "mnist")
    (folder / "mnist").rename(folder / "other")
    with pytest.raises(InputError, match="have the same name"):
        SETS["digitfive"].read(Found(folder), "mnist")


def test_the_fixed_split_is_fixed() -> None:
    """Written out: another version of anything must not change it."""
    parts = fixed_split({"dog": [f"{i:03d}.png" for i in range(10)]}, "pacs/photo")
    assert parts["test"] == ["002.png", "009.png"]
    assert sorted(parts["train"] + parts["test"]) == [f"{i:03d}.png" for i in range(10)]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"sketch/cat/\xff.png 0", "is no text in UTF-8"),
        ("sketch/cat/0.png \u00b2".encode(), "line 1: .* is not a name and a label"),
        (b"sketch/cat/0.png " + b"9" * 5000, "line 1: .* is not a name and a label"),
        (b"sketch/cat/0.png 999999999", "line 1: .* is not a name and a label"),
    ],
    ids=["bytes", "a digit that is no number", "a label without end", "a billion classes"],
)
def test_lists_that_are_none(folder: Path, line: bytes, says: str) -> None:
    image = formats.random_images(1, 9, 9, 3)[0]
    formats.domainnet(folder, "sketch", {"train": {"cat/0.png": image}, "test": {"dog/1.png": image}}, ["cat", "dog"])
    (folder / "sketch_train.txt").write_bytes(line + b"\n")
    with pytest.raises(InputError, match=rf"sketch_train\.txt.*{says}"):
        prepared("domainnet", folder, "sketch", "train")


@pytest.mark.parametrize("labels", [["1", "2"], [0.5, 1.0], [np.nan, 1], [1e300, 1], [2**63, 1], [-1, 2], [10, 3]])
def test_labels_that_are_none(labels: list[object]) -> None:
    with pytest.raises(InputError, match="here has labels that are not whole numbers from 0 to 9"):
        check_labels(np.array(labels), 10, "here")


def test_an_empty_h5_and_an_mnist_of_other_sides(folder: Path) -> None:
    import h5py

    with h5py.File(folder / "usps.h5", "w") as file:
        file["train/data"], file["train/target"] = np.zeros((0, 256)), np.zeros(0)
    with pytest.raises(InputError, match=r"usps\.h5 holds no images"):
        prepared("digitfive", folder, "usps", "train")
    formats.mnist(folder, "train")
    pixels = struct.pack(">IIII", 2051, 15680, 1, 1) + bytes(15680)  # padded, each is 25 times as large
    (folder / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(pixels))
    with pytest.raises(InputError, match=r"images of \(1, 1\), and MNIST's are of \(28, 28\)"):
        prepared("digitfive", folder, "mnist", "train")


def test_a_stream_that_is_damaged_in_its_middle(folder: Path) -> None:
    data = formats.svhn_bytes(200, compressed=False)[0]
    formats.zipped(folder / "SynthDigits.zip", {"synth_train_32x32.mat": data})
    raw = bytearray((folder / "SynthDigits.zip").read_bytes())
    raw[300_000:300_100] = bytes(100)
    (folder / "SynthDigits.zip").write_bytes(raw)
    with pytest.raises(InputError, match=r"SynthDigits\.zip.* cannot be read .*'synth_train_32x32\.mat'"):
        prepared("digitfive", folder, "syn", "train")
