"""Accuracy without labels, from how far other networks disagree with this one. Such estimates are rather too low.

Each takes the outputs of a run and gives the accuracy on the target at its last evaluation, 0 to 1, or None where the
outputs do not have what it needs.
"""

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, softplus

from adamatch.verdict.eval_outputs import SMALLEST, EvalOutputs, Probabilities, accuracy, predictions

CRITICS = 5
CRITIC_STEPS = 100
CRITIC_RATE = 0.05
FAVOUR = 2.0  # what is added to the logit of a class


def agreement(a: Probabilities, b: Probabilities) -> float:
    """The fraction of images [n] on which two networks agree."""
    return float((predictions(a) == predictions(b)).mean())


def twin_and_source(outputs: EvalOutputs) -> float | None:
    """Agreement with the twin, which saw no target image, times accuracy on held-out source images."""
    if outputs.twin is None or not len(outputs.source_labels):
        return None
    return agreement(outputs.last, outputs.twin.last) * accuracy(outputs.source[-1], outputs.source_labels)


def critic(outputs: EvalOutputs) -> float | None:
    """Source accuracy, less how much more a linear critic of the outputs can disagree on target than on source images.

    Disagreement discrepancy (DIS2: Rosenfeld and Garg, NeurIPS 2023), with logits as features and without its term for
    the number of images: a critic as good as the best on the source would have to be right for the network to be worse.
    """
    if not len(outputs.source_labels):
        return None
    source = outputs.source[-1]
    return float(np.clip(accuracy(source, outputs.source_labels) - discrepancy(source, outputs.last), 0, 1))


def discrepancy(source: Probabilities, target: Probabilities) -> float:
    """The most, over critics met in training, of disagreement on target less that on source images; never less than 0.

    One critic begins in agreement with the network, others favour one class each, of those that are predicted most: the
    loss alone would not choose between them.
    """
    z_s, z_t = _logits(source), _logits(target)
    classes = z_s.shape[1]
    frequent = torch.bincount(z_t.argmax(1), minlength=classes).argsort(descending=True, stable=True)[: CRITICS - 1]
    favours = [torch.zeros_like(z_s[0]), *(FAVOUR * torch.eye(classes, dtype=z_s.dtype)[frequent])]
    return max(_trained_critic(z_s, z_t, favour) for favour in favours)


def _trained_critic(z_s: Tensor, z_t: Tensor, favour: Tensor) -> float:
    """Gradient descent from the network itself, with `favour` [k] added to its logits; z are logits [n, k]."""
    y_s, y_t = z_s.argmax(1), z_t.argmax(1)
    # The standard deviation of one image is 0 here, not nan: a critic of nan would never disagree.
    centre, scale = z_s.mean(0), z_s.std(0, correction=min(1, len(z_s) - 1)).clamp_min(1e-3)
    x_s, x_t = (z_s - centre) / scale, (z_t - centre) / scale
    weight, bias = torch.diag(scale).requires_grad_(), (centre + favour).requires_grad_()
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


def _logits(probabilities: Probabilities) -> Tensor:
    return torch.from_numpy(np.log(np.maximum(probabilities.astype(np.float64), SMALLEST)))
