"""Networks by name."""

from collections.abc import Callable
from functools import partial

from torch import nn

from adamatch.base.errors import unknown
from adamatch.networks.average import WeightAverage
from adamatch.networks.efficientnet_lite import EfficientNetLite
from adamatch.networks.pretrained import TIMM, Timm
from adamatch.networks.resnetv2 import ResNetV2
from adamatch.networks.wideresnet import WideResNet

__all__ = ["NETWORKS", "EfficientNetLite", "ResNetV2", "WeightAverage", "WideResNet", "build"]

NETWORKS: dict[str, Callable[[int], nn.Module]] = {
    "wrn-28-2": partial(WideResNet, widths=(32, 64, 128), blocks=4),  # 32 x 32
    "wrn-34-2": partial(WideResNet, widths=(32, 64, 128, 256), blocks=4),  # 64 x 64
    "resnetv2-101": partial(ResNetV2, blocks=(3, 4, 23, 3)),  # 224 x 224
    "resnetv2-50": partial(ResNetV2, blocks=(3, 4, 6, 3)),
    "efficientnet-lite0": EfficientNetLite,  # 224 x 224, photographs, from ImageNet's weights
    "efficientnet-lite1": partial(EfficientNetLite, depth=1.1),
    "efficientnet-lite2": partial(EfficientNetLite, width=1.1, depth=1.2),
    "wrn-tiny": partial(WideResNet, widths=(8, 16, 32), blocks=1, stem=8),  # for the demonstration: 8 x 8 on a CPU
    "wrn-small": partial(WideResNet, widths=(16, 32, 64), blocks=1),  # for CPUs
}


def build(name: str, classes: int) -> nn.Module:
    """A freshly initialised network: one of ours, or timm:NAME."""
    if name.startswith(TIMM):
        return Timm(name, classes)
    if name not in NETWORKS:
        raise unknown("network", name, [*NETWORKS, "timm:NAME"])
    return NETWORKS[name](classes)
