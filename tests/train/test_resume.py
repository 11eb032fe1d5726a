"""A run that is killed at any moment and started again ends with the same weights, bit for bit."""

import json
import os
import random
import signal
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn
from train import tiny

from adamatch.base.errors import Interruption
from adamatch.config.run import Run
from adamatch.images.feed import Place
from adamatch.methods import METHODS
from adamatch.train import checkpoint
from adamatch.train.speed import Captured


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    @cache
    def weights_and_rows(text: str) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
        out = tmp_path_factory.mktemp("whole") / "run"
        tiny.solve(Run.from_json(text), out)
        return tiny.weights(out), rows(out)

    return weights_and_rows


def rows(out: Path) -> list[dict[str, Any]]:
    """All that was measured, but for the time."""
    return [{name: value for name, value in row.items() if name != "seconds"} for row in tiny.rows(out)]


def killed(run: Run, out: Path, moment: str, place: Place = "auto") -> None:
    assert tiny.in_process(tiny.doomed, run.to_json(), out, moment, place) == -signal.SIGKILL
    assert (out / "result.json").exists() == (moment == "renamed result.json")


def check(run: Run, out: Path, whole: Any, place: Place = "auto") -> None:
    """The resumed run ends as the uninterrupted one: weights bit for bit, every metric too, each step once."""
    tiny.solve(run, out, place=place)
    weights, measured = whole(run.to_json())
    assert tiny.same(tiny.weights(out), weights)
    assert [row["step"] for row in measured] == list(range(tiny.EVERY, tiny.STEPS + 1, tiny.EVERY))
    assert rows(out) == measured


@pytest.mark.parametrize("place", ["device", "host", "disk"])
def test_killed_at_a_random_step(place: Place, tmp_path: Path, uninterrupted: Any) -> None:
    run, step = tiny.a_run(), random.randint(1, tiny.STEPS)
    print(f"killed at step {step}")
    killed(run, tmp_path / "run", f"step {step}", place)
    check(run, tmp_path / "run", uninterrupted, place)


MOMENTS = ["step 1", "step 12", "line 2", "tensors 2", "facts 1", "facts 3", "old 5", "model 1", "result 1"]
MOMENTS += ["half 1", "half 5", "rename model.json", "rename result.json", "renamed result.json"]


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_while_something_is_written(moment: str, tmp_path: Path, uninterrupted: Any) -> None:
    run = tiny.a_run()
    killed(run, tmp_path / "run", moment)
    check(run, tmp_path / "run", uninterrupted)


class Forgetful(nn.Module):
    """Somebody's own network, whose dropout takes torch's own random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(3 * 8 * 8, 16), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(nn.functional.dropout(self.body(x.flatten(1)).relu(), 0.5, self.training))
        return found


def test_dropout_and_metrics_between_two_evaluations_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, outs = tiny.a_run(), (tmp_path / "whole", tmp_path / "cut")

    def solve(out: Path) -> None:
        torch.manual_seed(0)
        tiny.solve(run, out, net=Forgetful())

    solve(outs[0])
    with monkeypatch.context() as patch:
        patch.setattr(Captured, "__call__", Captured.__call__)  # given back afterwards
        tiny.at_call(Captured, "__call__", tiny.EVERY + 2, lambda: os.kill(os.getpid(), signal.SIGTERM))
        with pytest.raises(Interruption):
            solve(outs[1])
    solve(outs[1])
    assert tiny.same(*map(tiny.weights, outs))
    assert rows(outs[0]) == rows(outs[1])


def test_killed_again_and_again(tmp_path: Path, uninterrupted: Any) -> None:
    run = tiny.a_run(seed=3)
    for _ in range(3):
        killed(run, tmp_path / "run", "step 5")  # two steps after the checkpoint from which it goes on
    check(run, tmp_path / "run", uninterrupted)


CASES: list[dict[str, Any]] = [
    {"task": "ssda", "labels": 2, "strong": "cta"},
    {"task": "ssda", "labels": 2, "repeat": False, "target_labels_from": 0.9},
    {"options": {"align": "labels", "threshold": "fixed"}},
    {"method": "mcd", "strong": "randaugment", "mirror": True},
    {"method": "fixmatch+", "task": "ssl", "labels": 2},
    *({"method": method} for method in METHODS if method not in ("adamatch", "mcd", "fixmatch+")),
]


@pytest.mark.parametrize("changes", CASES, ids=str)
def test_every_method_task_and_view(changes: dict[str, Any], tmp_path: Path, uninterrupted: Any) -> None:
    run = tiny.a_run(**changes)
    killed(run, tmp_path / "run", "step 8")
    check(run, tmp_path / "run", uninterrupted)


@pytest.mark.parametrize("step", [tiny.STEPS + 1, 2 * tiny.STEPS + 2])
def test_noisy_student_in_each_generation(step: int, tmp_path: Path, uninterrupted: Any) -> None:
    run = tiny.a_run(method="noisystudent", options={"generations": 2})
    killed(run, tmp_path / "run", f"step {step}")
    for generation in range(step // tiny.STEPS):
        assert (tmp_path / "run" / f"generation-{generation}" / "result.json").exists()
    check(run, tmp_path / "run", uninterrupted)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_step_and_saves(number: int, tmp_path: Path, uninterrupted: Any) -> None:
    run, out = tiny.a_run(method="mcd"), tmp_path / "run"
    assert tiny.in_process(tiny.interrupted, run.to_json(), out, 5, number) == 0
    said = out.with_suffix(".said").read_text()
    assert said == f"stopped at step 5 of {tiny.STEPS}, all of it saved in {out}"
    assert (out / "checkpoints" / "step-000000005.json").exists()
    tiny.solve(run, out)
    weights, measured = uninterrupted(run.to_json())
    assert tiny.same(tiny.weights(out), weights)
    assert [row["target"] for row in rows(out)] == [row["target"] for row in measured]


def test_a_signal_in_the_last_step_stops_what_would_come_next(tmp_path: Path, uninterrupted: Any) -> None:
    run, out = tiny.a_run(method="noisystudent"), tmp_path / "run"
    assert tiny.in_process(tiny.interrupted, run.to_json(), out, tiny.STEPS, signal.SIGTERM) == 0
    assert "stopped at step 12 of 12" in out.with_suffix(".said").read_text()
    assert not (out / "generation-0" / "result.json").exists()  # the teacher's model is still to be saved
    check(run, out, uninterrupted)


def test_a_result_says_every_machine_and_all_seconds(tmp_path: Path) -> None:
    run, out = tiny.a_run(method="noisystudent"), tmp_path / "run"
    killed(run, out, f"step {tiny.STEPS + 8}")
    checkpoint_facts = json.loads(next((out / "checkpoints").glob("*.json")).read_text())
    with mock.patch.object(tiny, "CPU", replace(tiny.CPU, at_a_time=3)):
        tiny.solve(run, out)
    result = json.loads((out / "result.json").read_text())
    assert result["machine"] == f"{tiny.CPU}, then {tiny.CPU}, 3 runs at a time"
    assert result["at_a_time"] == 3
    assert result["wall_seconds"] > checkpoint_facts["wall"] > 0
    teacher = json.loads((out / "generation-0" / "result.json").read_text())
    assert result["seconds"] > teacher["seconds"] + checkpoint_facts["seconds"]


def test_from_another_kind_of_device_it_goes_on_with_other_draws(
    tmp_path: Path, uninterrupted: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = tiny.a_run(), tmp_path / "run"
    killed(run, out, "step 8")
    found = checkpoint.load(out / "checkpoints", print)
    assert found is not None
    tensors, facts = found
    of_a_gpu = torch.zeros(16, dtype=torch.uint8)  # CUDA's seed and offset
    checkpoint.save(out / "checkpoints", facts.pop("step"), tensors | {"generator": of_a_gpu}, facts)
    tiny.solve(run, out, quiet=False)
    assert "another kind of device" in capsys.readouterr().err
    weights, measured = uninterrupted(run.to_json())
    assert [row["step"] for row in rows(out)] == [row["step"] for row in measured]
    assert not tiny.same(tiny.weights(out), weights)
