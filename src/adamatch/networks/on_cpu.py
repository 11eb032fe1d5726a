"""Convolutions for training on a CPU, where PyTorch's gradients of two kinds are slow.

On two Neoverse-N1 cores a step of EfficientNet-Lite0's last scale takes a third of the time with these.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import conv2d, linear, pad

Padding = tuple[int, int]  # pixels before and after


def trains(x: Tensor, weight: Tensor) -> bool:
    """Whether there will be gradients, on a CPU, in one precision."""
    if x.device.type != "cpu" or x.dtype != weight.dtype or torch.is_autocast_enabled("cpu"):
        return False
    return torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)


def pointwise(x: Tensor, weight: Tensor) -> Tensor:
    """A 1x1 convolution of x [N, C, H, W] as a product of matrices."""
    return linear(x.permute(0, 2, 3, 1), weight.flatten(1)).permute(0, 3, 1, 2)


def depthwise(x: Tensor, weight: Tensor, stride: int, vertical: Padding, horizontal: Padding) -> Tensor:
    """Every channel of x [N, C, H, W], padded so, by itself with weight [C, 1, k, k]."""
    y: Tensor = _Depthwise.apply(x, weight, stride, vertical, horizontal)  # type: ignore[no-untyped-call]
    return y


class _Depthwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: int, vertical: Padding, horizontal: Padding) -> Tensor:
        padded = pad(x, (*horizontal, *vertical))
        ctx.save_for_backward(padded, weight)
        ctx.stride, ctx.sides, ctx.before = stride, x.shape[2:], (vertical[0], horizontal[0])
        return conv2d(padded, weight, None, stride, 0, 1, len(weight))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        padded, weight = ctx.saved_tensors
        of_x = _of_input(gradient, weight, ctx.stride, ctx.sides, ctx.before) if ctx.needs_input_grad[0] else None
        of_weight = _of_weight(padded, gradient, weight.shape[-1], ctx.stride) if ctx.needs_input_grad[1] else None
        return of_x, of_weight, None, None, None


def _of_input(gradient: Tensor, weight: Tensor, stride: int, sides: Sequence[int], before: Sequence[int]) -> Tensor:
    """[N, C, *sides]: the gradient, with zeros between its pixels, convolved with the weight turned by 180 degrees."""
    n, channels, height, width = gradient.shape
    edge = weight.shape[-1] - 1
    spread = gradient.new_zeros(n, sides[0] + edge, sides[1] + edge, channels)
    lines, columns = (
        slice(edge - first, edge - first + stride * count, stride)
        for first, count in zip(before, (height, width), strict=True)
    )
    spread[:, lines, columns] = gradient.permute(0, 2, 3, 1)
    return conv2d(spread.permute(0, 3, 1, 2), weight.flip(2, 3), None, 1, 0, 1, channels)


def _of_weight(padded: Tensor, gradient: Tensor, size: int, stride: int) -> Tensor:
    """[C, 1, size, size]: for each place of the kernel, the product of the output's gradient and the input below it.

    Sums over pixels are products with ones, which take less time than `sum`.
    """
    x, g = padded.permute(0, 2, 3, 1), gradient.permute(0, 2, 3, 1)
    height, width = (stride * (count - 1) + 1 for count in g.shape[1:3])
    ones = g.new_ones(g.shape[:3].numel())
    found = [
        ones @ (x[:, a : a + height : stride, b : b + width : stride] * g).flatten(0, 2)
        for a in range(size)
        for b in range(size)
    ]
    return torch.stack(found, 1).reshape(-1, 1, size, size)
