"""Wide residual networks against a plain float64 version of their published description, and their size."""

import copy

import pytest
import torch
from networks.described import assert_as_described, assert_groups_are_separate_forwards, assert_published_spread, shaken
from reference.plain_net import Net
from torch.nn.functional import conv2d

from adamatch import networks
from adamatch.base.errors import InputError
from adamatch.networks import WideResNet


def tiny() -> WideResNet:
    """Three scales of a block, of which the first keeps the channels."""
    torch.manual_seed(0)
    return shaken(WideResNet(5, widths=(3, 6, 8), blocks=1, stem=3))


def test_sizes() -> None:
    """As published: a 3x3 stem, two 3x3 convolutions a block, a 1x1 skip where a scale begins, and norms."""
    assert sum(value.numel() for value in networks.build("wrn-28-2", 10).parameters()) == 1_467_610


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
    assert_as_described(tiny().train(training), lambda state, x: Net(state, state, 0).logits(x, training=training), 12)


def test_groups_equal_separate_forwards_and_record_the_last_one() -> None:
    assert_groups_are_separate_forwards(tiny(), 8)


def test_initial_weights_have_the_published_spread() -> None:
    torch.manual_seed(0)
    assert_published_spread(networks.build("wrn-28-2", 10), slope=0.1)
