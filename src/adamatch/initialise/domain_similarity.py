"""How similar two domains are in the features of a pre-trained network. Needs no labels."""

from collections.abc import Sequence

import torch
from torch import nn

from adamatch.images.store import Pixels
from adamatch.initialise import propagate
from adamatch.initialise.embed import Advance, features, unseen
from adamatch.kernels import runtime
from adamatch.networks.efficientnet_lite import EfficientNetLite
from adamatch.networks.frozen import Whole
from adamatch.train.speed import Machine

MOST = 500  # images of each domain that are looked at
ENOUGH = 0.025  # domains look alike from here on: results/office31.md


def likeness(
    net: nn.Module,
    source: Sequence[Pixels],
    target: Sequence[Pixels],
    machine: Machine,
    advance: Advance = unseen,
) -> float:
    """The part of neighbours from the other domain: 0.5 where both are one domain, 0 where they are far apart."""
    net = (Whole(net) if isinstance(net, EfficientNetLite) else net).to(machine.device).eval()
    with runtime.off(net):
        found = [features(net, parts, machine, MOST, advance=advance) for parts in (source, target)]
    count = min(map(len, found))  # as many of each
    x = torch.cat([each[torch.linspace(0, len(each) - 1, count).long()] for each in found])
    near = propagate.graph(x, nearest(count)).indices()
    return float(((near[0] < count) != (near[1] < count)).float().mean())


def nearest(count: int) -> int:
    """How many neighbours are looked at, of so many images of each domain: ten of 500 are near, ten of 50 are not."""
    return max(1, round(propagate.NEIGHBOURS * count / MOST))
