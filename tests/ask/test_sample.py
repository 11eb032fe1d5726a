"""The sample: chances by simulation, and strata."""

import numpy as np
import pytest

from adamatch.ask import sample


@pytest.mark.parametrize(("images", "number"), [(20, 13), (31, 30), (7, 3), (12, 12), (5, 30), (90, 20), (498, 100)])
def test_every_image_has_the_same_chance(images: int, number: int) -> None:
    rng, draws = np.random.default_rng(0), 4000
    counts, chance = np.zeros(images), min(number, images) / images
    for _ in range(draws):
        rows = sample.draw(np.arange(images), number, rng)
        assert len(set(rows.tolist())) == min(number, images)
        counts[rows] += 1
    spread = np.sqrt(max(chance * (1 - chance), 1e-9) / draws)
    assert np.abs(counts / draws - chance).max() < 4.5 * spread + 1e-9


def test_a_second_draw_among_the_rest_keeps_chances_equal() -> None:
    rng, draws, counts = np.random.default_rng(1), 6000, np.zeros(23)
    for _ in range(draws):
        first = sample.draw(np.arange(23), 6, rng)
        rest = np.setdiff1d(np.arange(23), first)
        counts[np.concatenate([first, sample.draw(rest, 5, rng)])] += 1
    assert np.abs(counts / draws - 11 / 23).max() < 4.5 * np.sqrt(0.25 / draws)


def test_groups_get_their_share() -> None:
    rng = np.random.default_rng(0)
    predicted, confidence = rng.integers(0, 4, 1000), rng.uniform(size=1000)
    differs = rng.random(1000) < 0.3
    ordered = sample.order(predicted, confidence, differs)
    assert sorted(ordered.tolist()) == list(range(1000))
    for _ in range(50):
        rows = sample.draw(ordered, 40, rng)
        assert abs(differs[rows].sum() - 40 * differs.mean()) < 1.01
        for each in range(4):
            mine = predicted[rows] == each
            assert abs(mine.sum() - 40 * (predicted == each).mean()) < 3  # in two groups, each a part more or less
    keys = differs[ordered] * 10 + predicted[ordered]
    assert (np.diff(keys) >= 0).all()


def test_one_image_of_each_class_will_do() -> None:
    ordered = sample.order(np.arange(345), np.ones(345), np.zeros(345, bool))
    assert len(set(sample.draw(ordered, 30, np.random.default_rng(0)).tolist())) == 30
