"""The door: patterns, URLs, bytes, open files, dicts of classes, DataLoaders; nothing that a file names is fetched."""

import io
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from colours import CLASSES, TINY, arrays, network
from PIL import Image
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    IterableDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

import adamatch
from adamatch import Model
from adamatch.base.errors import InputError
from adamatch.base.urls import Url
from adamatch.images.inputs import normalised
from adamatch.images.reading import median_side, read
from adamatch.train import speed

COUNT = 12
IMAGES, LABELS = arrays(COUNT)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Images of each class in a folder: red/00.png, ..."""
    for number, (image, label) in enumerate(zip(IMAGES, LABELS, strict=True)):
        file = tmp_path / "images" / CLASSES[label] / f"{number:02}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(file)
    return tmp_path / "images"


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    return Model(network(norm=True).eval(), CLASSES, 8, machine=speed.choose("cpu"))


@pytest.fixture
def site(folder: Path) -> Iterator[str]:
    """Serves the folder on this machine alone."""

    class Files(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = folder / self.path.lstrip("/").partition("?")[0]
            content = path.read_bytes() if path.is_file() else b""
            self.send_response(200 if content else 404)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Files)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.png"))


def same(found: Any, folder: Path, *, labelled: bool = True) -> None:
    """The store holds the folder's images, in its order, and its labels."""
    expected = read(folder, size=8, labelled=True)
    assert np.array_equal(found.images, expected.images)
    if labelled:
        assert found.classes == CLASSES
        assert found.labels.tolist() == expected.labels.tolist()  # type: ignore[union-attr]


UNLABELLED: dict[str, Callable[[Path], Any]] = {
    "a pattern": lambda folder: str(folder / "*" / "*.png"),
    "a pattern as a path": lambda folder: folder / "*/*.png",
    "any depth": lambda folder: f"{folder}/**/*.png",
    "several patterns": lambda folder: [f"{folder}/{name}/*.png" for name in CLASSES],
    "bytes": lambda folder: [file.read_bytes() for file in files(folder)],
    "memory": lambda folder: [memoryview(file.read_bytes()) for file in files(folder)],
    "open files": lambda folder: [file.open("rb") for file in files(folder)],
    "open files, one by one": lambda folder: (io.BytesIO(file.read_bytes()) for file in files(folder)),
    "paths, one by one": lambda folder: iter(files(folder)),
    "a set": lambda folder: {str(file) for file in files(folder)},
    "a tuple": lambda folder: tuple(files(folder)),
    "a mixture": lambda folder: [files(folder)[0], *(Image.open(file) for file in files(folder)[1:])],
}


@pytest.mark.parametrize("kind", UNLABELLED)
def test_images_without_labels(folder: Path, kind: str, model: Model) -> None:
    same(read(UNLABELLED[kind](folder), size=8, labelled=False), folder, labelled=False)
    probabilities = model.predict(folder).probabilities
    assert model.predict(UNLABELLED[kind](folder)).probabilities == pytest.approx(probabilities, abs=1e-6)


def each_class(folder: Path, make: Callable[[list[Path]], Any]) -> dict[str, Any]:
    return {name: make(files(folder / name)) for name in reversed(CLASSES)}


LABELLED: dict[str, Callable[[Path], Any]] = {
    "lists of files": lambda folder: each_class(folder, list),
    "patterns": lambda folder: {name: f"{folder}/{name}/*.png" for name in CLASSES},
    "flat folders": lambda folder: {name: folder / name for name in CLASSES},
    "images": lambda folder: each_class(folder, lambda paths: [Image.open(path) for path in paths]),
    "arrays": lambda folder: each_class(folder, lambda paths: read(paths, size=8).images),
    "all kinds": lambda folder: {
        "red": folder / "red",
        "green": read(folder / "green", size=8).images,
        "blue": [path.read_bytes() for path in files(folder / "blue")],
    },
    "bytes and labels": lambda folder: ([path.read_bytes() for path in files(folder)], np.sort(LABELS)),
    "images and names": lambda folder: (
        list(map(Image.open, files(folder))),
        [path.parent.name for path in files(folder)],
    ),
    "patterns and names": lambda folder: ([f"{folder}/{name}/*.png" for name in CLASSES], list(CLASSES)),
    "pairs of patterns": lambda folder: [(f"{folder}/{name}/*.png", name) for name in CLASSES],
}


@pytest.mark.parametrize("kind", LABELLED)
def test_images_with_labels(folder: Path, kind: str) -> None:
    classes = CLASSES if kind == "bytes and labels" else None
    found = read(LABELLED[kind](folder), size=8, labelled=True, classes=classes)
    order = np.argsort(found.labels, kind="stable")  # type: ignore[arg-type]
    same(type(found)(found.images[order], found.labels[order], found.classes), folder)  # type: ignore[index]
    assert median_side(LABELLED[kind](folder)) == 8


def test_names_of_sources_are_no_classes_where_these_have_classes(folder: Path) -> None:
    found = read({"camera": folder, "phone": str(folder)}, size=8, labelled=True)
    assert found.classes == CLASSES
    assert len(found) == 2 * COUNT
    assert len(read({"camera": folder, "phone": [folder]}, size=8, labelled=False)) == 2 * COUNT


def test_fit_and_evaluate_take_a_dict(folder: Path, tmp_path: Path) -> None:
    source = each_class(folder, list)
    trained = adamatch.fit(source, source, tmp_path / "run", labels_per_class=2, **TINY)
    assert trained.classes == CLASSES
    assert trained.history["run"]["task"] == "ssl"  # one thing, given twice
    assert trained.evaluate(source).confusion.sum() == COUNT


NOTHING: dict[str, tuple[Callable[[Path], Any], str]] = {
    "an empty pattern": (lambda folder: f"{folder}/*.jpg", r"no file matches .*\*\.jpg"),
    "an empty pattern among others": (lambda folder: [folder, f"{folder}/x*"], r"no file matches .*x\*"),
    "an empty list": (lambda folder: [], "the dataset is empty"),
    "a class without images": (lambda folder: {"a": [], "b": [files(folder)[0]]}, "a holds no images"),
    "text": (lambda folder: files(folder)[0].open(encoding="latin1"), "was opened as text: open it as"),
    "closed": (lambda folder: [closed(files(folder)[0])], r"00\.png cannot be read .*open it as open"),
    "images and too few labels": (lambda folder: ([b"a", b"b"], [1]), "2 images and 1 labels"),
    "several data sets": (lambda folder: {"train": read(folder, size=8)}, "the dict holds train: give one"),
    "no image": (lambda folder: b"hello", "image 0 of the dataset is not an image"),
    "another scheme": (lambda folder: "ftp://127.0.0.1/a.png", "is not fetched: give an address that begins with http"),
    "a file by its address": (lambda folder: files(folder)[0].as_uri(), "is not fetched: give an address"),
}


def closed(path: Path) -> Any:
    with path.open("rb") as file:
        return file


@pytest.mark.parametrize("kind", NOTHING)
def test_what_cannot_be_read_is_one_line(folder: Path, kind: str) -> None:
    make, message = NOTHING[kind]
    with pytest.raises(InputError, match=message) as told:
        read(make(folder), size=8)
    assert "\n" not in str(told.value)


def test_a_name_with_brackets_is_a_name(tmp_path: Path) -> None:
    Image.fromarray(IMAGES[0]).save(tmp_path / "a[1].png")
    assert len(read(tmp_path / "a[1].png", size=8)) == 1


def test_no_image_of_an_iterator_is_lost_by_asking_for_their_side(folder: Path) -> None:
    given = (Image.open(file) for file in files(folder))
    assert median_side(given) == 0
    same(read(given, size=8), folder, labelled=False)


def test_what_has_its_form_is_returned_itself(folder: Path) -> None:
    whole: list[Any] = [folder, str(folder), files(folder), (files(folder), LABELS), IMAGES, (IMAGES, LABELS)]
    for given in (*whole, list(IMAGES), {"a": folder}, [(files(folder)[0], "red")], Image.fromarray(IMAGES[0])):
        assert normalised(given) is given


# Images at an address.


def test_addresses(folder: Path, site: str, model: Model, tmp_path: Path) -> None:
    there = [f"{site}/{file.relative_to(folder)}" for file in files(folder)]
    same(read(there, size=8, labelled=False), folder, labelled=False)
    found = model.predict(there)
    assert found.paths == tuple(there)
    assert found.probabilities == pytest.approx(model.predict(folder).probabilities, abs=1e-6)
    assert model.predict(there[0]).labels == found.labels[:1]
    names = [file.parent.name for file in files(folder)]
    same(read((there, names), size=8, labelled=True), folder)
    assert model.evaluate(dict(zip(CLASSES, (there[:4], there[4:8], there[8:]), strict=True))).confusion.sum() == COUNT
    trained = adamatch.fit((there, names), [f"{each}?key=secret" for each in there], tmp_path / "run", **TINY)
    assert "secret" not in (tmp_path / "run/run.json").read_text() + repr(trained)
    with pytest.raises(InputError, match=r"gone\.png cannot be fetched \(HTTP 404 Not Found\)"):
        model.predict([there[0], f"{site}/gone.png"])
    assert len(model.predict([there[0], f"{site}/gone.png"], skip_bad=True)) == 1


def test_what_a_file_or_a_dataset_names_is_never_fetched(site: str, folder: Path, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    address = f"{site}/{files(folder)[0].relative_to(folder)}"
    assert len(read(address, size=8)) == 1
    (tmp_path / "list.csv").write_text(f"{address},red\n")
    frame = pandas.DataFrame({"path": [address], "label": ["red"]})
    strangers: list[Any] = [tmp_path / "list.csv", frame, (frame["path"], frame["label"]), [{"image": address}]]
    for given in strangers:
        with pytest.raises(InputError, match="does not exist"):
            read(given, size=8)
    with pytest.raises(InputError, match="addresses in a table are not fetched: give them as a list"):
        read(frame, size=8)
    assert not isinstance(normalised(frame["path"])[0], Url)


# Datasets.


def colours(classes: Any = CLASSES) -> Any:
    whole = TensorDataset(torch.from_numpy(IMAGES.transpose(0, 3, 1, 2).copy()), torch.from_numpy(LABELS))
    if classes is not None:
        whole.classes = list(classes)  # type: ignore[attr-defined]
    return whole


class Flow(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        yield from colours()


@pytest.mark.parametrize("how", [{}, {"batch_size": 5, "shuffle": True}, {"batch_size": None}, {"drop_last": True}])
def test_a_loader_that_draws_each_image_once_is_its_dataset(how: dict[str, Any]) -> None:
    whole = colours()
    assert normalised(DataLoader(whole, **how)) is whole
    found = read(DataLoader(whole, **how), size=8, labelled=True)
    assert np.array_equal(found.images, IMAGES)
    assert found.classes == CLASSES
    flow = Flow()
    assert normalised(DataLoader(flow)) is flow


class Own(DataLoader[Any]):
    def __iter__(self) -> Any:
        return iter([])


def test_other_loaders_are_refused_with_what_to_give_instead() -> None:
    whole, weights = colours(), [1.0] * COUNT
    part, some = SubsetRandomSampler(range(3)), "give these as a dataset, such as torch.utils.data.Subset"
    for loader, message in (
        (DataLoader(whole, collate_fn=lambda items: items), r"has a collate_fn of its own.* \(loader\.dataset\)"),
        (DataLoader(whole, batch_sampler=[[0, 1], [2]]), r"batches in a way of its own.* \(loader\.dataset\)"),
        (Own(whole), r"batches in a way of its own.* \(loader\.dataset\)"),
        (DataLoader(whole, sampler=part), f"with a SubsetRandomSampler: {some}"),
        (DataLoader(whole, sampler=WeightedRandomSampler(weights, COUNT)), f"with a WeightedRandomSampler: {some}"),
        (DataLoader(whole, sampler=torch.utils.data.RandomSampler(whole, num_samples=4)), "with a RandomSampler"),
    ):
        with pytest.raises(InputError, match=message):
            read(loader, size=8)


def test_names_of_classes_are_kept_through_parts_and_wholes() -> None:
    both: Any = ConcatDataset([Subset(colours(), [0, 1, 2]), colours()])
    wholes: list[Any] = [both, Subset(both, [1, 2, 4]), ConcatDataset([both, colours()]), DataLoader(both)]
    for given in wholes:
        assert read(given, size=8, labelled=True).classes == CLASSES
    assert read(both, size=8, labelled=True).labels.tolist() == [0, 1, 2, *LABELS.tolist()]  # type: ignore[union-attr]
    assert read(ConcatDataset([colours(), colours(None)]), size=8, labelled=True).classes == ("0", "1", "2")
    with pytest.raises(InputError, match="name their classes differently"):
        read(ConcatDataset([colours(), colours(("red", "green", "blue"))]), size=8, labelled=True)
