"""Whole runs on the embedded benchmark: every method on every task, and what a result says."""

import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from train import tiny

from adamatch import experiment, finalise, methods
from adamatch.base.errors import InputError
from adamatch.base.files import unsealed
from adamatch.config import recipe as recipes
from adamatch.config.presets import recipe
from adamatch.config.run import Run
from adamatch.datasets import rendered
from adamatch.evaluate import predict
from adamatch.images import tasks
from adamatch.images.store import Store
from adamatch.images.tasks import split_hash
from adamatch.initialise import stages
from adamatch.methods import METHODS
from adamatch.model import Model
from adamatch.train import loop
from adamatch.train.run_folder import RunFolder
from adamatch.train.speed import Captured

STEPS = 3
RECIPE = recipe("handwriting", images=4 * STEPS, batch=4, uratio=2, tau=0.3)


@pytest.fixture(scope="module", autouse=True)
def _few_images() -> Iterator[None]:
    """The embedded benchmark with 60 drawn and 60 handwritten images, test sets of 20; one thread."""
    drawn = {seed: rendered.rendered(60, RECIPE.size, seed) for seed in (0, 1)}
    written = {split: every(rendered.handwritten(split, RECIPE.size), 6) for split in ("train", "test")}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with (
        mock.patch.object(rendered, "rendered", lambda count, size, seed: drawn[seed]),
        mock.patch.object(rendered, "handwritten", lambda split, size: written[split]),
        mock.patch.object(recipes, "EVALUATIONS", 1),
    ):
        yield
    torch.set_num_threads(threads)


def every(store: Store, count: int) -> Store:
    """`count` images of each class."""
    assert store.labels is not None
    rows = np.concatenate([np.flatnonzero(store.labels == number)[:count] for number in range(10)])
    return Store(store.images[rows], store.labels[rows], store.classes)


def a_run(task: str, **changes: Any) -> Run:
    source = "" if task == "ssl" else "rendered"
    labels = 1 if task in ("ssl", "ssda") else 0
    return Run(
        **{"task": task, "source": source, "target": "handwritten", "labels": labels, "recipe": RECIPE, **changes}
    )


CELLS = [(method, task) for method in METHODS for task in ("uda", "ssl", "ssda")] + [("supervised", "oracle")]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("method", "task"), CELLS)
def test_every_method_on_every_task(method: str, task: str, seed: int, tmp_path: Path) -> None:
    run = a_run(task, method=method, seed=seed)
    result = experiment.train(run, out=tmp_path / "run", machine=tiny.CPU, quiet=True)
    assert result == unsealed(json.loads((tmp_path / "run" / "result.json").read_text()))
    assert result["id"] == run.id
    assert Run.from_json(json.dumps(result["run"])) == run
    assert 0 <= result["accuracy"] <= 100
    assert (result["source_accuracy"] is None) == (task == "ssl")
    assert (result["target_shares"] is None) == (method != "adamatch")
    assert result["target_shares"] is None or sum(result["target_shares"]) == pytest.approx(1, abs=0.001)
    chosen = result["labelled_subset"]
    assert (chosen is not None) == (task in ("ssl", "ssda"))
    if chosen:
        assert len(chosen["rows"]) == 10
        assert chosen["hash"] == split_hash(chosen["rows"])
    model = Model.load(tmp_path / "run")
    assert model.classes == tuple("0123456789")
    assert all(value.isfinite().all() for value in model.net.state_dict().values())


def test_labelled_images_of_ssda_weigh_as_in_the_printed_equation_and_as_in_the_authors_code(tmp_path: Path) -> None:
    def first_loss(task: str, **options: Any) -> float:
        run = a_run(task, recipe=replace(RECIPE, images=RECIPE.batch), options=options)
        result = experiment.train(run, out=tmp_path / f"{task}{options}", machine=tiny.CPU, quiet=True)
        return float(result["evaluations"][0]["loss_source"])

    default = first_loss("ssda")
    assert default == pytest.approx(
        first_loss("ssda", source_loss="sum")
    )  # the mean over all, of both views' sum: eq. (9)
    assert default == pytest.approx(first_loss("ssda", pools=2))  # half of it for each pool: the code
    assert default == pytest.approx(2 * first_loss("ssda", batches=1))
    assert first_loss("uda", source_loss="sum") == pytest.approx(2 * first_loss("uda"))
    with pytest.raises(InputError, match="pools is 1 or the number of full labelled batches"):
        first_loss("uda", pools=2)


def test_labelled_images_weigh_the_same_however_few_the_targets_are(tmp_path: Path) -> None:
    given: list[float] = []
    build = methods.build

    def noting(name: str, **rest: Any) -> Any:
        given.append(rest["batches"])
        return build(name, **rest)

    with mock.patch.object(methods, "build", noting):
        for repeat, labels in ((True, 1), (False, 1), (False, 2)):  # a class has three images: of batches of 4
            run = tiny.a_run(task="ssda", labels=labels, repeat=repeat)
            tiny.solve(run, tmp_path / f"{repeat}{labels}", posed=tiny.problem("ssda", labels=labels))
    assert given == [2, 1 + 3 / 4, 2]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> list[list[bytes]]:
    """The labelled target images of every step that comes."""
    steps: list[list[bytes]] = []
    call = Captured.__call__

    def noting(self: Any, inputs: Any) -> None:
        steps.append([image.numpy().tobytes() for image in inputs.x_sl[4:]])
        call(self, inputs)

    monkeypatch.setattr(Captured, "__call__", noting)
    return steps


def test_few_target_labels_need_not_be_in_a_step_twice(few: list[list[bytes]], tmp_path: Path) -> None:
    posed = tiny.problem("ssda", labels=1)
    for repeat, count in ((True, 4), (False, 3)):
        tiny.solve(tiny.a_run(task="ssda", labels=1, repeat=repeat), tmp_path / str(repeat), posed=posed)
        assert {len(images) for images in few} == {count}
        assert repeat or {len(set(images)) for images in few} == {3}
        few.clear()
    both = tiny.a_run(task="ssda", labels=1, repeat=False, options={"pools": 2})
    with pytest.raises(InputError, match="number of full labelled batches in a step, 1 here"):
        tiny.solve(both, tmp_path / "both", posed=posed)


def test_few_target_labels_are_spread_over_steps(few: list[list[bytes]], tmp_path: Path) -> None:
    posed = tiny.problem("ssda", labels=2)
    tiny.solve(tiny.a_run(task="ssda", labels=2, repeat=False, target_label_steps=2), tmp_path / "run", posed=posed)
    assert {len(images) for images in few} == {3}  # of six, and of three classes
    rounds = [{*first, *second} for first, second in zip(few[::2], few[1::2], strict=True)]
    assert [len(images) for images in rounds] == [6] * 6
    assert all(images == rounds[0] for images in rounds)


def test_what_a_result_says(tmp_path: Path) -> None:
    run = tiny.a_run(images=4 * 45, lr=0.002)  # slow enough that it still rises
    tiny.solve(run, tmp_path / "run")
    result = RunFolder(tmp_path / "run").result() or {}
    targets = [row["target"] for row in result["evaluations"]]
    assert len(targets) == 15
    assert result["accuracy"] == statistics.median(targets[-4:]) < max(targets)
    assert result["last"] == targets[-1]
    assert result["best_ORACLE"] == max(targets)
    assert result["median_of"] == 4  # the last quarter
    assert result["evaluate_every_images"] == 12
    assert result["versions"]["torch"] == torch.__version__
    assert result["wall_seconds"] >= result["seconds"] > 0
    assert Model.load(tmp_path / "run").history["accuracy"] == result["accuracy"]


def test_the_seconds_of_teachers_count() -> None:
    history = loop.History([{"target": 50.0}], seconds=2.0, wall=7.0)
    found = finalise.result(tiny.a_run(), tiny.problem(), history, {"seconds": 3.0, "wall_seconds": 30.0})
    assert (found["seconds"], found["wall_seconds"]) == (5.0, 37.0)


def test_what_comes_before_the_first_step_counts_in_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slowly(*given: Any, **more: Any) -> Any:
        time.sleep(0.7)
        return stages.initialise(*given, **more)

    monkeypatch.setattr("adamatch.prepare.initialise", slowly)
    tiny.solve(tiny.a_run(method="noisystudent"), tmp_path / "run")
    teacher, student = (RunFolder(tmp_path / each).result() or {} for each in ("run/generation-0", "run"))
    assert teacher["wall_seconds"] - teacher["seconds"] > 0.7
    assert student["wall_seconds"] > teacher["wall_seconds"] + 0.7


def test_a_student_learns_from_what_its_teacher_is_sure_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pools: list[tasks.Problem] = []
    train = loop.train

    def noting(run: Run, problem: tasks.Problem, *rest: Any) -> Any:
        pools.append(problem)
        return train(run, problem, *rest)

    monkeypatch.setattr(loop, "train", noting)
    tiny.solve(tiny.a_run(method="noisystudent", options={"generations": 2}, tau=0.35), tmp_path / "run")
    assert [len(problem.labelled) for problem in pools] == [1, 1, 1]
    problem = tiny.problem()
    for generation in range(2):
        teacher = Model.load(tmp_path / "run" / f"generation-{generation}")
        y = predict(teacher.net, problem.unlabelled.parts[0], tiny.CPU)
        keep = y.max(1) > 0.35
        student = pools[generation + 1].labelled[0]
        assert len(student) == 30 + keep.sum()
        np.testing.assert_array_equal(student.labels[30:], y[keep])
        np.testing.assert_array_equal(student.parts[-1], problem.unlabelled.parts[0][keep])
        np.testing.assert_array_equal(student.labels[:30], np.eye(3)[problem.labelled[0].labels])
    assert keep.any()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"method": "adamtch"}, "no method is called 'adamtch': did you mean 'adamatch'"),
        ({"options": {"aling": "none"}}, "has no option 'aling'"),
        ({"task": "uad"}, "no task is called 'uad': did you mean 'uda'"),
        ({"labels": 2}, "task uda takes no target labels"),
        ({"task": "ssda"}, "task ssda needs labelled target images"),
        ({"source": "handwritten"}, "source and target are both 'handwritten'"),
        ({"source": ""}, "task uda needs a target and a source"),
        ({"recipe": replace(RECIPE, network="wrn-29-2")}, "no network is called 'wrn-29-2': did you mean 'wrn-28-2'"),
        (
            {"method": "noisystudent", "options": {"generations": 0}},
            "generations counts: give a whole number from 1 to 65,536, not 0",
        ),
        ({"options": {"interpolate": "no"}}, "interpolate is true or false, not 'no'"),
        ({"options": {"align": "target", "target": "even"}}, "a list of 10 numbers, not 'even'"),
        ({"recipe": replace(RECIPE, size=9)}, "images of handwriting are of size 8, and the recipe's of 9"),
        ({"weights": "nowhere.safetensors"}, "nowhere.safetensors"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(changes: dict[str, Any], says: str, tmp_path: Path) -> None:
    run = Run(**{"source": "rendered", "target": "handwritten", "recipe": RECIPE, **changes})
    with pytest.raises(InputError) as error:
        experiment.train(run, out=tmp_path / "run", machine=tiny.CPU, quiet=True)
    assert says in str(error.value)
    assert "\n" not in str(error.value)
    experiment.train(a_run("uda"), out=tmp_path / "run", machine=tiny.CPU, quiet=True)  # corrected, in the same folder
