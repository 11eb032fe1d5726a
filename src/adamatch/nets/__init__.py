"""Networks by name."""

from collections.abc import Callable
from functools import partial

from torch import nn

from adamatch.errors import unknown
from adamatch.nets.average import WeightAverage
from adamatch.nets.wideresnet import WideResNet

__all__ = ["NETWORKS", "WeightAverage", "WideResNet", "build"]

NETWORKS: dict[str, Callable[[int], nn.Module]] = {
    "wrn-28-2": partial(WideResNet, widths=(32, 64, 128), blocks=4),  # 32 x 32
    "wrn-34-2": partial(WideResNet, widths=(32, 64, 128, 256), blocks=4),  # 64 x 64
    "wrn-small": partial(WideResNet, widths=(16, 32, 64), blocks=1),  # for CPUs and demonstrations
}


def build(name: str, classes: int) -> nn.Module:
    """A freshly initialised network."""
    if name not in NETWORKS:
        raise unknown("network", name, NETWORKS)
    return NETWORKS[name](classes)
