"""Accuracy without labels from confidence, as the held-out source images teach to read it. Such estimates are flattering.

Each takes probabilities of target images [n, k], of held-out source images [m, k] and the labels of these [m], and gives the
accuracy on the target, 0 to 1.
"""

import numpy as np
from numpy.typing import NDArray

from adamatch.images.store import Labels
from adamatch.verdict.evidence import SMALLEST, Numbers, accuracy

COLDEST, HOTTEST = 0.05, 20.0  # temperatures
NARROW = 1e-4  # of its logarithm

Rows = NDArray[np.floating]


def held_out(target: Rows, source: Rows, held: Labels) -> float:
    """As if nothing had changed between source and target."""
    return accuracy(source, held)


def confidence(target: Rows, source: Rows, held: Labels) -> float:
    """As often right as it thinks it is, after calibration."""
    return float(warmed(target, temperature(source, held)).max(1).mean())


def difference(target: Rows, source: Rows, held: Labels) -> float:
    """Source accuracy, less what confidence loses from source to target (DoC: Guillory et al., ICCV 2021)."""
    return float(np.clip(accuracy(source, held) - (source.max(1).mean() - target.max(1).mean()), 0, 1))


def threshold(target: Rows, source: Rows, held: Labels) -> float:
    """The part of target images that is surer than as many source images as are wrong (ATC: Garg et al., ICLR 2022).

    How sure a prediction is says its negative entropy. Of images exactly as sure as the limit, as large a part counts as does
    on the source: a network that is certain of everything has many, and on the source the estimate is its accuracy.
    """
    on_source, on_target = np.sort(_sureness(source)), _sureness(target)
    wrong = round((1 - accuracy(source, held)) * len(held))
    limit = on_source[wrong - 1] if wrong else -np.inf
    tied, surer = (on_source == limit).sum(), (on_source > limit).sum()
    part = (len(held) - wrong - surer) / max(1, tied)
    return float((on_target > limit).mean() + part * (on_target == limit).mean())


def _sureness(probabilities: Rows) -> Numbers:
    """[n, k] -> [n], the same to the last bit whichever classes the probabilities are of."""
    found: Numbers = -entropy(np.sort(probabilities, axis=-1))
    return found


def transport(target: Rows, source: Rows, held: Labels) -> float:
    """The probability that classes get when images are dealt out to them as often as the source has them.

    That is one less the cost of optimal transport to the source's labels (COT: Lu et al., 2023), after calibration.
    """
    shares = np.bincount(held, minlength=target.shape[1]) / len(held)
    return transported(warmed(target, temperature(source, held)), shares)


def transported(probabilities: Rows, shares: Numbers) -> float:
    """The most that the mean of probabilities[i, class of i] can be where every class gets its share of the images.

    From everyone's first choice, an image at a time goes, by the cheapest chain of exchanges, from classes that have too many
    to one that has too few: optimal for the classes' sizes after every one of them.
    """
    p = probabilities.astype(np.float64)
    count, classes = p.shape
    room = np.diff(np.rint(np.cumsum(shares / shares.sum()) * count).astype(int), prepend=0)
    chosen = p.argmax(1)
    sizes = np.bincount(chosen, minlength=classes)
    prices, movers = np.full((classes, classes), np.inf), np.zeros((classes, classes), int)

    def price(a: int) -> None:
        """What it costs to send the cheapest image of class a to each other, and which it is."""
        mine = np.flatnonzero(chosen == a)
        prices[a] = np.inf
        if len(mine):
            costs = p[mine, a][:, None] - p[mine]
            best = costs.argmin(0)
            prices[a], movers[a] = costs[best, range(classes)], mine[best]
            prices[a, a] = np.inf

    for a in range(classes):
        price(a)
    for _ in range(int(np.maximum(sizes - room, 0).sum())):
        costs, before = _cheapest(prices, sizes > room)
        end = int(np.where(sizes < room, costs, np.inf).argmin())
        sizes[end] += 1
        touched = [end]
        while before[end] >= 0:
            start = int(before[end])
            chosen[movers[start, end]] = end
            end = start
            touched.append(end)
        sizes[end] -= 1
        for a in touched:
            price(a)
    return float(p[range(count), chosen].mean())


def _cheapest(prices: Numbers, starts: NDArray[np.bool_]) -> tuple[Numbers, Labels]:
    """Bellman and Ford: the cost of reaching each class from any of `starts`, and from which other it is reached (-1: none)."""
    costs, before = np.where(starts, 0.0, np.inf), np.full(len(starts), -1)
    for _ in range(len(starts)):
        through = costs[:, None] + prices
        best = through.argmin(0)
        reached = through[best, range(len(starts))]
        better = reached < costs - 1e-12
        if not better.any():
            break
        costs, before = np.where(better, reached, costs), np.where(better, best, before)
    return costs, before


def temperature(source: Rows, held: Labels) -> float:
    """What to divide logits by so that the labels are most likely; the loss has one valley, so a golden section finds it."""
    logs = np.log(np.maximum(source.astype(np.float64), SMALLEST))

    def loss(power: float) -> float:
        z = logs * np.exp(-power)
        z -= z.max(1, keepdims=True)
        return float((np.log(np.exp(z).sum(1)) - z[range(len(held)), held]).mean())

    low, high = np.log(COLDEST), np.log(HOTTEST)
    ratio = (np.sqrt(5) - 1) / 2
    while high - low > NARROW:
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, right) if loss(left) < loss(right) else (left, high)
    return float(np.exp((low + high) / 2))


def warmed(probabilities: Rows, heat: float) -> Numbers:
    """The same with logits divided by `heat`."""
    z = np.log(np.maximum(probabilities.astype(np.float64), SMALLEST)) / heat
    z = np.exp(z - z.max(1, keepdims=True))
    made: Numbers = z / z.sum(1, keepdims=True)
    return made


def entropy(probabilities: Rows) -> Numbers:
    """[..., k] -> [...], in nats."""
    p = np.maximum(probabilities.astype(np.float64), SMALLEST)
    found: Numbers = -(p * np.log(p)).sum(-1)
    return found
