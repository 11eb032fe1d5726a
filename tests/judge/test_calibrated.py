"""Estimates from confidence, against slow and obvious versions."""

from collections.abc import Callable

import numpy as np
import pytest
from judge import made
from scipy.optimize import linear_sum_assignment, minimize_scalar

from adamatch.judge import calibrated

HELD = made.labels([1, 1, 1, 1], 400)
SOURCE = made.said(HELD, 4, 0.9)


def some(count: int, classes: int, seed: int) -> made.Floats:
    z = np.random.default_rng(seed).normal(0, 3, (count, classes))
    found: made.Floats = (np.exp(z) / np.exp(z).sum(1, keepdims=True)).astype(np.float32)
    return found


@pytest.mark.parametrize(("count", "classes"), [(40, 3), (101, 7), (60, 30), (5, 9)])
def test_transport_is_the_best_assignment(count: int, classes: int) -> None:
    p = some(count, classes, count)
    shares = np.random.default_rng(1).dirichlet(np.ones(classes))
    sizes = np.diff(np.rint(np.cumsum(shares) * count).astype(int), prepend=0)
    columns = np.repeat(np.arange(classes), sizes)
    rows, chosen = linear_sum_assignment(p[:, columns].astype(np.float64), maximize=True)
    assert calibrated.transported(p, shares) == pytest.approx(p[rows, columns[chosen]].mean(), abs=1e-6)


def test_transport_sees_a_class_that_swallows_the_others() -> None:
    swallowed = np.tile(np.array([0.97, 0.01, 0.01, 0.01], np.float32), (400, 1))
    assert calibrated.confidence(swallowed, SOURCE, HELD) > 0.8
    assert calibrated.transport(swallowed, SOURCE, HELD) < 0.35


def test_transport_deals_out_the_sources_classes_as_often_as_they_come() -> None:
    held = made.labels([6, 2, 1, 1], 400)
    source, same, even = (made.said(each, 4, 0.95, seed=3) for each in (held, held, made.labels([1, 1, 1, 1], 400)))
    warm = calibrated.warmed(same, calibrated.temperature(source, held))
    assert calibrated.transport(same, source, held) == pytest.approx(calibrated.transported(warm, np.array([6, 2, 1, 1])))
    assert calibrated.transport(even, source, held) < calibrated.transport(same, source, held) - 0.2


def test_logits_are_divided_by_the_temperature() -> None:
    p = some(30, 4, 0).astype(np.float64)
    for heat in (0.5, 2.0):
        powers = p ** (1 / heat)
        assert np.allclose(calibrated.warmed(p, heat), powers / powers.sum(1, keepdims=True), rtol=1e-5)
    assert calibrated.warmed(p, 2.0).max(1).mean() < p.max(1).mean()  # the warmer, the less sure


def test_temperature_is_the_most_likely() -> None:
    for cold in (0.3, 1.0, 3.0):
        given = calibrated.warmed(SOURCE, cold)

        def loss(log_heat: float, given: made.Floats = given) -> float:  # type: ignore[assignment]
            z = np.log(np.maximum(given, 1e-7)) / np.exp(log_heat)
            return float(-(z - np.log(np.exp(z).sum(1, keepdims=True)))[np.arange(400), HELD].mean())

        expected = np.exp(minimize_scalar(loss, bounds=(-3, 3), method="bounded").x)
        assert calibrated.temperature(given, HELD) == pytest.approx(expected, rel=1e-2)


def test_the_threshold_keeps_as_many_source_images_as_are_right() -> None:
    right = (SOURCE.argmax(1) == HELD).mean()
    assert calibrated.threshold(SOURCE, SOURCE, HELD) == pytest.approx(right)
    sure, unsure = made.said(HELD, 4, 1.0, sure=20), made.said(HELD, 4, 1.0, sure=0.5)
    assert calibrated.threshold(sure, SOURCE, HELD) > 0.99
    assert calibrated.threshold(unsure, SOURCE, HELD) < 0.2
    # the published form, image by image
    score = [sum(v * np.log(max(v, 1e-7)) for v in row) for row in SOURCE.astype(float)]
    limit = sorted(score)[round((1 - right) * 400) - 1]
    target = made.said(HELD, 4, 0.6, seed=3)
    expected = np.mean([sum(v * np.log(max(v, 1e-7)) for v in row) > limit for row in target.astype(float)])
    assert calibrated.threshold(target, SOURCE, HELD) == pytest.approx(expected)


def test_difference_of_confidences() -> None:
    target = made.said(HELD, 4, 0.6, seed=3)
    expected = (SOURCE.argmax(1) == HELD).mean() - SOURCE.max(1).mean() + target.max(1).mean()
    assert calibrated.difference(target, SOURCE, HELD) == pytest.approx(expected, abs=1e-6)
    assert calibrated.held_out(target, SOURCE, HELD) == (SOURCE.argmax(1) == HELD).mean()


@pytest.mark.parametrize("rule", [calibrated.threshold, calibrated.transport, calibrated.confidence, calibrated.difference])
def test_where_more_is_right_more_is_promised(rule: Callable[..., float]) -> None:
    true = made.labels([1, 1, 1, 1], 1000, seed=2)
    promised = [rule(made.said(true, 4, right, seed=5), SOURCE, HELD) for right in (0.3, 0.5, 0.7, 0.9)]
    assert promised == sorted(promised)
    assert promised[-1] == pytest.approx(0.9, abs=0.05)
    assert all(value >= right for value, right in zip(promised, (0.3, 0.5, 0.7), strict=False))  # flattering
