"""Convolutions written for training on a CPU, against PyTorch's."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv2d

from adamatch.networks.conv import Conv, Depthwise, Strided


def gradients(y: Tensor, *of: Tensor) -> list[Tensor]:
    return [y, *torch.autograd.grad((y * torch.linspace(-1, 1, y.numel()).reshape(y.shape)).sum(), of)]


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(("size", "height", "width"), [(3, 4, 4), (5, 4, 6), (5, 1, 2), (3, 7, 5), (5, 8, 9)])
@pytest.mark.parametrize("stride", [1, 2])
def test_channels_by_themselves(size: int, stride: int, height: int, width: int, layout: torch.memory_format) -> None:
    torch.manual_seed(0)
    conv = Depthwise(6, size, stride=stride).double()
    x = torch.randn(3, 6, height, width, dtype=torch.float64).contiguous(memory_format=layout).requires_grad_()
    y = conv(x)
    assert "_Depthwise" in type(y.grad_fn).__name__
    expected = Strided.forward(conv, x)
    if stride == 1:
        torch.testing.assert_close(expected, conv2d(x, conv.weight, padding=size // 2, groups=6))
    for mine, its in zip(gradients(y, x, conv.weight), gradients(expected, x, conv.weight), strict=True):
        torch.testing.assert_close(mine, its)


def test_across_channels() -> None:
    torch.manual_seed(0)
    conv = Conv(6, 4, 1).double()
    x = torch.randn(3, 6, 5, 4, dtype=torch.float64, requires_grad=True)
    y = conv(x)
    assert "Convolution" not in type(y.grad_fn).__name__
    expected = conv2d(x, conv.weight)
    for mine, its in zip(gradients(y, x, conv.weight), gradients(expected, x, conv.weight), strict=True):
        torch.testing.assert_close(mine, its)


def test_strides_across_channels_and_predictions_are_left_to_pytorch() -> None:
    x = torch.randn(2, 4, 6, 6, requires_grad=True)
    assert "Convolution" in type(Conv(4, 4, 1, stride=2)(x).grad_fn).__name__
    with torch.no_grad():
        assert Depthwise(4, 3)(x).shape == x.shape
