"""What is found in the images before training: each mess is told, with the images that show it, and nothing else is."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from adamatch.datasets.rendered import handwritten, rendered
from adamatch.images import checks
from adamatch.images.checks import Finding, alike_names, look
from adamatch.images.store import Pixels
from adamatch.images.user_data import UserData

DRAWN, OTHERS = (rendered(count, 32, seed=seed).images for count, seed in ((400, 0), (100, 1)))
CLASSES = np.arange(400) % 10  # forty images each, of which four are held out


def found(
    target: Pixels | None = OTHERS,
    source: Pixels = DRAWN,
    labels: Any = CLASSES,
    *,
    same: bool = False,
    **more: Any,
) -> tuple[dict[str, Finding], UserData]:
    data = UserData(source.shape[1], quiet=True)
    given = {"target_labels": None, "test": None, "labels_per_class": None} | more
    data.problem((source, labels), target, **given, seed=0)
    return {each.kind: each for each in look(data, same=same)}, data


def test_nothing_is_found_where_all_is_well() -> None:
    real, small = handwritten("train", 8).images, rendered(400, 8, seed=0).images
    assert found(real, small)[0] == {}
    assert found()[0] == found(test=(OTHERS, CLASSES[:100]))[0] == {}


def test_the_same_image_in_two_classes() -> None:
    source = DRAWN.copy()
    source[13], source[25] = source[2], source[24] // 2  # the second only looks the same
    (told,), data = [*found(source=source)[0].values()], found(source=source)[1]
    assert (told.kind, told.line) == ("two classes", "1 image is in two classes of the source: keep each in one")
    assert told.files == ["source image 2 = source image 13"]
    kept = [row for row in (2, 13) if row in data.trained]
    assert data.trained[list(told.pairs)].tolist() == kept
    again = DRAWN.copy()
    again[12] = again[2]  # twice in one class
    assert found(source=again)[0] == {}


def test_labels_that_a_run_may_not_use_say_nothing() -> None:
    """Three labels of each class: of the others only those that are held out are known."""
    source = DRAWN.copy()
    known = found(None, source, labels_per_class=3, same=True)[1]
    secret = np.setdiff1d(np.arange(400), np.union1d(known.trained, known.held_out))
    source[secret[1]] = source[secret[0]]
    assert CLASSES[secret[1]] != CLASSES[secret[0]]
    assert found(None, source, labels_per_class=3, same=True)[0] == {}
    source[known.trained[1]] = source[known.trained[4]]
    assert "two classes" in found(None, source, labels_per_class=3, same=True)[0]


def test_the_same_images_in_source_and_target() -> None:
    told, data = found(np.concatenate([OTHERS, DRAWN[7:17]]))
    same = told.pop("same images")
    assert told == {}
    held = [row for row in range(7, 17) if row in data.held_out]
    order = [row for row in range(7, 17) if row not in held] + held
    assert list(same.rows) == [row + 93 for row in order]
    assert data.trained[list(same.pairs)].tolist() == [row for row in order if row not in held]
    assert same.line == "10 of 110 target images are nearly the same as labelled ones: then estimates are too good"
    told, _ = found(np.concatenate([OTHERS, DRAWN[7:8]]))  # one counts if every pixel is the same
    assert told["same images"].line.startswith("1 of 101 target images is also among the labelled ones")
    assert told["same images"].files == ["target image 100 = source image 7"]
    assert found(np.concatenate([OTHERS, DRAWN[7:8] // 2]))[0] == {}
    assert found(np.concatenate([OTHERS, DRAWN[7:17]]), same=True)[0] == {}


def test_test_images_that_are_trained_on() -> None:
    few, test = (OTHERS[:10], CLASSES[:10]), np.concatenate([OTHERS[50:60], OTHERS[3:5]])
    told, data = found(target_labels=few, test=(test, CLASSES[:12]))
    assert told["test images"].line.startswith("2 of 12 test images are trained on with their labels: leave them out")
    assert told["test images"].files == ["test image 10", "test image 11"]
    held = DRAWN[data.held_out[:3]]
    assert found(test=(held, CLASSES[:3]))[0] == {}  # not trained on


def test_empty_images() -> None:
    nearly = np.random.default_rng(0).integers(100, 104, (6, 32, 32, 3)).astype(np.uint8)
    told, _ = found(np.concatenate([OTHERS, nearly]))
    assert told["empty"].rows == list(range(100, 106))
    assert told["empty"].line.startswith("6 of 106 target images are empty or of one colour: take them out")
    source = np.concatenate([DRAWN, nearly.repeat(10, 0)])
    labels = np.append(CLASSES, np.repeat(np.arange(6), 10))
    assert "empty" not in found(np.concatenate([OTHERS, nearly]), source, labels)[0]  # as usual there
    assert found(np.concatenate([OTHERS, nearly[:2]]))[0] == {}  # few of them may be meant
    blank = np.concatenate([OTHERS, np.full((1, 32, 32, 3), 7, np.uint8)])
    assert found(blank)[0]["empty"].rows == [100]  # of one colour none is
    source = DRAWN.copy()
    source[3] = 255
    told, _ = found(OTHERS, source)
    assert told["empty"].line.startswith("1 of 400 source images is empty")
    assert told["empty"].files == ["source image 3"]


def test_where_the_source_is_the_target_its_images_are_shown_among_the_unlabelled() -> None:
    source = DRAWN.copy()
    source[[3, 77]] = 0
    told, data = found(None, source, labels_per_class=4, same=True)
    unlabelled = np.setdiff1d(np.arange(400), data.held_out)
    assert unlabelled[list(told["empty"].rows)].tolist() == [row for row in (3, 77) if row in unlabelled]


def test_classes_of_few_images() -> None:
    labels = np.where(np.arange(400) < 3, 11, CLASSES)
    told, data = found(labels=labels)
    assert told["few images"].line.startswith("fewer than 10 images have 11 (3): none is held out")
    assert labels[data.trained[list(told["few images"].pairs)]].tolist() == [11] * 3
    assert len(found(labels=np.where(np.arange(400) < 10, 11, CLASSES % 5))[0]) == 0
    assert found(labels=labels, labels_per_class=2)[0] == {}  # few labels are meant


def test_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tiny ones, and those that cannot be read."""
    for number, image in enumerate(DRAWN[:40]):
        file = tmp_path / "source" / ("cat", "dog")[number % 2] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).resize((8, 9) if number == 4 else (9, 9) if number == 5 else (40, 40)).save(file)
    (tmp_path / "target").mkdir()
    for number, image in enumerate(OTHERS):
        Image.fromarray(image).save(tmp_path / "target" / f"{number:03}.png")
    for bad in ("source/cat/bad.png", "target/050.png"):
        (tmp_path / bad).write_bytes(b"hello")
    data = UserData(32, quiet=True)
    data.problem(tmp_path / "source", tmp_path / "target", None, None, None, seed=0)
    told = {each.kind: each for each in look(data, same=False)}
    assert set(told) == {"unreadable", "tiny"}
    assert told["unreadable"].line == "2 of 141 images cannot be read: left out"
    assert [each.split(" is not")[0] for each in told["unreadable"].files] == [
        str(tmp_path / bad) for bad in ("source/cat/bad.png", "target/050.png")
    ]
    assert told["tiny"].line.startswith("1 of 40 source images is tiny: enlarged 4 times and more to 32 pixels")
    assert told["tiny"].files == [str(tmp_path / "source/cat/4.png")]


def test_of_very_many_images_a_sample_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "MOST", 50)
    source = DRAWN.copy()
    source[[0, 399]] = 0
    rows = [3, 7, 396]  # not among the fifty
    source[rows] = 255
    assert found(source=source)[0]["empty"].files == ["source image 0", "source image 399"]


def test_names_that_are_likely_one_class() -> None:
    groups = [("Dog", "dogs"), ("cat ", "cat"), ("glass", "glasses"), ("butterfly", "Butterflies")]
    groups += [("ice_cream", "ice cream"), ("box", "boxes"), ("giraffe", "girafe"), ("refrigerator", "refrigirator")]
    told = alike_names([name for group in groups for name in (*group, group[0] + " bus")])
    assert sorted(each.line for each in told) == sorted(f"are these the same class? {a!r} and {b!r}" for a, b in groups)


def test_names_that_are_not() -> None:
    names = ["1", "10", "11", "1.0", "-1", "a", "as", "bus", "cactus", "class 1", "class 11", "ß", "+", "-", "猫", "犬"]
    names += ["typical", "atypical", "horse", "house", "male", "female", "camera 1a", "camera 1b", "plane", "planet"]
    assert alike_names(names) == []
