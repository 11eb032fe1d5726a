"""`adamatch choose`, and what runs leave for it."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from colours import TINY, arrays
from typer.testing import CliRunner
from verdict import made

import adamatch
from adamatch.base.errors import InputError
from adamatch.cli import app
from adamatch.verdict import choice, eval_outputs, evidence
from adamatch.verdict.evidence import Evidence


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("runs")
    for seed in range(3):
        target = arrays(30, seed=1)[0]
        adamatch.fit(
            source=arrays(60), target=target, out=root / str(seed), seed=seed, twin=False, **TINY | {"images": 24}
        )
    return [root / str(seed) for seed in range(3)]


def call(*arguments: object) -> str:
    made = CliRunner().invoke(app, ["choose", *map(str, arguments)], catch_exceptions=False)
    assert made.exit_code == 0
    return made.output


def test_evidence_is_what_the_network_said(runs: list[Path]) -> None:
    found = evidence.read(runs[0])
    assert found is not None
    model = adamatch.load(runs[0])
    assert found.steps[-1] == 6
    assert np.abs(found.last - model.predict(arrays(30, seed=1)[0]).probabilities).max() < 2e-3
    assert np.allclose(found.target.sum(-1), 1, atol=1e-5)
    assert np.bincount(found.held).tolist() == [2, 2, 2]
    assert found.source.shape[1] == 6
    (runs[1] / "outputs" / eval_outputs.CLASSES).rename(runs[1] / "held")  # as in a run where nothing was held out
    less = evidence.read(runs[1])
    assert less is not None
    assert (less.source.shape[1], len(less.held)) == (0, 0)
    (runs[1] / "held").rename(runs[1] / "outputs" / eval_outputs.CLASSES)


def test_runs_that_hold_out_other_images_are_compared_on_common_ones(tmp_path: Path) -> None:
    images = arrays(60)
    for seed in range(3):
        given = {"source": images, "target": images, "labels_per_class": 4, "seed": seed, "out": tmp_path / str(seed)}
        adamatch.fit(**given, twin=False, network="wrn-tiny", **TINY | {"images": 24})  # type: ignore[arg-type]
    runs = [tmp_path / str(seed) for seed in range(3)]
    keys = [eval_outputs.images(run) for run in runs]
    assert keys[0] != keys[1]
    assert {len(each) for each in keys} == {54}
    said = [adamatch.load(run).predict(images[0]).probabilities for run in runs]
    everywhere = [row for row, image in enumerate(images[0]) if all(eval_outputs._key(image) in each for each in keys)]
    assert 36 < len(everywhere) < 54
    mean = np.mean(said, 0)[everywhere].argmax(1)
    agreement = [float((each[everywhere].argmax(1) == mean).mean()) for each in said]
    shown = call(*runs)
    assert all(f"{each:.3f}" in shown for each in agreement)


def test_a_run_that_is_not_finished_is_not_chosen(runs: list[Path], tmp_path: Path) -> None:
    shutil.copytree(runs[0], tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    with pytest.raises(InputError, match="run is not finished: run its command again"):
        call(tmp_path / "run", *runs)


@pytest.mark.parametrize("rule", ["names", "ensemble", "density", "last"])
def test_the_chosen_run_has_the_best_score(runs: list[Path], rule: str) -> None:
    read = [each for each in map(evidence.read, runs) if each is not None]
    best = int(choice.among(read, rule).argmax())
    said = call(*runs, "--rule", rule)
    assert said.splitlines()[-1] == f"chosen, by {rule}: {runs[best]}"
    assert all(str(path) in said for path in runs)
    assert "adamatch" in said


def test_the_twin_of_a_run_is_asked(tmp_path: Path) -> None:
    """Its answers show that two classes of the first run have each other's names."""
    right = np.eye(3, dtype=np.float32)[np.arange(120) % 3]
    source, held = right[:30], np.arange(30) % 3
    for number, names in enumerate((right[:, [1, 0, 2]], right)):
        for folder, said in (("", 0.97 * names + 0.01), ("twin", 0.4 * right + 0.2)):
            made.kept(tmp_path / str(number) / folder, Evidence((10,), said[None], source[None], held), weights="")
    told = call(tmp_path / "0", tmp_path / "1", "--rule", "names")
    assert told.splitlines()[-1] == f"chosen, by names: {tmp_path / '1'}"


@pytest.mark.parametrize(
    ("classes", "told"),
    [
        (("cat", "dog", "fish"), "it has 'fish', it lacks 'bird'"),
        (("bird", "cat", "cow", "dog"), "it has 'cow'"),
        (("cat", "bird", "dog"), "the same ones in another order, which begins with 'cat', 'bird', 'dog'"),
    ],
)
def test_runs_with_other_classes_are_not_compared(tmp_path: Path, classes: tuple[str, ...], told: str) -> None:
    """By their numbers, dogs of one run would be fish of another."""
    paths = [tmp_path / name for name in "abcd"]
    for path, names in zip(paths, ((), ("bird", "cat", "dog"), ("bird", "cat", "dog"), classes), strict=True):
        said = np.eye(len(names or classes), dtype=np.float32)[np.arange(30) % 3]
        made.kept(path, Evidence((10,), said[None], said[None, :6], np.arange(6) % 3), weights="")
        (path / "outputs" / eval_outputs.CLASSES).write_text(json.dumps({"classes": names} if names else {}))
    assert str(paths[1]) in call(*paths[1:3])
    with pytest.raises(InputError) as raised:
        call(*paths)  # the first does not name its classes
    remedy = "choose among runs with the same ones"
    assert str(raised.value) == f"{paths[3]} has other classes than {paths[1]} ({told}): {remedy}"


def test_what_is_no_run_or_another_target_is_refused(runs: list[Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no run"):
        call(tmp_path)
    with pytest.raises(InputError, match="no rule is called 'best'"):
        call(*runs, "--rule", "best")
    other = arrays(30, seed=7)[0]
    adamatch.fit(source=arrays(60), target=other, out=tmp_path / "other", twin=False, **TINY)
    with pytest.raises(InputError, match="other target images"):
        call(runs[0], tmp_path / "other")
    for file in (tmp_path / "other/outputs").iterdir():
        file.unlink()
    with pytest.raises(InputError, match="no outputs/"):
        call(tmp_path / "other")
