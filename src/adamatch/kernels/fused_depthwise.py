"""Operators around the depthwise kernels: opaque to torch.compile, with gradients. Their plain twin is in `conv`.

Padding is TensorFlow's "same": ceil(side / stride) pixels come out, and `before` lie above and to the left of the image.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from adamatch.kernels import depthwise_kernels
from adamatch.kernels.runtime import has_kernels, operator

LAST = torch.channels_last
# Strides at which each is computed by the kernel rather than by cuDNN.
FORWARD, INPUT_GRAD, WEIGHT_GRAD = (1, 2), (1, 2), (1, 2)


def runs_on(x: Tensor, weight: Tensor, stride: int) -> bool:
    return (
        stride in {*FORWARD, *INPUT_GRAD, *WEIGHT_GRAD}
        and has_kernels(x)
        and (
            x.dtype in (torch.bfloat16, torch.float16)
            or (x.dtype == torch.float32 and not torch.is_autocast_enabled("cuda"))
        )
        and x.is_contiguous(memory_format=LAST)
        and weight.shape[1:] in ((1, 3, 3), (1, 5, 5))
        and x.numel() < 2**31
    )


def depthwise(x: Tensor, weight: Tensor, stride: int, before: list[int]) -> Tensor:
    """x [N,C,H,W], weight [C,1,K,K], which may be of another dtype; before: pixels of padding above and to the left."""
    return _depthwise(x, weight, stride, before)  # type: ignore[no-any-return]


@operator("adamatch::depthwise")
def _depthwise(x: Tensor, weight: Tensor, stride: int, before: list[int]) -> Tensor:
    if stride in FORWARD:
        y = _convolved(x, stride)
        depthwise_kernels.convolve(x.contiguous(memory_format=LAST), _taps(weight), y, stride, (before[0], before[1]))
        return y
    padded, padding = _padded(x, weight, stride, before)
    return torch.conv2d(padded, weight.to(x.dtype), None, stride, padding, 1, x.shape[1]).contiguous(memory_format=LAST)


@operator("adamatch::depthwise_input_grad")
def _depthwise_input_grad(dy: Tensor, x: Tensor, weight: Tensor, stride: int, before: list[int]) -> Tensor:
    if stride in INPUT_GRAD:
        dx = torch.empty_like(x, memory_format=LAST)
        depthwise_kernels.input_grad(
            dy.contiguous(memory_format=LAST), _taps(weight), dx, stride, (before[0], before[1])
        )
        return dx
    dx = _plain_grad(dy, x, weight, stride, before, 0)
    if dx.shape != x.shape:
        dx = dx[:, :, before[0] : before[0] + x.shape[2], before[1] : before[1] + x.shape[3]]
    return dx.contiguous(memory_format=LAST)


@operator("adamatch::depthwise_weight_grad")
def _depthwise_weight_grad(dy: Tensor, x: Tensor, weight: Tensor, stride: int, before: list[int]) -> Tensor:
    dw = torch.empty_like(weight)
    if stride in WEIGHT_GRAD:
        x, dy = x.contiguous(memory_format=LAST), dy.contiguous(memory_format=LAST)
        depthwise_kernels.weight_grad(x, dy, dw, stride, (before[0], before[1]))
        return dw
    return dw.copy_(_plain_grad(dy, x, weight, stride, before, 1))


def _convolved(x: Tensor, stride: int) -> Tensor:
    shape = (*x.shape[:2], -(-x.shape[2] // stride), -(-x.shape[3] // stride))
    return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=LAST)


def _taps(weight: Tensor) -> Tensor:
    """[C,1,K,K] -> float32 [K,K,C]: what a program reads lies side by side."""
    channels, _, size, _ = weight.shape
    taps = torch.empty(size, size, channels, dtype=torch.float32, device=weight.device)
    return taps.copy_(weight[:, 0].permute(1, 2, 0))


def _padded(x: Tensor, weight: Tensor, stride: int, before: list[int]) -> tuple[Tensor, list[int]]:
    """x, padded where the padding is not the same on both sides, and what is left for the convolution to pad."""
    size = weight.shape[2]
    after = [
        max(0, (-(-side // stride) - 1) * stride + size - side - first)
        for side, first in zip(x.shape[2:], before, strict=True)
    ]
    if after == before:
        return x, before
    return pad(x, (before[1], after[1], before[0], after[0])), [0, 0]


def _plain_grad(dy: Tensor, x: Tensor, weight: Tensor, stride: int, before: list[int], which: int) -> Tensor:
    """Of the padded input (0) or of the weight (1)."""
    padded, padding = _padded(x, weight, stride, before)
    grads = torch.ops.aten.convolution_backward(
        dy, padded, weight.to(x.dtype), None, [stride, stride], padding, [1, 1], False, [0, 0], x.shape[1],
        [which == 0, which == 1, False],
    )  # fmt: skip
    grad: Tensor = grads[which]
    return grad


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, *ctx.settings = inputs
    ctx.save_for_backward(x, weight)


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    dx = _depthwise_input_grad(dy, *ctx.saved_tensors, *ctx.settings) if ctx.needs_input_grad[0] else None
    dw = _depthwise_weight_grad(dy, *ctx.saved_tensors, *ctx.settings) if ctx.needs_input_grad[1] else None
    return dx, dw, None, None


_depthwise.register_autograd(_backward, setup_context=_keep)
