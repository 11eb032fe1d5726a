"""Estimates from confidence, against slow and obvious versions."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment, minimize_scalar
from verdict import made

from adamatch.verdict import calibrated

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
    assert calibrated.transport(same, source, held) == pytest.approx(
        calibrated.transported(warm, np.array([6, 2, 1, 1]))
    )
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


@pytest.mark.parametrize("digits", [0, 1, 2, 7])
def test_on_the_source_itself_the_threshold_gives_its_accuracy(digits: int) -> None:
    """Also where many images are exactly as sure as the limit; 0 digits: the network is certain of everything."""
    rng = np.random.default_rng(digits)
    for seed in range(40):
        classes, count = int(rng.integers(2, 30)), int(rng.integers(1, 300))
        held = rng.integers(0, classes, count)
        said = made.said(held, classes, rng.random(), seed=seed, sure=20 * rng.random()).round(digits)
        right = (said.argmax(1) == held).mean()
        assert calibrated.threshold(said, said, held) == pytest.approx(right, abs=1e-12)
        twice = np.concatenate([said, said])
        assert calibrated.threshold(twice, said, held) == pytest.approx(right, abs=1e-12)


def test_images_are_equally_sure_whichever_their_classes_are() -> None:
    """Sums of the same numbers in another order may differ in their last bit."""
    rng = np.random.default_rng(0)
    row = some(1, 65, 0)[0]
    target, source = (np.stack([rng.permutation(row) for _ in range(200)]) for _ in range(2))
    held = np.where(np.arange(200) < 150, source.argmax(1), source.argmin(1))
    assert calibrated.threshold(target, source, held) == pytest.approx(0.75, abs=1e-12)


def test_without_ties_the_threshold_is_the_published_one() -> None:
    """An image of the target that is as sure as the limit counts as wrong there, as source images up to the limit do."""
    for seed in range(20):
        held = made.labels([1, 1, 1, 1], 150, seed)
        source, target = made.said(held, 4, 0.8, seed), made.said(HELD, 4, 0.6, seed + 50)
        target[:10] = source[:10]
        sure = sorted(float((row * np.log(row)).sum()) for row in source.astype(np.float64))
        limit = sure[int((source.argmax(1) != held).sum()) - 1]
        above = np.mean([(row * np.log(row)).sum() > limit + 1e-12 for row in target.astype(np.float64)])
        assert calibrated.threshold(target, source, held) == above


def test_difference_of_confidences() -> None:
    target = made.said(HELD, 4, 0.6, seed=3)
    expected = (SOURCE.argmax(1) == HELD).mean() - SOURCE.max(1).mean() + target.max(1).mean()
    assert calibrated.difference(target, SOURCE, HELD) == pytest.approx(expected, abs=1e-6)
    assert calibrated.held_out(target, SOURCE, HELD) == (SOURCE.argmax(1) == HELD).mean()


@pytest.mark.parametrize(
    "rule", [calibrated.threshold, calibrated.transport, calibrated.confidence, calibrated.difference]
)
def test_where_more_is_right_more_is_promised(rule: Callable[..., float]) -> None:
    true = made.labels([1, 1, 1, 1], 1000, seed=2)
    promised = [rule(made.said(true, 4, right, seed=5), SOURCE, HELD) for right in (0.3, 0.5, 0.7, 0.9)]
    assert promised == sorted(promised)
    assert promised[-1] == pytest.approx(0.9, abs=0.05)
    assert all(value >= right for value, right in zip(promised, (0.3, 0.5, 0.7), strict=False))  # flattering
