"""Predictions, and their files: written as they come, whole or not there, over nothing else, in bounded memory."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from colours import CLASSES, arrays
from PIL import Image

import adamatch
from adamatch import Model, networks, predictions
from adamatch.base.errors import InputError
from adamatch.images import reading
from adamatch.predictions import Predictions, left_out
from adamatch.train import speed

MANY = 200_000


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    return Model(networks.build("wrn-tiny", 3).eval(), CLASSES, 8, "wrn-tiny", speed.choose("cpu"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    for number, image in enumerate(arrays(10)[0]):
        Image.fromarray(image).save(tmp_path / f"images/{number}.png")
    return tmp_path / "images"


def test_portions_say_what_all_at_once_says(model: Model, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = model.predict(folder)
    monkeypatch.setattr(reading, "PORTION", 3)
    for images in (folder, sorted(folder.iterdir()), [Image.open(file) for file in sorted(folder.iterdir())]):
        count, parts = model.stream(images)
        found = list(parts)
        assert count == 10
        assert [len(part) for part in found] == [3, 3, 3, 1]
        assert np.allclose(np.concatenate([part.probabilities for part in found]), whole.probabilities, atol=1e-6)
    assert sum((part.paths for part in found), ()) == tuple(map(str, range(10)))  # items of a list have no names


def test_a_portion_of_nothing_but_bad_images(model: Model, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PORTION", 2)
    for name in ("0.png", "1.png"):
        (folder / name).write_bytes(b"no image")
    found = model.predict(folder, skip_bad=True)
    assert (len(found), len(found.skipped)) == (8, 2)
    for file in folder.iterdir():
        file.write_bytes(b"no image")
    with pytest.raises(InputError, match="none of 10 images can be read"):
        model.predict(folder, skip_bad=True)


def test_files_hold_every_row_once(model: Model, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    whole = model.predict(folder)
    monkeypatch.setattr(reading, "PORTION", 3)
    with (
        predictions.csv_file(tmp_path / "out.csv", CLASSES) as first,
        predictions.parquet_file(tmp_path / "out.parquet", CLASSES) as second,
    ):
        for part in model.stream(folder)[1]:
            first(part)
            second(part)
            lines = (tmp_path / "out.csv.part").read_text().splitlines()  # what was done is there
            assert lines[-1].startswith(part.paths[-1])
        assert not (tmp_path / "out.csv").exists()
    head, *rows = csv.reader((tmp_path / "out.csv").read_text().splitlines())
    assert head == ["path", "class", "probability", *CLASSES]
    assert [row[:2] for row in rows] == [list(pair) for pair in zip(whole.paths, whole.labels, strict=True)]
    table = parquet.read_table(tmp_path / "out.parquet")
    assert table.column_names == head
    assert table["path"].to_pylist() == list(whole.paths)
    assert table["class"].to_pylist() == whole.labels
    found = np.stack([table[name].to_numpy() for name in CLASSES], 1)
    assert np.allclose(found, whole.probabilities, atol=1e-6)
    assert not list(tmp_path.glob("*.part"))


def test_a_class_called_path(tmp_path: Path) -> None:
    found = Predictions(("x",), np.array([[0.25, 0.75]], np.float32), ("path", "b"))
    with predictions.csv_file(tmp_path / "a.csv", ("path", "b")) as write:
        write(found)
    with (tmp_path / "a.csv").open(newline="") as file:
        assert list(csv.DictReader(file)) == [
            {"path": "x", "class": "b", "probability": "0.7500", "path (class)": "0.2500", "b": "0.7500"}
        ]
    assert found.to_csv(tmp_path / "b.csv").read_text() == (tmp_path / "a.csv").read_text()
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    pandas.testing.assert_frame_equal(found.to_pandas(), pandas.read_csv(tmp_path / "b.csv"), check_dtype=False)
    (tmp_path / "c.png").write_bytes(b"\x89PNG")
    with pytest.raises(InputError, match=r"c\.png"):
        found.to_csv(tmp_path / "c.png")
    parquet = pytest.importorskip("pyarrow.parquet")
    with predictions.parquet_file(tmp_path / "a", ("path", "b")) as write:
        write(Predictions(("x\udcff",), np.array([[0.25, 0.75]], np.float32), ("path", "b")))
    assert parquet.read_table(tmp_path / "a").to_pylist() == [
        {"path": "x\\udcff", "class": "b", "probability": 0.75, "path (class)": 0.25, "b": 0.75}
    ]


@pytest.mark.parametrize("top", [1, 2, 3, 9])
def test_the_likeliest_classes_instead_of_all(tmp_path: Path, top: int) -> None:
    rows = np.array([[0.2, 0.5, 0.3], [0.4, 0.4, 0.2]], np.float32)
    found = Predictions(("x", "y"), rows, ("=a", "b", "c"))  # a spreadsheet would run the first
    with predictions.csv_file(tmp_path / "a.csv", found.classes, top) as write:
        write(found)
    wanted = [
        ["x", "b", "0.5000", "c", "0.3000", "'=a", "0.2000"],
        ["y", "'=a", "0.4000", "b", "0.4000", "c", "0.2000"],
    ]
    head = ["path", "class", "probability", "class_2", "probability_2", "class_3", "probability_3"]
    with (tmp_path / "a.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [row[: 1 + 2 * top] for row in (head, *wanted)]
    parquet = pytest.importorskip("pyarrow.parquet")
    with predictions.parquet_file(tmp_path / "a.parquet", found.classes, top) as write:
        write(found)
    table = parquet.read_table(tmp_path / "a.parquet")
    assert table.column_names == head[: 1 + 2 * top]
    assert list(table.to_pylist()[1].values())[:3] == ["y", "=a", pytest.approx(0.4)]


def sort(folder: Path, classes: tuple[str, ...], files: list[Path], label: int = 0) -> list[dict[str, str]]:
    """What copies.csv says."""
    said = np.eye(len(classes), dtype=np.float32)[[label] * len(files)]
    with predictions.sorted_into(folder, classes) as write:
        for part in (slice(0, 2), slice(2, None)):
            write(Predictions(tuple(map(str, files)), said, classes)[part])
    with (folder / predictions.COPIES).open(newline="") as file:
        return list(csv.DictReader(file))


def test_images_are_copied_into_a_folder_for_each_class(tmp_path: Path) -> None:
    """Of the same name, in letters of another case too, none replaces another."""
    files = [tmp_path / name for name in ("a/x.png", "b/x.png", "c/X.png", "b/x-2.png", "a/x-2.png", "d/y.tar.gz")]
    for number, file in enumerate(files):
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(bytes([number]))
    rows = sort(tmp_path / "new/sorted", ("cat", "dog"), files)
    names = ["x.png", "x-2.png", "X-3.png", "x-2-2.png", "x-2-3.png", "y.tar.gz"]
    assert [row["to"] for row in rows] == [f"cat/{name}" for name in names]
    assert [(row["from"], row["class"], row["probability"]) for row in rows] == [
        (str(f), "cat", "1.0000") for f in files
    ]
    assert [(tmp_path / "new/sorted" / row["to"]).read_bytes() for row in rows] == [bytes([n]) for n in range(6)]
    assert sorted(path.name for path in (tmp_path / "new/sorted").rglob("*") if path.is_file()) == sorted(
        [*names, "copies.csv"]
    )
    assert all(file.exists() for file in files)


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("../../etc", "_.._etc"),
        ("..", "_"),
        ("a/b\\c:d", "a_b_c_d"),
        (" .hidden. ", "hidden"),
        ("nul.txt", "_nul.txt"),
        ("copies.csv", "copies-2.csv"),
        ("tab\tor\nline", "tab_or_line"),
        ("Katze 猫", "Katze 猫"),
        ("x" * 300, "x" * 60),
        ("CAT", "CAT-2"),  # beside "cat"
    ],
)
def test_folders_of_classes_have_names_that_every_system_takes(tmp_path: Path, name: str, folder: str) -> None:
    (tmp_path / "x.png").touch()
    (row,) = sort(tmp_path / "sorted", ("cat", name), [tmp_path / "x.png"], label=1)
    assert row["to"] == f"{folder}/x.png"
    assert (tmp_path / "sorted" / folder / "x.png").is_file()


def test_where_images_may_be_sorted_into(tmp_path: Path) -> None:
    (tmp_path / "images/old").mkdir(parents=True)
    (tmp_path / "images/old/x.png").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("images")
    given = [tmp_path / "images"]
    for fine in ("empty", "new/deep", "images2"):
        predictions.check_folder(tmp_path / fine, given)
    for name, why in (
        ("images", "images is there and not empty: give a new folder"),
        ("images/old/x.png", "is there and not empty"),
        ("images/new", "new lies in .*images, whose images are read: choose a folder beside it"),
        ("link/new", "new lies in"),
        ("empty/../images/new", "new lies in"),
    ):
        with pytest.raises(InputError, match=why):
            predictions.check_folder(tmp_path / name, given)
    with pytest.raises(InputError, match="7 is no file that could be copied"):
        sort(tmp_path / "sorted", ("cat", "dog"), [Path("7")])


def test_no_two_columns_have_one_name() -> None:
    first = ["path", "class", "probability"]
    assert predictions.columns(["class", "path"]) == [*first, "class (class)", "path (class)"]
    for classes in (["path (class)", "path"], ["path", "path (class)"]):
        assert len(set(predictions.columns(classes))) == 5


def test_very_many_bad_images_are_counted() -> None:
    lines = left_out({str(number): f"{number} is empty" for number in range(25)})
    assert lines[0] == "left out: 0 is empty"
    assert lines[-1] == "left out: 5 more"
    assert len(lines) == 21
    assert left_out({}) == []


@pytest.mark.parametrize("end", [InputError, KeyboardInterrupt, OSError])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_what_was_not_finished_is_removed(model: Model, folder: Path, tmp_path: Path, kind: str, end: type) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "out").write_text("from before")
    start = predictions.csv_file if kind == "csv" else predictions.parquet_file

    def until_then(write: predictions.Write) -> None:
        write(model.predict(folder))
        assert (tmp_path / "out.part").exists()
        raise end("while reading")

    with pytest.raises(end, match=r"^while reading$"), start(tmp_path / "out", CLASSES) as write:
        until_then(write)
    assert [path.name for path in tmp_path.glob("out*")] == ["out"]
    assert (tmp_path / "out").read_text() == "from before"


def test_a_pipe_is_written_into(model: Model, folder: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reading = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with predictions.csv_file(tmp_path / "pipe", CLASSES) as write:
        write(model.predict(folder))
    assert os.read(reading, 10_000).count(b"\n") == 11
    os.close(reading)
    assert (tmp_path / "pipe").is_fifo()


def test_a_link_leads_to_the_file_that_is_written(model: Model, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other/end.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to("other/end.csv")
    with predictions.csv_file(tmp_path / "link.csv", CLASSES) as write:
        write(model.predict(folder))
    assert (tmp_path / "link.csv").is_symlink()
    assert len((tmp_path / "other/end.csv").read_text().splitlines()) == 11
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["end.csv"]


def test_stdout_is_written_and_stays_open(
    model: Model, folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found = model.predict(folder)
    with predictions.csv_file(Path("-"), CLASSES) as write:
        write(found)
    print("after", flush=True)
    *rows, last = capfd.readouterr().out.splitlines()
    assert [row[0] for row in csv.reader(rows)] == ["path", *found.paths]
    assert last == "after"
    assert predictions.is_stdout(Path("/dev/stdout"))
    pytest.importorskip("pyarrow")
    with pytest.raises(InputError, match="use --csv -"), predictions.parquet_file(Path("-"), CLASSES):
        pass


def test_a_pipe_that_nobody_reads_is_named(model: Model, folder: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reading = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)

    def no_reader(write: predictions.Write) -> None:
        os.close(reading)
        write(model.predict(folder))

    with pytest.raises(InputError) as told, predictions.csv_file(tmp_path / "pipe", CLASSES) as write:
        no_reader(write)
    assert str(told.value) == f"{tmp_path / 'pipe'} cannot be written (Broken pipe): choose another place"


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_part_that_cannot_be_opened_is_not_what_is_named(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "out.part").mkdir()
    start = predictions.csv_file if kind == "csv" else predictions.parquet_file
    with pytest.raises(InputError) as told, start(tmp_path / "out", CLASSES):
        pass
    assert str(told.value) == f"{tmp_path / 'out'} cannot be written (Is a directory): choose another place"


def test_nothing_is_written_twice_or_over_what_is_read_or_no_table(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("path\n")
    (tmp_path / "link").symlink_to("list.csv")
    out, listed, link = tmp_path / "out", tmp_path / "list.csv", tmp_path / "link"
    predictions.check_outputs([out, tmp_path / "other"], [listed, tmp_path])
    for same in (out, tmp_path / "../" / tmp_path.name / "out"):
        with pytest.raises(InputError, match="written twice, by --csv and by --parquet: give each a file of its own"):
            predictions.check_outputs([out, same], [])
    for file, given in ((listed, listed), (link, listed), (listed, link)):
        with pytest.raises(
            InputError, match=f"{file.name} is among the images and lists that are read: choose another file"
        ):
            predictions.check_outputs([out, file], [tmp_path, given])
    for name in ("photo.jpg", "model.json", "old.csv", "old.PARQUET"):
        (tmp_path / name).write_text("x")
    predictions.check_outputs([tmp_path / "old.csv", tmp_path / "old.PARQUET", tmp_path / "new.jpg"], [])
    for name in ("photo.jpg", "model.json"):  # no tables
        with pytest.raises(InputError, match=f"{name} exists and does not end as a table does"):
            predictions.check_outputs([tmp_path / name], [])


def test_parquet_needs_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with (
        pytest.raises(InputError, match=r"pip install 'adamatch\[parquet\]'"),
        predictions.parquet_file(tmp_path / "a", CLASSES),
    ):
        pass


PROGRAM = """
import json, resource, sys, time
from adamatch import load
from adamatch import predictions
from pathlib import Path
model = load("run", device="cpu")
model.predict("one")
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before, began, rows = peak(), time.monotonic(), 0
with predictions.csv_file(Path("out.csv"), model.classes) as write:
    for part in model.stream("many")[1]:
        write(part)
        rows += len(part)
print(json.dumps({"rows": rows, "mib": (peak() - before) / 2**20, "ms": (time.monotonic() - began) / rows * 1000}))
"""


@pytest.mark.slow
def test_very_many_images_take_little_memory(tmp_path: Path) -> None:
    model = Model(networks.build("wrn-small", 3).eval(), CLASSES, 32, "wrn-small", speed.choose("cpu"))
    model.save(tmp_path / "run")
    (tmp_path / "one").mkdir()
    rng = np.random.default_rng(0)
    originals = []
    for number in range(100):
        originals.append(tmp_path / f"one/{number}.jpg")
        Image.fromarray(rng.integers(0, 256, (48, 64, 3), dtype=np.uint8)).save(originals[-1])
    for number in range(MANY):
        file = tmp_path / f"many/{number // 1000:03d}/{number:06d}.jpg"
        if number % 1000 == 0:
            file.parent.mkdir(parents=True)
        os.link(originals[number % 100], file)
    paths = {**os.environ, "PYTHONPATH": str(Path(adamatch.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, env=paths, capture_output=True, text=True, check=True
    )
    said = json.loads(done.stdout)
    print(f"{said['rows']} images: {said['mib']:.0f} MiB above the network, {said['ms']:.2f} ms per image")
    assert said["rows"] == MANY
    assert said["mib"] < 1024
    assert (tmp_path / "out.csv").read_bytes().count(b"\n") == MANY + 1


def test_names_of_classes_that_are_no_text(tmp_path: Path) -> None:
    """As a folder whose name is not UTF-8 gives them."""
    parquet = pytest.importorskip("pyarrow.parquet")
    classes = ("caf\udce9", "b")
    found = Predictions(("a\udcff.png",), np.array([[0.75, 0.25]], np.float32), classes)
    with predictions.parquet_file(tmp_path / "a.parquet", classes) as write:
        write(found)
    (row,) = parquet.read_table(tmp_path / "a.parquet").to_pylist()
    assert row == {"path": "a\\udcff.png", "class": "caf\\udce9", "probability": 0.75, "caf\\udce9": 0.75, "b": 0.25}
    assert found.to_csv(tmp_path / "a.csv").read_bytes().startswith(b"path,class,probability,caf\xe9,b")


def test_of_very_many_unreadable_images_the_first_twenty_are_named() -> None:
    assert left_out({}) == []
    twenty = {str(number): f"{number}.png is no image" for number in range(20)}
    assert left_out(twenty) == [f"left out: {why}" for why in twenty.values()]
    more = twenty | {"20": "20.png is no image", "21": "21.png is no image"}
    assert left_out(more) == [*left_out(twenty), "left out: 2 more"]
