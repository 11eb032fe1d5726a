"""Batch norm's kernels as operators of torch, with gradients. The plain version is `networks.norm.norm_act`."""

from typing import Any

import torch
from torch import Tensor

from adamatch.base import ranks
from adamatch.kernels import norm_kernels
from adamatch.kernels.norm_kernels import Plan
from adamatch.kernels.runtime import has_kernels, operator

LAST = torch.channels_last


def norm_runs_on(x: Tensor, groups: tuple[int, ...]) -> bool:
    return (
        has_kernels(x)
        and x.dtype in (torch.bfloat16, torch.float16, torch.float32)
        and x.is_contiguous(memory_format=LAST)
        and 8 <= x.shape[1] <= 2048
        and len(groups) <= 2
    )


@operator("adamatch::norm_act")
def norm_act(
    x: Tensor, weight: Tensor, bias: Tensor,
    groups: list[int], eps: float, slope: float, shared: bool = False, ceiling: float | None = None,
    branch: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """-> norm and activation of x (with a branch: of x + branch); the statistics; x + branch, or nothing.

    `shared`: statistics are of all ranks.
    """
    x, branch = _last(x), _last(branch)
    plan, y = Plan(x, groups), torch.empty_like(x)
    total = None if branch is None else torch.empty_like(x)
    stats = norm_kernels.moments(plan, x, branch, total)
    stats = of_all_ranks(stats) if shared else stats
    norm_kernels.apply(plan, x if total is None else total, y, stats, weight, bias, (eps, slope, ceiling))
    return y, stats, x.new_empty(0) if total is None else total


@operator("adamatch::norm_act_grad")
def norm_act_grad(
    dy: Tensor, extra: Tensor | None, x: Tensor, stats: Tensor, weight: Tensor, bias: Tensor,
    groups: list[int], eps: float, slope: float, shared: bool = False, ceiling: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """-> gradients of x (plus `extra`, that of the sum itself), weight, bias."""
    x, dy, extra = _last(x), _last(dy), _last(extra)
    plan, dx = Plan(x, groups), torch.empty_like(x)
    means, dweight, dbias = norm_kernels.grad_means(plan, dy, x, stats, weight, bias, (eps, slope, ceiling))
    means = ranks.mean(means) if shared else means
    norm_kernels.grad_input(plan, dy, extra, x, dx, stats, means, weight, bias, (eps, slope, ceiling))
    return dx, dweight, dbias


def _last(x: Any) -> Any:
    return None if x is None else x.contiguous(memory_format=LAST)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    x, weight, bias, *ctx.settings, branch = inputs
    ctx.adds = branch is not None
    ctx.save_for_backward(output[2] if ctx.adds else x, output[1], weight, bias)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, dy: Tensor, _: Tensor | None, dtotal: Tensor | None) -> tuple[Tensor | None, ...]:
    dx, dweight, dbias = norm_act_grad(dy, dtotal if ctx.adds else None, *ctx.saved_tensors, *ctx.settings)
    return dx, dweight, dbias, None, None, None, None, None, dx if ctx.adds else None


norm_act.register_autograd(_backward, setup_context=_keep)


def record(
    stats: Tensor, pixels: int, running_mean: Tensor | None, running_var: Tensor | None, momentum: float, shared: bool
) -> None:
    """Running statistics, if there are any, towards the last group's, the variance unbiased as PyTorch has it.

    pixels: of the last group on this rank; `shared`: `stats` are of all ranks.
    """
    if running_mean is None or running_var is None:
        return
    count = pixels * ranks.count() if shared else pixels
    mean, var = stats[-1, 0], stats[-1, 1] * (count / max(1, count - 1))
    torch._foreach_lerp_([running_mean, running_var], [mean, var], momentum)


def of_all_ranks(stats: Tensor) -> Tensor:
    """Mean and biased variance [groups, 2, C] of this rank's images -> of all ranks' (as many each; Chan et al.)."""
    each = ranks.every(stats)  # [ranks, groups, 2, C]
    mean = each[:, :, 0].mean(0)
    var = each[:, :, 1].mean(0) + (each[:, :, 0] - mean).square().mean(0)
    return torch.stack([mean, var], 1)
