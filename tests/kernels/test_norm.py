"""Batch norm's kernels against float64 autograd of their plain twin."""

import copy
from typing import Any

import pytest
import torch
from kernels.interpreted import DEVICE, agree, error, gradients, images
from torch import Tensor

from adamatch.kernels import norm_ops
from adamatch.kernels.norm_kernels import Plan, columns
from adamatch.networks import norm
from adamatch.networks.norm import BatchNorm

NORM: Any = torch.ops.adamatch.norm_act
CASES = [  # images, channels, height, width, groups
    (4, 16, 4, 4, (4,)),
    (5, 16, 3, 5, (2, 3)),
    (9, 64, 7, 7, (8, 1)),
    (6, 32, 5, 1, (1, 5)),
    (2, 128, 8, 8, (1, 1)),
    (1, 256, 3, 3, (1,)),
    (5, 8, 3, 5, (2, 3)),
    (4, 13, 4, 3, (1, 3)),
    (4, 24, 5, 5, (4,)),
    (5, 96, 5, 4, (3, 2)),  # blocks of 32 channels
    (3, 200, 3, 3, (1, 2)),  # blocks of 32, the last one masked
    (2, 288, 2, 2, (1, 1)),  # blocks of 64, the last one masked
]
activations = pytest.mark.parametrize(
    "activation", [(0.1, None), (1.0, None), (0.0, 0.7)], ids=["leaky", "none", "cut"]
)


def parameters(c: int) -> list[Tensor]:
    return [torch.randn(c, device=DEVICE), torch.randn(c, device=DEVICE)]


def plain(x: Tensor, weight: Tensor, bias: Tensor, groups: tuple[int, ...], eps: float, slope: float,
          ceiling: float | None = None) -> Tensor:  # fmt: skip
    return norm.norm_act(x, weight, bias, None, None, groups, 0.0, eps, slope, False, ceiling)


@pytest.mark.parametrize(("n", "c", "h", "w", "groups"), CASES)
@activations
def test_norm_act_and_its_gradients(
    n: int, c: int, h: int, w: int, groups: tuple[int, ...], activation: tuple[float, float | None]
) -> None:
    slope, ceiling = activation
    agree(
        lambda x, g, b: (NORM(x, g, b, groups, 1e-6, slope, False, ceiling)[0],),
        lambda x, g, b: (plain(x, g, b, groups, 1e-6, slope, ceiling),),
        [images(n, c, h, w) * 2 + 1, *parameters(c)],
        [images(n, c, h, w)],
    )


@pytest.mark.parametrize("used", ["both", "activation"])
def test_a_sum_before_the_norm_and_its_gradients(used: str) -> None:
    n, c, h, w, groups = 7, 32, 3, 5, (3, 4)
    part = slice(0, 2) if used == "both" else slice(0, 1)

    def twin(x: Tensor, g: Tensor, b: Tensor, branch: Tensor) -> tuple[Tensor, ...]:
        outputs: tuple[Tensor, ...] = (plain(x + branch, g, b, groups, 1e-6, 0.1), x + branch)
        return outputs[part]

    agree(
        lambda x, g, b, branch: NORM(x, g, b, groups, 1e-6, 0.1, branch=branch)[::2][part],
        twin,
        [images(n, c, h, w), *parameters(c), images(n, c, h, w)],
        [images(n, c, h, w), images(n, c, h, w)][part],
    )


def test_channels_are_dealt_with_little_padding() -> None:
    assert [columns(2**i) for i in range(3, 12)] == [8, 16, 32, 64, 128, 256, 512, 1024, 256]
    assert [columns(c) for c in (13, 24, 40, 80)] == [16, 32, 64, 128]  # all of them, padded
    assert [columns(c) for c in (96, 112, 144, 192, 672, 1152)] == [32, 128, 32, 64, 256, 256]


def test_bfloat16_images_have_float32_statistics() -> None:
    inputs = [images(16, 32, 4, 4, dtype=torch.bfloat16) * 3, *parameters(32)]
    dy = images(16, 32, 4, 4).bfloat16()
    ours = gradients(lambda x, g, b: (NORM(x, g, b, [4, 12], 1e-6, 0.1)[0],), inputs, [dy])
    twin = gradients(lambda x, g, b: (plain(x, g, b, (4, 12), 1e-6, 0.1),), [each.double() for each in inputs], [dy])
    assert [t.dtype for t in ours] == [torch.bfloat16, torch.bfloat16, torch.float32, torch.float32]
    errors = [error(out, reference) for out, reference in zip(ours, twin, strict=True)]
    assert max(errors[:2]) < 4e-3
    assert max(errors[2:]) < 1e-5


def test_a_mean_far_from_zero_costs_no_precision() -> None:
    x = images(6, 16, 8, 8) + 1000
    _, stats, _ = NORM(x, torch.ones(16, device=DEVICE), torch.zeros(16, device=DEVICE), [2, 4], 1e-6, 1.0)
    for i, part in enumerate(torch.split(x.double(), [2, 4])):
        assert error(stats[i, 0], part.mean((0, 2, 3))) < 1e-7
        assert error(stats[i, 1], part.var((0, 2, 3), correction=0)) < 1e-5


@pytest.mark.parametrize("added", [False, True])
def test_a_layer_computes_and_records_the_same_with_kernels(added: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the last group's statistics."""
    layer = BatchNorm(16, momentum=0.3).to(DEVICE)
    twin = copy.deepcopy(layer)
    twin.fused = False
    x, other = images(5, 16, 3, 3), images(5, 16, 3, 3)
    calls = []

    def noted(x: Tensor, groups: tuple[int, ...]) -> bool:
        calls.append(groups)
        return True

    monkeypatch.setattr(norm_ops, "norm_runs_on", noted)
    outputs: list[Any] = []
    for each in (layer, twin):
        outputs.append(each.add(x, other, (2, 3)) if added else each(x, groups=(2, 3)))
    torch.testing.assert_close(*outputs)
    torch.testing.assert_close(layer.state_dict(), twin.state_dict())
    assert set(calls) == {(2, 3)}


def test_many_rows_go_through_several_tiles_and_parts() -> None:
    x, groups = images(40, 16, 37, 3), (11, 29)
    assert Plan(x, [*groups]).parts > 2
    weight, bias = torch.ones(16, device=DEVICE), torch.zeros(16, device=DEVICE)
    y = NORM(x, weight, bias, groups, 1e-6, 0.1)[0]
    assert error(y, plain(x.double(), weight.double(), bias.double(), groups, 1e-6, 0.1)) < 1e-6


def test_operators_are_well_formed() -> None:
    checks = ("test_schema", "test_faketensor", "test_autograd_registration", "test_aot_dispatch_static")
    x, other = (images(4, 16, 4, 4).requires_grad_() for _ in range(2))
    for added in ({}, {"branch": other}):
        args = (x, *parameters(16), [1, 3], 1e-6, 0.0, False, 6.0)
        torch.library.opcheck(NORM.default, args, added, test_utils=checks)


def test_a_cpu_has_no_kernels() -> None:
    assert not norm_ops.norm_runs_on(torch.randn(2, 32, 8, 8).contiguous(memory_format=torch.channels_last), (2,))
