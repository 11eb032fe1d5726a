"""The numbers behind the page: against small examples worked out by hand."""

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report.runs import made

from adamatch import plan
from adamatch.base.errors import InputError
from adamatch.config.presets import recipe
from adamatch.config.recipe import Recipe
from adamatch.config.run import Run
from adamatch.config.schema import settings_of
from adamatch.images.store import Labels
from adamatch.report import charts, pool
from adamatch.report import record as recorded
from adamatch.report.charts import curves
from adamatch.report.command import command
from adamatch.report.image_statistics import ImageStatistics
from adamatch.report.pool import Pool
from adamatch.report.sections import (
    Predicted,
    beside,
    confusion,
    confusions,
    galleries,
    moves,
    names_of,
    predicted,
    shares,
    verdict,
)
from adamatch.train import speed

CLASSES = ("cat", "dog", "owl")
SURE = np.array([0.9, 0.5, 0.7, 0.8, 0.6, 0.95], np.float32)


def found(twin: Labels | None) -> Predicted:
    return Predicted(np.arange(6) * 10, np.array([0, 0, 0, 1, 1, 0]), SURE, twin)


def test_shares_and_moves(tmp_path: Path) -> None:
    judge = {"shares": {"estimated": [0.5, 0.25, 0.25]}}
    record = recorded.read(made(tmp_path / "run", [np.eye(3)], CLASSES, judge=judge))
    source = Pool(4, labels=(0, 0, 1, 2))
    said = found(np.array([0, 1, 1, 1, 2, 0]))
    rows = [
        [round(value) for value in list(row.values())[1:]]
        for row in shares(said, ImageStatistics(source=source), record)
    ]
    assert rows == [[50, 33, 67, 50], [25, 50, 33, 25], [25, 17, 0, 25]]
    assert shares(said, ImageStatistics(source=source), record)[0].keys() == {
        "name",
        "source",
        "twin",
        "adapted",
        "estimated",
    }
    assert moves(said, CLASSES) == [("dog", "cat", 2), ("owl", "dog", 1)]
    assert shares(None, ImageStatistics(), record) == []


def test_galleries_have_the_surest_the_least_sure_and_the_changed() -> None:
    cat, dog, owl = galleries(found(np.array([0, 1, 1, 1, 2, 0])), Pool(60), CLASSES, 2)
    assert (cat["names"], cat["total"], dog["total"], owl["total"]) == (("cat",), 4, 2, 0)
    rows = {name: [picture.row for picture in strip] for name, strip in cat["strips"].items()}
    assert rows == {"Surest": [50, 0], "Least sure": [10, 20], "Changed": [20, 10]}
    assert cat["strips"]["Changed"][0].caption == "was dog"
    assert cat["strips"]["Changed"][0].alt == "image 20: cat, 70% sure; the twin said dog"
    assert list(dog["strips"]) == ["Surest", "Changed"]
    assert owl["strips"] == {}


def test_of_many_classes_the_worst_come_first(tmp_path: Path) -> None:
    """By images to doubt; by changed share; by mistakes. Later classes have fewer pictures."""
    k, per = 120, 30
    truth, place = np.arange(k * per) // per, np.arange(k * per) % per
    names = tuple(map(str, range(k)))
    twin = np.where(place < truth % 7, (truth + 1) % k, truth)
    sure = np.where((place == 29) & (truth == 50), 0.4, 0.9).astype(np.float32)
    cards = galleries(Predicted(np.arange(k * per), truth, sure, twin), Pool(k * per), names, 8)
    doubt = [int(each["names"][0]) % 7 + (each["names"][0] == "50") for each in cards]
    assert doubt == sorted(doubt, reverse=True)
    assert (len(cards), cards[0]["changed"], cards[0]["unsure"]) == (100, 6, 0)
    assert [len(each["strips"]["Surest"]) for each in cards] == [8] * 12 + [1] * 88
    (marked,) = [each for each in cards if each["unsure"]]
    assert [picture.marks for picture in marked["strips"]["Least sure"]] == ["unsure"]
    assert {picture.marks for picture in cards[0]["strips"]["Changed"]} == {"changed"}
    assert len(names_of(cards)) == len({p.row for each in cards for strip in each["strips"].values() for p in strip})

    path = made(tmp_path / "run", [np.eye(k)[truth]], names)
    made(path / "twin", [np.eye(k)[np.where(truth == 77, 3, truth)]], names, method="supervised")
    record = recorded.read(path)
    rows = shares(predicted(record, ImageStatistics()), ImageStatistics(), record)
    assert [row["name"] for row in rows][:3] == ["3", "77", "0"]
    assert len(rows) == k

    counts = np.diag([5] * k)
    counts[8, 9], counts[4, 5], counts[7] = 3, 4, 0
    table = confusion("t", counts, names)
    assert table is not None
    assert table["worst"][:3] == [("4", 9, 4, "5"), ("8", 8, 3, "9"), ("0", 5, 0, "")]
    assert len(table["worst"]) == k - 1  # of one there are no images


def test_a_twin_on_other_images_is_no_comparison(tmp_path: Path) -> None:
    twin = made(tmp_path / "twin", [np.eye(3)], CLASSES, method="supervised")
    record = recorded.read(made(tmp_path / "run", [np.eye(3)[[0, 1, 1, 2]]], CLASSES), twin)
    said = predicted(record, ImageStatistics())
    assert said is not None
    assert said.twin is None
    assert not said.changed.any()


def test_accuracies_on_other_test_images_are_no_comparison(tmp_path: Path) -> None:
    said = [np.eye(3)]
    twin = made(tmp_path / "twin", said, CLASSES, method="supervised", accuracy=60.0, run={"test": "b (00000001)"})
    for test, gain, shown in (("a (00000002)", None, "\u2013"), ("b (00000001)", -20.0, "60.0 %")):
        record = recorded.read(made(tmp_path / test, said, CLASSES, accuracy=40.0, run={"test": test}), twin)
        found = verdict(record, predicted(record, ImageStatistics()))
        assert (found["accuracy"], found["gain"], found["measured_gain"]) == (40.0, gain, gain is not None)
        assert beside(record)[0] == ("accuracy on labelled target images", shown, "40.0 %")


def test_confusions() -> None:
    table = confusion("t", np.array([[3, 1, 0], [0, 0, 2], [0, 0, 0]]), CLASSES)
    assert table is not None
    assert table["accuracy"] == pytest.approx(50.0)
    assert table["rows"][0] == ("cat", 4, 75.0, [(3, 75, True), (1, 25, False), (0, 0, False)])
    assert table["rows"][2][:3] == ("owl", 0, 0.0)
    assert table["pairs"] == [("dog", "owl", 2), ("cat", "dog", 1)]
    assert confusion("t", np.zeros((3, 3), np.int64), CLASSES) is None
    many = confusion("t", np.ones((40, 40), np.int64), tuple(map(str, range(40))))
    assert many is not None
    assert not many["rows"]
    assert len(many["pairs"]) == 12


def test_confusions_of_held_out_source_images(tmp_path: Path) -> None:
    record = recorded.read(made(tmp_path / "run", [np.eye(3)[[0, 1, 1, 2]]], CLASSES, held_out=(0, 1, 2)))
    (only,) = confusions(record, ImageStatistics())
    assert (only["title"], only["total"], only["pairs"]) == ("Held-out source images", 3, [("owl", "dog", 1)])


def test_the_last_evaluation_that_can_be_read_is_shown(tmp_path: Path) -> None:
    run = made(tmp_path / "run", [np.eye(3)[[0]], np.eye(3)[[1]], np.eye(3)[[2]]], CLASSES)
    assert recorded.read(run).outputs["target"].argmax() == 2
    whole = (run / "outputs/step-000000003.npz").read_bytes()
    (run / "outputs/step-000000003.npz").write_bytes(whole[: len(whole) // 2])
    assert recorded.read(run).outputs["target"].argmax() == 1


@pytest.mark.parametrize(
    ("judge", "head", "words"),
    [
        ({"range": {"at_least": 60, "at_best": 80}, "gain": 9.0}, "Adaptation likely helped", "between 60 and 80 %"),
        ({"range": {"at_least": 60, "at_best": 80}, "gain": -9.0}, "Adaptation likely did harm", "9.0 points worse"),
        ({"gain": 0.4}, "Adaptation likely changed little", "cannot be told"),
        ({"range": {"at_least": None, "at_best": None}}, "Trained", "cannot be told"),
        ({}, "Trained", "predicts another class than the same network"),
    ],
)
def test_verdicts(tmp_path: Path, judge: dict[str, Any], head: str, words: str) -> None:
    made(tmp_path / "run", [np.eye(3)], CLASSES, judge={"held_out": 50} | judge, accuracy=None)
    made(tmp_path / "run/twin", [np.eye(3)[[0, 1, 1]]], CLASSES, accuracy=None)
    record = recorded.read(tmp_path / "run")
    said = verdict(record, predicted(record, ImageStatistics()))
    assert said["head"] == head
    assert words in " ".join(said["sentences"])
    assert said["changed"] == pytest.approx(100 / 3)
    assert record.warnings == []


def test_measured_accuracies_come_before_estimates(tmp_path: Path) -> None:
    made(tmp_path / "run", [np.eye(3)], CLASSES, judge={"gain": 20.0}, accuracy=70.0)
    made(tmp_path / "run/twin", [np.eye(3)], CLASSES, accuracy=75.0)
    said = verdict(recorded.read(tmp_path / "run"), None)
    assert (said["gain"], said["measured_gain"], said["head"]) == (-5.0, True, "Adaptation did harm")


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.1, 0.93, [0, 0.25, 0.5, 0.75, 1]),
        (0.0, 0.0, [0, 0.25]),
        (88, 97.5, [87.5, 90, 92.5, 95, 97.5]),
        (20, 99.0, [0, 25, 50, 75, 100]),
        (-0.2, 2.3, [-1, 0, 1, 2, 3]),
    ],
)
def test_scales_are_round(low: float, high: float, ticks: list[float]) -> None:
    least, most, found = charts.scale(low, high, top=100)
    assert found == pytest.approx(ticks)
    assert least == pytest.approx(ticks[0])
    assert most == pytest.approx(ticks[-1])
    assert least <= low
    assert high <= most


def test_curves() -> None:
    curve = charts.curve("mask", [("a", "x", [(0, 0.0), (50, 1.0), (100, 0.5)])])
    assert curve is not None
    assert curve["lines"][0]["path"] == "M0.0 120.0L200.0 0.0L400.0 60.0"
    assert curve["ticks"][0] == (0.0, "1.00")
    assert "between 0 and 1" in curve["told"]
    assert charts.curve("mask", [("a", "x", [])]) is None


def test_the_curve_of_a_former_test_set_is_left_out(tmp_path: Path) -> None:
    added: dict[str, Any] = {"tested": "after training, the final model alone"}
    for how in ({}, added):
        path = made(tmp_path / str(len(how)), [np.eye(3)], CLASSES, accuracy=40.0, **how)
        row = json.loads((path / "metrics.jsonl").read_text())
        (path / "metrics.jsonl").write_text(json.dumps(row | {"target": 90.0, "source": 80.0}))
        keys = [each["key"] for each in curves(recorded.read(path))]
        assert ("target" in keys) == (not how)
        assert "source" in keys


def test_looks() -> None:
    grey = np.full((8, 8, 3), 51, np.uint8)
    board = np.zeros((8, 8, 3), np.uint8)
    board[::2, ::2] = board[1::2, 1::2] = 255
    found = pool.measure([grey, board], [Path("nowhere.png")])
    assert found == {"brightness": [0.2, 0.5], "contrast": [0.0, 0.5], "sharpness": [0.0, 1.0], "size": []}
    assert pool.spread(3, 5) == [0, 1, 2]
    assert pool.spread(1000, 3) in ([0, 500, 999], [0, 499, 999])
    chart = charts.histogram("brightness", found["brightness"], [0.9], "")
    assert chart is not None
    assert chart["medians"] == ["0.35", "0.90"]
    assert charts.histogram("size", [], [1.0], "") is None


@pytest.mark.parametrize(
    ("weights", "asked"),
    [
        ("none", {"network": "wrn-small", "size": 32, "images": 640, "batch": 16}),
        ("imagenet", {"network": "efficientnet-lite0"}),  # on a CPU: most of it frozen
        ("imagenet", {"network": "efficientnet-lite0", "frozen": 0}),
        ("imagenet", {"network": "efficientnet-lite0", "frozen": 3, "size": 64, "lr": 0.02, "mirror": False}),
        ("none", {"network": "wrn-small", "size": 32, "strong": "cutout", "repeat": True}),
    ],
)
def test_the_command_of_own_images(
    tmp_path: Path, weights: str, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given to the command line, what is asked for becomes the same recipe."""
    from adamatch import cli

    def choose(asked: dict[str, Any], weights: str) -> plan.Plan:
        return plan.choose(plan.asked_for(asked), weights, lambda: 0, speed.choose("cpu"), few_labels=False)

    chosen = choose(asked, weights)
    run = Run(benchmark="folders", source="a", target="b", weights=chosen.weights, continues="12", recipe=chosen.recipe)
    (tmp_path / "run.json").write_text(run.to_json())
    again: list[plan.Plan] = []

    def fit(weights: str, **given: Any) -> None:
        settings = {each.name: given[each.name] for each in settings_of(Recipe, "fit") if each.name in given}
        again.append(choose(settings, weights))
        raise InputError("enough")

    monkeypatch.setattr("adamatch.fit", fit)
    monkeypatch.setattr("sys.argv", shlex.split(command(recorded.read(tmp_path), {"source": "a", "target": "b"})))
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    assert (again[0].recipe, again[0].weights) == (chosen.recipe, chosen.weights)


@pytest.mark.parametrize(
    "run",
    [
        Run(source="rendered", target="handwritten", seed=3, options={"align": "none", "interpolate": False}),
        Run(task="ssl", target="handwritten", labels=5, method="fixmatch+"),
        Run(benchmark="digitfive", source="mnist", target="svhn", budget="fast"),
        Run(
            source="rendered",
            target="handwritten",
            recipe=recipe("handwriting", images=64, batch=16, mirror=True, lr=0.1),
        ),
    ],
)
def test_the_command_of_a_benchmark(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given to the command line, it is the same run."""
    from adamatch import cli, experiment

    (tmp_path / "run.json").write_text(run.to_json())
    asked: list[Run] = []

    def train(run: Run, **_: Any) -> dict[str, Any]:
        asked.append(run)
        return {"accuracy": None, "source_accuracy": None, "seconds": 1.0}

    monkeypatch.setattr(experiment, "train", train)
    monkeypatch.setattr("sys.argv", shlex.split(command(recorded.read(tmp_path), {})))
    with pytest.raises(SystemExit, match="0"):
        cli.main()
    assert asked[0].to_json() == run.to_json()


def test_what_the_command_line_has_no_word_for_is_python(tmp_path: Path) -> None:
    run = Run(source="rendered", target="handwritten", recipe=recipe("handwriting", ema_decay=0.5))
    (tmp_path / "run.json").write_text(run.to_json())
    line = command(recorded.read(tmp_path), {})
    assert line.startswith(
        "adamatch.train(Run(benchmark='handwriting', task='uda', source='rendered', target='handwritten', "
    )
    assert "recipe=recipe('handwriting', 'paper', 'uda', ema_decay=0.5)), out=" in line
