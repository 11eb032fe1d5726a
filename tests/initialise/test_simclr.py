"""The beginning without labels: its loss against NumPy, its views, and what it leaves alone."""

import math
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from train import tiny

from adamatch import networks
from adamatch.base.errors import Interruption
from adamatch.images.tasks import Unlabelled
from adamatch.initialise import simclr
from adamatch.train import checkpoint
from adamatch.train.execution import Execution
from adamatch.train.run_folder import RunFolder

N = 5
PLAIN = torch.tensor([1.0, 0.5, 0.5, *[0.5] * 6, 0.9, 0.9])  # draws of a view that is the image itself


def test_the_loss_is_that_of_simclr() -> None:
    z = torch.randn(2 * N, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows = z.numpy() / np.linalg.norm(z.numpy(), axis=1, keepdims=True)
    expected = []
    for i in range(2 * N):
        powers = [math.exp(rows[i] @ rows[j] / 0.2) if j != i else 0.0 for j in range(2 * N)]
        expected.append(-math.log(powers[(i + N) % (2 * N)] / sum(powers)))
    assert simclr.contrast(z).item() == pytest.approx(np.mean(expected), rel=1e-5)


@pytest.mark.parametrize(
    ("draws", "expected"),
    [
        ({}, lambda x: x),
        ({10: 0.1}, lambda x: -x),
        ({9: 0.1}, lambda x: x.mean(1, keepdim=True).expand_as(x)),
        ({4: 1.0, 6: 1.0}, lambda x: torch.stack([x[:, 0] + 0.3, 1.5 * x[:, 1], x[:, 2]], 1)),
    ],
)
def test_views_are_in_other_colours(draws: dict[int, float], expected: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x, u = torch.randn(N, 3, 6, 6, generator=torch.Generator().manual_seed(0)), PLAIN.repeat(N, 1)
    for column, value in draws.items():
        u[:, column] = value
    torch.testing.assert_close(simclr.view(x, u), expected(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_crops_never_leave_the_image(seed: int) -> None:
    across = torch.linspace(-1, 1, 9).expand(N, 3, 9, 9)
    u = torch.rand(N, simclr.DRAWS, generator=torch.Generator().manual_seed(seed))
    u[:, 3:] = PLAIN[3:]
    found = simclr.view(across, u)[:, 0, 0]
    assert (found.diff() >= -1e-6).all()  # nothing is mirrored at an edge
    spans = (found[:, -1] - found[:, 0]) / 2
    assert (spans >= math.sqrt(simclr.SMALLEST) - 0.12).all()
    assert (spans <= 1 + 1e-6).all()


def test_the_learning_rate_rises_and_falls() -> None:
    rates = [simclr.learning_rate(step / 1000) for step in range(1000)]
    assert rates[0] == 0
    assert max(rates) == pytest.approx(rates[100], rel=1e-6)
    assert rates[100] == pytest.approx(simclr.LR, rel=0.02)
    assert rates[-1] < 0.01 * simclr.LR


def begun(folder: Path, seed: int = 0, images: int = 400, seconds: float = 30.0) -> nn.Module:
    torch.manual_seed(0)
    net = networks.build("wrn-tiny", 3)
    run, how = tiny.a_run(simclr_images=images, seed=seed), Execution(tiny.CPU, "auto", True, seconds)
    simclr.pretrain(net, tiny.problem().unlabelled, run, RunFolder(folder), how)
    return net


@pytest.mark.parametrize("stopped", ["SIGTERM", "SIGINT", "killed"])
def test_it_resumes_as_if_nothing_had_happened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: str) -> None:
    whole = begun(tmp_path / "whole", images=100)
    saved = tmp_path / "run/checkpoints" / simclr.FOLDER
    step, steps = simclr.Contrast.__call__, list[int]()

    def counted(contrast: simclr.Contrast, pair: simclr.Pair) -> None:
        if len(steps) == 3 and stopped == "killed":
            raise KeyError(stopped)
        step(contrast, pair)
        steps.append(1)
        if len(steps) == 3 and stopped != "killed":
            signal.raise_signal(signal.Signals[stopped])

    monkeypatch.setattr(simclr.Contrast, "__call__", counted)
    says = (
        "killed"
        if stopped == "killed"
        else f"stopped at step 3 of 6 without labels, all of it saved in {tmp_path / 'run'}"
    )
    with pytest.raises((KeyError, Interruption), match=says):
        begun(tmp_path / "run", images=100, seconds=0.0 if stopped == "killed" else 30.0)
    assert checkpoint.newest(saved) == saved / "step-000000003.safetensors"
    steps.append(1)  # and nothing more happens
    assert tiny.same(begun(tmp_path / "run", images=100).state_dict(), whole.state_dict())
    assert len(steps) == 1 + 6
    # What was made for another length is of no use.
    assert tiny.same(begun(tmp_path / "run", images=50).state_dict(), begun(tmp_path / "half", images=50).state_dict())


def test_all_but_the_head_learns_and_the_same_seed_does_the_same(tmp_path: Path) -> None:
    unlabelled = tiny.problem().unlabelled
    states, losses = [], []
    torch.manual_seed(0)
    before = networks.build("wrn-tiny", 3).state_dict()
    for number, seed in enumerate((0, 0, 1)):
        net = begun(tmp_path / str(number), seed)
        states.append(net.state_dict())
        losses.append([_likeness(of, unlabelled) for of in (before, states[-1])])
    assert tiny.same(states[0], states[1])
    assert not tiny.same(states[0], states[2])
    assert all(torch.equal(before[name], states[0][name]) for name in before if name.startswith("head."))
    assert not any(torch.equal(before[name], states[0][name]) for name in before if name.endswith("conv1.weight"))
    assert all(after < earlier for earlier, after in losses)


def _likeness(state: dict[str, torch.Tensor], unlabelled: Unlabelled) -> float:
    """The loss of the features themselves, for views that are always the same."""
    net: Any = networks.build("wrn-tiny", 3)
    net.load_state_dict(state)
    x = torch.from_numpy(np.concatenate(unlabelled.parts)).permute(0, 3, 1, 2).float() / 128 - 1
    u = torch.rand(2 * len(x), simclr.DRAWS, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return simclr.contrast(net.train().features(simclr.view(x.repeat(2, 1, 1, 1), u))).item()
