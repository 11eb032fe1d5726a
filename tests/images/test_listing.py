"""Folders, CSV lists and lists of paths: which images, of which class; every mistake is one line that names it."""

import csv
import errno
import os
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from adamatch.base.errors import InputError
from adamatch.images.labels import known_rows, translate
from adamatch.images.listing import Wanted, contains, lies_in, list_files, same_files


def save(path: Path, colour: tuple[int, int, int] = (10, 20, 30)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (12, 12), colour).save(path)
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


def files(source: Any, **wanted: Any) -> Any:
    return list_files(source, Wanted(**wanted))


def labels_of(source: Any, **wanted: Any) -> list[int]:
    labels = files(source, **wanted)[1]
    assert labels is not None
    return list(labels.tolist())


def test_class_folders_are_listed_in_order(animals: Path) -> None:
    paths, labels, classes = files(animals)
    assert classes == ("Bee", "cat", "dog")
    assert [str(path.relative_to(animals)) for path in paths] == [
        *("Bee/b.png", "Bee/more/a.PNG", "cat/b.png", "cat/more/a.PNG", "dog/b.png", "dog/more/a.PNG")
    ]
    assert labels is not None
    assert labels.tolist() == [0, 0, 1, 1, 2, 2]


def test_the_order_of_the_source_decides_the_labels(animals: Path) -> None:
    assert labels_of(animals, classes=["dog", "owl", "cat", "Bee"]) == [3, 3, 2, 2, 0, 0]
    with pytest.raises(InputError, match="classes that were not learnt: 'Bee', 'cat'"):
        files(animals, classes=["dog", "owl"])
    notes: list[str] = []
    assert labels_of(animals, classes=["dog", "owl"], drop_unknown=True, notes=notes) == [0, 0]
    assert "4 of 6 images are of classes that were not learnt ('Bee', 'cat'): left out" in notes[-1]


def test_without_labels_everything_below_is_taken(animals: Path) -> None:
    save(animals / "loose.png")
    paths, labels, classes = files(animals, labelled=False, classes=["x", "y"])
    assert (len(paths), labels, classes) == (7, None, ("x", "y"))


def test_a_flat_folder_has_no_labels(tmp_path: Path) -> None:
    save(tmp_path / "flat" / "2.jpg")
    save(tmp_path / "flat" / "1.JPeG")
    paths, labels, classes = files(tmp_path / "flat")
    assert ([path.name for path in paths], labels, classes) == (["1.JPeG", "2.jpg"], None, ())
    with pytest.raises(InputError, match="has images but no labels: put them into one folder per class"):
        files(tmp_path / "flat", labelled=True)


def test_links_that_lead_up_or_back_bring_no_image_twice(animals: Path) -> None:
    before = files(animals)[0]
    for name, target in (("up", animals), ("further", animals.parent), ("loop", animals / "cat")):
        (animals / "cat" / name).symlink_to(target, target_is_directory=True)
    assert files(animals)[0] == before


def test_folders_that_cannot_be_used(animals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="gone does not exist"):
        files(tmp_path / "gone")
    (tmp_path / "empty").mkdir()
    for labelled in (None, True, False):
        with pytest.raises(InputError, match="empty holds no images"):
            files(tmp_path / "empty", labelled=labelled)
    save(tmp_path / "one" / "cat" / "a.png")
    with pytest.raises(InputError, match=r"one class only \(cat\)"):
        files(tmp_path / "one", labelled=True)
    assert len(files(tmp_path / "one", labelled=True, classes=["cat", "dog"])[0]) == 1, "enough to evaluate"
    (tmp_path / "one" / "dog").mkdir()
    with pytest.raises(InputError, match=r"one class only \(cat\).*no images in dog: not taken for a class"):
        files(tmp_path / "one", labelled=True)
    scandir = os.scandir

    def refuse(path: Any) -> Any:
        if Path(path).name == "more":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(InputError, match=r"more cannot be read \(Permission denied\)"):
        files(animals)


def write_csv(file: Path, rows: list[list[str]]) -> Path:
    with file.open("w", newline="") as text:
        csv.writer(text).writerows(rows)
    return file


@pytest.mark.parametrize("header", [[], [["path", "label"]], [["Filename", "Class"]]])
def test_csv_lists(animals: Path, header: list[list[str]]) -> None:
    rows = [["dog/b.png", "dog"], ["cat/b.png", "cat"], ["cat/more/a.PNG", "cat"]]
    paths, labels, classes = files(write_csv(animals / "list.csv", [*header, *rows]), labelled=True)
    assert [str(path.relative_to(animals)) for path in paths] == [row[0] for row in rows]
    assert labels is not None
    assert (labels.tolist(), classes) == ([1, 0, 0], ("cat", "dog"))


def test_csv_columns_by_name_without_labels_and_with_a_byte_order_mark(animals: Path) -> None:
    rows = [["label", "width", "path"], ["dog", "3", "dog/b.png"], ["cat", "4", "cat/b.png"]]
    file = write_csv(animals / "a.csv", rows)
    assert labels_of(file) == [1, 0]
    assert files(write_csv(file, [["path", "width"], ["dog/b.png", "3"]]))[1] is None
    assert files(write_csv(file, [["dog/b.png"], [], ["cat/b.png"]]))[1] is None
    assert files(write_csv(file, [["dog/b.png", "image"]]))[2] == ("image",), "a class that is called as a header is"
    file.write_text("\ufeffpath, label\ncat/b.png, cat\n", encoding="utf-8")
    assert files(file)[2] == ("cat",)
    assert files(file, labelled=False)[1:] == (None, ())


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([["path", "label"], ["dog/b.png", "dog"], ["x.png", "dog"]], r"list\.csv, line 3: .*x\.png does not exist"),
        ([["dog/b.png", "dog"], ["cat/b.png", ""]], r"line 2: the label is missing"),
        ([["dog/b.png", "dog"], ["cat/b.png"]], r"line 2: the label is missing"),
        ([["dog/b.png"]], r"has no labels: add a column"),
        ([["dog/b.png", "dog"]], r"one class only \(dog\)"),
        ([["path", "label"]], r"holds no images"),
        ([], r"holds no images"),
        ([["path;label"], ["dog/b.png", "dog"]], r"a header\? its columns are path,label, separated"),
        (
            [["image_id", "species"], ["dog/b.png", "dog"]],
            r"a header\? its columns are path,label, separated by commas",
        ),
    ],
)
def test_csv_lists_that_cannot_be_used(animals: Path, rows: list[list[str]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        files(write_csv(animals / "list.csv", rows), labelled=True)


def test_csv_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.csv does not exist"):
        files(tmp_path / "gone.csv")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x80\x81")
    with pytest.raises(InputError, match="cannot be read as CSV"):
        files(tmp_path / "binary.csv")


def test_windows_paths_in_a_list(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        save(tmp_path / "cats" / name)
    (tmp_path / "list.csv").write_text("path,label\r\ncats\\a.png,cat\r\n.\\cats\\b.png,dog\r\n", newline="")
    paths, _, classes = files(tmp_path / "list.csv", labelled=True)
    assert paths == [tmp_path / "cats/a.png", tmp_path / "cats/b.png"]
    assert classes == ("cat", "dog")


@pytest.mark.parametrize(("theirs", "remedy"), [("red ", True), ("RED", True), ("cafe\u0301", True), ("owl", False)])
def test_names_that_differ_by_little_are_shown_and_a_remedy_is_named(theirs: str, remedy: bool) -> None:
    classes = ("red", "caf\u00e9")
    for read_them in (lambda: translate([theirs], classes, "it"), lambda: known_rows([theirs], classes, "it", [])):
        with pytest.raises(InputError) as error:
            read_them()
        assert f"'{theirs}'" in str(error.value)
        assert ("rename these" in str(error.value)) == remedy
    notes: list[str] = []
    assert known_rows([theirs, "red"], classes, "it", notes) == [1]
    assert ("rename these" in notes[0]) == remedy


def test_where_images_lie(animals: Path, tmp_path: Path) -> None:
    images = [animals / "cat/b.png", animals / "dog/b.png"]
    table = write_csv(tmp_path / "list.csv", [[str(path)] for path in images])
    assert contains({"a": [animals]}, animals / "run")
    assert not contains(images, animals)
    for source in (animals, [animals], images, (images, ["a", "b"]), [(images[0], "a")], {"a": animals}, table):
        assert lies_in(source, animals)
        assert not lies_in(source, tmp_path / "else")
    assert same_files([animals, "x"], (str(animals / "cat" / ".."), Path("x")))
    assert not same_files(animals, images)
