"""A network in two parts: frozen lower blocks, computed once, and the rest, which is trained."""

import torch
from torch import Tensor, channels_last, nn, rsqrt
from torch.nn.functional import hardtanh_

from adamatch.base.cli_names import argument
from adamatch.base.errors import InputError
from adamatch.networks.conv import Classifier, same_conv2d
from adamatch.networks.efficientnet_lite import SHIFT, EfficientNetLite
from adamatch.networks.norm import BatchNorm


class Upper(Classifier):
    """The network from the block after the `frozen` ones on: what is trained.

    It holds the network whole, so that what is averaged, saved and opened again is the network itself.
    """

    def __init__(self, net: nn.Module, frozen: int) -> None:
        super().__init__()
        if not isinstance(net, EfficientNetLite):
            raise InputError(f"only an EfficientNet-Lite can be frozen in part: choose one, or {argument('frozen', 0)}")
        if frozen > len(net.in_order):
            raise InputError(f"this EfficientNet-Lite has {len(net.in_order)} blocks: {frozen} cannot be frozen")
        self.net, self.frozen = net, frozen
        for part in (net.conv_stem, net.bn1, *net.in_order[:frozen]):
            part.requires_grad_(False)

    @property
    def head(self) -> nn.Linear:  # type: ignore[override]  # that of the whole network
        return self.net.head

    def features(self, x: Tensor, groups: tuple[int, ...] | None = None) -> Tensor:
        """What the frozen blocks give, [N, C, H, W] -> [N, 1280]."""
        return self.net.above(x, groups, self.frozen)


class Lower(nn.Module):
    """Stem and `frozen` blocks, in evaluation mode: images [N, 3, H, W] -> [N, C, h, w]."""

    def __init__(self, net: EfficientNetLite, frozen: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(Folded(net.conv_stem, net.bn1), *map(FoldedBlock, net.in_order[:frozen]))
        self.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x + SHIFT)
        return y


class Whole(Classifier):
    """A network with all its blocks as `Lower` has them: the same predictions of images, sooner on a CPU."""

    def __init__(self, net: EfficientNetLite) -> None:
        super().__init__()
        self.net, self.lower, self.head = net, Lower(net, len(net.in_order)), net.head

    def features(self, x: Tensor, groups: tuple[int, ...] | None = None) -> Tensor:
        """[N, 3, H, W] -> [N, 1280]."""
        lower: Tensor = self.lower(x.contiguous(memory_format=channels_last))
        return self.net.above(lower, groups, len(self.net.in_order))


def sooner(net: nn.Module, device: torch.device) -> nn.Module:
    """The network for predictions: on a CPU an EfficientNet-Lite takes half the time with its norms folded."""
    return Whole(net).eval() if isinstance(net, EfficientNetLite) and device.type == "cpu" else net


class Folded(nn.Module):
    """A convolution and the batch norm after it as one convolution: less than half the time on a CPU."""

    def __init__(self, conv: nn.Conv2d, norm: BatchNorm) -> None:
        super().__init__()
        assert norm.running_mean is not None
        assert norm.running_var is not None
        scale = norm.weight * rsqrt(norm.running_var + norm.eps)
        self.weight = nn.Parameter((conv.weight * scale[:, None, None, None]).detach())
        self.bias = nn.Parameter((norm.bias - norm.running_mean * scale).detach())
        self.stride, self.groups = conv.stride[0], conv.groups
        self.ceiling = norm.ceiling if norm.slope == 0.0 else None  # None: nothing is cut off

    def forward(self, x: Tensor) -> Tensor:
        y = same_conv2d(x, self.weight, self.bias, self.stride, self.groups)
        return y if self.ceiling is None else hardtanh_(y, 0.0, self.ceiling)


class FoldedBlock(nn.Module):
    """A block of an EfficientNet-Lite, whose convolutions and norms take turns."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        layers = list(block.children())
        self.layers = nn.Sequential(*map(Folded, layers[::2], layers[1::2]))  # type: ignore[arg-type]
        self.skips = getattr(block, "skips", False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return y.add_(x) if self.skips else y
