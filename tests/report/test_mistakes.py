"""The page of an evaluation's mistakes, and the file with all answers."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest
from report.runs import HOSTILE, Page, images

from adamatch import predictions
from adamatch.base.errors import InputError
from adamatch.evaluate import Score, score
from adamatch.images.store import Store
from adamatch.report import mistakes

CLASSES = tuple(sorted(HOSTILE))


@pytest.fixture
def found(tmp_path: Path) -> Score:
    """Five classes of four images: three of the first are taken for the third, one of the second for the first."""
    folder = images(tmp_path / "images", CLASSES, 4)
    files = [str(file) for name in CLASSES for file in sorted((folder / name).iterdir())]
    labels = np.arange(20) // 4
    said = 0.7 * np.eye(5, dtype=np.float32)[labels] + 0.06
    said[[1, 2, 3]] = np.array([[0.1, 0, 0.6, 0.3, 0], [0, 0, 1, 0, 0], [0.3, 0.3, 0.4, 0, 0]], np.float32)
    said[5] = np.array([0.9, 0, 0.1, 0, 0])
    return score(said, Store(np.zeros((20, 1, 1, 3), np.uint8), labels, CLASSES, {"files": files}))


def test_mistakes_are_grouped_with_the_surest_first(found: Score, tmp_path: Path) -> None:
    page = Page(mistakes.write(found, tmp_path / "page.html", name="<b>mine"))
    assert "4 of 20 images of <b>mine are wrong" in page.text
    assert f"macro-F1 {found.macro_f1:.1f} %" in page.text
    pictures = [each["alt"] for each in page.all("img")]
    assert [re.findall(r"\d+% sure", alt) for alt in pictures] == [[f"{n}% sure"] for n in (100, 60, 40, 90)]
    assert [re.findall(r"/(\d) <img", alt) for alt in pictures] == [["2"], ["1"], ["3"], ["1"]]
    assert not page.all("script")
    assert not page.all("b")[4:]  # those of the facts
    assert str(tmp_path) not in page.text  # names are those inside of the folder
    assert len(page.ids) == len(set(page.ids))


def test_without_mistakes_or_files(found: Score, tmp_path: Path) -> None:
    right = score(np.eye(2, dtype=np.float32), Store(np.zeros((2, 1, 1, 3), np.uint8), np.arange(2), ("a", "b")))
    page = Page(mistakes.write(right, tmp_path / "page.html", name="x"))
    assert "0 of 2 images of x are wrong" in page.text
    assert "images" not in page.ids
    wrong = score(np.eye(2, dtype=np.float32)[::-1], Store(np.zeros((2, 1, 1, 3), np.uint8), np.arange(2), ("a", "b")))
    page = Page(mistakes.write(wrong, tmp_path / "page.html", name="x"))
    assert "2 of these images cannot be shown" in page.text
    (tmp_path / "mine.html").write_text("mine")
    with pytest.raises(InputError, match="is no page of adamatch"):
        mistakes.write(right, tmp_path / "mine.html", name="x")


def test_the_file_has_a_row_for_each_image(found: Score, tmp_path: Path) -> None:
    predictions.evaluation_csv(tmp_path / "a.csv", found)
    with (tmp_path / "a.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["path", "truth", "prediction", "confidence"]
    assert [row["path"] for row in rows] == list(found.paths)
    assert [rows[5][name] for name in ("truth", "prediction", "confidence")] == [CLASSES[1], CLASSES[0], "0.9000"]
    assert sum(row["truth"] != row["prediction"] for row in rows) == 4
