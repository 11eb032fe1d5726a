"""Each equation against NumPy, its invariants, the paper's worked examples, and what others got wrong."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import losses
from torch import Tensor, tensor

from adamatch.base.errors import InputError
from adamatch.methods import arguments, parts, schedules
from adamatch.methods.averages import Running, Window

many = settings(max_examples=40)
seeds = st.integers(0, 2**32 - 1)


def logits(seed: int, rows: int, classes: int, scale: float = 2.0) -> Tensor:
    return torch.randn(rows, classes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * scale


def close(ours: Tensor, theirs: losses.Array | float) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


@many
@given(seeds, st.integers(1, 12), st.integers(2, 12), st.floats(0.1, 30))
def test_equations_match_the_reference(seed: int, rows: int, classes: int, scale: float) -> None:
    z, other = logits(seed, rows, classes, scale), logits(seed + 1, rows, classes, scale)
    lam = torch.rand(rows, classes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    y, wanted, found = z.softmax(1), other.softmax(1).mean(0), z.softmax(1).mean(0)
    close(parts.interpolate(z, other, lam), losses.interpolate(z.numpy(), other.numpy(), lam.numpy()))
    close(y, losses.softmax(z.numpy()))
    soft = other.softmax(1)
    close(parts.cross_entropy(soft, z), losses.cross_entropy(soft.numpy(), z.numpy()))
    tilde = parts.align(y, wanted, found)
    close(tilde, losses.align(y.numpy(), wanted.numpy(), found.numpy()))
    c_tau = parts.relative_threshold(y, 0.9)
    close(c_tau, losses.relative_threshold(y.numpy(), 0.9))
    guess = losses.guess_labels(tilde.numpy(), float(c_tau))
    assert parts.confident(tilde, c_tau).tolist() == [float(trusted) for trusted in guess.trusted]
    assert parts.hard(tilde).argmax(1).tolist() == guess.classes
    close(parts.divergence(wanted, found), losses.kl(wanted.numpy(), found.numpy()))
    labels, mask = parts.hard(logits(seed + 1, rows, classes)), parts.confident(tilde, c_tau)
    for batches, name in ((None, "sum"), (1.0, "half"), (1.5, "half")):
        for y_sl in (labels, torch.where(torch.arange(rows)[:, None] <= rows // 2, labels, 0.0)):  # some have none
            theirs = losses.labelled(y_sl.numpy(), z.numpy(), other.numpy(), name, batches or 1.0)
            close(parts.labelled_loss(y_sl, z, other, batches), theirs)
    close(parts.pseudo_labelled_loss(parts.hard(tilde), mask, other), losses.guessed(guess, other.numpy()))


@many
@given(seeds, st.integers(1, 30), st.integers(2, 12))
def test_alignment_gives_the_mean_that_is_wanted(seed: int, rows: int, classes: int) -> None:
    y, source = logits(seed, rows, classes).softmax(1), logits(seed + 1, rows, classes).softmax(1)
    rescaled = y * parts.ratio(source.mean(0), y.mean(0))
    # 1e-6 stands above and below the ratio: a class of mean m is off by at most 1e-6 * |wanted / m - 1|.
    np.testing.assert_allclose(
        rescaled.mean(0), source.mean(0), atol=1e-6 * float((source.mean(0) / y.mean(0)).max() + 1)
    )
    torch.testing.assert_close(parts.align(y, source.mean(0), y.mean(0)).sum(1), torch.ones(rows))


def test_appendix_a_alignment() -> None:
    source, target = tensor([0.3, 0.7]), tensor([0.6, 0.4])
    ratio = parts.ratio(source, target)
    wanted = tensor([0.5, 1.75])  # "half as likely", "(roughly) twice as likely"
    torch.testing.assert_close(ratio, wanted, atol=1e-5, rtol=0)
    torch.testing.assert_close(parts.align(target[None], source, target), source[None], atol=1e-5, rtol=0)
    batch = tensor([[0.9, 0.1], [0.3, 0.7], [0.6, 0.4]])
    torch.testing.assert_close(batch.mean(0), target)
    torch.testing.assert_close((batch * ratio).mean(0), source, atol=1e-5, rtol=0)


def test_appendix_a_threshold() -> None:
    y = tensor([[0.6, 0.4], [0.2, 0.8], [0.7, 0.3]])  # the average top-1 confidence is 0.7
    torch.testing.assert_close(parts.relative_threshold(y, 0.9), tensor(0.63))
    certain = tensor([[1.0, 0.0], [0.0, 1.0]])  # "the relative confidence threshold and the default one are the same"
    torch.testing.assert_close(parts.relative_threshold(certain, 0.9), tensor(0.9))


def test_ratio_is_of_every_class_not_one_scalar() -> None:
    y = tensor([[0.55, 0.45]])
    aligned = parts.align(y, tensor([0.3, 0.7]), tensor([0.6, 0.4]))
    assert aligned.argmax(1).item() == 1, "alignment can change the pseudo-label"


def test_rows_are_divided_by_their_sum_not_their_length() -> None:
    unsure = tensor([[0.45] + [0.05] * 11])
    assert (unsure / unsure.norm()).max() > 0.93, "what an L2 norm would make of it"
    flat = torch.full((12,), 1 / 12)
    aligned = parts.align(unsure, flat, flat)
    torch.testing.assert_close(aligned, unsure)
    assert parts.confident(aligned, 0.9).item() == 0


def test_the_threshold_itself_passes() -> None:
    assert parts.confident(tensor([[0.9, 0.1], [0.1, 0.9], [0.8999, 0.1001]]), 0.9).tolist() == [1, 1, 0]


@many
@given(st.floats(0, 1))
def test_warm_up_matches_the_reference(progress: float) -> None:
    assert schedules.warm_up(tensor(progress)).item() == pytest.approx(losses.warm_up(progress), abs=1e-12)


@many
@given(st.floats(0, 1))
def test_alignment_is_let_go_by_a_cosine(progress: float) -> None:
    assert schedules.let_go(tensor(progress)).item() == pytest.approx(losses.let_go(progress), abs=1e-12)


@many
@given(seeds, st.integers(1, 8), st.integers(2, 12), st.floats(1, 4))
def test_limited_alignment_changes_no_odds_by_more_than_the_square(
    seed: int, rows: int, classes: int, limit: float
) -> None:
    y, other = logits(seed, rows, classes).softmax(1), logits(seed + 1, rows, classes).softmax(1)
    wanted, found = other.mean(0), y.mean(0)
    aligned = parts.align(y, wanted, found, limit=limit)
    torch.testing.assert_close(aligned, tensor(losses.align(y.numpy(), wanted.numpy(), found.numpy(), limit=limit)))
    shift = aligned.log() - y.log()
    assert (shift.amax(1) - shift.amin(1)).max() <= 2 * math.log(limit) + 1e-9


def test_averages_match_their_closed_forms() -> None:
    means = list(logits(5, 300, 4).softmax(1))
    running, window = Running(4), Window(4)
    for step, mean in enumerate(means, 1):
        ours = running(mean), window(mean)
        if step in (1, 2, 127, 128, 129, 300):
            so_far = [value.numpy() for value in means[:step]]
            close(ours[0], losses.exponential_average(so_far))
            close(ours[1], losses.window_average(so_far))


def test_half_precision_logits_become_single() -> None:
    assert parts.precise(torch.zeros(1, dtype=torch.bfloat16)).dtype == torch.float32
    assert parts.precise(torch.zeros(1, dtype=torch.float64)).dtype == torch.float64


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([0.5, 0.5], "needs 3 numbers"),
        ([0.5, 0.5, 0.5], "sums to 1.5"),
        ([1.5, -0.5, 0.0], "negative"),
        ([[1.0]], "needs 3"),
    ],
)
def test_a_known_distribution_is_checked(values: list[float], says: str) -> None:
    with pytest.raises(InputError, match=says):
        arguments.distribution(values, 3)
    torch.testing.assert_close(arguments.distribution([0.2, 0.3, 0.5], 3), tensor([0.2, 0.3, 0.5]))
