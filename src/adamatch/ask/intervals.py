"""Exact intervals for counts in a finite population, from a sample drawn without replacement.

Nothing is approximated by a normal distribution. An interval holds every count under which a sample as far out as the
one that was seen is not too unlikely. For a share, both tails are looked at together (Blaker, Canadian Journal of
Statistics 2000): such an interval holds the truth at least as often as it says, and lies inside of that of Clopper and
Pearson. For a difference, each tail may have half of the error, and of what was seen itself half counts. A sample in
strata varies less than the random one that is computed with here (results/ask.md).
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
FINE = 5000  # counts that are looked at: of more images a bound is rounded outwards, by less than 0.02 points
GRID = 33  # values of what is not known, between the least and the most that it can be


class Interval(NamedTuple):
    """Counts in the population: at least `low`, at most `high`."""

    low: int
    high: int


@cache
def count(seen: int, asked: int, population: int, *, level: float = LEVEL) -> Interval:
    """How many of the population have a property that `seen` of the `asked` have (Blaker, 2000)."""
    if not 0 <= seen <= asked <= population:
        raise ValueError(f"{seen} of {asked} of {population}")
    least, most = seen, population - (asked - seen)  # all others are impossible
    step = max(1, population // FINE)
    having = np.unique(np.append(np.arange(least, most + 1, step), most))
    found = having[_likely(seen, having, asked, population) > 1 - level]
    return Interval(max(least, int(found[0]) - step + 1), min(most, int(found[-1]) + step - 1))


def _likely(seen: int, having: NDArray[np.int64], asked: int, population: int) -> NDArray[np.float64]:
    """The probability (g,) of samples at least as far out as `seen`, on either side, by the tails that they begin."""
    k = np.arange(asked + 1)
    logs = _logs(having, k) + _logs(population - having, asked - k) - _logs(np.array([population]), np.array([asked]))
    of_k = np.exp(logs)
    below, above = of_k.cumsum(1), of_k[:, ::-1].cumsum(1)[:, ::-1]
    tail = np.minimum(below[:, seen], above[:, seen])[:, None] * (1 + 1e-9)  # sums in another order differ a little
    found: NDArray[np.float64] = of_k.sum(1, where=(below <= tail) | (above <= tail))
    return found


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
    """The probability of a difference of at most `seen` (of `seen` itself half), for each pair of counts (g,)."""
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
