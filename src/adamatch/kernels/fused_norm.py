"""Operators around the norm kernels: opaque to torch.compile, with gradients. Their plain twins are in `norm`."""

from typing import Any

import torch
from torch import Tensor

from adamatch.base import ranks
from adamatch.kernels import norm_kernels
from adamatch.kernels.layout import Plan
from adamatch.kernels.runtime import has_kernels, operator
from adamatch.kernels.statistics import of_all_ranks, record

LAST = torch.channels_last


def norm_runs_on(x: Tensor, groups: tuple[int, ...]) -> bool:
    return (
        has_kernels(x)
        and x.dtype in (torch.bfloat16, torch.float16, torch.float32)
        and x.is_contiguous(memory_format=LAST)
        and 8 <= x.shape[1] <= 2048
        and len(groups) <= 2
    )


def norm_act(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    groups: tuple[int, ...],
    momentum: float,
    eps: float,
    slope: float,
    shared: bool = False,
    ceiling: float | None = None,
) -> Tensor:
    """`shared`: statistics are of all ranks."""
    y, stats = _norm_act(x, weight, bias, list(groups), eps, slope, shared, ceiling)
    record(stats.detach(), groups[-1] * x.shape[2] * x.shape[3], running_mean, running_var, momentum, shared)
    return y  # type: ignore[no-any-return]


def add_norm_act(
    a: Tensor,
    b: Tensor,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    groups: tuple[int, ...],
    momentum: float,
    eps: float,
    slope: float,
    shared: bool = False,
    ceiling: float | None = None,
) -> tuple[Tensor, Tensor]:
    total, y, stats = _add_norm_act(a, b, weight, bias, list(groups), eps, slope, shared, ceiling)
    record(stats.detach(), groups[-1] * a.shape[2] * a.shape[3], running_mean, running_var, momentum, shared)
    return total, y


def norm_act_then_add(
    x: Tensor,
    skip: Tensor,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    groups: tuple[int, ...],
    momentum: float,
    eps: float,
    slope: float,
    shared: bool = False,
    ceiling: float | None = None,
) -> Tensor:
    y, stats = _norm_act_then_add(x, skip, weight, bias, list(groups), eps, slope, shared, ceiling)
    record(stats.detach(), groups[-1] * x.shape[2] * x.shape[3], running_mean, running_var, momentum, shared)
    return y  # type: ignore[no-any-return]


def recorded_norm_act(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    eps: float,
    slope: float,
    ceiling: float | None = None,
) -> Tensor:
    """By running statistics, as in evaluations. They have no gradient."""
    return _recorded_norm_act(x, weight, bias, mean, var, eps, slope, ceiling)  # type: ignore[no-any-return]


@operator("adamatch::norm_act")
def _norm_act(
    x: Tensor, weight: Tensor, bias: Tensor,
    groups: list[int], eps: float, slope: float, shared: bool = False, ceiling: float | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    x = x.contiguous(memory_format=LAST)
    plan, y = Plan(x, groups), torch.empty_like(x)
    stats = norm_kernels.moments(plan, x)
    stats = of_all_ranks(stats) if shared else stats
    norm_kernels.apply(plan, x, y, stats, weight, bias, eps, slope, ceiling)
    return y, stats


@operator("adamatch::add_norm_act")
def _add_norm_act(
    a: Tensor, b: Tensor, weight: Tensor, bias: Tensor,
    groups: list[int], eps: float, slope: float, shared: bool = False, ceiling: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    a, b = a.contiguous(memory_format=LAST), b.contiguous(memory_format=LAST)
    plan, total, y = Plan(a, groups), torch.empty_like(a), torch.empty_like(a)
    stats = norm_kernels.moments(plan, a, b, total)
    stats = of_all_ranks(stats) if shared else stats
    norm_kernels.apply(plan, total, y, stats, weight, bias, eps, slope, ceiling)
    return total, y, stats


@operator("adamatch::norm_act_then_add")
def _norm_act_then_add(
    x: Tensor, skip: Tensor, weight: Tensor, bias: Tensor,
    groups: list[int], eps: float, slope: float, shared: bool = False, ceiling: float | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    x, skip = x.contiguous(memory_format=LAST), skip.contiguous(memory_format=LAST)
    plan, y = Plan(x, groups), torch.empty_like(x)
    stats = norm_kernels.moments(plan, x)
    stats = of_all_ranks(stats) if shared else stats
    norm_kernels.apply(plan, x, y, stats, weight, bias, eps, slope, ceiling, skip)
    return y, stats


@operator("adamatch::recorded_norm_act")
def _recorded_norm_act(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    eps: float,
    slope: float,
    ceiling: float | None = None,
) -> Tensor:
    x = x.contiguous(memory_format=LAST)
    y = torch.empty_like(x)
    norm_kernels.apply(Plan(x, [len(x)]), x, y, torch.stack([mean, var])[None], weight, bias, eps, slope, ceiling)
    return y


@operator("adamatch::recorded_norm_act_grad")
def _recorded_norm_act_grad(
    dy: Tensor, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor,
    eps: float, slope: float, ceiling: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    x, dy = x.contiguous(memory_format=LAST), dy.contiguous(memory_format=LAST)
    plan, dx, stats = Plan(x, [len(x)]), torch.empty_like(x), torch.stack([mean, var])[None]
    _, dweight, dbias = norm_kernels.grad_means(plan, dy, x, stats, weight, bias, eps, slope, ceiling)
    none = torch.zeros_like(stats)  # x moves no statistics: nothing comes back from them
    norm_kernels.grad_input(plan, dy, None, x, dx, stats, none, weight, bias, eps, slope, ceiling)
    return dx, dweight, dbias


@operator("adamatch::norm_act_grad")
def _norm_act_grad(
    dy: Tensor, extra: Tensor | None, x: Tensor, stats: Tensor, weight: Tensor, bias: Tensor,
    groups: list[int], eps: float, slope: float, shared: bool = False, ceiling: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    x, dy = x.contiguous(memory_format=LAST), dy.contiguous(memory_format=LAST)
    extra = None if extra is None else extra.contiguous(memory_format=LAST)
    plan, dx = Plan(x, groups), torch.empty_like(x)
    means, dweight, dbias = norm_kernels.grad_means(plan, dy, x, stats, weight, bias, eps, slope, ceiling)
    means = ranks.mean(means) if shared else means
    norm_kernels.grad_input(plan, dy, extra, x, dx, stats, means, weight, bias, eps, slope, ceiling)
    return dx, dweight, dbias


def _keep_norm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, weight, bias, *ctx.settings = inputs
    ctx.save_for_backward(x, output[1], weight, bias)
    ctx.set_materialize_grads(False)


def _norm_backward(ctx: Any, dy: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    return *_norm_act_grad(dy, None, *ctx.saved_tensors, *ctx.settings), None, None, None, None, None


def _keep_recorded(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, eps, slope, ceiling = inputs
    ctx.save_for_backward(*tensors)
    ctx.settings = eps, slope, ceiling


def _recorded_backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    return *_recorded_norm_act_grad(dy, *ctx.saved_tensors, *ctx.settings), None, None, None, None, None


def _keep_add(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    _, _, weight, bias, *ctx.settings = inputs
    ctx.save_for_backward(output[0], output[2], weight, bias)
    ctx.set_materialize_grads(False)


def _add_backward(ctx: Any, dtotal: Tensor | None, dy: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    dx, dweight, dbias = _norm_act_grad(dy, dtotal, *ctx.saved_tensors, *ctx.settings)
    return dx, dx, dweight, dbias, None, None, None, None, None


def _keep_then_add(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, _, weight, bias, *ctx.settings = inputs
    ctx.save_for_backward(x, output[1], weight, bias)
    ctx.set_materialize_grads(False)


def _then_add_backward(ctx: Any, dy: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    dx, dweight, dbias = _norm_act_grad(dy, None, *ctx.saved_tensors, *ctx.settings)
    return dx, dy, dweight, dbias, None, None, None, None, None


_norm_act.register_autograd(_norm_backward, setup_context=_keep_norm)
_add_norm_act.register_autograd(_add_backward, setup_context=_keep_add)
_recorded_norm_act.register_autograd(_recorded_backward, setup_context=_keep_recorded)
_norm_act_then_add.register_autograd(_then_add_backward, setup_context=_keep_then_add)
