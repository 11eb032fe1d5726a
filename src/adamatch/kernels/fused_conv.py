"""Operators around the kernels of narrow 3x3 convolutions: opaque to torch.compile, with gradients. The twin is in `conv`."""

from typing import Any

import torch
from torch import Tensor

from adamatch.kernels import conv_kernels
from adamatch.kernels.runtime import has_kernels, operator

LAST = torch.channels_last


def runs_on(x: Tensor, weight: Tensor) -> bool:
    width = x.shape[3]
    return (
        has_kernels(x)
        and x.dtype in (torch.bfloat16, torch.float16)
        and x.is_contiguous(memory_format=LAST)
        and weight.shape[0] in (16, 32, 64)
        and weight.shape[1] in (16, 32, 64)
        and width in (8, 16, 32, 64)
        and x.shape[0] * x.shape[2] * width * 64 < 2**31
    )


def conv3x3(x: Tensor, weight: Tensor) -> Tensor:
    """x [N,CI,H,W], weight [CO,CI,3,3] of one dtype; stride 1, padding 1."""
    return _conv3x3(x, weight)  # type: ignore[no-any-return]


@operator("adamatch::conv3x3")
def _conv3x3(x: Tensor, weight: Tensor) -> Tensor:
    y: Tensor
    if x.shape[1] == 16:  # where cuDNN takes more than twice as long (results/kernels.json)
        shape = (x.shape[0], weight.shape[0], x.shape[2], x.shape[3])
        y = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=LAST)
        conv_kernels.convolve(x.contiguous(memory_format=LAST), weight, y)
        return y
    y = torch.ops.aten.convolution(x, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    return y.contiguous(memory_format=LAST)


@operator("adamatch::conv3x3_weight_grad")
def _conv3x3_weight_grad(dy: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    dw = torch.empty_like(weight)
    conv_kernels.weight_grad(x.contiguous(memory_format=LAST), dy.contiguous(memory_format=LAST), dw)
    return dw


@operator("adamatch::conv3x3_input_grad")
def _conv3x3_input_grad(dy: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    dx = torch.ops.aten.convolution_backward(
        dy, x, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, False, False]
    )[0]
    return dx.contiguous(memory_format=LAST)  # type: ignore[no-any-return]


def _keep_conv(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _conv_backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor | None]:
    dx = _conv3x3_input_grad(dy, *ctx.saved_tensors) if ctx.needs_input_grad[0] else None
    return dx, _conv3x3_weight_grad(dy, *ctx.saved_tensors) if ctx.needs_input_grad[1] else None


_conv3x3.register_autograd(_conv_backward, setup_context=_keep_conv)
