"""Several runs on one page, and the command that makes pages."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from colours import CLASSES, arrays
from report.runs import Page, edit, made

from adamatch import cli
from adamatch.report import compare, image_statistics, page
from adamatch.report.image_statistics import ImageStatistics
from adamatch.report.pool import Pool

FIRST, SECOND = np.eye(3)[[0, 1, 2, 0]], np.eye(3)[[0, 2, 2, 1]]


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Two runs that disagree on the images 1 and 3."""
    found = [
        made(tmp_path / "a/run", [FIRST, FIRST], CLASSES, accuracy=80.0, source_accuracy=91.0),
        made(tmp_path / "b/run", [SECOND], CLASSES, accuracy=60.5),
    ]
    for path in found:
        image_statistics.save(
            ImageStatistics(Pool.of((arrays(4)[0],), labels=(0, 1, 2, 0)), Pool.of((arrays(4)[0],))), path
        )
    return found


def test_side_by_side(runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edit(runs[1] / "run.json", seed=7)
    monkeypatch.setattr(page, "statistics_of", lambda record, data: ImageStatistics(None, Pool.of((arrays(4)[0],))))
    found = Page(compare.write(runs, to=tmp_path / "both.html"))
    assert "2 runs side by side" in found.text
    assert "a/run" in found.text
    assert "b/run" in found.text
    assert "80.0 %" in found.text
    assert "60.5 %" in found.text
    assert [each["alt"] for each in found.all("img")] == ["image 1", "image 3"]
    first = re.search(r"What differs stands first, and is marked\. setting (.{80})", found.text)
    assert first
    assert "seed (differs) 0 7" in found.text
    assert not found.all("script")


def test_other_test_images_are_named(runs: list[Path], tmp_path: Path) -> None:
    says = "not measured on the same labelled images"
    assert says not in Page(compare.write(runs, to=tmp_path / "both.html")).text
    edit(runs[1] / "result.json", run={"test": "others (00000000)"})
    assert says in Page(compare.write(runs, to=tmp_path / "both.html")).text


def test_other_images_are_not_compared(runs: list[Path], tmp_path: Path) -> None:
    edit(runs[1] / "run.json", target="others (00000000)")
    found = Page(compare.write([*runs, runs[0]], to=tmp_path / "three.html"))
    assert "have not looked at the same target images" in found.text
    assert "(1)" in found.text  # the same folder twice: names are told apart all the same
    assert not found.all("img")


def test_the_same_set_with_others_held_out_is_not_compared(runs: list[Path], tmp_path: Path) -> None:
    for number, path in enumerate(runs):
        edit(path / "outputs/classes.json", images=[f"{number + i:012x}" for i in range(4)])
    found = Page(compare.write(runs, to=tmp_path / "both.html"))
    assert "have not looked at the same target images" in found.text
    assert not found.all("img")


def test_links_lead_to_pages_that_are_there(runs: list[Path], tmp_path: Path) -> None:
    (runs[0] / "report.html").write_text("x")
    found = Page(compare.write(runs, to=tmp_path / "both.html"))
    assert [each["href"] for each in found.all("a") if not each["href"].startswith("#")] == ["a/run/report.html"]


def command(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["adamatch", "report", *map(str, words)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return int(end.value.code or 0)


def test_the_command(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command(monkeypatch, "a/run") == 0
    assert capsys.readouterr().out == "a/run/report.html\n"
    for name in ("elsewhere", "alone"):
        made(tmp_path / name, [SECOND], CLASSES, method="supervised", accuracy=60.5)
    edit(tmp_path / "elsewhere/run.json", target="another")
    assert command(monkeypatch, "a/run", "--twin", "alone", "--out", "one.html") == 0
    assert "Twin beside adapted" in Page(tmp_path / "one.html").text
    assert command(monkeypatch, "a/run", "b/run") == 0
    assert (tmp_path / "report.html").is_file()
    capsys.readouterr()
    for words, said in (
        (["a"], "a is no run's folder"),
        (["a/run", "nowhere"], "nowhere does not exist"),
        (["a/run", "b/run", "--twin", "b/run"], "--twin belongs to one run"),
        (
            ["a/run", "--twin", "b/run"],
            "b/run was trained by adamatch: a twin is a run on labels alone (--method supervised)",
        ),
        (["a/run", "--twin", "elsewhere"], "elsewhere has another target than the run"),
    ):
        assert command(monkeypatch, *words) == 2
        told = capsys.readouterr().err.splitlines()
        assert len(told) == 1
        assert said in told[0]
