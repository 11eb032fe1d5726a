"""Intervals against SciPy's distributions, and what must hold for any of them."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from scipy.stats import binomtest, hypergeom

from adamatch.ask.intervals import count, difference

CASES = [(0, 10, 40), (3, 10, 40), (10, 10, 40), (25, 30, 390), (30, 30, 390), (1, 60, 150), (7, 20, 20), (0, 5, 6)]


@pytest.mark.parametrize(("seen", "asked", "population"), CASES)
def test_it_holds_the_counts_under_which_what_was_seen_is_not_too_unlikely(
    seen: int, asked: int, population: int
) -> None:
    likely = []
    for having in range(seen, population - (asked - seen) + 1):
        of = hypergeom(population, having, asked)
        low, high = of.cdf(seen), of.sf(seen - 1)
        if low <= high:  # and of the other tail as much as is no more likely
            other = [of.sf(k - 1) for k in range(asked + 2) if of.sf(k - 1) <= low * (1 + 1e-9)]
        else:
            other = [of.cdf(k) for k in range(-1, asked + 1) if of.cdf(k) <= high * (1 + 1e-9)]
        if min(1, min(low, high) + max(other)) > 0.05:
            likely.append(having)
    assert count(seen, asked, population) == (likely[0], likely[-1])


@pytest.mark.parametrize(("asked", "population"), [(10, 40), (30, 200), (30, 12_000)])
def test_it_holds_the_truth_at_least_as_often_as_it_says(asked: int, population: int) -> None:
    found = np.array([count(seen, asked, population) for seen in range(asked + 1)])
    for having in range(0, population + 1, max(1, population // 200)):
        holds = (found[:, 0] <= having) & (having <= found[:, 1])
        assert hypergeom.pmf(np.arange(asked + 1), population, having, asked)[holds].sum() > 0.95 - 1e-9


@pytest.mark.parametrize(("seen", "asked"), [(0, 20), (5, 20), (29, 30), (50, 100), (100, 100)])
def test_of_very_many_images_it_lies_inside_of_clopper_and_pearson(seen: int, asked: int) -> None:
    found, many = count(seen, asked, 10**6), binomtest(seen, asked).proportion_ci(method="exact")
    assert many.low - 1e-6 <= found.low / 10**6 <= seen / asked <= found.high / 10**6 <= many.high + 1e-6
    assert found.high - found.low > 0.8 * 10**6 * (many.high - many.low)


@pytest.mark.parametrize(("asked", "population"), [(1, 2), (13, 50), (30, 3929), (50, 50)])
def test_more_hits_move_both_bounds_up_and_a_surer_interval_holds_the_other(asked: int, population: int) -> None:
    found = [count(seen, asked, population) for seen in range(asked + 1)]
    for number, each in enumerate(found):
        surer = count(number, asked, population, level=0.99)
        assert 0 <= surer.low <= each.low <= each.high <= surer.high <= population
        assert number <= each.low + (population - asked)
        assert each.high >= number
        mirrored = found[asked - number]
        assert each == (population - mirrored.high, population - mirrored.low)
    assert all(a.low <= b.low and a.high <= b.high for a, b in pairwise(found))
    if asked == population:
        assert all(each == (number, number) for number, each in enumerate(found))


def test_what_cannot_be_seen_is_refused() -> None:
    with pytest.raises(ValueError):
        count(3, 2, 10)
    with pytest.raises(ValueError):
        difference(3, 2, 10)


def _tail(seen: int, plus: int, minus: int, asked: int, population: int) -> float:
    """By going through all samples: at most so many more +1 than -1, where of what was seen itself half counts."""
    images = [1] * plus + [-1] * minus + [0] * (population - plus - minus)
    sums = [sum(each) for each in combinations(images, asked)]
    return sum(1.0 if each < seen else 0.5 if each == seen else 0.0 for each in sums) / len(sums)


@pytest.mark.parametrize(("seen", "asked", "population"), [(2, 4, 9), (-1, 3, 10), (0, 3, 8), (3, 3, 12), (0, 1, 6)])
def test_a_difference_holds_for_any_number_of_zeros(seen: int, asked: int, population: int) -> None:
    likely = [
        total
        for total in range(-population, population + 1)
        if any(
            _tail(seen, minus + total, minus, asked, population) > 0.025
            for minus in range(max(0, -total), (population - total) // 2 + 1)
        )
    ]
    low, high = difference(seen, asked, population)
    assert high == max(likely)
    assert low == -difference(-seen, asked, population).high


@pytest.mark.parametrize(("asked", "population"), [(7, 40), (20, 900), (5, 5)])
def test_a_difference_grows_with_what_was_seen(asked: int, population: int) -> None:
    found = [difference(seen, asked, population) for seen in range(-asked, asked + 1)]
    assert all(a.low <= b.low and a.high <= b.high for a, b in pairwise(found))
    for seen, each in zip(range(-asked, asked + 1), found, strict=True):
        assert -population <= each.low <= each.high <= population
        assert each.low <= seen / asked * population <= each.high
