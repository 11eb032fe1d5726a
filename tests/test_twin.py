"""The twin, and how fit ends: what is trained, written, printed, and gone on with."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from colours import TINY, arrays, network
from damage import STRANGE, changed
from safetensors.torch import load_file

import adamatch
from adamatch import experiment, twin
from adamatch.config.recipe import Recipe
from adamatch.config.run import Run
from adamatch.images.tasks import Problem
from adamatch.images.user_data import UserData
from adamatch.train import speed
from adamatch.train.execution import Execution
from adamatch.train.run_folder import RunFolder

RECIPE = Recipe(network="wrn-small", size=8, images=6400, weight_decay=0.0005, batch=16)


def problem(target: Any = None, few: Any = None) -> Problem:
    data = UserData(8, quiet=True)
    return data.problem(arrays(60), arrays(30, seed=1)[0] if target is None else target, few, None, None, 0)


def fit(out: Path, **more: Any) -> adamatch.Model:
    target = arrays(30, seed=1, dark=60)[0]
    return adamatch.fit(**{"source": arrays(60), "target": target, "out": out, **TINY, "images": 32, **more})


@pytest.mark.parametrize(
    ("method", "few", "images", "cost"),
    [
        ("adamatch", False, 6400, 2 / 10),
        ("fixmatch+", False, 6400, 2 / 8),
        ("baseline_bn", False, 6400, 2 / 8),
        ("adamatch", True, 6400, 4 / 14),
        ("fixmatch+", True, 5333, 1 / 3),  # 4 / 10 would be dearer than a third
        ("mcd", False, 5688, 1 / 3),
        ("noisystudent", False, 4266, 1 / 3),
    ],
)
def test_it_costs_a_third_at_most(method: str, few: bool, images: int, cost: float) -> None:
    run = Run(method=method, options={}, recipe=replace(RECIPE, repeat=True))
    planned = twin.plan(run, problem(few=arrays(6) if few else None))
    assert planned is not None
    assert planned.run.method == "supervised"
    assert planned.cost == pytest.approx(cost)
    assert planned.run.recipe.images == pytest.approx(images, abs=1)
    assert replace(planned.run.recipe, images=6400) == run.recipe
    assert f"{cost:.0%} to {2 * cost:.0%} more time (twin=False" in planned.line


def test_options_of_the_method_are_not_the_twins_and_an_early_stop_is() -> None:
    recipe = replace(RECIPE, repeat=True, images=12_800, stop_after=6400)
    planned = twin.plan(Run(options={"align": "none"}, recipe=recipe), problem())
    assert planned is not None
    assert (planned.run.options, planned.run.recipe) == ({}, recipe)
    dear = twin.plan(Run(method="fixmatch+", recipe=recipe), problem(few=arrays(6)))
    assert dear is not None
    assert (dear.run.recipe.images, dear.run.recipe.stop_after) == (10_666, 5333)


def test_labelled_images_alone_have_no_twin() -> None:
    assert twin.plan(Run(method="supervised", recipe=RECIPE), problem()) is None


def test_it_is_the_supervised_run_and_sees_no_target_image(tmp_path: Path) -> None:
    run = Run(seed=3, recipe=replace(RECIPE, images=64))
    planned = twin.plan(run, problem())
    assert planned is not None
    execution = Execution(speed.choose("cpu"), quiet=True)
    twin.train(planned, problem(), RunFolder(tmp_path / "a"), execution)
    twin.train(planned, problem(np.zeros((9, 8, 8, 3), np.uint8)), RunFolder(tmp_path / "b"), execution)
    experiment.solve(replace(run, method="supervised"), problem(), RunFolder(tmp_path / "c"), execution)
    said = [sorted(path.name for path in (tmp_path / name / "outputs").glob("step-*")) for name in ("a/twin", "c")]
    assert said[0] == said[1][-1:], "what it says at the end is all that a verdict asks for"
    assert len(said[1]) > 1
    weights = [load_file(tmp_path / name / "model.safetensors") for name in ("a/twin", "b/twin", "c")]
    for other in weights[1:]:
        assert all(torch.equal(weights[0][name], other[name]) for name in other)


def test_fit_leaves_a_twin_a_verdict_and_a_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = fit(tmp_path / "run", quiet=False)
    printed, said = capsys.readouterr()
    verdict = json.loads((tmp_path / "run/judge.json").read_text())
    assert (tmp_path / "run/twin/result.json").exists()
    assert f"- adaptation changed: {verdict['twin']['changed']} of 30" in (tmp_path / "run/README.md").read_text()
    assert (verdict["version"], verdict["images"], verdict["held_out"]) == (1, 30, 6)
    assert verdict["range"] == {"at_least": None, "at_best": None}  # the network began from nothing
    ours, its = (adamatch.load(tmp_path / each).predict(arrays(30, seed=1, dark=60)[0]) for each in ("run", "run/twin"))
    differ = [i for i in range(30) if ours.labels[i] != its.labels[i]]
    assert verdict["twin"]["changed"] == len(differ)
    assert sorted(verdict["twin"]["rows"]) == differ
    assert sum(count for _, _, count in verdict["twin"]["moves"]) == len(differ)
    assert verdict["shares"]["target"] == pytest.approx(
        [ours.labels.count(name) / 30 for name in model.classes], abs=1e-4
    )
    assert verdict["shares"]["source"] == pytest.approx([1 / 3] * 3, abs=1e-4)
    assert "20% to 40% more time (twin=False leaves it out)" in " ".join(said.split())
    assert "How many target images are right cannot be told without labels" in printed
    assert "adaptation changed: " in printed
    shown = adamatch.load(tmp_path / "run")
    assert "accuracy on the target" in repr(shown)
    assert shown.history["judge"] == model.history["judge"]
    assert "rows" not in shown.history["judge"]["twin"]
    fit(tmp_path / "quiet")
    assert capsys.readouterr().out == ""


def test_without_a_twin_the_rest_is_said(tmp_path: Path) -> None:
    model = fit(tmp_path / "run", twin=False)
    assert not (tmp_path / "run/twin").exists()
    verdict = model.history["judge"]
    assert (verdict["twin"], verdict["gain"], verdict["shares"]["twin"]) == (None, None, None)
    assert "there is no twin" in (tmp_path / "run/report.html").read_text()
    again = fit(tmp_path / "run")  # with it, later
    assert "there is no twin" not in (tmp_path / "run/report.html").read_text()
    assert again.history["judge"]["twin"] is not None
    assert adamatch.load(tmp_path / "run").history["judge"]["twin"] is not None


def test_an_interrupted_twin_goes_on_and_a_finished_run_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"

    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(twin, "solve", stop)
        with pytest.raises(KeyboardInterrupt):
            fit(out)
    assert (out / "result.json").exists()
    assert not (out / "judge.json").exists()
    before = (out / "outputs").stat().st_mtime_ns
    model = fit(out)
    assert model.history["judge"]["twin"] is not None
    assert (out / "outputs").stat().st_mtime_ns == before
    times = [(out / name).stat().st_mtime_ns for name in ("judge.json", "twin/result.json", "model.json")]
    assert fit(out).history == model.history
    assert [(out / name).stat().st_mtime_ns for name in ("judge.json", "twin/result.json", "model.json")] == times
    whole = (out / "judge.json").read_text()
    for damaged in (
        STRANGE[0],
        whole.replace('"held_out": 6', '"held_out": 7'),
        changed(out / "judge.json", "twin", 7),
    ):
        (out / "judge.json").write_text(damaged)
        assert fit(out).history == model.history
        assert (out / "judge.json").read_text() == whole  # made anew


def test_labels_to_test_on_change_nothing_in_the_verdict(tmp_path: Path) -> None:
    images, labels = arrays(30, seed=1, dark=60)
    for name, given in (("true", labels), ("false", (labels + 1) % 3)):
        fit(tmp_path / name, test=(images, given))
    verdicts = [(tmp_path / name / "judge.json").read_text() for name in ("true", "false")]
    assert verdicts[0] == verdicts[1]
    assert adamatch.load(tmp_path / "true").history["accuracy"] != adamatch.load(tmp_path / "false").history["accuracy"]


def test_few_labels_and_own_networks_have_twins_too(tmp_path: Path) -> None:
    same = arrays(60)
    alone = fit(tmp_path / "ssl", source=same, target=same, labels_per_class=3, network=network(norm=True))
    assert alone.history["judge"]["twin"] is not None
    assert "same images" not in [each["kind"] for each in alone.history["judge"]["warnings"]]
    few = fit(tmp_path / "ssda", target_labels=arrays(6, seed=2), network=network(norm=False))
    assert few.history["judge"]["twin"] is not None
    none_held = fit(tmp_path / "tiny", source=arrays(12))
    assert none_held.history["judge"]["range"] == {"at_least": None, "at_best": None}
    assert "cannot be told without labels" in repr(none_held)
