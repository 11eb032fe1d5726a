"""Exact intervals for counts in a finite population, from a sample drawn without replacement.

Nothing is approximated by a normal distribution. A bound is the last count under which what was seen is not too
unlikely: its tail probability is above half of the interval's error. Of what was seen itself half the probability
counts ("mid-p"): such an interval is narrower than the strict one of Clopper and Pearson. A sample in strata varies
less than the random one that is computed with here, which makes up for that (results/ask.md).
"""

from collections.abc import Callable
from functools import cache
from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
GRID = 33  # values of what is not known, between the least and the most that it can be


class Interval(NamedTuple):
    """Counts in the population: at least `low`, at most `high`."""

    low: int
    high: int


@cache
def count(seen: int, asked: int, population: int, *, level: float = LEVEL) -> Interval:
    """How many of the population have a property that `seen` of the `asked` have."""
    if not 0 <= seen <= asked <= population:
        raise ValueError(f"{seen} of {asked} of {population}")
    most, limit = population - (asked - seen), (1 - level) / 2
    high = _last(lambda k: _tail(seen, k, asked, population) > limit, seen, most)
    # The images without the property are counted alike: at most so many have it not.
    lacking = _last(lambda k: _tail(asked - seen, k, asked, population) > limit, asked - seen, population - seen)
    return Interval(population - lacking, high)


def _tail(seen: int, having: int, asked: int, population: int) -> float:
    """The probability of at most `seen` in the sample (of `seen` itself half), where so many have the property."""
    ways = [comb(having, k) * comb(population - having, asked - k) for k in range(seen + 1)]
    return (2 * sum(ways) - ways[-1]) / (2 * comb(population, asked))


@cache
def difference(seen: int, asked: int, population: int, *, level: float = LEVEL) -> Interval:
    """By how many more of the population are +1 than -1, where the rest is 0.

    In the sample of `asked` it is `seen`. How many are 0 is not known: a bound holds for the worst of it.
    """
    if not abs(seen) <= asked <= population:
        raise ValueError(f"{seen} of {asked} of {population}")
    limit = (1 - level) / 2
    return Interval(-_largest(-seen, asked, population, limit), _largest(seen, asked, population, limit))


def _largest(seen: int, asked: int, population: int, limit: float) -> int:
    """The largest difference under which at most `seen` is not too unlikely."""
    least, most = asked + seen - population, population - (asked - seen)  # those that were not asked: all -1, all +1
    return _last(lambda total: _worst(seen, total, asked, population) > limit, least, most)


def _worst(seen: int, total: int, asked: int, population: int) -> float:
    """The largest tail probability under any number of -1 and +1 that differ by `total`."""
    fewest, most = max(0, -total), (population - total) // 2
    minus = np.unique(np.linspace(fewest, most, min(GRID, most - fewest + 1)).round().astype(np.int64))
    return float(_tails(seen, minus + total, minus, asked, population).max())


def _tails(
    seen: int, plus: NDArray[np.int64], minus: NDArray[np.int64], asked: int, population: int
) -> NDArray[np.float64]:
    """The same as `_tail` of a difference, for each pair of counts (g,)."""
    a, b = np.mgrid[: asked + 1, : asked + 1]  # of +1 and -1 in the sample
    kept = (a + b <= asked) & (a - b <= seen)
    a, b = a[kept], b[kept]
    zero = population - plus - minus
    logs = (
        _logs(plus, a) + _logs(minus, b) + _logs(zero, asked - a - b) - _logs(np.array([population]), np.array([asked]))
    )
    found: NDArray[np.float64] = (np.exp(logs) * np.where(a - b == seen, 0.5, 1)).sum(1)
    return found


def _logs(whole: NDArray[np.int64], part: NDArray[np.int64]) -> NDArray[np.float64]:
    """Logarithms (g, m) of the numbers of ways to take a part; minus infinity where there is none."""
    factorials = _factorials(1 << int(max(whole.max(), part.max())).bit_length())
    rest = whole[:, None] - part
    found = factorials[whole][:, None] - factorials[part] - factorials[np.maximum(rest, 0)]
    return np.where(rest < 0, -np.inf, found)


@cache
def _factorials(size: int) -> NDArray[np.float64]:
    """Logarithms of 0! to `size`!."""
    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, size + 1)))])


def _last(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The last number from `low`, for which it holds, to `high`."""
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low
