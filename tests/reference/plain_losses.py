"""The methods' losses in float64, for autograd: each a function of a net and of what a step shows it."""

import math
from dataclasses import dataclass, field

import torch
from reference.plain_net import Net
from torch import Tensor

SOURCE_DECAY, TARGET_BATCHES, TINY = 0.999, 128, 1e-6


@dataclass
class Shown:
    """A step's input to a method: two views of labelled and of unlabelled images, labels, factors of interpolation."""

    x_sl_w: Tensor
    x_sl_s: Tensor
    y_sl: Tensor
    x_tu_w: Tensor
    x_tu_s: Tensor
    progress: float
    lam: Tensor


@dataclass
class Memory:
    """Class averages over a run: an exponential one, and the last batch means (those before the first are even)."""

    wanted: Tensor
    found: list[Tensor] = field(default_factory=list)

    @classmethod
    def even(cls, classes: int) -> "Memory":
        return cls(torch.full((classes,), 1 / classes, dtype=torch.float64))

    def add(self, wanted: Tensor, found: Tensor) -> tuple[Tensor, Tensor]:
        """Take one batch's means in; the averages, this batch included."""
        self.wanted = SOURCE_DECAY * self.wanted + (1 - SOURCE_DECAY) * wanted
        self.found = [*self.found, found][-TARGET_BATCHES:]
        missing = TARGET_BATCHES - len(self.found)
        return self.wanted, (torch.stack(self.found).sum(0) + missing / len(wanted)) / TARGET_BATCHES


def probabilities(z: Tensor) -> Tensor:
    powers = torch.exp(z - z.max(1, keepdim=True).values)
    return powers / powers.sum(1, keepdim=True)


def cross_entropy(y: Tensor, z: Tensor) -> Tensor:
    top = z.max(1, keepdim=True).values.detach()
    log_sum = top + torch.log(torch.exp(z - top).sum(1, keepdim=True))
    return (y * (log_sum - z)).sum(1)


def of_labelled(values: Tensor, y: Tensor) -> Tensor:
    """The mean over images that have a label: rows of zeros are images whose label does not count yet."""
    return values[y.sum(1) > 0].mean(0)


def aligned(y: Tensor, wanted: Tensor, found: Tensor, strength: float = 1.0) -> Tensor:
    scaled = y * ((wanted + TINY) / (found + TINY)) ** strength
    return scaled / scaled.sum(1, keepdim=True)


def guessed(y: Tensor, threshold: float, z: Tensor) -> Tensor:
    """The loss of logits z with the argmax of y as labels, over all rows; rows below the threshold count as 0."""
    total = torch.zeros((), dtype=z.dtype)
    for row, logits in zip(y, z, strict=True):
        if float(row.max()) >= threshold:
            total = total + cross_entropy(torch.eye(len(row), dtype=z.dtype)[row.argmax()][None], logits[None])[0]
    return total / len(y)


def adamatch(net: Net, shown: Shown, memory: Memory, *, tau: float, batch: int, release: bool = False) -> Tensor:
    """Section 3. `batch`: labelled images of one pool in a step; images of all pools have the same weight."""
    x_sl, x_tu = torch.cat([shown.x_sl_w, shown.x_sl_s]), torch.cat([shown.x_tu_w, shown.x_tu_s])
    joint = net.logits(torch.cat([x_sl, x_tu]), training=True, record=True)
    alone = net.logits(x_sl, training=True)
    z_sl = alone + shown.lam * (joint[: len(x_sl)] - alone)
    n_sl, n_tu = len(shown.x_sl_w), len(shown.x_tu_w)
    z_tu_w, z_tu_s = joint[len(x_sl) : len(x_sl) + n_tu], joint[len(x_sl) + n_tu :]
    with torch.no_grad():
        y_sl, y_tu = probabilities(z_sl[:n_sl]), probabilities(z_tu_w)
        wanted, found = memory.add(y_sl.mean(0), y_tu.mean(0))
        late = max(0.0, 2 * shown.progress - 1)
        strength = (1 + math.cos(math.pi * late)) / 2 if release else 1.0
        y_tilde = aligned(y_tu, wanted, found, strength)
        threshold = tau * float(y_sl.max(1).values.mean())
    of_views = cross_entropy(shown.y_sl, z_sl[:n_sl]) + cross_entropy(shown.y_sl, z_sl[n_sl:])
    mu = (1 - math.cos(math.pi * min(1.0, 2 * shown.progress))) / 2
    return 0.5 * of_views.sum() / batch + mu * guessed(y_tilde, threshold, z_tu_s)


def fixmatch(net: Net, shown: Shown, memory: Memory, *, tau: float) -> Tensor:
    """FixMatch+: one forward; pseudo-labels for labelled and unlabelled images, aligned to the labels' frequency."""
    n_sl, n_tu = len(shown.x_sl_w), len(shown.x_tu_w)
    z = net.logits(torch.cat([shown.x_sl_w, shown.x_tu_w, shown.x_sl_s, shown.x_tu_s]), training=True, record=True)
    z_w, z_s = z[: n_sl + n_tu], z[n_sl + n_tu :]
    with torch.no_grad():
        y = probabilities(z_w)
        y_tilde = aligned(y, *memory.add(of_labelled(shown.y_sl, shown.y_sl), y.mean(0)))
    return of_labelled(cross_entropy(shown.y_sl, z_w[:n_sl]), shown.y_sl) + guessed(y_tilde, tau, z_s)


def supervised(net: Net, shown: Shown) -> Tensor:
    """Both views of labelled images, halved: of source-only, the Oracle, NoisyStudent's teachers and students."""
    return both_views(net, shown, [shown.x_sl_w, shown.x_sl_s])


def baseline_bn(net: Net, shown: Shown) -> Tensor:
    """Appendix B: the same, with unlabelled images in the batch."""
    return both_views(net, shown, [shown.x_sl_w, shown.x_sl_s, shown.x_tu_w, shown.x_tu_s])


def both_views(net: Net, shown: Shown, images: list[Tensor]) -> Tensor:
    z, n = net.logits(torch.cat(images), training=True, record=True), len(shown.y_sl)
    weak, strong = cross_entropy(shown.y_sl, z[:n]), cross_entropy(shown.y_sl, z[n : 2 * n])
    return (of_labelled(weak, shown.y_sl) + of_labelled(strong, shown.y_sl)) / 2


def classify(net: Net, shown: Shown) -> Tensor:
    """MCD, step A: both heads on weak labelled images."""
    return right(net, net.features(shown.x_sl_w, training=True, record=True), shown.y_sl)


def disagree(net: Net, shown: Shown) -> Tensor:
    """Step B: as right as before, and as far apart as can be on weak unlabelled images. Nothing is recorded."""
    h_sl, h_tu = net.features(shown.x_sl_w, training=True), net.features(shown.x_tu_w, training=True)
    return right(net, h_sl, shown.y_sl) - apart(net, h_tu)


def agree(net: Net, shown: Shown) -> Tensor:
    """Step C: together again."""
    return apart(net, net.features(shown.x_tu_w, training=True, record=True))


def right(net: Net, h: Tensor, y: Tensor) -> Tensor:
    return of_labelled(cross_entropy(y, net.head(h)), y) + of_labelled(cross_entropy(y, net.head(h, "second")), y)


def apart(net: Net, h: Tensor) -> Tensor:
    return (probabilities(net.head(h)) - probabilities(net.head(h, "second"))).abs().mean()
