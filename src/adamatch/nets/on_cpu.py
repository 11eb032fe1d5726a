"""Convolutions in training on a CPU: PyTorch's gradients of two kinds are several times as slow as they need to be there.

On two Neoverse-N1 cores a step of EfficientNet-Lite0's last scale takes a third of the time so.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import conv2d, linear, pad


def trains(x: Tensor, weight: Tensor) -> bool:
    """Whether there will be gradients, on a CPU, in one precision."""
    if x.device.type != "cpu" or x.dtype != weight.dtype or torch.is_autocast_enabled("cpu"):
        return False
    return torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)


def pointwise(x: Tensor, weight: Tensor) -> Tensor:
    """A 1x1 convolution of x [N, C, H, W] as a product of matrices."""
    return linear(x.permute(0, 2, 3, 1), weight.flatten(1)).permute(0, 3, 1, 2)


def depthwise(x: Tensor, weight: Tensor) -> Tensor:
    """Every channel of x [N, C, H, W] by itself with weight [C, 1, k, k], k odd; the shape stays."""
    y: Tensor = _Depthwise.apply(x, weight)  # type: ignore[no-untyped-call]
    return y


class _Depthwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _convolved(x, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        of_x = _convolved(gradient, weight.flip(2, 3)) if ctx.needs_input_grad[0] else None
        return of_x, _of_weight(x, gradient, weight.shape[-1]) if ctx.needs_input_grad[1] else None


def _convolved(x: Tensor, weight: Tensor) -> Tensor:
    return conv2d(x, weight, None, 1, weight.shape[-1] // 2, 1, len(weight))


def _of_weight(x: Tensor, gradient: Tensor, size: int) -> Tensor:
    """[C, 1, size, size]: for each place of the kernel, the product of the output's gradient and the input below it."""
    (height, width), edge = x.shape[2:], size // 2
    g = gradient.permute(0, 2, 3, 1)
    padded = pad(x.permute(0, 2, 3, 1), (0, 0, edge, edge, edge, edge))
    found = [(padded[:, a : a + height, b : b + width] * g).sum((0, 1, 2)) for a in range(size) for b in range(size)]
    return torch.stack(found, 1).reshape(-1, 1, size, size)
