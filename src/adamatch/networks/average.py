"""The exponential average of a network's weights and batch-norm statistics: what is evaluated and saved."""

import copy
from collections.abc import Iterable

import torch
from torch import Tensor, nn


class WeightAverage(nn.Module):
    """A copy of the network that follows it: average = decay * average + (1 - decay) * network, statistics included."""

    def __init__(self, net: nn.Module, decay: float = 0.999) -> None:
        super().__init__()
        self.net = copy.deepcopy(net).requires_grad_(False).eval()
        self.decay = decay
        state = self.net.state_dict()
        # Counters are copied; masks of attention, too, as the average of infinities would be NaN.
        self.copied = {name for name, each in state.items() if not each.is_floating_point() or each.isinf().any()}
        floating = {name: value for name, value in state.items() if name not in self.copied}
        # Tied weights have several names, and are averaged once.
        self.names = list({(value.data_ptr(), value.shape): name for name, value in floating.items()}.values())

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x)
        return logits

    @torch.no_grad()
    def update(self, net: nn.Module) -> None:
        mine, theirs = self.net.state_dict(), net.state_dict()
        torch._foreach_lerp_([mine[name] for name in self.names], [theirs[name] for name in self.names], 1 - self.decay)
        for name in self.copied:
            mine[name].copy_(theirs[name])

    def train(self, mode: bool = True) -> "WeightAverage":
        """Always in evaluation mode: its statistics are averages already."""
        return self


def mean_of(nets: Iterable[nn.Module]) -> nn.Module:
    """The mean of networks alike, each counting the same; they are looked at one after another."""
    several = iter(nets)
    average = WeightAverage(next(several))
    for count, net in enumerate(several, 2):
        average.decay = 1 - 1 / count
        average.update(net)
    return average.net
