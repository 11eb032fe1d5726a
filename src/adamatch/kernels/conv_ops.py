"""Narrow 3x3 convolutions, whose weight gradient is a kernel, as an operator of torch. Plain: `networks.conv`."""

from typing import Any

import torch
from torch import Tensor

from adamatch.kernels import conv_kernels
from adamatch.kernels.runtime import has_kernels, operator

LAST = torch.channels_last
SETTINGS: Any = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)  # stride, padding, dilation, transposed, output's, groups


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


@operator("adamatch::conv3x3")
def conv3x3(x: Tensor, weight: Tensor) -> Tensor:
    """x [N,CI,H,W], weight [CO,CI,3,3] of one dtype; stride 1, padding 1."""
    y: Tensor = torch.ops.aten.convolution(x, weight, None, *SETTINGS)
    return y.contiguous(memory_format=LAST)


@operator("adamatch::conv3x3_weight_grad")
def _weight_grad(dy: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    dw = torch.empty_like(weight)
    conv_kernels.weight_grad(x.contiguous(memory_format=LAST), dy.contiguous(memory_format=LAST), dw)
    return dw


@operator("adamatch::conv3x3_input_grad")
def _input_grad(dy: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    dx: Tensor = torch.ops.aten.convolution_backward(dy, x, weight, None, *SETTINGS, [True, False, False])[0]
    return dx.contiguous(memory_format=LAST)


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor | None]:
    dx = _input_grad(dy, *ctx.saved_tensors) if ctx.needs_input_grad[0] else None
    return dx, _weight_grad(dy, *ctx.saved_tensors) if ctx.needs_input_grad[1] else None


conv3x3.register_autograd(_backward, setup_context=_keep)
