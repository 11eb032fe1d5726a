"""Depthwise convolutions by kernels as an operator of torch, with gradients. The plain version is in `networks.conv`.

Padding is TensorFlow's "same": ceil(side / stride) pixels come out; `before` pixels lie above and left of the image.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from adamatch.kernels import depthwise_kernels
from adamatch.kernels.runtime import has_kernels, operator

LAST = torch.channels_last


def runs_on(x: Tensor, weight: Tensor, stride: int) -> bool:
    narrow = x.dtype in (torch.bfloat16, torch.float16)
    return (
        stride in (1, 2)
        and has_kernels(x)
        and (narrow or (x.dtype == torch.float32 and not torch.is_autocast_enabled("cuda")))
        and x.is_contiguous(memory_format=LAST)
        and weight.shape[1:] in ((1, 3, 3), (1, 5, 5))
        and x.numel() < 2**31
    )


@operator("adamatch::depthwise")
def depthwise(x: Tensor, weight: Tensor, stride: int, before: list[int]) -> Tensor:
    """x [N,C,H,W], weight [C,1,K,K], which may be of another dtype; before: pixels of padding above and to the left."""
    shape = (*x.shape[:2], -(-x.shape[2] // stride), -(-x.shape[3] // stride))
    y = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=LAST)
    depthwise_kernels.convolve(x.contiguous(memory_format=LAST), _taps(weight), y, stride, before)
    return y


@operator("adamatch::depthwise_input_grad")
def _input_grad(dy: Tensor, x: Tensor, weight: Tensor, stride: int, before: list[int]) -> Tensor:
    dx = torch.empty_like(x, memory_format=LAST)
    depthwise_kernels.input_grad(dy.contiguous(memory_format=LAST), _taps(weight), dx, stride, before)
    return dx


@operator("adamatch::depthwise_weight_grad")
def _weight_grad(dy: Tensor, x: Tensor, weight: Tensor, stride: int, before: list[int]) -> Tensor:
    """PyTorch's: a kernel of our own saved 2 % of a step (results/kernels.json)."""
    size, padding = weight.shape[2], before
    outside = [(out - 1) * stride + size - side for out, side in zip(dy.shape[2:], x.shape[2:], strict=True)]
    after = [max(0, total - first) for total, first in zip(outside, before, strict=True)]
    if after != before:
        x, padding = pad(x, (before[1], after[1], before[0], after[0])), [0, 0]
    settings = ([stride, stride], padding, [1, 1], False, [0, 0], x.shape[1])
    grads = torch.ops.aten.convolution_backward(dy, x, weight.to(x.dtype), None, *settings, [False, True, False])
    return torch.empty_like(weight).copy_(grads[1])


def _taps(weight: Tensor) -> Tensor:
    """[C,1,K,K] -> float32 [K,K,C]: what a program reads lies side by side."""
    channels, _, size, _ = weight.shape
    taps = torch.empty(size, size, channels, dtype=torch.float32, device=weight.device)
    return taps.copy_(weight[:, 0].permute(1, 2, 0))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, *ctx.settings = inputs
    ctx.save_for_backward(x, weight)


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    dx = _input_grad(dy, *ctx.saved_tensors, *ctx.settings) if ctx.needs_input_grad[0] else None
    dw = _weight_grad(dy, *ctx.saved_tensors, *ctx.settings) if ctx.needs_input_grad[1] else None
    return dx, dw, None, None


depthwise.register_autograd(_backward, setup_context=_keep)
