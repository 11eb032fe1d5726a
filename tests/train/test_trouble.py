"""A loss or a network that is not finite ends the run, with the right step."""

import math
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from train import tiny

from adamatch.base.errors import InputError
from adamatch.train.meter import Meter, warnings_of
from adamatch.train.speed import Captured, Inputs
from adamatch.train.step import Step


def poison(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """The labels of one step are not numbers."""
    whole, calls = Step.__call__, iter(range(1, 1000))

    def poisoned(self: Step, inputs: Inputs) -> None:
        whole(self, inputs._replace(y_sl=inputs.y_sl * float("nan")) if next(calls) == step else inputs)

    monkeypatch.setattr(Step, "__call__", poisoned)


@pytest.mark.parametrize(("step", "method"), [(1, "adamatch"), (3, "mcd"), (4, "adamatch"), (12, "mcd")])
def test_the_step_and_the_last_good_checkpoint_are_named(
    step: int, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison(monkeypatch, step)
    with pytest.raises(InputError) as failed:
        tiny.solve(tiny.a_run(method=method), tmp_path / "run")
    message = str(failed.value)
    assert "\n" not in message
    assert message.startswith(f"the loss is not finite since step {step}: the learning rate is likely too high")
    good = (step - 1) // tiny.EVERY * tiny.EVERY
    named = tmp_path / "run" / "checkpoints" / f"step-{good:09d}.safetensors"
    assert message.endswith(f"the last good checkpoint is {named if good else 'none: it happened too early'}")
    assert named.exists() == bool(good)


def test_the_step_is_right_in_a_run_that_was_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tiny.a_run()
    assert tiny.in_process(tiny.doomed, run.to_json(), tmp_path / "run", "step 8") == -signal.SIGKILL
    poison(monkeypatch, 2)  # the second one from here: 6 were saved
    with pytest.raises(InputError, match="since step 8:"):
        tiny.solve(run, tmp_path / "run")


@pytest.mark.parametrize("lr", [1e4, 1e30])
def test_a_huge_learning_rate(lr: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses: list[float] = []
    add = Meter.add

    def noted(self: Meter, metrics: dict[str, Tensor]) -> None:
        losses.append(float(metrics["loss"]))
        add(self, metrics)

    monkeypatch.setattr(Meter, "add", noted)
    with pytest.raises(InputError) as failed:
        tiny.solve(tiny.a_run(lr=lr, images=4 * 60), tmp_path / "run")
    first = next((step for step, loss in enumerate(losses, 1) if not math.isfinite(loss)), None)
    expected = (
        f"the loss is not finite since step {first}:" if first else f"the network is not finite at step {len(losses)}:"
    )
    assert str(failed.value).startswith(expected)
    assert "try a smaller lr" in str(failed.value)
    for path in (tmp_path / "run").glob("checkpoints/*.safetensors"):  # what was kept is good
        assert all(value.isfinite().all() for value in load_file(path).values())


def test_a_spoilt_network_is_not_saved_when_the_run_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    poison(monkeypatch, 4)
    monkeypatch.setattr(Captured, "__call__", Captured.__call__)
    tiny.at_call(Captured, "__call__", 5, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(InputError, match=r"since step 4: .*step-000000003\.safetensors"):
        tiny.solve(tiny.a_run(), tmp_path / "run")


def test_meter_means_and_the_first_bad_step() -> None:
    meter = Meter(torch.device("cpu"))
    assert meter.read() == ({}, -1)
    for value in (1.0, 3.0):
        meter.add({"loss": torch.tensor(value), "counts": torch.tensor([value, 2 * value])})
    assert meter.read() == ({"loss": 2.0, "counts": [2.0, 4.0]}, -1)
    meter.clear()
    meter.add({"loss": torch.tensor(5.0), "counts": torch.zeros(2)})
    assert meter.read()[0]["loss"] == 5.0
    for value in (math.inf, 1.0, math.nan):
        meter.add({"loss": torch.tensor(value), "counts": torch.zeros(2)})
    meter.clear()
    assert meter.read()[1] == 3  # counted from 0, through every clear


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"mask": 0.5, "threshold": 0.8, "pseudo_labels": [0.1] * 10}, None),
        ({"mask": 0.0, "threshold": 0.81}, r"only 0.0% of unlabelled images pass the threshold \(0.81\)"),
        ({"mask": 0.0}, r"only 0.0% of unlabelled images pass"),
        ({"mask": 0.9, "pseudo_labels": [0.01, 0.01, 0.9, *[0.01] * 7]}, r"class '2' has 91% of the pseudo-labels"),
        ({"mask": 0.9, "pseudo_labels": [0.03, 0.97]}, None),  # two classes may be as uneven as this
        ({"mask": 0.9, "pseudo_labels": [0.0, 1.0]}, "class '1' has 100%"),
        ({"mask": 0.9, "pseudo_labels": [0.0, 0.9, 0.0]}, "class '1' has 100%"),
        ({"mask": 0.0, "threshold": 1.0, "pseudo_labels": [0.0] * 10}, "only 0.0%"),
        ({}, None),
    ],
)
def test_warnings(row: dict[str, Any], says: str | None) -> None:
    lines = warnings_of(row, [str(i) for i in range(len(row.get("pseudo_labels", [0] * 10)))])
    assert len(lines) == (says is not None)
    assert all("\n" not in line and re.search(str(says), line) for line in lines)
