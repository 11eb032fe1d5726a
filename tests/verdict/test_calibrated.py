"""Estimates from confidence, against slow and obvious versions."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from verdict import made

from adamatch.verdict import calibrated

HELD = made.labels([1, 1, 1, 1], 400)
SOURCE = made.said(HELD, 4, 0.9)


def some(count: int, classes: int, seed: int) -> made.Floats:
    z = np.random.default_rng(seed).normal(0, 3, (count, classes))
    found: made.Floats = (np.exp(z) / np.exp(z).sum(1, keepdims=True)).astype(np.float32)
    return found


@pytest.mark.parametrize(("count", "classes"), [(2, 2), (6, 3), (7, 2)])
def test_transport_is_the_best_assignment(count: int, classes: int) -> None:
    p, shares = some(count, classes, count), np.random.default_rng(1).dirichlet(np.ones(classes))
    sizes = np.diff(np.rint(np.cumsum(shares) * count).astype(int), prepend=0)
    every = itertools.permutations(np.repeat(np.arange(classes), sizes))
    assert calibrated.transported(p, shares) == pytest.approx(max(p[range(count), each].mean() for each in every))


def test_transport_sees_a_class_that_swallows_the_others() -> None:
    swallowed = np.tile(np.array([0.97, 0.01, 0.01, 0.01], np.float32), (400, 1))
    assert calibrated.difference(swallowed, SOURCE, HELD) > 0.8
    assert calibrated.transport(swallowed, SOURCE, HELD) < 0.35


def test_transport_deals_out_the_sources_classes_as_often_as_they_come() -> None:
    held = made.labels([6, 2, 1, 1], 400)
    source, same, even = (made.said(each, 4, 0.95, seed=3) for each in (held, held, made.labels([1, 1, 1, 1], 400)))
    warm = calibrated.with_temperature(same, calibrated.temperature(source, held))
    assert calibrated.transport(same, source, held) == pytest.approx(
        calibrated.transported(warm, np.array([6, 2, 1, 1]))
    )
    assert calibrated.transport(even, source, held) < calibrated.transport(same, source, held) - 0.2


def test_logits_are_divided_by_the_temperature() -> None:
    p = some(30, 4, 0).astype(np.float64)
    for heat in (0.5, 2.0):
        powers = p ** (1 / heat)
        assert np.allclose(calibrated.with_temperature(p, heat), powers / powers.sum(1, keepdims=True), rtol=1e-5)
    assert calibrated.with_temperature(p, 2.0).max(1).mean() < p.max(1).mean()  # the warmer, the less sure


@pytest.mark.parametrize("cold", [0.3, 1.0, 3.0])
def test_temperature_is_the_most_likely(cold: float) -> None:
    given = calibrated.with_temperature(SOURCE, cold)
    every = np.exp(np.linspace(-3, 3, 601))
    losses = [-np.log(calibrated.with_temperature(given, heat)[range(400), HELD]).mean() for heat in every]
    assert calibrated.temperature(given, HELD) == pytest.approx(every[np.argmin(losses)], rel=1e-2)


def test_a_network_that_is_always_right_gets_the_highest_of_the_best_temperatures() -> None:
    right = np.eye(4, dtype=np.float32)[HELD]
    heat = calibrated.temperature(right, HELD)
    loss = [-np.log(calibrated.with_temperature(right, each)[range(400), HELD]).mean() for each in (heat, 1.5 * heat)]
    assert loss[0] == pytest.approx(0, abs=1e-14)
    assert loss[1] > 0


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


def test_difference_of_confidences() -> None:
    target = made.said(HELD, 4, 0.6, seed=3)
    expected = (SOURCE.argmax(1) == HELD).mean() - SOURCE.max(1).mean() + target.max(1).mean()
    assert calibrated.difference(target, SOURCE, HELD) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("rule", [calibrated.threshold, calibrated.transport, calibrated.difference])
def test_where_more_is_right_more_is_promised(rule: Callable[..., float]) -> None:
    true = made.labels([1, 1, 1, 1], 1000, seed=2)
    promised = [rule(made.said(true, 4, right, seed=5), SOURCE, HELD) for right in (0.3, 0.5, 0.7, 0.9)]
    assert promised == sorted(promised)
    assert promised[-1] == pytest.approx(0.9, abs=0.05)
    assert all(value >= right for value, right in zip(promised, (0.3, 0.5, 0.7), strict=False))  # flattering
