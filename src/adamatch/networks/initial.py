"""How the authors' networks start."""

import math

from torch import nn


def initialise(net: nn.Module, head: nn.Linear) -> None:
    """Convolutions from N(0, sqrt(2 / (k * k * out))), the last layer from Xavier's normal distribution, its bias zero."""
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.normal_(module.weight, std=math.sqrt(2 / (module.kernel_size[0] ** 2 * module.out_channels)))
    nn.init.xavier_normal_(head.weight)
    nn.init.zeros_(head.bias)
