"""Convolutions without bias, with kernels where they are faster; initialisation; what all networks share."""

import math
from collections.abc import Iterable

from torch import Tensor, nn
from torch.nn.functional import conv2d, pad

from adamatch.kernels import conv_ops, depthwise_ops
from adamatch.networks import on_cpu


class Conv(nn.Conv2d):
    def __init__(self, channels_in: int, channels_out: int, size: int, *, stride: int = 1) -> None:
        super().__init__(channels_in, channels_out, size, stride=stride, padding=size // 2, bias=False)
        self.fused = True

    def forward(self, x: Tensor) -> Tensor:
        if self.fused and self.kernel_size == (3, 3) and self.stride == (1, 1) and conv_ops.runs_on(x, self.weight):
            return conv_ops.conv3x3(x, self.weight.to(x.dtype))  # type: ignore[no-any-return]
        if self.fused and self.kernel_size == (1, 1) and self.stride == (1, 1) and on_cpu.trains(x, self.weight):
            return on_cpu.pointwise(x, self.weight)
        return super().forward(x)


class Strided(nn.Conv2d):
    """Padded as TensorFlow's "same": what does not divide evenly goes to the right and the bottom."""

    def __init__(self, channels_in: int, channels_out: int, size: int, *, stride: int, groups: int = 1) -> None:
        super().__init__(channels_in, channels_out, size, stride=stride, groups=groups, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return same_conv2d(x, self.weight, None, self.stride[0], self.groups)


class Depthwise(Strided):
    """Every channel by itself: Triton kernels where they can run, plain PyTorch elsewhere."""

    def __init__(self, channels: int, size: int, *, stride: int = 1) -> None:
        super().__init__(channels, channels, size, stride=stride, groups=channels)
        self.fused = True

    def forward(self, x: Tensor) -> Tensor:
        size, stride = self.kernel_size[0], self.stride[0]
        vertical, horizontal = (same_padding(side, size, stride) for side in x.shape[2:])
        if self.fused and depthwise_ops.runs_on(x, self.weight, stride):
            return depthwise_ops.depthwise(x, self.weight, stride, [vertical[0], horizontal[0]])  # type: ignore[no-any-return]
        if self.fused and on_cpu.trains(x, self.weight):
            return on_cpu.depthwise(x, self.weight, stride, vertical, horizontal)
        return super().forward(x)


class Classifier(nn.Module):
    """A network of `features` and a linear `head`. Images of different `groups` have batch statistics of their own."""

    takes_groups = True
    head: nn.Linear

    def features(self, x: Tensor, groups: tuple[int, ...] | None = None) -> Tensor:
        """x [N, 3, H, W] -> [N, d]."""
        raise NotImplementedError

    def forward(self, x: Tensor, groups: tuple[int, ...] | None = None) -> Tensor:
        """x [N, 3, H, W] -> logits [N, classes]."""
        logits: Tensor = self.head(self.features(x, groups))
        return logits


def residual(
    blocks: Iterable[nn.Module], norms: Iterable[nn.Module], x: Tensor, active: Tensor, groups: tuple[int, ...] | None
) -> Tensor:
    """Pre-activation blocks, then the mean over pixels: x is the stream, `active` its normalised activation.

    A block gives a skip and what is added to it; the norm after it takes both.
    """
    for block, norm in zip(blocks, norms, strict=True):
        x, active = norm.add(*block(x, active, groups), groups)  # type: ignore[operator]
    return active.mean((2, 3))


def same_conv2d(x: Tensor, weight: Tensor, bias: Tensor | None, stride: int, groups: int) -> Tensor:
    vertical, horizontal = (same_padding(side, weight.shape[-1], stride) for side in x.shape[2:])
    if vertical == horizontal and vertical[0] == vertical[1]:
        return conv2d(x, weight, bias, stride, vertical[0], 1, groups)
    return conv2d(pad(x, (*horizontal, *vertical)), weight, bias, stride, 0, 1, groups)


def same_padding(side: int, size: int, stride: int) -> tuple[int, int]:
    """Pixels before and after a line of `side`, so that ceil(side / stride) are left."""
    total = max(0, (-(-side // stride) - 1) * stride + size - side)
    return total // 2, total - total // 2


def initialise(net: nn.Module, head: nn.Linear) -> None:
    """As in the authors' code: convolutions from N(0, sqrt(2 / (k * k * out))), the last layer from Xavier's."""
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.normal_(module.weight, std=math.sqrt(2 / (module.kernel_size[0] ** 2 * module.out_channels)))
    nn.init.xavier_normal_(head.weight)
    nn.init.zeros_(head.bias)
