"""What a run measures and when, what it says, and how it minds signals."""

import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from train import tiny

from adamatch.base import ranks
from adamatch.base.errors import InputError
from adamatch.images.tasks import Labelled
from adamatch.methods.contract import Batch, Method, Metrics, Phase
from adamatch.train import batches, checkpoint, execution, loop, speed
from adamatch.train.execution import Execution
from adamatch.train.loop import History
from adamatch.train.progress import Progress
from adamatch.train.run_folder import RunFolder
from adamatch.train.step import Step


@given(st.lists(st.floats(0, 100), max_size=60))
def test_accuracy_is_the_median_of_the_last_ten_but_of_no_more_than_the_last_quarter(values: list[float]) -> None:
    history = History([{"target": value, "other": 1.0} for value in values])
    last = [
        value for place, value in enumerate(values) if place >= len(values) - 10 and place >= int(0.75 * len(values))
    ]
    found = history.accuracy(), history.median_of
    assert found == (float(np.median(last)) if values else None, max(1, len(last)))
    assert history.accuracy("source") is None


@pytest.mark.parametrize(
    ("labels", "repeat", "shared", "counts"),
    [(1, True, 1, [4, 4]), (1, False, 1, [4, 3]), (1, False, 2, [4, 2]), (1, False, 4, [4, 4]), (2, False, 1, [4, 4])],
)
def test_a_small_pool_fills_a_batch_or_gives_each_image_once(
    labels: int, repeat: bool, shared: int, counts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "count", lambda: shared)
    told = replace(tiny.RECIPE, repeat=repeat)
    assert batches.labelled_counts(told, tiny.problem("ssda", labels=labels).labelled, 3) == counts
    for task in ("uda", "ssl"):  # the first pool is never cut
        assert batches.labelled_counts(told, tiny.problem(task, labels=task == "ssl").labelled, 3) == [4]


@pytest.mark.parametrize(
    ("images", "spread", "shared", "count"),
    [
        *[(50, 1, 1, 50), (50, 5, 1, 10), (51, 5, 1, 11), (250, 5, 1, 50), (250, 1, 1, 64), (640, 5, 1, 64)],
        *[(4, 5, 1, 4), (50, 5, 4, 12), (10, 5, 4, 8), (51, 5, 2, 12), (3, 5, 4, 4), (640, 5, 4, 64)],
    ],
)
def test_a_small_pool_is_spread_but_no_thinner_than_classes_and_shared_evenly(
    images: int, spread: int, shared: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "count", lambda: shared)
    told = replace(tiny.RECIPE, batch=64, target_label_steps=spread)
    pools = [Labelled((np.zeros((n, 1, 1, 1), np.uint8),), np.arange(n) % 10) for n in (200, images)]
    assert batches.labelled_counts(replace(told, repeat=False), pools, 10) == [64, count]
    assert batches.labelled_counts(replace(told, repeat=True), pools, 10) == [64, 64]


def test_it_is_evaluated_at_every_so_many_images_and_where_it_is_told_to_stop(tmp_path: Path) -> None:
    tiny.solve(tiny.a_run(images=4 * 20, stop_after=4 * 14), tmp_path / "run")
    rows = tiny.rows(tmp_path / "run")
    assert [row["step"] for row in rows] == [3, 6, 9, 12, 14]
    assert [row["images"] for row in rows] == [12, 24, 36, 48, 56]
    names = {"loss", "loss_source", "loss_target", "mask", "threshold", "pseudo_labels"}
    assert all(0 <= row["target"] <= 100 and names <= row.keys() for row in rows)
    seconds = [row["seconds"] for row in rows]
    assert 0 < seconds[0] <= seconds[-1]
    tiny.solve(tiny.a_run(images=4 * 14), tmp_path / "short")  # whose schedules end there
    assert not tiny.same(tiny.weights(tmp_path / "run"), tiny.weights(tmp_path / "short"))


def test_checkpoints_come_by_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    save = checkpoint.save

    def noting(folder: Path, step: int, *rest: Any) -> Path:
        steps.append(step)
        return save(folder, step, *rest)

    monkeypatch.setattr(checkpoint, "save", noting)
    tiny.solve(tiny.a_run(), tmp_path / "often")
    assert steps == [3, 6, 9, 12]
    steps.clear()
    tiny.solve(tiny.a_run(), tmp_path / "seldom", seconds_per_checkpoint=1000)
    assert steps == [12]
    assert tiny.same(tiny.weights(tmp_path / "often"), tiny.weights(tmp_path / "seldom"))


class _Sum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 6).reshape(2, 3))


class _Constant(Method):
    """A loss whose gradient is 1."""

    def __init__(self) -> None:
        super().__init__()
        self.phases = [Phase(self.loss)]

    def loss(self, net: Any, batch: Batch) -> tuple[Tensor, Metrics]:
        return net.weight.sum(), {}


def trained(folder: Path, evaluate: loop.Evaluate) -> History:
    run = tiny.a_run()
    step = Step(_Sum(), _Constant(), run.recipe, tiny.CPU, pytest.fail)
    return loop.train(run, tiny.problem(), RunFolder(folder), step, evaluate, Execution(tiny.CPU, quiet=True))[1]


def test_seconds_are_without_evaluations_and_warnings_not_of_the_first_quarter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[int] = []

    def noting(row: dict[str, Any], classes: object) -> list[str]:
        looked_at.append(row["step"])
        return []

    def evaluate(net: nn.Module, step: int) -> dict[str, float]:
        time.sleep(0.05)
        return {"target": 1.0}

    monkeypatch.setattr(loop, "warnings_of", noting)
    history = trained(tmp_path, evaluate)
    assert history.wall - history.seconds >= 0.05 * tiny.STEPS
    assert looked_at == list(range(5, tiny.STEPS + 1))


def test_the_averaged_network_is_what_is_evaluated_and_returned(tmp_path: Path) -> None:
    seen: list[Any] = []
    run, net = tiny.a_run(), _Sum()

    def evaluate(given: nn.Module, step: int) -> dict[str, float]:
        seen.append(given)
        return {"target": 1.0}

    w = net.weight.detach().double().numpy()
    step = Step(net, _Constant(), run.recipe, tiny.CPU, pytest.fail)
    average, history = loop.train(
        run, tiny.problem(), RunFolder(tmp_path), step, evaluate, Execution(tiny.CPU, quiet=True)
    )
    assert len(seen) == len(history.evaluations) == tiny.STEPS
    assert all(getattr(each, "net", None) is average for each in seen)
    mean, memory = w, np.zeros_like(w)
    for done in range(tiny.STEPS):
        memory = 0.9 * memory + 1 + 0.001 * w
        w = w - 0.03 * np.cos(np.arccos(0.25) * done / tiny.STEPS) * memory
        mean = 0.8 * mean + 0.2 * w
    np.testing.assert_allclose(average.state_dict()["weight"].numpy(), mean, rtol=1e-4, atol=1e-5)


def test_signals_are_given_back() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with execution.stop_signals() as noted:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        assert noted == [signal.SIGTERM, signal.SIGINT]
    assert before == (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))


def test_a_run_in_another_thread_leaves_signals_alone(tmp_path: Path) -> None:
    thread = threading.Thread(target=tiny.solve, args=(tiny.a_run(), tmp_path / "run"))
    thread.start()
    thread.join()
    assert (tmp_path / "run" / "result.json").exists()


def test_the_time_left_is_told_once_and_is_that_of_steps_that_were_done_not_queued(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.5]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    execution = Execution(tiny.CPU, whose="model: ", twin_cost=0.25)
    with Progress(replace(tiny.RECIPE, images=400), execution) as progress:
        for done in range(1, 60):
            progress.due(done)  # a GPU is told of its steps faster than it takes them
            if done % 20 == 0:
                clock[0] = done / 2  # but its metrics come when it has taken them
                progress.step(done, {"mask": 0.5})
    told = capsys.readouterr().err
    assert told.startswith("model: training\n")
    assert told.count("training takes about 30 s more, then about 12 s to 25 s for the twin") == 1


def test_the_time_left_has_no_part_of_what_was_done_for_the_first_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    with Progress(replace(tiny.RECIPE, images=400), Execution(tiny.CPU)) as progress:
        for done in range(1, 60):
            clock[0] += 30 if done == 1 else 0.5
            progress.due(done)
            if done == 4:
                clock[0] += 10  # the step is captured
                progress.begin()
            if done % 25 == 0:
                clock[0] += 20 if done == 25 else 1  # an evaluation
                progress.report({"step": done}, [])
    assert "takes about 27 s more\n" in capsys.readouterr().err  # 25 steps and an evaluation take 13.5


def test_warnings_are_told_once_each_and_also_where_it_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    quiet = Execution(tiny.CPU, quiet=True)
    with Progress(tiny.RECIPE, quiet) as progress:
        for step in (1, 2):
            progress.report(
                {"step": step, "target": 50.0}, ["class 3 has 90% of the pseudo-labels: the others may be collapsing"]
            )
    quiet.say("not this")
    assert (
        capsys.readouterr().err
        == "warning: step 1: class 3 has 90% of the pseudo-labels: the others may be collapsing\n"
    )


def test_the_machine_is_chosen_or_told() -> None:
    chosen = speed.choose("cpu")
    assert (chosen.precision, chosen.compile, chosen.graph) == ("fp32", False, False)
    assert speed.choose("cpu", "bf16", compile=True).compile
    assert "fp32" in str(chosen)
    for device, precision, message in (
        ("cup", "auto", "no device is called 'cup': did you mean 'cpu'"),
        ("cpu", "fp23", "no precision is called 'fp23': did you mean 'fp32'"),
    ):
        with pytest.raises(InputError, match=message):
            speed.choose(device, precision)
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="no CUDA device is there: use device="):
            speed.choose("cuda")
        assert speed.choose().device.type == "cpu"
