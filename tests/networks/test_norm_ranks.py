"""Batch norm over two ranks against one process that has all images: outputs, gradients, running statistics."""

import os
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec

import pytest
import torch
from torch import Tensor, nn
from train import several

from adamatch.base import ranks
from adamatch.kernels import norm_ops
from adamatch.kernels.norm_ops import of_all_ranks, record
from adamatch.networks import norm
from adamatch.networks.norm import BatchNorm, has_foreign_batch_norm
from adamatch.train import distributed

GROUPS = (4, 8)  # of the whole batch
Norm = Callable[..., Tensor]


def given(dtype: torch.dtype, far: float = 0.0) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(0)
    shapes = {"x": (12, 16, 3, 3), "dy": (12, 16, 3, 3), "weight": (16,), "bias": (16,), "mean": (16,), "var": (16,)}
    made = {name: torch.randn(shape, generator=draw, dtype=torch.float64) for name, shape in shapes.items()}
    made["x"] = made["x"] * torch.linspace(0.5, 3, 12, dtype=torch.float64)[:, None, None, None] + far
    return {name: _last(value.to(dtype)) for name, value in made.items()}


def _last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x


def outcome(function: Norm, of: dict[str, Tensor], groups: tuple[int, ...], shared: bool) -> list[Tensor]:
    """y, dx, dweight, dbias and the running statistics."""
    x, weight, bias = (of[name].clone().requires_grad_() for name in ("x", "weight", "bias"))
    mean, var = of["mean"].clone(), of["var"].clone()
    y = function(x, weight, bias, mean, var, groups, 0.3, 1e-6, 0.1, shared)
    return [y.detach(), *torch.autograd.grad(y, [x, weight, bias], of["dy"]), mean, var]


def compare(function: Norm, dtype: torch.dtype, tolerance: float, far: float = 0.0) -> None:
    """A rank's share of what one process computes; gradients of weight and bias are added up over the ranks."""
    whole = given(dtype, far)
    y, dx, dweight, dbias, mean, var = outcome(norm.norm_act, given(torch.float64, far), GROUPS, shared=False)
    with distributed.joined(several.CPU):
        share = {name: _last(ranks.share(value)) if value.ndim == 4 else value for name, value in whole.items()}
        groups = tuple(count // ranks.count() for count in GROUPS)
        mine = outcome(function, share, groups, shared=True)
        wanted = [ranks.share(y), ranks.share(dx), dweight, dbias, mean, var]
        found = [mine[0], mine[1], ranks.total(mine[2]), ranks.total(mine[3]), *mine[4:]]
        for ours, theirs in zip(found, wanted, strict=True):
            assert float((ours.double() - theirs).norm() / theirs.norm()) < tolerance
        apart = outcome(function, share, groups, shared=False)
        assert float((apart[0] - mine[0]).abs().max()) > 0.01  # statistics per rank are another thing


def plain() -> None:
    compare(norm.norm_act, torch.float64, 1e-12)
    compare(norm.norm_act, torch.float32, 1e-5)
    compare(norm.norm_act, torch.float64, 1e-9, far=1000)


def kernels() -> None:
    """The Triton kernels, in Triton's interpreter."""
    os.environ["TRITON_INTERPRET"] = "1"
    from kernels.interpreted import interpret

    interpret(pytest.MonkeyPatch())
    compare(partial(by_kernels, None), torch.float32, 1e-5)
    compare(partial(by_kernels, 0.75), torch.float32, 1e-5)


def by_kernels(part: float | None, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor,
               groups: tuple[int, ...], momentum: float, eps: float, slope: float, shared: bool) -> Tensor:  # fmt: skip
    """Of x, or of a sum of two parts of it."""
    branch = None if part is None else part * x
    x = x if part is None else (1 - part) * x
    y, stats, _ = norm_ops.norm_act(x, weight, bias, list(groups), eps, slope, shared, branch=branch)
    record(stats.detach(), groups[-1] * x.shape[2] * x.shape[3], mean, var, momentum, shared)
    return y  # type: ignore[no-any-return]


def compiled() -> None:
    compare(torch.compile(norm.norm_act, backend="aot_eager", fullgraph=True), torch.float64, 1e-12)


def modules() -> None:
    """As networks use it, with statistics of both groups at once."""
    whole = given(torch.float64)["x"]
    torch.manual_seed(0)
    layer, single = BatchNorm(16, momentum=0.2).double(), BatchNorm(16, momentum=0.2).double()
    total, active = single.add(whole, whole.flip(1), GROUPS)
    with distributed.joined(several.CPU):
        mine = layer.add(ranks.share(whole), ranks.share(whole.flip(1)), (2, 4))
        for ours, theirs in zip(mine, (total, active), strict=True):
            assert torch.allclose(ours, ranks.share(theirs), rtol=1e-12, atol=1e-12)
        assert torch.allclose(layer.running_var, single.running_var, rtol=1e-12)  # type: ignore[arg-type]
        layer.shared = False
        assert not torch.allclose(layer(ranks.share(whole)), ranks.share(single(whole)))


@pytest.mark.parametrize("case", [plain, compiled, modules], ids=lambda case: str(case.__name__))
def test_two_ranks(case: Callable[[], None]) -> None:
    assert several.on_ranks(2, case) == [0, 0]


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_kernels_on_two_ranks() -> None:
    assert several.on_ranks(2, kernels) == [0, 0]


def test_moments_are_combined(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(3, 2, 50, 7, dtype=torch.float64) * 3 + 5  # ranks, groups, images, channels
    stats = torch.stack([x.mean(2), x.var(2, correction=0)], 2)
    monkeypatch.setattr(ranks, "every", lambda mine: stats)
    found = of_all_ranks(stats[0])
    pooled = x.transpose(0, 1).flatten(1, 2)
    torch.testing.assert_close(found, torch.stack([pooled.mean(1), pooled.var(1, correction=0)], 1))


def test_foreign_batch_norm_is_known() -> None:
    assert has_foreign_batch_norm(nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)))
    assert not has_foreign_batch_norm(nn.Sequential(BatchNorm(4), nn.SyncBatchNorm(4), nn.GroupNorm(2, 4)))
