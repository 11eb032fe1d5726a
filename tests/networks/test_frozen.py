"""A network in two parts gives what it gives in one, and only the upper part is trained."""

import pytest
import torch
from torch import nn

from adamatch import networks
from adamatch.base.errors import InputError
from adamatch.networks.efficientnet_lite import EfficientNetLite
from adamatch.networks.frozen import Lower, Upper, Whole, sooner
from adamatch.networks.norm import BatchNorm


def network() -> EfficientNetLite:
    """With statistics and norms as if it had been trained."""
    torch.manual_seed(0)
    net = networks.build("efficientnet-lite0", 3).eval()
    assert isinstance(net, EfficientNetLite)
    for module in net.modules():
        if isinstance(module, BatchNorm):
            values = (module.running_mean, module.running_var, module.weight, module.bias)
            for value, least in zip(values, (-0.3, 0.5, 0.8, -0.2), strict=True):
                assert value is not None
                nn.init.uniform_(value, least, least + 0.5)
    return net


@pytest.mark.parametrize("frozen", [1, 11, 16])
@pytest.mark.parametrize("size", [32, 45])
@torch.no_grad()
def test_both_parts_together_are_the_network(frozen: int, size: int) -> None:
    net, x = network(), torch.randn(2, 3, size, size)
    expected = net(x)
    assert expected.std() > 0.01
    maps = Lower(net, frozen)(x)
    torch.testing.assert_close(Upper(net, frozen)(maps), expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_all_blocks_folded_have_the_features_of_the_network() -> None:
    net, x = network(), torch.randn(2, 3, 45, 45)
    expected = net.features(x)
    assert expected.std() > 0.01
    torch.testing.assert_close(Whole(net).features(x), expected, rtol=1e-4, atol=1e-4)
    faster = sooner(net, torch.device("cpu"))
    torch.testing.assert_close(faster(x), net(x), rtol=1e-4, atol=1e-4)
    assert faster is not net is sooner(net, torch.device("cuda"))
    assert all(each.requires_grad for each in net.parameters())  # it can still be trained


@torch.no_grad()
def test_images_are_shifted_to_what_the_weights_know() -> None:
    net, x = network(), torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(Lower(net, 0)(x), net.bn1(net.conv_stem(x + 0.5 / 128)), rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_groups_have_statistics_of_their_own_in_the_upper_part() -> None:
    upper = Upper(network(), 11).train()
    maps = torch.randn(6, 112, 2, 2)
    alone = upper(maps[:2])
    torch.testing.assert_close(upper(maps, groups=(2, 4))[:2], alone)
    assert not torch.allclose(upper(maps)[:2], alone)


def test_only_the_upper_part_can_be_trained() -> None:
    net = network()
    upper = Upper(net, 12)
    moving = {".".join(name.split(".")[:3]) for name, value in net.named_parameters() if value.requires_grad}
    blocks = {"blocks.5.1", "blocks.5.2", "blocks.5.3", "blocks.6.0"}
    assert {name for name in moving if name.startswith("blocks")} == blocks
    assert not any(value.requires_grad for value in (net.conv_stem.weight, net.bn1.weight))
    assert upper.head is net.head
    assert net.head.weight.requires_grad


def test_what_cannot_be_frozen_is_said() -> None:
    with pytest.raises(InputError, match="only an EfficientNet-Lite can be frozen in part"):
        Upper(networks.build("wrn-tiny", 3), 1)
    with pytest.raises(InputError, match="has 16 blocks: 17 cannot be frozen"):
        Upper(network(), 17)
