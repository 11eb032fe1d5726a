"""A folder that holds a run already: which argument differs, test sets that come later, runs that are prolonged."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from colours import TINY, arrays

import adamatch
from adamatch.base.errors import InputError, Interruption
from adamatch.config.run import Run
from adamatch.train import loop, resume, run_folder
from adamatch.train.speed import Captured

SOURCE, TARGET, TEST = arrays(30), arrays(12, 1)[0], arrays(9, 2)


def fit(out: Path, **more: Any) -> adamatch.Model:
    return adamatch.fit(**{"source": SOURCE, "target": TARGET, "out": out, "twin": False, **TINY, **more})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that is only looked at."""
    out = tmp_path_factory.mktemp("finished") / "run"
    fit(out)
    return out


def interrupt(out: Path, monkeypatch: pytest.MonkeyPatch, **more: Any) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(loop, "stop_agreed", lambda stopped, done, last: done == 1)
        with pytest.raises(Interruption):
            fit(out, **more)
    assert not (out / "result.json").exists()


def result(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "result.json").read_text())
    return found


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"lr": 0.5}, "lr was 0.03 and is 0.5 now"),
        ({"mirror": False, "seed": 3}, "seed was 0 and is 3 now, mirror was on and is off now"),
        ({"labels_per_class": 2}, "labels_per_class was 0 and is 2 now"),
        ({"source": arrays(30, 5)}, "source: tuple holds other images or labels now"),
        ({"target": TARGET[1:]}, "target: ndarray holds other images or labels now"),
        ({"target_labels": arrays(3)}, "target_labels was none and is tuple now"),
        ({"options": {"align": "none"}}, "options was none and is {'align': 'none'} now"),
        ({"images": 4}, "images was 8 and is 4 now"),
        ({"size": 12}, "size was 8 and is 12 now"),  # of which the images' digests are others, too
        ({"size": 12, "target": list(TARGET[1:])}, "target was ndarray and is list now, size was 8 and is 12 now"),
        ({"repeat": True}, "repeat was off and is on now"),
    ],
)
def test_the_argument_that_differs_is_named(finished: Path, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as error:
        fit(finished, **changes)
    line = f"holds another run ({told}): choose another folder, or give overwrite=True to replace it"
    assert line in str(error.value)


def test_a_test_set_may_be_added_to_an_interrupted_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    interrupt(out, monkeypatch)
    model = fit(out, test=TEST)
    assert result(out)["accuracy"] == model.history["accuracy"] is not None
    plain = fit(tmp_path / "plain")
    assert all(np.array_equal(ours, theirs) for ours, theirs in zip(weights(model), weights(plain), strict=True))
    assert result(out)["id"] == result(tmp_path / "plain")["id"]


def weights(model: adamatch.Model) -> list[Any]:
    return [value.numpy() for value in model.net.state_dict().values()]


@pytest.mark.parametrize(("test", "told"), [(None, "is missing now"), (arrays(9, 3), r"is tuple \(\w{8}\) now")])
def test_another_test_set_in_the_middle_of_a_run_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, test: Any, told: str
) -> None:
    interrupt(tmp_path / "run", monkeypatch, test=TEST)
    with pytest.raises(
        InputError, match=rf"test was tuple \(\w{{8}}\) and {told}: give the same until the run is finished"
    ):
        fit(tmp_path / "run", test=test)
    fit(tmp_path / "run", test=TEST)


def test_a_finished_run_is_tested_without_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    first = fit(out, twin=True)
    assert result(out)["accuracy"] is None
    page = (out / "report.html").read_text()
    monkeypatch.setattr(Captured, "__call__", lambda *_: pytest.fail("it was trained again"))
    model = fit(out, twin=True, test=TEST, quiet=False)
    assert all(np.array_equal(ours, theirs) for ours, theirs in zip(weights(model), weights(first), strict=True))
    expected = model.evaluate(TEST).accuracy
    assert result(out)["accuracy"] == model.history["accuracy"] == pytest.approx(expected)
    assert result(out)["tested"] == "after training, the final model alone"
    assert result(out / "twin")["accuracy"] is not None
    said = " ".join(capfd.readouterr().out.split())
    assert f"labelled target images: {expected:.1f} % (after training, the final model alone)" in said
    assert (out / "report.html").read_text() != page
    before = (out / "result.json").read_bytes()
    fit(out, twin=True, test=TEST)
    fit(out, twin=True)
    assert (out / "result.json").read_bytes() == before
    assert adamatch.load(out).history["accuracy"] == pytest.approx(expected)


def test_a_finished_run_is_prolonged_from_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    first = fit(out)
    starts: list[Any] = []
    before = adamatch.Model.load

    def load(folder: Path, **how: Any) -> adamatch.Model:
        found = before(folder, **how)
        starts.append((Path(folder), weights(found)))
        return found

    monkeypatch.setattr(adamatch.Model, "load", load)
    interrupt(out, monkeypatch, images=16, quiet=False)
    said = " ".join(capfd.readouterr().err.split())
    assert f"this is another run: 16 images, from the model of the finished run, which is in {out / 'earlier'}" in said
    where, loaded = starts[0]
    assert where == out / "earlier"
    assert all(np.array_equal(ours, theirs) for ours, theirs in zip(loaded, weights(first), strict=True))
    longer = fit(out, images=16)  # resumed, not begun again
    assert longer.history["run"]["continues"] == result(out / "earlier")["id"]
    assert result(out)["run"]["recipe"]["images"] == 16
    assert adamatch.load(out / "earlier").history["run"]["recipe"]["images"] == 8
    files = (out / "result.json").read_bytes()
    fit(out, images=16)
    assert (out / "result.json").read_bytes() == files
    fit(out, images=24)
    assert adamatch.load(out / "earlier/earlier").history["run"]["recipe"]["images"] == 8
    with pytest.raises(InputError, match="images was 24 and is 8 now"):
        fit(out)


def test_a_run_that_began_without_labels_is_prolonged_too(tmp_path: Path) -> None:
    few: dict[str, Any] = {"target": SOURCE, "labels_per_class": 2, "network": "wrn-tiny"}
    fit(tmp_path / "run", **few)
    first = Run.read(tmp_path / "run" / "run.json")
    assert first.recipe.simclr_images == first.recipe.images
    assert resume.prolongs(first, replace(first, recipe=replace(first.recipe, images=16, simclr_images=16)))
    longer = fit(tmp_path / "run", **few, images=16).history["run"]
    assert longer["continues"] == result(tmp_path / "run" / "earlier")["id"]


def test_an_interrupted_run_is_not_prolonged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt(tmp_path / "run", monkeypatch)
    with pytest.raises(InputError, match=r"\(images was 8 and is 16 now"):
        fit(tmp_path / "run", images=16)


def test_prolonging_may_be_killed_at_any_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    fit(out)

    def die(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    # In the copy, after it, after the first file is removed, and after the last.
    for where, name in ((shutil, "copytree"), (Path, "rename"), (run_folder, "sync"), (run_folder, "write_atomically")):
        with monkeypatch.context() as patch:
            patch.setattr(where, name, die)
            with pytest.raises(KeyboardInterrupt):
                fit(out, images=16)
    assert not (out / "result.json").exists()
    fit(out, images=16)
    assert result(out / "earlier")["run"]["recipe"]["images"] == 8
