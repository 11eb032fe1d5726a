"""Folders, CSV lists, arrays and datasets become the same store, and every mistake one line that names it."""

import csv
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from adamatch.base.errors import InputError
from adamatch.images import reading as folders
from adamatch.images.arrays import from_arrays
from images_old.adapter import from_dataset
from adamatch.images.decode import read_image
from images_old.adapter import median_side, read, read_folder
from images_old.adapter import list_csv, list_images
from adamatch.images.store import Store, Writer


def save(path: Path, colour: tuple[int, int, int] = (10, 20, 30), shape: tuple[int, int] = (12, 12)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", shape, colour).save(path)
    return path


@pytest.fixture
def animals(tmp_path: Path) -> Path:
    """Three classes; two images each, of which one in a sub-folder; sidecars and hidden files that are no images."""
    root = tmp_path / "animals"
    for index, name in enumerate(["dog", "cat", "Bee"]):
        save(root / name / "b.png", (index, 0, 0))
        save(root / name / "more" / "a.PNG", (index, 1, 0))
        (root / name / "notes.txt").write_text("no image")
        (root / name / ".DS_Store").write_bytes(b"\0\1")
        (root / name / "Thumbs.db").write_bytes(b"\0\1")
    save(root / ".hidden" / "x.png")
    (root / "labels.csv").write_text("nothing")
    return root


def colours(store: Store) -> list[list[int]]:
    colour: list[list[int]] = store.images[:, 0, 0].tolist()
    return colour


def test_class_folders_are_listed_in_order(animals: Path) -> None:
    paths, labels, classes = list_images(animals)
    assert classes == ("Bee", "cat", "dog")
    assert [str(path.relative_to(animals)) for path in paths] == [
        *("Bee/b.png", "Bee/more/a.PNG", "cat/b.png", "cat/more/a.PNG", "dog/b.png", "dog/more/a.PNG")
    ]
    assert labels is not None
    assert labels.tolist() == [0, 0, 1, 1, 2, 2]


def test_a_labelled_folder_becomes_a_store(animals: Path) -> None:
    store = read_folder(animals, size=8, labelled=True)
    assert store.images.shape == (6, 8, 8, 3)
    assert colours(store) == [[2, 0, 0], [2, 1, 0], [1, 0, 0], [1, 1, 0], [0, 0, 0], [0, 1, 0]]
    assert store.info["files"][0] == str(animals / "Bee" / "b.png")
    assert store.info["skipped"] == {}


def test_the_order_of_the_source_decides_the_labels(animals: Path) -> None:
    store = read_folder(animals, size=8, classes=["dog", "owl", "cat", "Bee"])
    assert store.classes == ("dog", "owl", "cat", "Bee")
    assert store.labels is not None
    assert store.labels.tolist() == [3, 3, 2, 2, 0, 0]
    with pytest.raises(InputError, match="classes that were not learnt: 'Bee', 'cat'"):
        read_folder(animals, size=8, classes=["dog", "owl"])


def test_without_labels_everything_below_is_taken(animals: Path) -> None:
    save(animals / "loose.png")
    store = read_folder(animals, size=8, labelled=False, classes=["x", "y"])
    assert len(store) == 7
    assert store.labels is None
    assert store.classes == ("x", "y")


def test_a_flat_folder_has_no_labels(tmp_path: Path) -> None:
    save(tmp_path / "flat" / "2.jpg")
    save(tmp_path / "flat" / "1.JPeG")
    paths, labels, classes = list_images(tmp_path / "flat")
    assert [path.name for path in paths] == ["1.JPeG", "2.jpg"]
    assert labels is None
    assert classes == ()
    with pytest.raises(InputError, match="has images but no labels: put them into one folder per class"):
        read_folder(tmp_path / "flat", size=8, labelled=True)


def test_a_link_that_leads_up_brings_no_images_of_other_classes(animals: Path) -> None:
    before = list_images(animals)
    (animals / "cat" / "up").symlink_to(animals, target_is_directory=True)
    (animals / "cat" / "further").symlink_to(animals.parent, target_is_directory=True)
    after = list_images(animals)
    assert after[0] == before[0]


def test_a_link_that_leads_back_ends(animals: Path) -> None:
    (animals / "cat" / "loop").symlink_to(animals / "cat", target_is_directory=True)
    assert len(list_images(animals)[0]) == 6


def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="gone does not exist"):
        read_folder(tmp_path / "gone", size=8)
    (tmp_path / "empty").mkdir()
    for labelled in (None, True, False):
        with pytest.raises(InputError, match="empty holds no images"):
            read_folder(tmp_path / "empty", size=8, labelled=labelled)
    save(tmp_path / "one" / "cat" / "a.png")
    with pytest.raises(InputError, match=r"one class only \(cat\)"):
        read_folder(tmp_path / "one", size=8, labelled=True)
    assert len(read_folder(tmp_path / "one", size=8, labelled=True, classes=["cat", "dog"])) == 1, "enough to evaluate"
    (tmp_path / "one" / "dog").mkdir()
    with pytest.raises(InputError, match=r"one class only \(cat\).*no images in dog: not taken for a class"):
        read_folder(tmp_path / "one", size=8, labelled=True)
    with pytest.raises(InputError, match="at least 1"):
        read_folder(tmp_path / "one", size=0)


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("damage", ["empty", "truncated", "corrupt", "text", "unknown"])
def test_bad_images_are_named_or_skipped(animals: Path, tmp_path: Path, damage: str, cached: bool) -> None:
    bad = animals / "cat" / ("bad.xyz" if damage == "unknown" else "bad.png")
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    Image.fromarray(noise).save(bad, "PNG")
    content = bytearray(bad.read_bytes())
    content[content.index(b"IDAT") + 40] ^= 0xFF
    contents = {
        "empty": b"",
        "truncated": bytes(content[:700]),
        "corrupt": bytes(content),
        "text": b"hello",
        "unknown": b"?",
    }
    bad.write_bytes(contents[damage])
    cache = tmp_path / "cache" if cached else None
    reason = {"empty": "is empty", "text": "is not an image", "unknown": "is not an image"}.get(
        damage, "is (truncated|corrupt)"
    )
    with pytest.raises(InputError, match=rf"bad\.(png|xyz) {reason}.*skip_bad=True") as caught:
        read_folder(animals, size=8, cache=cache)
    assert "\n" not in str(caught.value)
    store = read_folder(animals, size=8, cache=cache, skip_bad=True)
    assert store.labels is not None
    assert store.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert colours(store) == [[2, 0, 0], [2, 1, 0], [1, 0, 0], [1, 1, 0], [0, 0, 0], [0, 1, 0]]
    assert list(store.info["skipped"]) == [str(bad)]
    assert str(bad) not in store.info["files"]
    with pytest.raises(InputError, match="skip_bad=True"):
        read_folder(animals, size=8, cache=cache)  # what was skipped then is not passed over in silence now
    assert cache is None or [path.name for path in tmp_path.iterdir() if "kept" in path.name] == []


def test_nothing_readable_is_an_error_even_when_skipping(tmp_path: Path) -> None:
    save(tmp_path / "bad" / "a.png").write_bytes(b"x")
    with pytest.raises(InputError, match="none of 1 images can be read"):
        read_folder(tmp_path / "bad", size=8, skip_bad=True)


def test_the_cache_holds_the_same_and_is_used_again(
    animals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = read_folder(animals, size=8)
    first = read_folder(animals, size=8, cache=tmp_path / "deep" / "cache")
    assert np.array_equal(first.images, plain.images)
    assert np.array_equal(first.labels, plain.labels)  # type: ignore[arg-type]
    assert first.info["files"] == plain.info["files"]
    monkeypatch.setattr(folders, "read_image", None)
    again = read_folder(animals, size=8, cache=tmp_path / "deep" / "cache")
    assert np.array_equal(again.images, plain.images)
    monkeypatch.undo()
    save(animals / "cat" / "b.png", (99, 99, 99), (20, 20))
    assert colours(read_folder(animals, size=8, cache=tmp_path / "deep" / "cache"))[2] == [99, 99, 99], "a changed file"


def test_an_interrupted_reading_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for index in range(100):
        save(tmp_path / "many" / f"{index:03}.png", (index, 0, 0))
    read_now: list[Path] = []

    def stumble(path: Path, **how: Any) -> Image.Image:
        read_now.append(path)
        if len(read_now) == 60:
            raise KeyboardInterrupt
        return read_image(path, **how)

    monkeypatch.setattr(folders, "read_image", stumble)
    with pytest.raises(KeyboardInterrupt):
        read_folder(tmp_path / "many", size=8, cache=tmp_path / "cache", workers=1)
    assert not (tmp_path / "cache").exists()
    store = read_folder(tmp_path / "many", size=8, cache=tmp_path / "cache", workers=1)
    assert len(read_now) <= 101, "none but the interrupted image twice"
    assert colours(store) == [[index, 0, 0] for index in range(100)]


def test_a_cache_never_replaces_something_else(animals: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("work of years")
    with pytest.raises(InputError, match="holds something else than a store"):
        read_folder(animals, size=8, cache=tmp_path / "thesis")
    assert (tmp_path / "thesis" / "chapter1.tex").exists()


def test_threads_do_not_change_the_result_and_progress_is_told(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for index in range(70):
        side = int(rng.integers(4, 40))
        path = save(tmp_path / "many" / f"{index:03}.png")
        Image.fromarray(rng.integers(0, 256, (side, side + 3, 3), dtype=np.uint8)).save(path)
    steps: list[tuple[int, int]] = []
    one = read_folder(tmp_path / "many", size=16, workers=1)
    many = read_folder(tmp_path / "many", size=16, workers=4, progress=lambda done, total: steps.append((done, total)))
    assert np.array_equal(one.images, many.images)
    assert steps == [(32, 70), (64, 70), (70, 70)]


def write_csv(file: Path, rows: list[list[str]]) -> Path:
    with file.open("w", newline="") as text:
        csv.writer(text).writerows(rows)
    return file


@pytest.mark.parametrize("header", [[], [["path", "label"]], [["Filename", "Class"]]])
def test_csv_lists(animals: Path, header: list[list[str]]) -> None:
    rows = [["dog/b.png", "dog"], ["cat/b.png", "cat"], ["cat/more/a.PNG", "cat"]]
    store = read_folder(write_csv(animals / "list.csv", [*header, *rows]), size=8, labelled=True)
    assert store.classes == ("cat", "dog")
    assert store.labels is not None
    assert store.labels.tolist() == [1, 0, 0]
    assert colours(store) == [[0, 0, 0], [1, 0, 0], [1, 1, 0]]


def test_csv_columns_by_name_without_labels_and_with_a_byte_order_mark(animals: Path) -> None:
    file = write_csv(
        animals / "a.csv", [["label", "width", "path"], ["dog", "3", "dog/b.png"], ["cat", "4", "cat/b.png"]]
    )
    assert list_csv(file)[1].tolist() == [1, 0]  # type: ignore[union-attr]
    assert list_csv(write_csv(file, [["path", "width"], ["dog/b.png", "3"]]))[1] is None
    assert list_csv(write_csv(file, [["dog/b.png"], [], ["cat/b.png"]]))[1] is None
    assert list_csv(write_csv(file, [["dog/b.png", "image"]]))[2] == ("image",), "a class that is called as a header is"
    file.write_text("\ufeffpath, label\ncat/b.png, cat\n", encoding="utf-8")
    assert list_csv(file)[2] == ("cat",)
    assert list_csv(file, labelled=False)[1:] == (None, ())


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [["path", "label"], ["dog/b.png", "dog"], ["dog/gone.png", "dog"]],
            r"list\.csv, line 3: .*gone\.png does not exist",
        ),
        ([["dog/b.png", "dog"], ["cat/b.png", ""]], r"line 2: the label is missing"),
        ([["dog/b.png", "dog"], ["cat/b.png"]], r"line 2: the label is missing"),
        ([["dog/b.png"]], r"has no labels: add a column"),
        ([["dog/b.png", "dog"]], r"one class only \(dog\)"),
        ([["path", "label"]], r"holds no images"),
        ([], r"holds no images"),
    ],
)
def test_csv_lists_that_cannot_be_used(animals: Path, rows: list[list[str]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_folder(write_csv(animals / "list.csv", rows), size=8, labelled=True)


def test_csv_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.csv does not exist"):
        read_folder(tmp_path / "gone.csv", size=8)
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x80\x81")
    with pytest.raises(InputError, match="cannot be read as CSV"):
        read_folder(tmp_path / "binary.csv", size=8)


RAMP = np.arange(2 * 6 * 6 * 3, dtype=np.uint8).reshape(2, 6, 6, 3)


def test_arrays_of_every_layout_and_type() -> None:
    for images in (
        RAMP,
        RAMP.transpose(0, 3, 1, 2),
        RAMP / 255,
        (RAMP / 255).astype(np.float32),
        torch.from_numpy(RAMP),
    ):
        assert np.array_equal(from_arrays(images).images, RAMP)
    grey = RAMP[..., 0]
    for images in (grey, grey[..., None], grey[:, None]):
        assert np.array_equal(from_arrays(images).images, np.stack([grey] * 3, -1))
    clear = np.concatenate([RAMP, np.zeros_like(RAMP[..., :1])], -1)
    assert (from_arrays(clear).images == 255).all()


def test_arrays_with_labels_and_another_size() -> None:
    store = from_arrays(RAMP, [1, 0], size=2)
    assert store.images.shape == (2, 2, 2, 3)
    assert np.abs(store.images[0] - RAMP[0].reshape(2, 3, 2, 3, 3).mean((1, 3))).max() <= 1
    assert store.classes == ("0", "1")
    named = from_arrays(RAMP, ["dog", "cat"])
    assert named.labels is not None
    assert (named.classes, named.labels.tolist()) == (("cat", "dog"), [1, 0])
    assert from_arrays(RAMP[:, :5]).size == 5


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (RAMP.astype(np.int64), None, "type int64"),
        (RAMP.astype(np.float32), None, r"run from 0 to 215: scale them to \[0, 1\]"),
        (RAMP / 255 - 0.5, None, "run from -0.5"),
        (np.full((1, 4, 4, 3), np.nan), None, "run from nan"),
        (RAMP[..., :2], None, r"shape \(2, 6, 6, 2\)"),
        (RAMP[:0], None, "no images"),
        (RAMP, [0], "2 images and 1 labels"),
        (RAMP, [0, -1], "run from -1 to 0"),
        (RAMP, [0.5, 1], "type float64"),
        (RAMP, [[0, 1], [1, 0]], r"labels of shape \(2, 2\)"),
    ],
)
def test_arrays_that_cannot_be_used(images: Any, labels: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_arrays(images, labels)


def test_labels_beyond_the_classes_are_refused() -> None:
    with pytest.raises(InputError, match="labels run from 0 to 5, but there are 2 classes"):
        from_arrays(RAMP, [0, 5], classes=["a", "b"])


class Pictures(Dataset[tuple[Image.Image, int]]):
    classes = ("zero", "one", "two")

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        return Image.new("L", (10, 6), index * 10), index % 3


class Unlabelled(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        yield from (torch.full((3, 6, 6), value) for value in (0.0, 0.5, 1.0))


class Numbered(Dataset[tuple[Image.Image, int]]):
    """Its classes are called by numbers, and are not in their order: as with torchvision's ImageFolder, from ten on."""

    classes = ("1", "0", "2")

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        return Image.new("L", (6, 6), int(self.classes[index])), index


def test_labels_of_a_dataset_count_its_names_even_where_these_are_numbers() -> None:
    for asked in (None, ["0", "1", "2"]):
        store = read(Numbered(), classes=asked)
        assert store.labels is not None
        assert (
            [int(store.classes[label]) for label in store.labels]
            == [colour[0] for colour in colours(store)]
            == [1, 0, 2]
        )
        assert store.classes == tuple(asked or Numbered.classes)


def test_torch_datasets() -> None:
    store = read(Pictures())
    assert store.images.shape == (4, 6, 6, 3)
    assert colours(store) == [[value] * 3 for value in (0, 10, 20, 30)]
    assert store.labels is not None
    assert (store.labels.tolist(), store.classes) == ([0, 1, 2, 0], ("zero", "one", "two"))
    assert read(Pictures(), labelled=False).labels is None
    tensors = TensorDataset(torch.from_numpy(RAMP.transpose(0, 3, 1, 2).copy()), torch.tensor([1, 0]))
    assert np.array_equal(read(tensors).images, RAMP)
    assert read(tensors, classes=["1", "0"]).labels.tolist() == [0, 1]  # type: ignore[union-attr]
    assert colours(read(Unlabelled(), size=8)) == [[0] * 3, [128] * 3, [255] * 3]
    with pytest.raises(InputError, match="has no labels"):
        read(Unlabelled(), labelled=True)
    with pytest.raises(InputError, match=r"image 0 of the dataset: float images run from -1"):
        from_dataset([torch.full((3, 6, 6), -1.0)], size=6)
    with pytest.raises(InputError, match="is empty"):
        from_dataset([])
    with pytest.raises(InputError, match="labels 1 of its 2 images"):
        from_dataset([(RAMP[0], 1), RAMP[0]])


def test_read_takes_everything(animals: Path, tmp_path: Path) -> None:
    folder = read(animals, size=8, cache=tmp_path / "store")
    assert np.array_equal(read(str(animals), size=8).images, folder.images)
    for same in (read(tmp_path / "store"), read(folder), read((folder.images, folder.labels), labelled=True)):
        assert np.array_equal(same.images, folder.images)
        assert np.array_equal(same.labels, folder.labels)  # type: ignore[arg-type]
    assert read(folder.images).labels is None
    assert read(folder, size=4).images.shape == (6, 4, 4, 3)
    turned = read(folder, classes=["dog", "cat", "Bee"])
    assert turned.labels is not None
    assert turned.labels.tolist() == [2, 2, 1, 1, 0, 0]
    assert read(folder, labelled=False).labels is None
    assert read(animals).size == 12, "the median side"
    assert colours(read(animals / "cat" / "b.png", size=8)) == [[1, 0, 0]], "one image"
    assert colours(read([animals / "cat" / "b.png", animals / "dog" / "b.png"])) == [[1, 0, 0], [0, 0, 0]]
    with pytest.raises(InputError, match="classes that were not learnt: 'Bee'"):
        read(folder, classes=["dog", "cat"])
    with pytest.raises(InputError, match="has no labels"):
        read(folder.images, labelled=True)
    with pytest.raises(InputError, match="one class only"):
        read(from_arrays(RAMP, [0, 0]), labelled=True)
    with pytest.raises(InputError, match="cannot read images from int"):
        read(3)


def test_a_store_made_by_a_writer_is_read_back(tmp_path: Path) -> None:
    with Writer(tmp_path / "store", count=2, size=6, classes=["a"], labelled=False) as writer:
        writer.images[:] = RAMP
        writer.done[:] = 1
    assert np.array_equal(read(tmp_path / "store", size=6).images, RAMP)


def test_median_side_reads_headers_only(tmp_path: Path) -> None:
    for index, shape in enumerate([(10, 50), (60, 20), (30, 30)]):
        path = save(tmp_path / "c" / f"{index}.png", shape=shape)
        path.write_bytes(path.read_bytes()[:60])  # the header alone is left
    (tmp_path / "c" / "broken.png").write_bytes(b"x")
    assert median_side(tmp_path) == 20
    for path in (tmp_path / "c").iterdir():
        path.write_bytes(b"x")
    with pytest.raises(InputError, match="no image that can be read"):
        median_side(tmp_path)


@pytest.mark.parametrize("labels", [np.array([1, 2, 3, 1]), np.array([10, 20, 30, 10])])
def test_numbers_name_their_classes_and_none_is_made_up(labels: np.ndarray) -> None:
    images = np.zeros((4, 8, 8, 3), np.uint8)
    store = read((images, labels))
    assert store.classes == tuple(map(str, sorted(set(labels.tolist()))))
    assert store.labels is not None
    assert store.labels.tolist() == [0, 1, 2, 0]
    part = read((images[:2], labels[1:3]), classes=store.classes, labelled=True)
    assert part.labels is not None
    assert part.labels.tolist() == [1, 2]


def test_numbers_count_the_names_of_the_source() -> None:
    store = read((np.zeros((2, 8, 8, 3), np.uint8), np.array([2, 0])), classes=("ant", "bee", "cow"), labelled=True)
    assert store.labels is not None
    assert store.labels.tolist() == [2, 0]


def test_words_in_an_array_of_objects() -> None:
    store = read((np.zeros((2, 8, 8, 3), np.uint8), np.array(["cow", "ant"], dtype=object)))
    assert store.classes == ("ant", "cow")


def test_a_subset_has_the_classes_of_the_whole() -> None:
    whole = TensorDataset(torch.zeros(6, 3, 8, 8), torch.arange(6) % 3)
    whole.classes = ["ant", "bee", "cow"]  # type: ignore[attr-defined]
    assert read(Subset(Subset(whole, [0, 1, 2, 3]), [1, 2])).classes == ("ant", "bee", "cow")


def test_a_loader_is_refused_and_an_endless_kind_with_a_length_is_read() -> None:
    class Stream(IterableDataset[tuple[torch.Tensor, int]]):
        def __len__(self) -> int:
            return 3

        def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
            return iter([(torch.zeros(3, 8, 8), number) for number in range(3)])

    assert len(read(Stream())) == 3
    with pytest.raises(InputError, match="give its dataset"):
        read(DataLoader(Stream()))


def test_a_missing_file_of_a_list_is_left_out_where_that_is_asked(tmp_path: Path) -> None:
    save(tmp_path / "a.png")
    file = tmp_path / "list.csv"
    file.write_text("a.png,x\nb.png,y\na.png,y\n")
    with pytest.raises(InputError, match=r"line 2: .*b\.png does not exist \(paths are relative to"):
        read_folder(file, size=8)
    store = read_folder(file, size=8, skip_bad=True)
    assert store.labels is not None
    assert store.labels.tolist() == [0, 1]
    assert list(store.info["skipped"]) == [str(tmp_path / "b.png")]


@pytest.mark.parametrize("first", ["path;label", "image_id,species"])
def test_a_header_that_is_none_is_guessed(first: str, tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text(f"{first}\na.png,x\n")
    with pytest.raises(InputError, match="a header\\? its columns are path,label, separated by commas"):
        list_csv(tmp_path / "list.csv")


def test_a_folder_that_cannot_be_read_is_named(animals: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.scandir

    def scandir(path: Any) -> Any:
        if Path(path).name == "more":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(InputError, match=r"more cannot be read \(Permission denied\)"):
        list_images(animals)
