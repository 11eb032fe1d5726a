"""Accuracy without labels from how far networks, or views of one, can disagree. Such estimates are rather too low.

Each takes the evidence of a run and gives the accuracy on the target of its last evaluation, 0 to 1, or None where the
evidence has not what it needs.
"""

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, softplus

from adamatch.verdict.calibrated import Rows, entropy
from adamatch.verdict.evidence import SMALLEST, Evidence, accuracy, guesses

LOOK_BACK = 0.25  # the earlier evaluations that are asked: those after so much of the run
CRITICS = 5
CRITIC_STEPS = 100
CRITIC_RATE = 0.05
FAVOUR = 2.0  # what is added to the logit of a class


def agreement(a: Rows, b: Rows) -> float:
    """The part of the images [n] that two networks take for the same class."""
    return float((guesses(a) == guesses(b)).mean())


def twin(evidence: Evidence) -> float | None:
    """Right no more often than the twin, which saw no target image, says the same."""
    return None if evidence.twin is None else agreement(evidence.last, evidence.twin.last)


def twin_and_source(evidence: Evidence) -> float | None:
    """The same, less what is wrong even on held-out source images."""
    if evidence.twin is None or not len(evidence.held):
        return None
    return agreement(evidence.last, evidence.twin.last) * accuracy(evidence.source[-1], evidence.held)


def earlier(evidence: Evidence) -> float | None:
    """How far the last evaluation agrees with the earlier ones on average, from a quarter of the run on."""
    first = int(len(evidence.steps) * LOOK_BACK)
    before = evidence.target[first:-1]
    return None if not len(before) else float(np.mean([agreement(each, evidence.last) for each in before]))


def steady(evidence: Evidence) -> float | None:
    """The part of the images that the last evaluation and all earlier ones, from a quarter of the run on, agree on."""
    said = guesses(evidence.target[int(len(evidence.steps) * LOOK_BACK) :])
    return None if len(said) < 2 else float((said == said[-1]).all(0).mean())


def critic(evidence: Evidence) -> float | None:
    """Source accuracy, less how much more a linear critic of the outputs can disagree on target than on source images.

    Disagreement discrepancy (DIS2: Rosenfeld and Garg, NeurIPS 2023), with logits as features and without its term for the
    number of images: a critic as good as the best on the source would have to be right for the network to be worse.
    """
    if not len(evidence.held):
        return None
    source, target = evidence.source[-1], evidence.last
    return float(np.clip(accuracy(source, evidence.held) - discrepancy(source, target), 0, 1))


def critic_of_twin(evidence: Evidence) -> float | None:
    """The same, where the critic sees the twin's outputs as well."""
    if evidence.twin is None or not len(evidence.held):
        return None
    source, target = (
        np.concatenate([of_run, of_twin], 1)
        for of_run, of_twin in ((evidence.source[-1], evidence.twin.source[-1]), (evidence.last, evidence.twin.last))
    )
    wrong_more = discrepancy(source, target, evidence.target.shape[2])
    return float(np.clip(accuracy(evidence.source[-1], evidence.held) - wrong_more, 0, 1))


def unsure(evidence: Evidence) -> float | None:
    """Source accuracy, less how much more often target than source images lie below any one level of sureness.

    That is the critic who takes exactly the unsure images for something else, at the level where it hurts most: the largest
    distance of two distributions (Kolmogorov and Smirnov), here of entropies.
    """
    if not len(evidence.held):
        return None
    sure, target = np.sort(-entropy(evidence.source[-1])), np.sort(-entropy(evidence.last))
    levels = np.concatenate([sure, target])
    below = [np.searchsorted(each, levels, side="right") / len(each) for each in (target, sure)]
    return float(np.clip(accuracy(evidence.source[-1], evidence.held) - max(0.0, (below[0] - below[1]).max()), 0, 1))


def discrepancy(source: Rows, target: Rows, classes: int | None = None) -> float:
    """The most, over critics met in training, of disagreement on target less that on source images; never less than 0.

    The first `classes` columns are what the critic is to disagree with; it sees all columns. One critic begins in agreement
    with the network, others favour one class each, of those that are named most: the loss alone would not choose between them.
    """
    classes = classes or source.shape[1]
    z_s, z_t = _logits(source), _logits(target)
    y_t = z_t[:, :classes].argmax(1)
    named = torch.bincount(y_t, minlength=classes).argsort(descending=True, stable=True)[: CRITICS - 1]
    favours = [
        torch.zeros(classes, dtype=z_s.dtype),
        *(FAVOUR * torch.eye(classes, dtype=z_s.dtype)[one] for one in named),
    ]
    return max(_trained_critic(z_s, z_t, favour) for favour in favours)


def _trained_critic(z_s: Tensor, z_t: Tensor, favour: Tensor) -> float:
    """Gradient descent from the network itself, with `favour` [k] added to its logits; z [n, c] of source and target."""
    classes = len(favour)
    y_s, y_t = z_s[:, :classes].argmax(1), z_t[:, :classes].argmax(1)
    correction = min(
        1, len(z_s) - 1
    )  # one image has no spread, not an unknown one: a critic of nan would never disagree
    centre, spread = z_s.mean(0), z_s.std(0, correction=correction).clamp_min(1e-3)
    x_s, x_t = (z_s - centre) / spread, (z_t - centre) / spread
    weight = torch.zeros(classes, z_s.shape[1], dtype=z_s.dtype)
    weight[:, :classes] = torch.diag(spread[:classes])
    bias = centre[:classes] + favour
    weight, bias = (each.requires_grad_() for each in (weight, bias))
    optimiser = torch.optim.Adam([weight, bias], lr=CRITIC_RATE)
    most = 0.0
    for _ in range(CRITIC_STEPS):
        on_s, on_t = x_s @ weight.T + bias, x_t @ weight.T + bias
        found = float((on_t.argmax(1) != y_t).double().mean() - (on_s.argmax(1) != y_s).double().mean())
        most = max(most, found)
        optimiser.zero_grad()
        (cross_entropy(on_s, y_s) + disagreement_loss(on_t, y_t)).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return most


def disagreement_loss(z: Tensor, y: Tensor) -> Tensor:
    """Falls as logits z [n, k] of other classes than y [n] rise above that of y; eq. (7) of DIS2."""
    own = z.gather(1, y[:, None])[:, 0]
    others = (z.sum(1) - own) / (z.shape[1] - 1)
    loss: Tensor = softplus(own - others).mean() / math.log(2)
    return loss


def _logits(probabilities: Rows) -> Tensor:
    return torch.from_numpy(np.log(np.maximum(probabilities.astype(np.float64), SMALLEST)))
