"""The kernels of depthwise convolutions against float64 autograd of padded convolutions."""

from typing import Any

import pytest
import torch
from kernels.interpreted import DEVICE, agree, error, gradients, images
from torch import Tensor
from torch.nn.functional import conv2d, pad

from adamatch.kernels import depthwise_ops
from adamatch.networks.conv import Depthwise, same_padding

OURS: Any = depthwise_ops
Case = tuple[int, int, int, int, int, int]
CASES = [  # images, channels, height, width, side of the kernel, stride
    (1, 32, 9, 7, 3, 1),
    (3, 13, 6, 5, 3, 1),
    (2, 24, 8, 6, 3, 2),
    (2, 13, 7, 5, 3, 2),
    (1, 40, 7, 7, 5, 1),  # two blocks of 32 channels, the last one masked
    (3, 13, 8, 10, 5, 2),
    (2, 32, 7, 6, 5, 2),
    (1, 64, 5, 2, 5, 1),
    (1, 120, 4, 3, 3, 2),  # two blocks of 64, the last one masked
    (2, 8, 1, 2, 5, 2),  # smaller than the kernel
]


def plain(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    vertical, horizontal = (same_padding(side, weight.shape[2], stride) for side in x.shape[2:])
    return conv2d(pad(x, (*horizontal, *vertical)), weight, stride=stride, groups=x.shape[1])


def by_kernels(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    before = [same_padding(side, weight.shape[2], stride)[0] for side in x.shape[2:]]
    y: Tensor = OURS.depthwise(x, weight, stride, before)
    return y


def given(n: int, c: int, h: int, w: int, size: int, stride: int) -> tuple[list[Tensor], Tensor]:
    """Input and weight, and a gradient of the output."""
    dy = images(n, c, -(-h // stride), -(-w // stride))
    return [images(n, c, h, w), torch.randn(c, 1, size, size, device=DEVICE)], dy


@pytest.mark.parametrize("case", CASES, ids=str)
def test_depthwise_and_its_gradients(case: Case) -> None:
    inputs, dy = given(*case)
    stride = case[-1]
    agree(lambda x, k: (by_kernels(x, k, stride),), lambda x, k: (plain(x, k, stride),), inputs, [dy])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_images(dtype: torch.dtype) -> None:
    (x, weight), dy = given(2, 16, 9, 8, 5, 2)
    x, dy = x.to(dtype), dy.to(dtype)
    ours = gradients(lambda x, k: (by_kernels(x, k, 2),), [x, weight], [dy])
    twin = gradients(lambda x, k: (plain(x, k, 2),), [x.double(), weight.double()], [dy])
    assert [t.dtype for t in ours] == [dtype, dtype, torch.float32]
    errors = [error(out, reference) for out, reference in zip(ours, twin, strict=True)]
    assert max(errors) < 4e-3


def test_operators_are_well_formed() -> None:
    (x, weight), _ = given(1, 8, 3, 2, 3, 2)
    checks = ("test_schema", "test_faketensor", "test_autograd_registration", "test_aot_dispatch_static")
    args = (x.requires_grad_(), weight.requires_grad_(), 2, [0, 0])
    torch.library.opcheck(torch.ops.adamatch.depthwise.default, args, test_utils=checks)


@pytest.mark.parametrize(("size", "stride"), [(3, 1), (3, 2), (5, 2)])
def test_the_layer_takes_the_kernels_where_they_run(size: int, stride: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, conv = images(2, 16, 8, 7), Depthwise(16, size, stride=stride).to(DEVICE)
    assert depthwise_ops.runs_on(x, conv.weight, stride) == (DEVICE == "cuda")
    conv.fused = False
    twin = conv(x)
    torch.testing.assert_close(twin, plain(x, conv.weight, stride))
    conv.fused = True
    calls: list[int] = []
    depthwise = depthwise_ops.depthwise

    def counted(*given: Any) -> Any:
        calls.append(1)
        return depthwise(*given)

    monkeypatch.setattr(depthwise_ops, "runs_on", lambda *given: True)
    monkeypatch.setattr(depthwise_ops, "depthwise", counted)
    torch.testing.assert_close(conv(x), twin, rtol=1e-5, atol=1e-5)
    assert calls == [1]
