"""Wide residual networks against a plain float64 version of their published description, and their size."""

import copy
from collections.abc import Sequence

import pytest
import torch
from networks.described import (
    State,
    assert_as_described,
    assert_groups_are_separate_forwards,
    assert_published_spread,
    norm,
    shaken,
)
from torch import Tensor, nn
from torch.nn.functional import conv2d

from adamatch import networks
from adamatch.base.errors import InputError
from adamatch.networks import WideResNet


def tiny() -> WideResNet:
    """Three scales of two blocks."""
    torch.manual_seed(0)
    return shaken(WideResNet(5, widths=(4, 6, 8), blocks=2, stem=3))


def norm_leaky(state: State, name: str, x: Tensor, training: bool) -> Tensor:
    z = norm(state, name, x, training, 1e-6)
    return torch.maximum(z, 0.1 * z)


def plain(state: State, x: Tensor, scales: int, blocks: int, training: bool) -> Tensor:
    """Pre-activation; only the first block of all activates before the skip; stride 2 where a later scale begins."""
    x = conv2d(x, state["stem.weight"], padding=1)
    for number in range(scales * blocks):
        stride = 2 if number % blocks == 0 and number > 0 else 1
        active = norm_leaky(state, f"norms.{number}", x, training)
        if number == 0:
            x = active
        y = conv2d(active, state[f"blocks.{number}.conv1.weight"], stride=stride, padding=1)
        y = conv2d(
            norm_leaky(state, f"blocks.{number}.norm", y, training), state[f"blocks.{number}.conv2.weight"], padding=1
        )
        if f"blocks.{number}.skip.weight" in state:
            x = conv2d(x, state[f"blocks.{number}.skip.weight"], stride=stride)
        x = x + y
    pooled = norm_leaky(state, f"norms.{scales * blocks}", x, training).mean((2, 3))
    return pooled @ state["head.weight"].T + state["head.bias"]


def size(widths: Sequence[int], blocks: int, classes: int) -> int:
    """Parameters by hand: 3x3 convolutions, a 1x1 skip where a scale begins, two for each normalised channel."""
    total, before = 9 * 3 * 16, 16
    for width in widths:
        for _ in range(blocks):
            skip = before * width if before != width else 0
            total += 2 * before + 9 * before * width + 2 * width + 9 * width * width + skip
            before = width
    return total + 2 * before + before * classes + classes


def parameters(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


def test_sizes() -> None:
    assert parameters(networks.build("wrn-28-2", 10)) == 1_467_610 == size((32, 64, 128), 4, 10)
    assert parameters(networks.build("wrn-34-2", 345)) == size((32, 64, 128, 256), 4, 345)
    assert parameters(networks.build("wrn-small", 7)) == size((16, 32, 64), 1, 7)


def test_running_statistics_follow_the_batch_by_a_thousandth() -> None:
    net, x = tiny().train(), torch.randn(6, 3, 8, 8, dtype=torch.float64)
    before, out = copy.deepcopy(net.state_dict()), conv2d(x, net.stem.weight, padding=1)
    net(x)
    for name, batch in (("running_mean", out.mean((0, 2, 3))), ("running_var", out.var((0, 2, 3)))):
        expected = 0.999 * before[f"norms.0.{name}"] + 0.001 * batch
        torch.testing.assert_close(net.state_dict()[f"norms.0.{name}"], expected)


def test_unknown_names_say_which_exist() -> None:
    with pytest.raises(InputError, match="did you mean 'wrn-28-2'"):
        networks.build("wrn-28-1", 10)


@pytest.mark.parametrize("training", [True, False])
def test_forward_is_the_published_description(training: bool) -> None:
    assert_as_described(tiny().train(training), lambda state, x: plain(state, x, 3, 2, training), 12)


def test_groups_equal_separate_forwards_and_record_the_last_one() -> None:
    assert_groups_are_separate_forwards(tiny(), 8)


def test_initial_weights_have_the_published_spread() -> None:
    torch.manual_seed(0)
    assert_published_spread(networks.build("wrn-28-2", 10), slope=0.1)
