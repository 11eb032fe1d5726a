"""Target labels cannot be reached from training: a search of everything it holds, and trainings with other labels."""

import gc
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from train import tiny

from adamatch.evaluate import Evaluation
from adamatch.images import tasks
from adamatch.images.store import Labels, Store
from adamatch.images.tasks import Problem, Unlabelled
from adamatch.methods import METHODS
from adamatch.train import loop
from adamatch.train.batches import Batches
from adamatch.train.run_folder import RunFolder
from adamatch.train.speed import Captured

TARGET = tiny.store(27, 2)
TEST = tiny.store(12, 3)
ENOUGH = 200_000  # objects


def reachable(roots: Iterable[object]) -> list[object]:
    """Every object that can be reached, but through modules, classes, functions' globals or evaluations."""
    seen: dict[int, object] = {}
    waiting = list(roots)
    while waiting and len(seen) < ENOUGH:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(
            thing, (types.ModuleType, type, types.FrameType, types.CodeType, Evaluation)
        ):
            continue
        seen[id(thing)] = thing
        if isinstance(thing, types.FunctionType):
            waiting += [thing.__closure__, thing.__defaults__, thing.__kwdefaults__, thing.__dict__]
        elif isinstance(thing, np.ndarray):
            waiting += [thing.base, getattr(thing, "__dict__", None)]
        else:
            waiting += gc.get_referents(thing)
            waiting += [getattr(thing, "__dict__", None)]
    assert not waiting, "too much to search"
    return list(seen.values())


def numbers(thing: object) -> NDArray[Any] | None:
    """An array, a tensor, bytes or a list of numbers as an array."""
    if isinstance(thing, torch.Tensor):
        return thing.detach().cpu().numpy()
    if isinstance(thing, np.ndarray):
        return thing
    if isinstance(thing, (bytes, bytearray)):
        return np.frombuffer(thing, np.uint8)
    if isinstance(thing, (list, tuple)) and thing and all(isinstance(each, (int, float)) for each in thing):
        return np.array(thing)
    return None


def tells(thing: object, labels: Labels) -> bool:
    """Whether these numbers are the labels or contain them in a row: as class numbers, or as rows of probabilities."""
    values = numbers(thing)
    if values is None or values.dtype.kind not in "iuf":
        return False
    candidates = [values.reshape(-1)]
    if values.ndim == 2:
        candidates += [values.argmax(1), *values.T]
    return any(
        len(each) >= len(labels)
        and (np.lib.stride_tricks.sliding_window_view(each, len(labels)) == labels).all(1).any()
        for each in candidates
    )


def found(roots: Iterable[object], labels: Labels) -> list[object]:
    return [thing for thing in reachable(roots) if tells(thing, labels)]


def held_by_training(run: Any, problem: Problem, out: Path, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What the loop is given, what it makes of it, and what a step is given, in the middle of a run.

    Accuracies are measured by an `Evaluation`, at which the search ends: the function that the loop calls holds one.
    """
    held: list[object] = []
    train, call, take = loop.train, Captured.__call__, Batches.next

    def noting_train(*args: Any) -> Any:
        (evaluate,) = (value for value in args if isinstance(value, types.FunctionType))
        assert sum(isinstance(cell.cell_contents, Evaluation) for cell in evaluate.__closure__ or ()) == 1
        held.extend(args)
        return train(*args)

    def noting_call(self: Captured[Any], inputs: Any) -> None:
        held.extend([self, inputs])
        call(self, inputs)

    def noting_inputs(self: Batches, done: int) -> Any:
        held.append(self)
        return take(self, done)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "train", noting_train)
        patch.setattr(Captured, "__call__", noting_call)
        patch.setattr(Batches, "next", noting_inputs)
        tiny.solve(run, out, posed=problem)
    assert len(held) > 2 * tiny.STEPS
    return held


WITH_GUESSES = {"simclr_images": 48, "linear_probe_init": True, "knn_anchor": True}


@pytest.mark.parametrize("changes", [*({"method": name} for name in METHODS), WITH_GUESSES], ids=str)
def test_a_search_of_all_that_training_holds_finds_no_target_label(
    changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = tiny.problem(target=TARGET)
    assert TARGET.labels is not None
    assert TEST.labels is not None
    held = held_by_training(tiny.a_run(**changes), problem, tmp_path / "run", monkeypatch)
    assert not found(held, TARGET.labels)
    assert not found(held, TEST.labels)
    assert found(
        held, problem.labelled[0].labels.astype(np.int64)
    )  # the search does find what is there: the source's labels
    assert len(reachable(held)) > 1000


@dataclass(frozen=True)
class Leaky(Unlabelled):
    labels: Labels = field(default_factory=lambda: np.zeros(0, np.int64))


def leaks() -> dict[str, Callable[[], object]]:
    """Ways in which somebody might let the labels in."""
    labels = TARGET.labels
    assert labels is not None
    packed = np.zeros(27, dtype=[("image", np.uint8, (8, 8, 3)), ("label", np.int64)])
    packed["label"] = labels
    problem = tiny.problem(target=TARGET)
    tensors = torch.eye(3)[torch.from_numpy(labels)]
    return {
        "a field": lambda: replace(problem, unlabelled=Leaky((TARGET.images,), labels=labels)),
        "the store": lambda: replace(problem, tests={"target": TARGET}),
        "one-hot": lambda: {"hidden": [tensors]},
        "after the source's": lambda: np.concatenate([problem.labelled[0].labels, labels]),
        "a list": lambda: replace(problem, chosen=tuple(labels.tolist())),
        "bytes": lambda: labels.astype(np.uint8).tobytes(),
        "a closure": lambda: lambda: labels.sum(),
        "a default": lambda: lambda hidden=labels: hidden,
        "an attribute": lambda: types.SimpleNamespace(deep={"er": types.SimpleNamespace(labels=labels)}),
        "a column": lambda: np.stack([labels, labels[::-1]], axis=1),
    }


@pytest.mark.parametrize("leak", leaks())
def test_the_search_finds_every_leak(leak: str) -> None:
    assert TARGET.labels is not None
    assert not found([tiny.problem(target=TARGET).unlabelled], TARGET.labels)
    assert found([leaks()[leak]()], TARGET.labels)


def test_an_unlabelled_pool_has_no_label_of_any_name() -> None:
    pool = tiny.problem(target=TARGET).unlabelled
    assert vars(pool).keys() == {"parts"}
    for name in ("labels", "label", "targets", "y", "classes", "store", "info"):
        assert not hasattr(pool, name)
    assert all(part.base is None or part.base.nbytes == part.nbytes for part in pool.parts)


@pytest.mark.parametrize("method", METHODS)
def test_other_target_labels_change_no_bit(method: str, tmp_path: Path) -> None:
    assert TARGET.labels is not None
    permuted = np.random.default_rng(5).permutation(TARGET.labels)
    labels = {"true": TARGET.labels, "permuted": permuted, **({"none": None} if method == "adamatch" else {})}
    for name, other in labels.items():
        problem = tiny.problem(target=Store(TARGET.images, other, TARGET.classes))
        tiny.solve(tiny.a_run(method=method), tmp_path / name, posed=problem)
        assert tiny.same(tiny.weights(tmp_path / "true"), tiny.weights(tmp_path / name)), name


@pytest.mark.parametrize("task", ["ssl", "ssda"])
def test_labels_of_images_that_were_not_chosen_change_no_bit(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tiny.a_run(task=task, labels=2)
    assert TARGET.labels is not None
    rows, notes = tasks.choose_labelled(TARGET.labels, TARGET.classes, 2, 0)
    monkeypatch.setattr(tasks, "choose_labelled", lambda *_: (rows, notes))
    others = (TARGET.labels + 1) % 3
    others[rows] = TARGET.labels[rows]
    for name, labels in (("true", TARGET.labels), ("other", others)):
        target = Store(TARGET.images, labels, TARGET.classes)
        tiny.solve(run, tmp_path / name, posed=tiny.problem(task, labels=2, target=target))
    assert tiny.same(tiny.weights(tmp_path / "true"), tiny.weights(tmp_path / "other"))


def test_test_labels_are_measured_against_and_choose_nothing(tmp_path: Path) -> None:
    assert TEST.labels is not None
    wrong = Store(TEST.images, (TEST.labels + 1) % 3, TEST.classes)
    results = []
    for name, test in (("true", TEST), ("wrong", wrong)):
        problem = replace(tiny.problem(target=TARGET), tests={"target": test})
        tiny.solve(tiny.a_run(), tmp_path / name, posed=problem)
        results.append(RunFolder(tmp_path / name).result() or {})
    assert tiny.same(tiny.weights(tmp_path / "true"), tiny.weights(tmp_path / "wrong"))
    assert [row["target"] for row in results[0]["evaluations"]] != [row["target"] for row in results[1]["evaluations"]]
