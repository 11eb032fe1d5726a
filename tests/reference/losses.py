"""The equations and the methods' losses in float64 NumPy, written from the paper, image by image.

A loss takes logits. Pseudo-labels can be passed as constants (`guess`): this is stop_gradient, and finite differences
need it.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


class Guess(NamedTuple):
    """Pseudo-labels of images, and whether each is trusted."""

    classes: list[int]
    trusted: Sequence[bool]


class Result(NamedTuple):
    loss: float
    source: float
    target: float
    threshold: float
    guess: Guess
    wanted: Array
    found: Array


def softmax(z: Array) -> Array:
    rows = []
    for row in z:
        powers = [math.exp(value - max(row)) for value in row]
        rows.append([power / sum(powers) for power in powers])
    return np.array(rows)


def cross_entropy(y: Array, z: Array) -> Array:
    """-sum_j y_j log softmax(z)_j of each row."""
    rows = []
    for labels, logits in zip(y, z, strict=True):
        top = max(logits)
        log_sum = top + math.log(sum(math.exp(value - top) for value in logits))
        rows.append(sum(label * (log_sum - value) for label, value in zip(labels, logits, strict=True)))
    return np.array(rows)


def interpolate(z_joint: Array, z_alone: Array, lam: Array) -> Array:
    z = np.empty_like(z_joint)
    for i, j in np.ndindex(*z.shape):
        z[i, j] = lam[i, j] * z_joint[i, j] + (1 - lam[i, j]) * z_alone[i, j]
    return z


def align(y: Array, wanted: Array, found: Array, strength: float = 1.0, limit: float = 0.0) -> Array:
    rows = []
    for row in y:
        factors = [(w + 1e-6) / (f + 1e-6) for w, f in zip(wanted, found, strict=True)]
        if limit:
            factors = [min(max(factor, 1 / limit), limit) for factor in factors]
        scaled = [value * math.pow(factor, strength) for value, factor in zip(row, factors, strict=True)]
        rows.append([value / sum(scaled) for value in scaled])
    return np.array(rows)


def relative_threshold(y: Array, tau: float) -> float:
    return tau / len(y) * sum(float(max(row)) for row in y)


def guess_labels(y: Array, threshold: float) -> Guess:
    return Guess([int(np.argmax(row)) for row in y], [bool(max(row) >= threshold) for row in y])


def warm_up(progress: float) -> float:
    return 1 / 2 - math.cos(min(math.pi, 2 * math.pi * progress)) / 2


def let_go(progress: float) -> float:
    """1 until the middle of the run, then half a wave down to 0."""
    return (1 + math.cos(math.pi * max(0.0, 2 * progress - 1))) / 2


def kl(p: Array, q: Array) -> float:
    return float(sum(a * math.log((a + 1e-6) / (b + 1e-6)) for a, b in zip(p, q, strict=True)))


def first(y: Array, z_s: Array, progress: float) -> float:
    """What the network said before training, as long as pseudo-labels hardly count."""
    return (1 - warm_up(progress)) * float(np.mean(cross_entropy(y, z_s)))


def exponential_average(means: Sequence[Array], decay: float = 0.999) -> Array:
    """From uniform, over all batch means so far, in closed form."""
    n, k = len(means), len(means[0])
    average = decay**n * np.full(k, 1 / k)
    for age, mean in enumerate(reversed(means)):
        average = average + (1 - decay) * decay**age * mean
    return average


def window_average(means: Sequence[Array], length: int = 128) -> Array:
    """Of the last `length` batch means; those before the first batch count as uniform."""
    k = len(means[0])
    padded = [np.full(k, 1 / k)] * length + list(means)
    return np.asarray(sum(padded[-length:]) / length)


def labelled(y: Array, z_w: Array, z_s: Array, source_loss: str, batches: float = 1.0) -> float:
    """Eq. (9); also the losses of Supervised, NoisyStudent and, on joint logits, BaselineBN (appendix B).

    Halved as in the authors' code, the sum over all images is divided by the length of one of their `batches`.
    """
    total = sum(float(value) for value in (*cross_entropy(y, z_w), *cross_entropy(y, z_s)))
    there = sum(bool(row.any()) for row in y)  # rows of zeros have no label
    return total / there if source_loss == "sum" else 0.5 * total / (len(y) / batches)


def guessed(guess: Guess, z_s: Array) -> float:
    """Eq. (10): the mean is over all images, those not trusted count as 0."""
    one_hot = np.eye(z_s.shape[1])[guess.classes]
    losses = cross_entropy(one_hot, z_s)
    return sum(float(loss) * trusted for loss, trusted in zip(losses, guess.trusted, strict=True)) / len(losses)


def adamatch(
    z_sl_joint: Array,
    z_sl_alone: Array,
    z_tu: Array,
    y_sl: Array,
    lam: Array,
    progress: float,
    *,
    means_sl: list[Array],
    means_tu: list[Array],
    tau: float = 0.9,
    interpolated: bool = True,
    align_to: str = "source",
    threshold: str = "relative",
    source_loss: str = "half",
    batches: float = 1.0,
    from_target: int = 0,
    known: Array | None = None,
    alignment_decay: float = 0.999,
    alignment_window: int = 128,
    alignment_clip: float = 0.0,
    fade_out: bool = False,
    passes: list[Array] | None = None,
    guess: Guess | None = None,
) -> Result:
    """Logits hold weak views first, then strong ones. `means_*`: batch means of earlier steps, to which this is added.

    The last `from_target` labelled images, the target's, are left out of threshold and alignment, and have a loss of
    their own (SSDA in the authors' code).
    """
    z_sl = interpolate(z_sl_joint, z_sl_alone, lam) if interpolated else z_sl_joint
    n_sl, n_tu = len(y_sl), len(z_tu) // 2
    source_only = slice(n_sl - from_target)
    y_sl_w, y_tu_w = softmax(z_sl[source_only]), softmax(z_tu[:n_tu])
    means_sl.append((y_sl[source_only] if align_to == "labels" else y_sl_w).mean(0))
    means_tu.append(y_tu_w.mean(0))
    wanted = exponential_average(means_sl, alignment_decay) if known is None else known
    found = window_average(means_tu, alignment_window)
    y_tilde = (
        y_tu_w
        if align_to == "none"
        else align(y_tu_w, wanted, found, let_go(progress) if fade_out else 1.0, alignment_clip)
    )
    c_tau = tau if threshold == "fixed" else relative_threshold(y_sl_w, tau)
    if guess is None:
        guess = guess_labels(y_tilde, c_tau)
        if threshold == "classes":
            assert passes is not None
            guess = by_class(guess, y_tilde, c_tau, passes, alignment_window)
    z_w, z_s = z_sl[:n_sl], z_sl[n_sl:]
    source = labelled(y_sl[source_only], z_w[source_only], z_s[source_only], source_loss, batches)
    if from_target:
        few = slice(n_sl - from_target, n_sl)
        source += labelled(y_sl[few], z_w[few], z_s[few], source_loss)
    target = guessed(guess, z_tu[n_tu:])
    return Result(source + warm_up(progress) * target, source, target, c_tau, guess, wanted, found)


def shares(guess: Guess, y: Array) -> Array:
    """Of all images, the part that is trusted to be of each class."""
    return np.array([sum(t and c == j for c, t in zip(*guess, strict=True)) / len(y) for j in range(y.shape[1])])


def by_class(guess: Guess, y: Array, c_tau: float, passes: list[Array], window: int) -> Guess:
    """A threshold of its own for each class: lower, the fewer images pass the common one as it."""
    passes.append(shares(guess, y))
    passed = exponential_average(passes, 1 - 1 / window)
    most = max(max(passed), 1 - sum(passed), 1e-6)
    limits = [c_tau * (part / most) / (2 - part / most) for part in passed]
    return Guess(guess.classes, [bool(max(row) >= limits[c]) for c, row in zip(guess.classes, y, strict=True)])


def fixmatch(
    z_sl: Array,
    z_tu: Array,
    y_sl: Array,
    *,
    means_labels: list[Array],
    means_guesses: list[Array],
    tau: float = 0.9,
    align_to: str = "labels",
    alignment_decay: float = 0.999,
    alignment_window: int = 128,
    alignment_clip: float = 0.0,
    fade_out: bool = False,
    progress: float = 0.0,
    guess: Guess | None = None,
) -> Result:
    """FixMatch+ (or FixMatch, `align_to="none"`) from the logits of one joint forward: weak views, then strong ones."""
    n_sl, n_tu = len(y_sl), len(z_tu) // 2
    z_w = np.concatenate([z_sl[:n_sl], z_tu[:n_tu]])
    z_s = np.concatenate([z_sl[n_sl:], z_tu[n_tu:]])
    y_w = softmax(z_w)
    means_labels.append(y_sl.mean(0))
    means_guesses.append(y_w.mean(0))
    wanted, found = exponential_average(means_labels, alignment_decay), window_average(means_guesses, alignment_window)
    y_tilde = (
        y_w if align_to == "none" else align(y_w, wanted, found, let_go(progress) if fade_out else 1.0, alignment_clip)
    )
    guess = guess or guess_labels(y_tilde, tau)
    source = float(cross_entropy(y_sl, z_sl[:n_sl]).mean())
    target = guessed(guess, z_s)
    return Result(source + target, source, target, tau, guess, wanted, found)


def discrepancy(z1: Array, z2: Array) -> float:
    """Mean over images and classes of |softmax(z1) - softmax(z2)|."""
    return float(np.abs(softmax(z1) - softmax(z2)).mean())


def mcd_classify(y_sl: Array, z1_sl: Array, z2_sl: Array) -> float:
    return float(cross_entropy(y_sl, z1_sl).mean() + cross_entropy(y_sl, z2_sl).mean())


def mcd_disagree(y_sl: Array, z1_sl: Array, z2_sl: Array, z1_tu: Array, z2_tu: Array) -> float:
    return mcd_classify(y_sl, z1_sl, z2_sl) - discrepancy(z1_tu, z2_tu)
