"""What a person is told of a result."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from colours import CLASSES, arrays
from report.runs import made

from adamatch.images.store import Store
from adamatch.images.tasks import Problem, Unlabelled
from adamatch.report import record as recorded
from adamatch.report import sections
from adamatch.report.image_statistics import ImageStatistics
from adamatch.report.printed import lines, measured, verdict
from adamatch.train.run_folder import RunFolder


def problem(held_out: int) -> Problem:
    images, labels = arrays(max(held_out, 1))
    tests = {"source": Store(images, labels, CLASSES)} if held_out else {}
    return Problem((), Unlabelled((images,)), CLASSES, tests)


def folder(path: Path, rows: list[dict[str, object]], **result: object) -> RunFolder:
    evaluations = [{"target": 80.0, "source": 90.0}] * 4
    (path / "result.json").write_text(json.dumps({"median_of": 10, "evaluations": evaluations} | result))
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return RunFolder(path)


def test_without_target_labels_it_says_so(tmp_path: Path) -> None:
    rows = [{"mask": 0.1, "pseudo_labels": [0.1, 0, 0]}, {"mask": 0.8, "pseudo_labels": [0.2, 0.0, 0.6]}]
    found = measured(folder(tmp_path, rows, accuracy=None, source_accuracy=91.25), problem(12))
    assert (found["mask"], found["largest"], round(found["largest_share"], 6)) == (0.8, "red", 0.75)
    told = lines(found, task="uda", classes=3)
    assert told[0] == "accuracy on 12 held-out source images: 91.2 % (median of the last 4 evaluations)"
    assert told[1].startswith("accuracy on the target: not known")
    assert told[2].endswith(": 80%")
    assert told[3] == "most frequent pseudo-label: red, 75% of them (33% if classes were even)"


def test_with_target_labels(tmp_path: Path) -> None:
    found = measured(folder(tmp_path, [{"mask": 0.0, "pseudo_labels": [0, 0, 0]}], accuracy=80.04), problem(0))
    told = lines(found, task="ssda", classes=3)
    assert told == [
        "accuracy on the labelled target images: 80.0 % (median of the last 4 evaluations)",
        "target images used as pseudo-labels, at the end: 0%",
    ]


@pytest.mark.parametrize(
    ("twin", "judged", "says"),
    [
        (
            60.5,
            2.0,
            ["Adaptation helped.", "right on 80.0 %", "It is 19.5 points better than the same network trained"],
        ),
        (79.5, 9.0, ["Adaptation changed little.", "right on 80.0 %", "It is 0.5 points better"]),
        (88.0, 9.0, ["Adaptation did harm.", "right on 80.0 %", "It is 8.0 points worse", "Take the twin instead: "]),
        (None, -9.0, ["Adaptation likely did harm.", "cannot be told", "likely 9.0 points worse", "Measure both on"]),
        (None, 9.0, ["Adaptation likely helped.", "cannot be told", "likely 9.0 points better"]),
        (None, None, ["cannot be told", "It predicts another class than the same network"]),
    ],
)
def test_the_terminal_tells_what_the_page_tells(
    twin: float | None, judged: float | None, says: list[str], tmp_path: Path
) -> None:
    """The same head and sentences, with the twin's predictions on a third of the images changed."""
    accuracy = None if twin is None else 80.0
    evaluated: dict[str, Any] = {"median_of": 1, "evaluations": []}
    judge: dict[str, Any] = {"gain": judged, "held_out": 50, "twin": {"agreement": 66.67}}
    judge["range"] = {"at_least": None, "at_best": None}
    run = made(
        tmp_path / "run", [np.eye(3)], CLASSES, judge=judge, accuracy=accuracy, source_accuracy=None, **evaluated
    )
    made(run / "twin", [np.eye(3)[[0, 1, 1]]], CLASSES, accuracy=twin, source_accuracy=None, **evaluated)
    told = verdict(measured(RunFolder(run), problem(0)), judge, run)
    assert len(told) == len(says)
    assert all(words in line for words, line in zip(says, told, strict=True))
    record = recorded.read(run)
    page = sections.verdict(record, sections.predicted(record, ImageStatistics()))
    sentences = [*([f"{page['head']}."] if judged is not None else []), *page["sentences"]]
    assert told[: len(sentences)] == sentences
    if twin is None:  # of fewer held-out images not even the sign of a gain is known
        told = verdict(measured(RunFolder(run), problem(0)), judge | {"held_out": 49}, run)
        assert told[-1].startswith("It predicts another class")


def test_one_folder_is_source_and_target(tmp_path: Path) -> None:
    found = measured(folder(tmp_path, [], accuracy=None, source_accuracy=50.0), problem(3))
    assert lines(found, task="ssl", classes=3) == [
        "accuracy on 3 held-out images: 50.0 % (median of the last 4 evaluations)"
    ]


def test_a_median_is_of_the_evaluations_that_have_its_accuracy(tmp_path: Path) -> None:
    """The test set was given with the last two of twelve."""
    evaluations = [{"source": 90.0}] * 10 + [{"source": 90.0, "target": value} for value in (50.0, 60.0)]
    given = folder(tmp_path, [], accuracy=55.0, source_accuracy=90.0, evaluations=evaluations)
    found = measured(given, problem(3))
    assert lines(found, task="uda", classes=3) == [
        "accuracy on the labelled target images: 55.0 % (median of the last 2 evaluations)",
        "accuracy on 3 held-out source images: 90.0 % (median of the last 10 evaluations)",
    ]
