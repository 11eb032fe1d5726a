"""Files, arrays and datasets become the same store, and every mistake one line that names it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from published import formats
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from adamatch.base.errors import InputError
from adamatch.images import reading
from adamatch.images.arrays import from_arrays
from adamatch.images.decode import Square, read_image
from adamatch.images.items import from_dataset
from adamatch.images.reading import median_side, read
from adamatch.images.store import Store

RAMP = np.arange(2 * 6 * 6 * 3, dtype=np.uint8).reshape(2, 6, 6, 3)


def save(path: Path, colour: tuple[int, int, int] = (10, 20, 30), shape: tuple[int, int] = (12, 12)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", shape, colour).save(path)
    return path


@pytest.fixture
def animals(tmp_path: Path) -> Path:
    """Three classes; two images each, told apart by their colours."""
    for index, name in enumerate(["dog", "cat", "Bee"]):
        save(tmp_path / "animals" / name / "a.png", (index, 0, 0))
        save(tmp_path / "animals" / name / "b.png", (index, 1, 0))
    return tmp_path / "animals"


def colours(store: Store) -> list[list[int]]:
    return store.images[:, 0, 0].tolist()  # type: ignore[no-any-return]


def labels(store: Store) -> list[int]:
    assert store.labels is not None
    return list(store.labels.tolist())


@pytest.mark.parametrize("damage", ["empty", "truncated", "corrupt", "text", "unknown"])
def test_few_bad_images_are_left_out_and_many_are_named(animals: Path, damage: str) -> None:
    bad = animals / "cat" / ("bad.xyz" if damage == "unknown" else "bad.png")
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    Image.fromarray(noise).save(bad, "PNG")
    corrupt = bytearray(bad.read_bytes())
    corrupt[corrupt.index(b"IDAT") + 40] ^= 0xFF
    contents = {"empty": b"", "truncated": bytes(corrupt[:700]), "corrupt": bytes(corrupt)}
    bad.write_bytes(contents.get(damage, b"hello"))
    reasons = {"empty": "is empty", "text": "is not an image", "unknown": "is not an image"}
    why = rf"bad\.(png|xyz) {reasons.get(damage, 'is (truncated|corrupt)')}"
    store = read(animals, size=8)
    assert re.search(why, store.info["skipped"][str(bad)])
    assert labels(store) == [0, 0, 1, 1, 2, 2]
    assert colours(store) == [[2, 0, 0], [2, 1, 0], [1, 0, 0], [1, 1, 0], [0, 0, 0], [0, 1, 0]]
    assert list(store.info["skipped"]) == [str(bad)]
    assert store.info["files"] == sorted(str(path) for path in animals.rglob("*.*") if path != bad)
    save(animals / "dog/worse.png").write_bytes(b"no image")
    with pytest.raises(
        InputError, match=rf"^2 of 8 images cannot be read: .*{why}.*worse\.png.*skip_bad=True"
    ) as caught:
        read(animals, size=8)
    assert "\n" not in str(caught.value)
    assert labels(read(animals, size=8, skip_bad=True)) == labels(store)


def test_less_than_a_hundredth_is_few_and_twenty_are_named(tmp_path: Path) -> None:
    for index in range(301):
        save(tmp_path / f"{index:03}.png").write_bytes(b"no image")
        if index >= 3:
            save(tmp_path / f"{index:03}.png", (index % 256, 0, 0))
    assert len(read(tmp_path, size=4)) == 298
    (tmp_path / "300.png").unlink()  # three of three hundred are a hundredth
    with pytest.raises(InputError, match=r"^3 of 300 images cannot be read: .*000\.png.*001\.png.*002\.png"):
        read(tmp_path, size=4)
    for index in range(3, 25):
        (tmp_path / f"{index:03}.png").write_bytes(b"no image")
    with pytest.raises(InputError, match=r"^25 of 300 .*019\.png is not an image.* and 5 more: replace"):
        read(tmp_path, size=4)


def test_nothing_readable_is_an_error_even_when_skipping(tmp_path: Path) -> None:
    save(tmp_path / "bad" / "a.png").write_bytes(b"x")
    with pytest.raises(InputError, match="none of 1 images can be read"):
        read(tmp_path / "bad", size=8, skip_bad=True)


def test_a_missing_file_of_a_list_is_left_out_where_that_is_asked(tmp_path: Path) -> None:
    save(tmp_path / "a.png")
    (tmp_path / "list.csv").write_text("a.png,x\nb.png,y\na.png,y\n")
    with pytest.raises(InputError, match=r"line 2: .*b\.png does not exist \(paths are relative to"):
        read(tmp_path / "list.csv", size=8)
    store = read(tmp_path / "list.csv", size=8, skip_bad=True)
    assert labels(store) == [0, 1]
    assert list(store.info["skipped"]) == [str(tmp_path / "b.png")]


def test_an_interruption_ends_the_reading_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for index in range(400):
        save(tmp_path / f"{index:03}.png")
    seen: list[Path] = []

    def stumble(path: Path, **how: Any) -> Image.Image:
        seen.append(path)
        if len(seen) == 20:
            raise KeyboardInterrupt
        return read_image(path, **how)

    monkeypatch.setattr(reading, "read_image", stumble)
    monkeypatch.setattr(reading, "cores", lambda: 1)
    with pytest.raises(KeyboardInterrupt):
        read(tmp_path, size=8)
    assert len(seen) < 200


def test_threads_do_not_change_the_result_and_progress_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    for index in range(70):
        side = int(rng.integers(4, 40))
        Image.fromarray(rng.integers(0, 256, (side, side + 3, 3), dtype=np.uint8)).save(tmp_path / f"{index:03}.png")
    steps: list[tuple[int, int]] = []
    monkeypatch.setattr(reading, "cores", lambda: 1)
    one = read(tmp_path, size=16)
    monkeypatch.setattr(reading, "cores", lambda: 4)
    many = read(tmp_path, size=16, progress=lambda done, total: steps.append((done, total)))
    assert np.array_equal(one.images, many.images)
    assert steps == [(32, 70), (64, 70), (70, 70)]


def test_arrays_of_every_layout_and_type() -> None:
    same = (RAMP, RAMP.transpose(0, 3, 1, 2), RAMP / 255, (RAMP / 255).astype(np.float32), torch.from_numpy(RAMP))
    for images in same:
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
    named = from_arrays(RAMP, np.array(["dog", "cat"], dtype=object))
    assert (named.classes, labels(named)) == (("cat", "dog"), [1, 0])
    assert from_arrays(RAMP[:, :5]).size == 5


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (RAMP.astype(np.int64), None, "images are int64"),
        (RAMP.astype(np.float32), None, r"run from 0 to 215: scale them to \[0, 1\]"),
        (RAMP / 255 - 0.5, None, "run from -0.5"),
        (np.full((1, 4, 4, 3), np.nan), None, "run from nan"),
        (RAMP[..., :2], None, r"shape \(2, 6, 6, 2\)"),
        (RAMP[:0], None, "no images"),
        (RAMP, [0], "2 images and 1 labels"),
        (RAMP, [0, -1], "run from -1 to 0"),
        (RAMP, [0.5, 1], "labels are float64"),
        (RAMP, [[0, 1], [1, 0]], r"labels have the shape \(2, 2\)"),
    ],
)
def test_arrays_that_cannot_be_used(images: Any, labels: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_arrays(images, labels)


@pytest.mark.parametrize("numbers", [np.array([1, 2, 3, 1]), np.array([10, 20, 30, 10])])
def test_numbers_name_their_classes_and_none_is_made_up(numbers: np.ndarray) -> None:
    images = np.zeros((4, 8, 8, 3), np.uint8)
    store = read((images, numbers), size=8)
    assert store.classes == tuple(map(str, sorted(set(numbers.tolist()))))
    assert labels(store) == [0, 1, 2, 0]
    assert labels(read((images[:2], numbers[1:3]), size=8, classes=store.classes, labelled=True)) == [1, 2]


def test_numbers_count_the_names_of_the_source() -> None:
    images = np.zeros((2, 8, 8, 3), np.uint8)
    assert labels(read((images, np.array([2, 0])), size=8, classes=("ant", "bee", "cow"), labelled=True)) == [2, 0]
    with pytest.raises(InputError, match="labels run from 0 to 5, but there are 2 classes"):
        from_arrays(images, [0, 5], classes=["a", "b"])


class Pictures(Dataset[tuple[Image.Image, int]]):
    classes = ("zero", "one", "two")

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        return Image.new("L", (10, 6), index * 10), index % 3


class Flow(IterableDataset[Any]):
    """Without labels; it has a length, and cannot be asked for an item."""

    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Iterator[Any]:
        yield from (torch.full((3, 6, 6), value) for value in (0.0, 0.5, 1.0))


def test_labels_of_a_dataset_count_its_names_even_where_these_are_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with torchvision's ImageFolder, from ten on."""
    monkeypatch.setattr(Pictures, "classes", ("1", "0", "2"))
    for asked in (None, ["0", "1", "2"]):
        store = read(Pictures(), size=6, classes=asked)
        assert [store.classes[label] for label in labels(store)] == ["1", "0", "2", "1"]


def test_torch_datasets() -> None:
    store = read(Pictures(), size=6)
    assert colours(store) == [[value] * 3 for value in (0, 10, 20, 30)]
    assert (labels(store), store.classes) == ([0, 1, 2, 0], ("zero", "one", "two"))
    assert read(Pictures(), size=6, labelled=False).labels is None
    tensors = TensorDataset(torch.from_numpy(RAMP.transpose(0, 3, 1, 2).copy()), torch.tensor([1, 0]))
    assert np.array_equal(read(tensors, size=6).images, RAMP)
    assert labels(read(tensors, size=6, classes=["1", "0"])) == [0, 1]
    assert colours(read(Flow(), size=8)) == [[0] * 3, [128] * 3, [255] * 3]
    whole = TensorDataset(torch.zeros(6, 3, 8, 8), torch.arange(6) % 3)
    whole.classes = ["ant", "bee", "cow"]  # type: ignore[attr-defined]
    assert read(Subset(Subset(whole, [0, 1, 2, 3]), [1, 2]), size=8).classes == ("ant", "bee", "cow")


def test_datasets_that_cannot_be_used() -> None:
    with pytest.raises(InputError, match="has no labels"):
        read(Flow(), size=6, labelled=True)
    for items, message in (
        ([torch.full((3, 6, 6), -1.0)], "image 0 of the dataset: float images run from -1"),
        ([], "is empty"),
        ([(RAMP[0], 1), RAMP[0]], "labels 1 of its 2 images"),
    ):
        with pytest.raises(InputError, match=message):
            from_dataset(items, Square(6))


def test_read_takes_everything(animals: Path, tmp_path: Path) -> None:
    folder = read(animals, size=8)
    formats.store(tmp_path / "store", folder.images, folder.labels, folder.classes)
    arrays = (folder.images, np.array(["Bee", "cat", "dog"]).repeat(2))
    for source in (str(animals), tmp_path / "store", folder, arrays):
        found = read(source, size=8, labelled=True)
        assert np.array_equal(found.images, folder.images)
        assert (labels(found), found.classes) == (labels(folder), folder.classes)
    assert read(folder.images, size=8).labels is None
    assert read(folder, size=4).images.shape == (6, 4, 4, 3)
    assert labels(read(folder, size=8, classes=["dog", "cat", "Bee"])) == [2, 2, 1, 1, 0, 0]
    assert read(folder, size=8, labelled=False).labels is None
    assert colours(read(animals / "cat" / "b.png", size=8)) == [[1, 1, 0]], "one image"
    assert colours(read([animals / "cat" / "b.png", animals / "dog" / "b.png"], size=8)) == [[1, 1, 0], [0, 1, 0]]
    wrong: tuple[tuple[Any, dict[str, Any], str], ...] = (
        (folder, {"classes": ["dog", "cat"]}, "classes that were not learnt: 'Bee'"),
        (folder.images, {"labelled": True}, "has no labels"),
        (from_arrays(RAMP, [0, 0]), {"labelled": True}, "one class only"),
        (3, {}, "cannot read images from int"),
    )
    for source, wanted, message in wrong:
        with pytest.raises(InputError, match=message):
            read(source, size=8, **wanted)


def test_the_median_side_is_read_from_headers(tmp_path: Path) -> None:
    for index, shape in enumerate([(10, 50), (60, 20), (30, 30)]):
        path = save(tmp_path / "c" / f"{index}.png", shape=shape)
        path.write_bytes(path.read_bytes()[:60])  # the header alone is left
    (tmp_path / "c" / "broken.png").write_bytes(b"x")
    assert median_side(tmp_path) == 20
    for path in (tmp_path / "c").iterdir():
        path.write_bytes(b"x")
    with pytest.raises(InputError, match="no image that can be read"):
        median_side(tmp_path)
