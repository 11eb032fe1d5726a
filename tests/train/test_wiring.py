"""Twenty steps of every method on every task, in float64, against a trainer that shares no line with the package.

From `Run` and `Recipe` to what a loss is shown, and from there to weights, averages, statistics and rates."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from reference.plain_losses import Shown
from reference.trainer import Trainer
from torch import Tensor
from train import tiny
from train.side_by_side import CASES, STEPS, Training, done, outcome

from adamatch.augment.ops import OPS
from adamatch.methods import AdaMatch
from adamatch.methods.contract import Batch

TOLERANCE = 1e-6
every_case = pytest.mark.parametrize("case", CASES)
with_lambda = pytest.mark.parametrize("case", [case for case in CASES if case.startswith("adamatch")])
learning = pytest.mark.parametrize("case", [case for case, run in CASES.items() if run.recipe.strong == "cta"])


def steps(case: str) -> Iterator[tuple[Batch, Shown]]:
    """What the package's loss and the plain one were shown, step by step, teacher's and student's."""
    both = outcome(case)
    assert len(both.ours) == len(both.shown) == (2 if both.run.method == "noisystudent" else 1)
    for training, plain in zip(both.ours, both.shown, strict=True):
        assert len(training.shown) == len(plain) == STEPS
        yield from zip(training.shown, plain, strict=True)


def trainings(case: str) -> Iterator[tuple[Training, Trainer]]:
    both = outcome(case)
    yield from zip(both.ours, both.plain, strict=True)


def assert_same(ours: Tensor, theirs: Tensor, what: str = "") -> None:
    torch.testing.assert_close(
        ours.double(), theirs.detach(), rtol=0, atol=TOLERANCE, msg=lambda text: f"{what}: {text}"
    )


@every_case
def test_a_loss_is_shown_weak_and_strong_views_with_their_labels_and_the_progress(case: str) -> None:
    looked_at = CASES[case].method not in ("supervised", "noisystudent")
    for number, (ours, theirs) in enumerate(steps(case)):
        assert len(ours.x_tu_w) == (12 if looked_at else 0)
        for name in ("x_sl_w", "x_sl_s", "y_sl", "x_tu_w", "x_tu_s"):
            assert_same(getattr(ours, name), getattr(theirs, name), name)
        assert not torch.equal(ours.x_sl_w, ours.x_sl_s)
        assert float(ours.progress) == pytest.approx(number % STEPS / STEPS, abs=1e-12)


@with_lambda
def test_lambda_is_drawn_for_every_logit(case: str) -> None:
    drawn = []
    for ours, theirs in steps(case):
        assert ours.lam.shape == (2 * len(ours.x_sl_w), 3)
        assert_same(ours.lam, theirs.lam)
        drawn.append(ours.lam.flatten())
    lam = torch.cat(drawn)
    assert len(set(lam.tolist())) == len(lam)
    assert 0 <= lam.min() < 0.05
    assert 0.95 < lam.max() < 1


@pytest.mark.parametrize("case", ["adamatch uda", "adamatch uda, as printed"])
def test_what_the_recipe_says_reaches_the_method(case: str) -> None:
    ((training, _),) = trainings(case)
    recipe = CASES[case].recipe
    assert isinstance(training.method, AdaMatch)
    assert training.method.fade_out is recipe.fade_out
    assert training.method.tau == recipe.tau
    assert recipe.fade_out == (case == "adamatch uda")


def test_options_reach_the_method_and_go_before_the_recipe(tmp_path: Path) -> None:
    options = {"interpolate": False, "align": "none", "threshold": "fixed", "warm_up": 0.25, "fade_out": False}
    run = tiny.a_run(task="ssda", labels=1, fade_out=True, options={**options, "batches": 1, "alignment_window": 5})
    (training,) = done(run, tiny.problem("ssda", labels=1), tmp_path / "run")
    method = training.method
    assert isinstance(method, AdaMatch)
    assert {name: getattr(method, name) for name in options} == options
    assert len(method.mean_tu.means) == 5
    assert method.batches == 1.0


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith(("adamatch", "fixmatch+"))])
def test_some_labels_are_guessed_and_some_are_not_trusted(case: str) -> None:
    """Else these runs would show nothing of thresholds and alignment."""
    masks = [row["mask"] for row in outcome(case).rows]
    assert any(0 < mask < 1 for mask in masks), masks


# What comes of it.


@every_case
def test_weights_averages_and_statistics_are_the_plain_trainers(case: str) -> None:
    for training, plain in trainings(case):
        for prefix, theirs in (("net.", plain.weights), ("average.net.", plain.averaged), ("net.", plain.running)):
            compared = [name for name in theirs if f"{prefix}{name}" in training.last]
            assert compared
            for name in compared:
                assert_same(training.last[f"{prefix}{name}"], theirs[name], name)
        moved = [(plain.weights[name].detach() - training.first[name]).abs().max() for name in plain.weights]
        assert max(map(float, moved)) > 0.1


@every_case
def test_momenta_are_the_plain_trainers(case: str) -> None:
    for training, plain in trainings(case):
        found = {name: value for name, value in training.last.items() if name.startswith("momentum.")}
        for phase, update in enumerate(plain.updates()):
            for number, name in enumerate(update.trained):
                assert_same(found.pop(f"momentum.{phase}.{number}"), plain.momenta[phase][name], name)
        assert not found


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("mcd")])
def test_the_other_head_is_the_plain_trainers(case: str) -> None:
    for training, plain in trainings(case):
        for part in ("weight", "bias"):
            assert_same(training.last[f"method.head.{part}"], plain.weights[f"second.{part}"], part)


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith(("adamatch", "fixmatch+"))])
def test_class_averages_are_the_plain_trainers(case: str) -> None:
    names = ("mean_sl", "mean_tu") if case.startswith("adamatch") else ("mean_labels", "mean_guesses")
    for training, plain in trainings(case):
        assert_same(training.last[f"method.{names[0]}.value"], plain.memory.wanted)
        found = training.last[f"method.{names[1]}.means"]
        assert_same(found[:STEPS], torch.stack(plain.memory.found))
        assert (found[STEPS:] == 1 / 3).all()


@learning
def test_rates_are_learned_from_what_the_averaged_network_says_of_labelled_probes(case: str) -> None:
    for training, plain in trainings(case):
        assert plain.rates is not None
        rates, rates2 = training.last["views.policy.rates"], training.last["views.policy.rates2"]
        moved = 0
        for number, name in enumerate(OPS):
            for ours, rate in zip((rates[number], rates2), plain.rates.rates[name], strict=False):
                np.testing.assert_allclose(ours[: len(rate)], rate, rtol=0, atol=TOLERANCE, err_msg=name)
                moved += int((rate < 1).sum())
        assert moved > 50


def test_a_student_and_every_seed_start_from_weights_of_their_own() -> None:
    teacher, student = outcome("noisystudent uda").ours
    one, other = (outcome(case).ours[0] for case in ("adamatch uda", "adamatch uda, as printed"))
    assert CASES["adamatch uda"].seed != CASES["adamatch uda, as printed"].seed
    for first, second in ((teacher.first, student.first), (one.first, other.first)):
        for name, value in first.items():
            if value.ndim > 1:
                assert not torch.allclose(value, second[name]), name


def test_the_plain_trainer_shares_no_line_with_the_package() -> None:
    reference = Path(__file__).parents[1] / "reference"
    for file in ("trainer", "plain_net", "plain_views", "plain_losses", "ctaugment", "pillow_ops"):
        assert "adamatch import" not in (reference / f"{file}.py").read_text()
        assert "import adamatch" not in (reference / f"{file}.py").read_text()
