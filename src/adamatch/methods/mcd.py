"""MCD: maximum classifier discrepancy (Saito et al., CVPR 2018, section 3.3), three updates a step."""

import torch
from torch import Tensor, nn

from adamatch.base.errors import InputError
from adamatch.methods import parts
from adamatch.methods.contract import Batch, Method, Metrics, Pass, Phase
from adamatch.networks.norm import unrecorded


class MCD(Method):
    """Two heads learn to disagree on target images, the features to make them agree again; weak views only.

    Head 1 is the network's own and predicts; head 2 lives here. Source and target images never share batch-norm
    statistics. Every image is recorded once a step: source images in `classify`, target images in `agree`, none in
    `disagree`, after which the authors' code puts the statistics back.
    """

    weight_decay = False  # as in the authors' code

    def __init__(self, classes: int, features: int) -> None:
        super().__init__()
        self.classes = classes
        self.head = nn.Linear(features, classes)
        nn.init.xavier_normal_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.phases = [Phase(self.classify, "all"), Phase(self.disagree, "heads"), Phase(self.agree, "features")]

    @classmethod
    def passes(cls, labelled: int, unlabelled: int) -> list[Pass]:
        """One view: labelled images classify, all (forwards only) let the heads disagree, unlabelled ones agree."""
        apart = [Pass(labelled, trained=False), Pass(unlabelled, trained=False)]
        return [Pass(labelled), *apart, Pass(unlabelled)]

    def classify(self, net: nn.Module, batch: Batch) -> tuple[Tensor, Metrics]:
        """Step A: features and both heads learn the source labels."""
        loss = cross_entropies(batch.y_sl, self.both(net, features(net, batch.x_sl_w)))
        return loss, {"loss_source": loss.detach()}

    def disagree(self, net: nn.Module, batch: Batch) -> tuple[Tensor, Metrics]:
        """Step B: the heads part on target images, and stay right on source images."""
        with unrecorded(net), torch.no_grad():  # only the heads are trained
            h_sl, h_tu = features(net, batch.x_sl_w), features(net, batch.x_tu_w)
        distance = discrepancy(*self.both(net, h_tu))
        return cross_entropies(batch.y_sl, self.both(net, h_sl)) - distance, {"discrepancy": distance.detach()}

    def agree(self, net: nn.Module, batch: Batch) -> tuple[Tensor, Metrics]:
        """Step C: the features bring the heads together on target images; once a step, as the paper's runs had it."""
        distance = discrepancy(*self.both(net, features(net, batch.x_tu_w)))
        return distance, {"loss_target": distance.detach()}

    def both(self, net: nn.Module, h: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of the two heads on features h [n, d]."""
        return parts.precise(head(net)(h)), parts.precise(self.head(h))


def cross_entropies(y: Tensor, z: tuple[Tensor, Tensor]) -> Tensor:
    return parts.labelled_mean(y, z[0]) + parts.labelled_mean(y, z[1])


def discrepancy(z1: Tensor, z2: Tensor) -> Tensor:
    """L1 distance of the two softmaxes, mean over images and classes (as both papers' code has it)."""
    return (z1.softmax(1) - z2.softmax(1)).abs().mean()


def features(net: nn.Module, x: Tensor) -> Tensor:
    compute = getattr(net, "features", None)
    if not callable(compute):
        raise InputError(
            f"mcd needs a network with features(x); {type(net).__name__} has none: add it or choose another method"
        )
    h: Tensor = compute(x)
    return h


def head(net: nn.Module) -> nn.Linear:
    linear = getattr(net, "head", None)
    if not isinstance(linear, nn.Linear):
        raise InputError(f"mcd needs a network whose head is an nn.Linear called `head`; {type(net).__name__} has none")
    return linear
