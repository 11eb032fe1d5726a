"""Rules that choose an evaluation or a run, against obvious versions; `adamatch choose`, and what runs leave for it."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from colours import TINY, arrays
from typer.testing import CliRunner
from verdict import made

import adamatch
from adamatch.base.errors import InputError
from adamatch.cli import app
from adamatch.verdict import eval_outputs, model_selection
from adamatch.verdict.eval_outputs import EvalOutputs

HELD, TRUE = made.labels([1, 1, 1, 1], 400), made.labels([1, 1, 1, 1], 600, seed=1)
RUN = made.outputs([0.3, 0.6, 0.9, 0.9, 0.6, 0.4, 0.3, 0.3], TRUE, HELD)
NO_SOURCE = replace(RUN, source=RUN.source[:, :0], source_labels=HELD[:0])


def entropy(row: list[float]) -> float:
    return -float(sum(p * np.log(p) for p in row if p > 0))


def test_scores_are_what_their_names_say() -> None:
    rows = RUN.target[2].astype(float)
    run = RUN.at(2)
    certain = -np.mean([entropy(row) for row in rows.tolist()])
    assert model_selection.certainty(run) == pytest.approx(certain, rel=1e-3)
    assert model_selection.information(run) == pytest.approx(entropy(list(rows.mean(0))) + certain, rel=1e-3)
    mean = RUN.target.mean(0).argmax(1)
    candidates = [RUN.at(index) for index in range(8)]
    expected = [np.mean(each.argmax(1) == mean) for each in RUN.target]
    assert model_selection.scores(candidates, "ensemble") == pytest.approx(expected)


def test_density_image_by_image() -> None:
    rows = RUN.target[2][:30].astype(float)
    unit = rows / np.sqrt((rows**2).sum(1, keepdims=True))
    expected = []
    for i in range(30):
        weights = np.exp([unit[i] @ unit[j] / model_selection.TEMPERATURE for j in range(30) if j != i])
        expected.append(entropy(list(weights / weights.sum())))
    assert model_selection.density(RUN.at(2).of(range(30))) == pytest.approx(np.mean(expected), rel=1e-4)


def test_agreement_with_the_ensemble_finds_the_best_evaluation() -> None:
    assert model_selection.best_evaluation(RUN, "ensemble") in (2, 3)


@pytest.mark.parametrize("rule", model_selection.RULES)
def test_early_evaluations_are_not_chosen_and_of_equals_the_later_is(rule: str) -> None:
    first = made.outputs([0.99, 0.5, 0.5, 0.5], TRUE, HELD)
    assert model_selection.best_evaluation(first, rule) >= 1
    same = replace(RUN, target=np.stack([RUN.target[2]] * 8), source=np.stack([RUN.source[2]] * 8))
    assert model_selection.best_evaluation(same, rule) == 7
    assert 2 <= model_selection.best_evaluation(NO_SOURCE, rule) <= 7


def test_of_several_runs_the_one_that_agrees_with_all() -> None:
    """By their last evaluations alone."""
    said = [made.said(TRUE, 4, right, seed=70 + i) for i, right in enumerate((0.5, 0.9, 0.6))]
    runs = [replace(RUN.at(0), target=each[None]) for each in said]
    assert model_selection.scores(runs, "ensemble").argmax() == 1
    longer = [replace(run, target=np.concatenate([RUN.target[:2], run.target])) for run in runs]
    longer = [replace(run, source=np.repeat(run.source, 3, 0), steps=(1, 2, 3)) for run in longer]
    for rule in model_selection.RULES:
        assert model_selection.scores(longer, rule) == pytest.approx(model_selection.scores(runs, rule))


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


def test_outputs_are_what_the_network_predicts(runs: list[Path]) -> None:
    found = eval_outputs.read(runs[0])
    assert found is not None
    assert found.steps[-1] == 6
    assert np.abs(found.last - adamatch.load(runs[0]).predict(arrays(30, seed=1)[0]).probabilities).max() < 2e-3
    assert np.allclose(found.target.sum(-1), 1, atol=1e-5)
    assert np.bincount(found.source_labels).tolist() == [2, 2, 2]
    assert found.source.shape[1] == 6


def test_damage_is_named(tmp_path: Path) -> None:
    made.kept(tmp_path, made.outputs([0.5, 0.6], TRUE, HELD))
    last = tmp_path / "outputs/step-000000200.npz"
    whole = last.read_bytes()
    last.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"step-000000200\.npz is damaged .*remove it, to do without that evaluation"):
        eval_outputs.read(tmp_path)
    last.unlink()
    facts = tmp_path / "outputs/classes.json"
    for damaged in (facts.read_text()[:50], facts.read_text().replace('"source": [', '"source": [1, ')):
        facts.write_text(damaged)
        with pytest.raises(InputError, match=r"classes\.json is damaged"):
            eval_outputs.read(tmp_path)


def test_runs_that_hold_out_other_images_are_compared_on_common_ones(tmp_path: Path) -> None:
    images = arrays(60)
    for seed in range(3):
        given = {"source": images, "target": images, "labels_per_class": 4, "seed": seed, "out": tmp_path / str(seed)}
        adamatch.fit(**given, twin=False, network="wrn-tiny", **TINY | {"images": 24})  # type: ignore[arg-type]
    runs = [tmp_path / str(seed) for seed in range(3)]
    keys = [eval_outputs.facts(run).images for run in runs]
    assert keys[0] != keys[1]
    assert {len(each) for each in keys} == {54}
    said = [adamatch.load(run).predict(images[0]).probabilities for run in runs]
    everywhere = [row for row, image in enumerate(images[0]) if all(eval_outputs._key(image) in each for each in keys)]
    assert 36 < len(everywhere) < 54
    mean = np.mean(said, 0)[everywhere].argmax(1)
    shown = call(*runs)
    assert all(f"{(each[everywhere].argmax(1) == mean).mean():.3f}" in shown for each in said)


@pytest.mark.parametrize("rule", ["names", "ensemble", "density"])
def test_the_chosen_run_has_the_best_score(runs: list[Path], rule: str) -> None:
    read = [each for each in map(eval_outputs.read, runs) if each is not None]
    best = int(model_selection.scores(read, rule).argmax())
    said = call(*runs, "--rule", rule)
    assert said.splitlines()[-1] == f"chosen, by {rule}: {runs[best]}"
    assert all(str(path) in said for path in runs)
    assert "adamatch" in said


def test_the_twin_of_a_run_is_asked(tmp_path: Path) -> None:
    """Its predictions show that two classes of the first run have each other's names."""
    right = np.eye(3, dtype=np.float32)[np.arange(120) % 3]
    source, held = right[:30], np.arange(30) % 3
    for number, names in enumerate((right[:, [1, 0, 2]], right)):
        for folder, said in (("", 0.97 * names + 0.01), ("twin", 0.4 * right + 0.2)):
            made.kept(tmp_path / str(number) / folder, EvalOutputs((10,), said[None], source[None], held))
    told = call(tmp_path / "0", tmp_path / "1", "--rule", "names")
    assert told.splitlines()[-1] == f"chosen, by names: {tmp_path / '1'}"


@pytest.mark.parametrize(
    ("classes", "told"),
    [(("cat", "dog", "fish"), "'fish', 'bird'"), (("cat", "bird", "dog"), "the same in another order")],
)
def test_runs_with_other_classes_are_not_compared(tmp_path: Path, classes: tuple[str, ...], told: str) -> None:
    """By their numbers, dogs of one run would be fish of another."""
    paths = [tmp_path / name for name in "abc"]
    said = np.eye(3, dtype=np.float32)[np.arange(30) % 3]
    for path, names in zip(paths, (("bird", "cat", "dog"), ("bird", "cat", "dog"), classes), strict=True):
        made.kept(path, EvalOutputs((10,), said[None], said[None, :6], np.arange(6) % 3), classes=names)
    assert str(paths[1]) in call(*paths[:2])
    with pytest.raises(InputError) as raised:
        call(*paths)
    remedy = "choose among runs with the same ones"
    assert str(raised.value) == f"{paths[2]} has other classes than {paths[0]} ({told}): {remedy}"


def test_what_cannot_be_compared_is_refused(runs: list[Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no run"):
        call(tmp_path)
    with pytest.raises(InputError, match="no rule is called 'best'"):
        call(*runs, "--rule", "best")
    shutil.copytree(runs[0], tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    with pytest.raises(InputError, match="run is not finished: run its command again"):
        call(tmp_path / "run", *runs)
    other = arrays(30, seed=7)[0]
    adamatch.fit(source=arrays(60), target=other, out=tmp_path / "other", twin=False, **TINY)
    with pytest.raises(InputError, match="other target images"):
        call(runs[0], tmp_path / "other")
    shutil.rmtree(tmp_path / "other/outputs")
    with pytest.raises(InputError, match="no outputs/"):
        call(tmp_path / "other")
