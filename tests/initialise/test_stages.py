"""What a run does before its first step: once, the same when it goes on, and nothing that the recipe does not want."""

from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from train import tiny

from adamatch import networks
from adamatch.base.errors import InputError, Interruption
from adamatch.initialise import simclr, stages
from adamatch.initialise.stages import initialise
from adamatch.train import checkpoint
from adamatch.train.batches import Batches, method_of
from adamatch.train.execution import Execution
from adamatch.train.run_folder import RunFolder
from adamatch.train.step import Step

WANTED = {"task": "ssl", "labels": 2, "simclr_images": 48, "linear_probe_init": True, "knn_anchor": True}


def begin(folder: Path, *, unlabelled: bool = True, **changes: Any) -> tuple[Any, Any]:
    """The network and the problem before the first step."""
    run = tiny.a_run(**{**WANTED, **changes})
    torch.manual_seed(0)
    net = networks.build("wrn-tiny", 3)
    problem, execution = tiny.problem(run.task, labels=2), Execution(tiny.CPU, quiet=True)
    return net, initialise(net, problem, run, RunFolder(folder), execution, new_head=False, unlabelled=unlabelled)


def test_the_network_is_read_where_it_is_there(tmp_path: Path) -> None:
    first, problem = begin(tmp_path)
    drawn = torch.rand(4)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == [stages.FILE]
    with mock.patch.object(simclr, "pretrain", side_effect=AssertionError("again")):
        second, again = begin(tmp_path)
    assert torch.equal(drawn, torch.rand(4))  # what is drawn later is the same
    assert tiny.same(first.state_dict(), second.state_dict())
    assert np.array_equal(problem.guesses, again.guesses)


@pytest.mark.parametrize("damage", [b"", b"not tensors", None])
def test_a_damaged_file_counts_as_none(tmp_path: Path, damage: bytes | None) -> None:
    first, _ = begin(tmp_path)
    path = tmp_path / "checkpoints" / stages.FILE
    path.write_bytes(path.read_bytes()[:-9] if damage is None else damage)
    assert tiny.same(begin(tmp_path)[0].state_dict(), first.state_dict())


def test_a_finished_run_that_is_prolonged_starts_from_its_model(tmp_path: Path) -> None:
    tiny.solve(tiny.a_run(**WANTED), tmp_path)
    with mock.patch.object(simclr, "pretrain", side_effect=AssertionError("again")):
        tiny.solve(tiny.a_run(**WANTED, images=2 * tiny.RECIPE.images), tmp_path)


def test_the_surest_labels_are_noted(tmp_path: Path) -> None:
    guesses = begin(tmp_path)[1].guesses
    labelled = guesses.any(1)
    assert labelled.mean() == pytest.approx(0.5, abs=0.1)
    assert np.allclose(guesses[labelled].max(1), 1 / labelled.mean())
    assert ((guesses > 0).sum(1) == labelled).all()
    assert begin(tmp_path / "other", knn_anchor=False)[1].guesses is None


def test_where_no_label_is_told_none_counts(tmp_path: Path) -> None:
    assert not begin(tmp_path, linear_probe_init=False)[1].guesses.any()


@pytest.mark.parametrize("changes", [{"simclr_images": 0, "linear_probe_init": False}, {"simclr_images": 0}])
def test_nothing_is_done_that_is_not_wanted(tmp_path: Path, changes: dict[str, Any]) -> None:
    torch.manual_seed(0)
    plain = networks.build("wrn-tiny", 3).state_dict()
    assert tiny.same(begin(tmp_path, **changes)[0].state_dict(), plain)
    assert not (tmp_path / "checkpoints").exists()


def test_a_head_that_is_there_stays_and_labels_are_told_all_the_same(tmp_path: Path) -> None:
    torch.manual_seed(0)
    plain = networks.build("wrn-tiny", 3).state_dict()
    net, problem = begin(tmp_path, simclr_images=0, weights="a file")
    assert tiny.same(net.state_dict(), plain)
    assert problem.guesses.any()


def test_a_method_that_sees_labelled_images_alone_begins_with_nothing_else(tmp_path: Path) -> None:
    torch.manual_seed(0)
    plain = networks.build("wrn-tiny", 3).state_dict()
    net, problem = begin(tmp_path, unlabelled=False)
    assert tiny.same(net.state_dict(), plain)
    assert problem.guesses is None


@pytest.mark.parametrize("method", ["adamatch", "fixmatch+"])
def test_a_run_that_was_stopped_ends_as_one_that_was_not(tmp_path: Path, method: str) -> None:
    run = tiny.a_run(**WANTED, method=method)
    tiny.solve(run, tmp_path / "whole")
    with mock.patch.object(checkpoint, "save", side_effect=Interruption("stopped")), pytest.raises(Interruption):
        tiny.solve(run, tmp_path / "run")  # before its first checkpoint
    tiny.solve(run, tmp_path / "run")
    assert tiny.same(tiny.weights(tmp_path / "run"), tiny.weights(tmp_path / "whole"))
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_guesses_come_with_their_own_images(tmp_path: Path) -> None:
    net, problem = begin(tmp_path)
    run = tiny.a_run(**WANTED)
    step = Step(net, method_of(run, problem, net), run.recipe, tiny.CPU, pytest.fail)
    inputs = Batches(run, problem, step, Execution(tiny.CPU)).next(0)
    whole = torch.from_numpy(np.concatenate(problem.unlabelled.parts)).permute(0, 3, 1, 2)
    for image, guess in zip(inputs.x_tu, inputs.y_tu_first, strict=True):
        row = int((whole == image).flatten(1).all(1).nonzero().item())
        assert torch.equal(guess, torch.from_numpy(problem.guesses[row]))


def test_what_cannot_begin_so_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="frozen and simclr_images exclude each other"):
        tiny.a_run(frozen=2, simclr_images=8)
    own = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 3))
    with pytest.raises(InputError, match="Sequential has no features and head of its own: leave simclr_images at 0"):
        tiny.solve(tiny.a_run(simclr_images=8), tmp_path / "run", net=own)
