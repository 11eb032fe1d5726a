"""What tests of networks against their descriptions share: networks in which every tensor matters, and batch norm."""

import copy
import math
from collections.abc import Callable
from typing import TypeVar

import pytest
import torch
from torch import Tensor, nn

from adamatch.networks.norm import BatchNorm, unrecorded

State = dict[str, Tensor]
Net = TypeVar("Net", bound=nn.Module)


def shaken(net: Net) -> Net:
    """In float64, with norms and statistics as if it had been trained: values are cut off at zero and at six."""
    torch.manual_seed(0)
    net.double()
    for module in net.modules():
        if isinstance(module, BatchNorm):
            nn.init.uniform_(module.weight, 1.0, 3.0)
            nn.init.normal_(module.bias, 1.0, 2.0)
            module.get_buffer("running_mean").normal_()
            module.get_buffer("running_var").uniform_(0.5, 2.0)
    return net


def norm(state: State, name: str, x: Tensor, training: bool, eps: float) -> Tensor:
    mean = x.mean((0, 2, 3)) if training else state[f"{name}.running_mean"]
    var = ((x - mean[:, None, None]) ** 2).mean((0, 2, 3)) if training else state[f"{name}.running_var"]
    scale = state[f"{name}.weight"] / (var + eps).sqrt()
    return (x - mean[:, None, None]) * scale[:, None, None] + state[f"{name}.bias"][:, None, None]


def assert_as_described(net: nn.Module, plain: Callable[[State, Tensor], Tensor], size: int) -> None:
    """Logits and the gradients of all parameters."""
    x, seed = torch.randn(4, 3, size, size, dtype=torch.float64), torch.randn(4, 5, dtype=torch.float64)
    names, values = zip(*net.named_parameters(), strict=True)
    state = copy.deepcopy(net).state_dict() | dict(zip(names, values, strict=True))
    reference, ours = plain(state, x), net(x)
    torch.testing.assert_close(ours, reference, rtol=1e-8, atol=1e-8)
    gradients = [torch.autograd.grad((out * seed).sum(), values) for out in (ours, reference)]
    torch.testing.assert_close(*gradients, rtol=1e-6, atol=1e-8)


def assert_groups_are_separate_forwards(net: nn.Module, size: int) -> None:
    """And the last one is recorded."""
    a, b = torch.randn(3, 3, size, size, dtype=torch.float64), torch.randn(7, 3, size, size, dtype=torch.float64)
    before, apart = copy.deepcopy(dict(net.named_buffers())), copy.deepcopy(net)
    together = net(torch.cat([a, b]), groups=(3, 7))
    with unrecorded(apart):
        first = apart(a)
    torch.testing.assert_close(together, torch.cat([first, apart(b)]))
    torch.testing.assert_close(dict(net.named_buffers()), dict(apart.named_buffers()))
    moved = {name for name, value in net.named_buffers() if not torch.equal(before[name], value)}
    assert moved >= {name for name in before if "running" in name}


def assert_published_spread(net: nn.Module, slope: float) -> None:
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            std = math.sqrt(2 / (module.kernel_size[0] * module.kernel_size[1] * module.out_channels))
            assert module.bias is None
            near = 5 / math.sqrt(2 * module.weight.numel())  # five standard errors
            assert module.weight.std().item() == pytest.approx(std, rel=near)
            assert abs(module.weight.mean().item()) < 5 * std / math.sqrt(module.weight.numel())
        if isinstance(module, BatchNorm):
            assert (module.eps, module.momentum, module.slope) == (1e-6, 0.001, slope)
            assert module.weight.eq(1).all()
            assert module.bias.eq(0).all()
    head = net.get_parameter("head.weight")
    assert head.std().item() == pytest.approx(math.sqrt(2 / sum(head.shape)), rel=5 / math.sqrt(2 * head.numel()))
    assert net.get_parameter("head.bias").eq(0).all()
