"""The depthwise kernels, in Triton's interpreter where there is no GPU, against float64 autograd of padded convolutions."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from networks.test_kernels import DEVICE, error, gradients, images, interpret
from torch import Tensor
from torch.nn.functional import conv2d, pad

from adamatch.kernels import fused_depthwise
from adamatch.networks.conv import Depthwise, same_padding

OURS: Any = fused_depthwise
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


@pytest.fixture(autouse=True, scope="module")
def _kernels() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if DEVICE == "cpu":
            interpret(patch)
            patch.setattr(OURS.depthwise_kernels, "STEPS", 1)  # images are small here
        yield


def before(height: int, width: int, size: int, stride: int) -> list[int]:
    return [same_padding(side, size, stride)[0] for side in (height, width)]


def plain(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    vertical, horizontal = (same_padding(side, weight.shape[2], stride) for side in x.shape[2:])
    return conv2d(pad(x, (*horizontal, *vertical)), weight, stride=stride, groups=x.shape[1])


def given(n: int, c: int, h: int, w: int, size: int, stride: int) -> tuple[list[Tensor], Tensor]:
    return [images(n, c, h, w), torch.randn(c, 1, size, size, device=DEVICE)], images(
        n, c, -(-h // stride), -(-w // stride)
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_depthwise_and_its_gradients(case: tuple[int, int, int, int, int, int]) -> None:
    *_, h, w, size, stride = case
    inputs, dy = given(*case)
    ours = gradients(lambda x, k: (OURS.depthwise(x, k, stride, before(h, w, size, stride)),), inputs, [dy])
    twin = gradients(lambda x, k: (plain(x, k, stride),), [t.double() for t in inputs], [dy])
    for out, reference in zip(ours, twin, strict=True):
        assert out.shape == reference.shape
        assert error(out, reference) < 1e-5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_images_are_summed_in_float32(dtype: torch.dtype) -> None:
    case = (2, 16, 9, 8, 5, 2)
    (x, weight), dy = given(*case)
    x, dy = x.to(dtype), dy.to(dtype)
    ours = gradients(lambda x, k: (OURS.depthwise(x, k, 2, before(9, 8, 5, 2)),), [x, weight], [dy])
    twin = gradients(lambda x, k: (plain(x, k, 2),), [x.double(), weight.double()], [dy])
    assert [t.dtype for t in ours] == [dtype, dtype, torch.float32]
    assert error(ours[0], twin[0]) < 4e-3
    assert error(ours[1], twin[1]) < 4e-3
    assert error(ours[2], twin[2]) < 1e-5


def test_weight_gradients_of_many_programs_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = OURS.depthwise_kernels
    monkeypatch.setattr(kernels, "SMALL_TILE", 32)
    monkeypatch.setattr(kernels, "STEPS", 2)
    monkeypatch.setattr(kernels, "ROWS", 2)  # six programs, three sums, two, one
    (x, weight), dy = given(2, 13, 5, 3, 3, 1)
    grads = [OURS._depthwise_weight_grad(dy, x, weight, 1, [1, 1]) for _ in range(2)]
    wanted = gradients(lambda k: (plain(x.double(), k, 1),), [weight.double()], [dy])[1]
    assert error(grads[0], wanted) < 1e-5
    assert torch.equal(*grads)


@pytest.mark.parametrize("switch", ["FORWARD", "INPUT_GRAD", "WEIGHT_GRAD"])
@pytest.mark.parametrize("case", [(2, 13, 8, 6, 5, 2), (2, 13, 7, 7, 3, 1)], ids=str)
def test_each_can_be_left_to_pytorch(
    switch: str, case: tuple[int, int, int, int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = {"FORWARD": "convolve", "INPUT_GRAD": "input_grad", "WEIGHT_GRAD": "weight_grad"}[switch]
    monkeypatch.setattr(fused_depthwise, switch, (3 - case[-1],))  # the other stride only
    monkeypatch.setattr(OURS.depthwise_kernels, name, None)  # must not be called
    *_, h, w, size, stride = case
    inputs, dy = given(*case)
    ours = gradients(lambda x, k: (OURS.depthwise(x, k, stride, before(h, w, size, stride)),), inputs, [dy])
    twin = gradients(lambda x, k: (plain(x, k, stride),), [t.double() for t in inputs], [dy])
    assert max(error(out, reference) for out, reference in zip(ours, twin, strict=True)) < 1e-5


def test_operators_are_well_formed() -> None:
    (x, weight), _ = given(1, 8, 3, 2, 3, 2)
    checks = ("test_schema", "test_faketensor", "test_autograd_registration", "test_aot_dispatch_static")
    args = (x.requires_grad_(), weight.requires_grad_(), 2, before(3, 2, 3, 2))
    torch.library.opcheck(torch.ops.adamatch.depthwise.default, args, test_utils=checks)


@pytest.mark.parametrize(("size", "stride"), [(3, 1), (3, 2), (5, 2)])
def test_the_module_takes_the_kernels_where_they_run(size: int, stride: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, conv = images(2, 16, 8, 7), Depthwise(16, size, stride=stride).to(DEVICE)
    assert fused_depthwise.runs_on(x, conv.weight, stride) == (DEVICE == "cuda")
    conv.fused = False
    twin = conv(x)
    conv.fused = True
    calls: list[int] = []
    depthwise = fused_depthwise.depthwise

    def counted(*given: Any) -> Tensor:
        calls.append(1)
        return depthwise(*given)

    monkeypatch.setattr(fused_depthwise, "runs_on", lambda *given: True)
    monkeypatch.setattr(fused_depthwise, "depthwise", counted)
    torch.testing.assert_close(conv(x), twin, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(twin, plain(x, conv.weight, stride))
    assert calls
