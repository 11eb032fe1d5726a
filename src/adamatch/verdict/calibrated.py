"""Accuracy without labels, from confidence as held-out source images calibrate it. Such estimates are rather too high.

Each takes probabilities of target images [n, k], of held-out source images [m, k] and labels of these [m], and gives
the accuracy on the target, 0 to 1.
"""

import numpy as np

from adamatch.images.store import Labels
from adamatch.verdict.eval_outputs import SMALLEST, Numbers, Probabilities, accuracy

TEMPERATURES = 0.05, 20.0
TOLERANCE = 1e-4  # of a temperature's logarithm
WARMER = 1e-20  # of equally good temperatures the highest: a network that is right on all images likes every low one


def difference(target: Probabilities, source: Probabilities, source_labels: Labels) -> float:
    """Source accuracy, less what confidence loses from source to target (DoC: Guillory et al., ICCV 2021)."""
    return float(np.clip(accuracy(source, source_labels) - (source.max(1).mean() - target.max(1).mean()), 0, 1))


def threshold(target: Probabilities, source: Probabilities, source_labels: Labels) -> float:
    """The part of target images that is surer than as many source images as are wrong (ATC: Garg et al., ICLR 2022).

    Sureness is negative entropy. Of images exactly as sure as the limit, as large a part counts as does on the source:
    a network that is certain of everything has many, and on the source the estimate is its accuracy.
    """
    # Sorted, because sums of the same numbers in another order differ in their last bit.
    on_source, on_target = (-entropy(np.sort(each, axis=1)) for each in (source, target))
    on_source.sort()
    wrong = round((1 - accuracy(source, source_labels)) * len(source_labels))
    limit = on_source[wrong - 1] if wrong else -np.inf
    tied, surer = (on_source == limit).sum(), (on_source > limit).sum()
    part = (len(source_labels) - wrong - surer) / max(1, tied)
    return float((on_target > limit).mean() + part * (on_target == limit).mean())


def transport(target: Probabilities, source: Probabilities, source_labels: Labels) -> float:
    """The mean probability of each image's class when classes come as often as in the source (COT: Lu et al., 2023).

    That is one less the cost of optimal transport to the source's labels, after calibration.
    """
    shares = np.bincount(source_labels, minlength=target.shape[1]) / len(source_labels)
    return transported(with_temperature(target, temperature(source, source_labels)), shares)


def transported(probabilities: Probabilities, shares: Numbers) -> float:
    """The most that the mean of probabilities[i, class of i] can be where every class gets its share of the images."""
    from scipy.optimize import linear_sum_assignment  # takes half a second to import

    count = len(probabilities)
    sizes = np.diff(np.rint(np.cumsum(shares / shares.sum()) * count).astype(int), prepend=0)
    places = probabilities.astype(np.float64)[:, np.repeat(np.arange(len(sizes)), sizes)]
    return float(places[linear_sum_assignment(places, maximize=True)].mean())


def temperature(source: Probabilities, source_labels: Labels) -> float:
    """What to divide logits by so that the labels are most likely."""
    from scipy.optimize import minimize_scalar

    logits = np.log(np.maximum(source.astype(np.float64), SMALLEST))

    def loss(power: float) -> float:
        z = logits * np.exp(-power)
        z -= z.max(1, keepdims=True)
        return float((np.log(np.exp(z).sum(1)) - z[range(len(source_labels)), source_labels]).mean() - WARMER * power)

    best = minimize_scalar(loss, bounds=np.log(TEMPERATURES), method="bounded", options={"xatol": TOLERANCE})
    return float(np.exp(best.x))


def with_temperature(probabilities: Probabilities, heat: float) -> Numbers:
    """The same with logits divided by `heat`."""
    from scipy.special import softmax

    found: Numbers = softmax(np.log(np.maximum(probabilities.astype(np.float64), SMALLEST)) / heat, axis=1)
    return found


def entropy(probabilities: Probabilities) -> Numbers:
    """[..., k] -> [...], in nats."""
    p = np.maximum(probabilities.astype(np.float64), SMALLEST)
    found: Numbers = -(p * np.log(p)).sum(-1)
    return found
