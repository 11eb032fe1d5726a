"""ResNetV2: its size, and its arithmetic against a plain float64 version."""

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
from torch import Tensor
from torch.nn.functional import conv2d, max_pool2d

from adamatch import networks
from adamatch.networks import ResNetV2


@pytest.mark.parametrize(("name", "count"), [("resnetv2-101", 44_541_480), ("resnetv2-50", 25_549_352)])
def test_as_many_parameters_as_published_and_names_of_timm(name: str, count: int) -> None:
    with torch.device("meta"):
        net = networks.build(name, 1000)
    assert sum(value.numel() for value in net.parameters()) == count
    assert net(torch.empty(1, 3, 224, 224, device="meta")).shape == (1, 1000)
    convolutions = [f"conv{i}" for i in (1, 2, 3)]
    blocks = [(stage, block) for stage, count in enumerate((3, 4, 6, 3)) for block in range(count)]
    names = {f"stages.{stage}.blocks.{block}.{conv}.weight" for stage, block in blocks for conv in convolutions}
    names |= {f"stages.{stage}.blocks.0.downsample.conv.weight" for stage in range(4)} | {"stem.conv.weight"}
    found = {path for path, value in net.state_dict().items() if value.ndim == 4}
    assert found >= names if name == "resnetv2-101" else found == names


def norm_relu(state: State, name: str, x: Tensor, training: bool) -> Tensor:
    return norm(state, name, x, training, 1e-6).clamp(min=0)


def plain(state: State, x: Tensor, blocks: tuple[int, ...], training: bool) -> Tensor:
    """x + F(x), F = norm, relu, convolution three times; where the shape changes, the skip projects the activation."""
    x = max_pool2d(conv2d(x, state["stem.conv.weight"], stride=2, padding=3), 3, 2, 1)
    for stage, count in enumerate(blocks):
        for block in range(count):
            name, stride = f"stages.{stage}.blocks.{block}", 2 if stage > 0 and block == 0 else 1
            active = norm_relu(state, f"{name}.norm1", x, training)
            skip = conv2d(active, state[f"{name}.downsample.conv.weight"], stride=stride) if block == 0 else x
            y = conv2d(active, state[f"{name}.conv1.weight"])
            y = conv2d(
                norm_relu(state, f"{name}.norm2", y, training), state[f"{name}.conv2.weight"], stride=stride, padding=1
            )
            x = skip + conv2d(norm_relu(state, f"{name}.norm3", y, training), state[f"{name}.conv3.weight"])
    return norm_relu(state, "norm", x, training).mean((2, 3)) @ state["head.weight"].T + state["head.bias"]


def tiny() -> ResNetV2:
    torch.manual_seed(0)
    return shaken(ResNetV2(5, blocks=(2, 1, 2), width=4))


@pytest.mark.parametrize("training", [True, False])
def test_forward_and_gradients_are_those_of_the_description(training: bool) -> None:
    assert_as_described(tiny().train(training), lambda state, x: plain(state, x, (2, 1, 2), training), 32)


def test_groups_equal_separate_forwards_and_record_the_last_one() -> None:
    assert_groups_are_separate_forwards(tiny(), 32)


def test_initial_weights_have_the_published_spread() -> None:
    torch.manual_seed(0)
    assert_published_spread(ResNetV2(10, blocks=(1, 1), width=32), slope=0.0)
