"""Every kind of input in docs/inputs.md, with real objects of the libraries: the same images, labels and classes."""

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from colours import CLASSES, TINY, arrays, network
from PIL import Image

import adamatch
from adamatch import Model
from adamatch.base.errors import InputError
from adamatch.images.decode import read_image
from adamatch.images.reading import median_side, read
from adamatch.train import speed

COUNT = 12


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One folder per class, of PNG files; their order is that of `expected`."""
    images, labels = arrays(COUNT)
    for number in np.argsort(labels, kind="stable"):
        file = tmp_path / "images" / CLASSES[labels[number]] / f"{number:02d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(images[number]).save(file)
    return tmp_path / "images"


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    return Model(network(norm=True).eval(), CLASSES, 8, machine=speed.choose("cpu"))


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.png"))


def labels_of(folder: Path) -> list[str]:
    return [file.parent.name for file in files(folder)]


def pandas_frame(folder: Path) -> Any:
    frame = pytest.importorskip("pandas").DataFrame(
        {"path": [str(file) for file in files(folder)], "label": labels_of(folder)}
    )
    frame["label"] = frame["label"].astype("category")
    return frame


def polars_frame(folder: Path) -> Any:
    columns = {"filename": [str(file) for file in files(folder)], "class": labels_of(folder)}
    return pytest.importorskip("polars").DataFrame(columns)


def hub(folder: Path) -> Any:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=list(CLASSES))})
    columns = {"image": [str(file) for file in files(folder)], "label": labels_of(folder)}
    return datasets.Dataset.from_dict(columns, features=features)


KINDS: dict[str, Callable[[Path], Any]] = {
    "folder": lambda folder: folder,
    "text": str,
    "paths and labels": lambda folder: (files(folder), labels_of(folder)),
    "text and array of labels": lambda folder: ([str(each) for each in files(folder)], np.array(labels_of(folder))),
    "pairs": lambda folder: list(zip(files(folder), labels_of(folder), strict=True)),
    "pandas": pandas_frame,
    "polars": polars_frame,
    "pandas columns": lambda folder: (pandas_frame(folder)["path"], pandas_frame(folder)["label"]),
    "HuggingFace": hub,
    "HuggingFace, numpy": lambda folder: hub(folder).with_format("numpy"),
    "HuggingFace, torch": lambda folder: hub(folder).with_format("torch"),
    "HuggingFace, not decoded": lambda folder: hub(folder).cast_column(
        "image", pytest.importorskip("datasets").Image(decode=False)
    ),
    "HuggingFace, streamed": lambda folder: hub(folder).to_iterable_dataset(),
    "dictionaries": lambda folder: [
        {"image": Image.open(file), "label": name} for file, name in zip(files(folder), labels_of(folder), strict=True)
    ],
}


@pytest.mark.parametrize("kind", KINDS)
def test_images_of_every_kind_with_and_without_their_labels(folder: Path, kind: str, model: Model) -> None:
    expected = read(folder, size=8, labelled=True)
    found = read(KINDS[kind](folder), size=8, labelled=True)
    assert found.classes == CLASSES
    assert np.array_equal(found.images, expected.images)
    assert found.labels is not None
    assert expected.labels is not None
    assert found.labels.tolist() == expected.labels.tolist()
    assert model.evaluate(KINDS[kind](folder)).confusion.tolist() == model.evaluate(folder).confusion.tolist()
    bare = read(KINDS[kind](folder), size=8, labelled=False)
    assert bare.labels is None
    assert np.array_equal(bare.images, expected.images)
    probabilities = model.predict(folder).probabilities
    assert model.predict(KINDS[kind](folder)).probabilities == pytest.approx(probabilities, abs=1e-6)


def test_fit_takes_them(folder: Path, tmp_path: Path) -> None:
    model = adamatch.fit(
        source=hub(folder), target=pandas_frame(folder), test=polars_frame(folder), out=tmp_path / "a", **TINY
    )
    assert model.classes == CLASSES
    adamatch.fit(source=(files(folder), labels_of(folder)), target=files(folder), out=tmp_path / "b", **TINY)


def test_the_side_of_images_is_known_beforehand(folder: Path) -> None:
    for kind, make in KINDS.items():
        assert median_side(make(folder)) == (0 if kind == "HuggingFace, streamed" else 8), kind
    images = read(folder, size=8).images
    for given in ([folder, folder], files(folder), read(folder, size=8), images, (images, [0] * COUNT), list(images)):
        assert median_side(given) == 8


# Several sources.


@pytest.mark.parametrize("several", [list, tuple, lambda each: {"first": each[0], "second": each[1]}])
def test_several_folders_are_one_source(folder: Path, tmp_path: Path, several: Callable[[list[Path]], Any]) -> None:
    other = tmp_path / "other"
    for name in ("red", "violet"):
        (other / name).mkdir(parents=True)
        Image.new("RGB", (9, 9), name).save(other / name / "x.png")
    found = read(several([folder, other]), size=8, labelled=True)
    assert found.classes == (*CLASSES, "violet")
    assert found.labels is not None
    assert found.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4 + [2, 3]
    (note,) = found.info["notes"]
    assert "has no violet" in note
    assert "has no blue, green" in note
    assert len(read(several([folder, other]), size=8, labelled=False)) == 14
    with pytest.raises(InputError, match="classes that were not learnt: 'violet'"):
        read(several([folder, other]), size=8, labelled=True, classes=CLASSES)


def test_the_same_folders_as_source_and_target_are_semi_supervised(folder: Path, tmp_path: Path) -> None:
    both = [folder, str(folder)]
    model = adamatch.fit(source=both, target=[str(folder), folder], labels_per_class=2, out=tmp_path / "ssl", **TINY)
    assert model.history["run"]["task"] == "ssl"


# Single images.


@pytest.mark.parametrize("shape", [(3, 32, 32), (32, 32, 3), (32, 32, 4), (1, 32, 32), (32, 32, 1), (32, 32)])
def test_one_image_is_one_prediction(model: Model, shape: tuple[int, ...]) -> None:
    image = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    assert len(model.predict(image)) == len(model.predict(image.numpy())) == 1


@pytest.mark.parametrize(("count", "images"), [(1, 1), (2, 2), (3, 1), (4, 4), (5, 5)])
def test_grey_images_without_a_channel(count: int, images: int) -> None:
    grey = np.zeros((count, 8, 10), np.uint8)
    assert len(read(grey, size=8)) == images
    assert len(read((grey, ["a"] * count), size=8)) == count  # labels tell how many images there are


# What is wrong is named, with what happens.


def test_what_lies_about_is_named_and_left_out(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Image.new("RGB", (8, 8)).save(folder / "stray.png")
    (folder / "yellow").mkdir()
    for name in (".net", ".git"):
        (folder / name).mkdir()
    Image.new("RGB", (8, 8)).save(folder / ".net/a.png")
    test = tmp_path / "test"
    for name in ("red", "owl"):
        (test / name).mkdir(parents=True)
        Image.new("RGB", (8, 8), (200, 0, 0)).save(test / name / "x.png")
    model = adamatch.fit(source=folder, target=files(folder), test=test, out=tmp_path / "run", **TINY)
    assert model.classes == CLASSES
    said = " ".join(capfd.readouterr().err.split())
    assert "1 image is beside the class folders (stray.png): left out, without a class" in said
    assert "no images in yellow: not taken for a class" in said
    assert ": .net: hidden, so not taken for a class; rename what is one" in said
    assert "1 of 2 images are of classes that were not learnt ('owl'): left out" in said
    score = model.evaluate(test)
    assert score.confusion.sum() == 1
    assert "owl" in score.notes[0]
    with pytest.raises(InputError, match="classes that were not learnt: 'owl'"):  # an error in labels to learn from
        adamatch.fit(source=folder, target=folder, target_labels=test, out=tmp_path / "other", **TINY)


def test_test_images_that_are_trained_on_are_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source, few, test = arrays(30), arrays(6, seed=1), arrays(9, seed=2)
    told: dict[str, Any] = {"source": source, "target": arrays(12, seed=3)[0], "target_labels": few, "twin": False}
    both = np.concatenate([few[0], test[0]]), np.concatenate([few[1], test[1]])
    for number, (given, found) in enumerate([(test, 0), (few, 6), (both, 6)]):
        adamatch.fit(**told, test=given, out=tmp_path / f"{number}", **TINY)
        said = " ".join(capfd.readouterr().err.split())
        assert (f"{found} of {len(given[0])} test images are trained on with their labels" in said) == (found > 0)


def test_frames_that_cannot_be_used(folder: Path) -> None:
    pandas = pytest.importorskip("pandas")
    paths = [str(file) for file in files(folder)]
    for frame, message in (
        (pandas.DataFrame({"where": paths}), r"no column `path` \(it has where\)"),
        (pandas.DataFrame({"path": paths}), "no column `label`"),
        (pandas.DataFrame({"path": paths, "label": ["a", *[None] * 11]}), "row 1: the label is missing"),
        (pandas.DataFrame({"path": ["gone.png", *paths[1:]], "label": "a"}), r"row 0: gone\.png does not exist"),
        (pandas.DataFrame({"path": [None, *paths[1:]], "label": "a"}), "row 0: a path is missing"),
        (pandas.DataFrame({"path": [], "label": []}), "holds no images"),
        (pandas.DataFrame({"path": paths, "label": "a"}), r"one class only \(a\)"),
    ):
        with pytest.raises(InputError, match=message):
            read(frame, size=8, labelled=True)
    numbers = pandas.DataFrame({"path": paths, "label": [0.0, 1.0] * 6})  # as pandas reads whole numbers beside a gap
    assert read(numbers, size=8, labelled=True).classes == ("0", "1")


def test_lists_that_cannot_be_used(folder: Path) -> None:
    with pytest.raises(InputError, match="12 paths and 1 labels"):
        read((files(folder), ["a"]), size=8, labelled=True)
    with pytest.raises(InputError, match=r"has no label: give \(paths, labels\)"):
        read(files(folder), size=8, labelled=True)
    with pytest.raises(InputError, match=r"blue has images but no labels"):
        read([folder, folder / "blue"], size=8, labelled=True)


def test_hub_datasets_that_cannot_be_used(folder: Path) -> None:
    datasets = pytest.importorskip("datasets")
    whole = hub(folder)
    with pytest.raises(InputError, match="a DatasetDict was given, which holds train, test: give one of them"):
        read(datasets.DatasetDict(train=whole, test=whole), size=8)
    with pytest.raises(InputError, match=r"no column of images \(it has label\)"):
        read(whole.remove_columns("image"), size=8)
    with pytest.raises(InputError, match=r"no column of labels \(it has image\)"):
        read(whole.remove_columns("label"), size=8, labelled=True)
    two = whole.rename_column("label", "fine").add_column("coarse", [0] * COUNT)
    two = two.cast_column("coarse", datasets.ClassLabel(names=["all"]))
    with pytest.raises(InputError, match=r"several kinds of labels \(fine, coarse\)"):
        read(two, size=8, labelled=True)
    assert len(read(two, size=8, labelled=False)) == COUNT
    with pytest.raises(InputError, match="a dictionary was given, which holds a: give one"):
        read({"a": read(folder, size=8)}, size=8)
    damaged = files(folder)[3]
    damaged.write_bytes(b"no image")
    with pytest.raises(InputError, match="image 3 of the dataset cannot be read"):
        read(whole, size=8)


# Sixteen bits, and HEIC.


def write_scans(folder: Path, most: list[int], kind: str = "png", **options: Any) -> Path:
    """Grey ramps of 16 bits, up to these values, in one folder per class in turn."""
    for number, value in enumerate(most):
        file = folder / ("a", "b")[number % 2] / f"{number}.{kind}"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.linspace(0, value, 64).reshape(8, 8).astype(np.uint16)).save(file, **options)
    return folder


def test_scans_of_twelve_bits_have_one_white(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    scans = write_scans(tmp_path / "scans", [4000, 100, 2000, 3000])
    store = read(scans, size=8, labelled=True)
    assert [image.max() for image in store.images] == [249, 125, 6, 187]  # comparable: the dark one stays dark
    assert store.info["notes"] == [f"{scans}: 16-bit images with values up to 4000: read as 12 bits, 4095 is white"]
    model = adamatch.fit(source=scans, target=[str(scans)], test=scans, out=tmp_path / "run", **TINY)
    said = " ".join(capfd.readouterr().err.split())
    assert said.count("read as 12 bits") == 1
    assert adamatch.load(tmp_path / "run").white == model.white == 4095
    bright = write_scans(tmp_path / "bright", [60000])  # as in training: no other white for these
    values = np.linspace(0, 60000, 64).astype(np.uint16).reshape(1, 8, 8) * (255 / 4095)
    ramp = np.rint(values).clip(0, 255).astype(np.uint8)
    found = model.predict(bright)
    assert found.notes == ()
    assert found.probabilities == pytest.approx(model.predict(ramp).probabilities, abs=1e-6)


def test_files_of_sixteen_bits_keep_their_brightness(tmp_path: Path, model: Model) -> None:
    store = read(write_scans(tmp_path, [60000, 3000, 100, 2000]), size=8, labelled=True)
    assert sorted(image.max() for image in store.images) == [0, 8, 12, 233]
    assert "read as 16 bits, 65535 is white" in store.info["notes"][0]
    (note,) = model.predict(tmp_path).notes
    assert "read as 16 bits" in note


def test_what_a_file_says_of_its_bits_holds(tmp_path: Path) -> None:
    scans = write_scans(tmp_path / "tiff", [1000, 500], "tiff", tiffinfo={281: 1023})
    store = read(scans, size=8, labelled=True)
    assert [image.max() for image in store.images] == [249, 125]
    assert (store.info["white"], store.info["notes"]) == (1023, [])
    plain = write_scans(tmp_path / "png", [1000, 500])
    for file in files(plain):
        content = file.read_bytes()
        body = b"sBIT\x0a"
        chunk = struct.pack(">I", 1) + body + struct.pack(">I", zlib.crc32(body))
        file.write_bytes(content[:33] + chunk + content[33:])
    assert [image.max() for image in read(plain, size=8, labelled=True).images] == [249, 125]
    assert [np.asarray(read_image(file, white=65535)).max() for file in files(plain)] == [249, 125]  # among others, too


def test_scans_in_datasets_have_one_white(tmp_path: Path, model: Model) -> None:
    scans = write_scans(tmp_path, [4000, 100, 2000, 3000])
    expected = read(scans, size=8, labelled=False).images
    datasets = pytest.importorskip("datasets")
    coded = datasets.Dataset.from_dict({"image": [str(file) for file in files(scans)]})
    for given in (
        [Image.open(file) for file in files(scans)],
        [np.asarray(Image.open(file)) for file in files(scans)],
        np.stack([np.asarray(Image.open(file)) for file in files(scans)])[..., None],
        coded.cast_column("image", datasets.Image()),
        coded.cast_column("image", datasets.Image(decode=False)),
    ):
        found = read(given, size=8, labelled=False)
        assert np.array_equal(found.images, expected)
        assert found.info["white"] == 4095
        assert model.predict(given).probabilities == pytest.approx(model.predict(scans).probabilities, abs=1e-6)


def test_heic_photographs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heif = pytest.importorskip("pillow_heif")
    for name, colour in (("blue", (20, 40, 220)), ("red", (220, 40, 20))):
        (tmp_path / name).mkdir()
        heif.from_pillow(Image.new("RGB", (64, 64), colour)).save(tmp_path / name / "photo.HEIC")
    store = read(tmp_path, size=8, labelled=True)
    assert np.abs(store.images.mean((1, 2)) - [(20, 40, 220), (220, 40, 20)]).max() < 8
    monkeypatch.delitem(Image.OPEN, "HEIF")
    with pytest.raises(InputError, match=r"photo\.HEIC is a HEIC image.* pillow-heif: pip install 'adamatch\[heic\]'"):
        read(tmp_path, size=8, labelled=True)
