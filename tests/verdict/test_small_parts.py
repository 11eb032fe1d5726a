"""Shares of classes, and what changed."""

import numpy as np
import pytest
from verdict import made

from adamatch.verdict import calibrated, class_shares
from adamatch.verdict.beside_twin import changed


def test_shares_of_labels_and_predictions() -> None:
    labels = np.array([0, 0, 2, 2, 2])
    assert class_shares.of_labels(labels, 4).tolist() == [0.4, 0, 0.6, 0]
    assert class_shares.of_labels(labels[:0], 2).tolist() == [0, 0]
    assert class_shares.of_predictions(np.eye(3)[[0, 1, 1]]).tolist() == pytest.approx([1 / 3, 2 / 3, 0])


def test_the_estimated_shares_correct_the_predictions() -> None:
    held, true = made.labels([1, 1, 1], 3000), made.labels([8, 1, 1], 3000, seed=1)
    source, target = (made.said(each, 3, 0.8, seed=2, sure=4) for each in (held, true))
    found = class_shares.estimated(target, source, held)
    assert found.sum() == pytest.approx(1)
    assert np.abs(found - [0.8, 0.1, 0.1]).max() < 0.04
    assert np.abs(found - [0.8, 0.1, 0.1]).max() < np.abs(class_shares.of_predictions(target) - [0.8, 0.1, 0.1]).max()


def test_the_estimate_knows_how_often_the_source_has_each_class() -> None:
    """A target like the source needs no correction, however uneven its classes are."""
    held = made.labels([6, 3, 1], 3000)
    source = made.said(held, 3, 0.8, seed=2, sure=4)
    said = calibrated.with_temperature(source, calibrated.temperature(source, held)).mean(0)
    assert said[0] > 2 * said[2]
    assert np.abs(class_shares.estimated(source, source, held) - said).max() < 1e-5


def test_what_changed_between_two_networks() -> None:
    true = made.labels([1, 1, 1], 300)
    ours, twins = made.said(true, 3, 0.9, seed=1), made.said(true, 3, 0.6, seed=2)
    found = changed(ours, twins)
    mine, its = ours.argmax(1), twins.argmax(1)
    assert sorted(found.rows) == [i for i in range(300) if mine[i] != its[i]]
    assert found.moves[1, 2] == sum(a == 1 and b == 2 for a, b in zip(its, mine, strict=True))
    assert found.agreement == pytest.approx(1 - len(found.rows) / 300)
    chance = sum((mine == each).mean() * (its == each).mean() for each in range(3))
    assert found.kappa == pytest.approx((found.agreement - chance) / (1 - chance))
    surest = np.minimum(ours.max(1), twins.max(1))[found.rows]
    assert (np.diff(surest) <= 0).all()
    alone = np.eye(3, dtype=np.float32)[np.zeros(5, int)]
    assert changed(alone, alone).kappa == 1
