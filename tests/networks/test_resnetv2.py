"""ResNetV2: its layer table and size by hand, and its arithmetic against a plain float64 version."""

from collections.abc import Iterator

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
from torch.nn.functional import conv2d, max_pool2d

from adamatch import networks
from adamatch.networks import ResNetV2

# stage: blocks, channels inside, channels out, side for an image of 224
TABLE_101 = ((3, 64, 256, 56), (4, 128, 512, 28), (23, 256, 1024, 14), (3, 512, 2048, 7))
TABLE_50 = ((3, 64, 256, 56), (4, 128, 512, 28), (6, 256, 1024, 14), (3, 512, 2048, 7))
Table = tuple[tuple[int, int, int, int], ...]


def layers(table: Table) -> Iterator[tuple[str, int, int, int, int, int]]:
    """Every convolution by hand: name, channels in and out, kernel, stride, side of what comes out."""
    yield "stem.conv", 3, 64, 7, 2, 112
    before, above = 64, 56
    for stage, (blocks, middle, after, side) in enumerate(table):
        for block in range(blocks):
            name, stride = f"stages.{stage}.blocks.{block}", above // side
            if block == 0:
                yield f"{name}.downsample.conv", before, after, 1, stride, side
            yield f"{name}.conv1", before, middle, 1, 1, above
            yield f"{name}.conv2", middle, middle, 3, stride, side
            yield f"{name}.conv3", middle, after, 1, 1, side
            before, above = after, side


def size(table: Table, classes: int) -> int:
    """Convolutions, two numbers for each channel that is normalised (before each of a block's three), and the head."""
    convolutions = list(layers(table))
    normalised = sum(i for name, i, *_ in convolutions if name.rpartition(".")[2] in ("conv1", "conv2", "conv3"))
    last = table[-1][2]
    return sum(i * o * k * k for _, i, o, k, _, _ in convolutions) + 2 * (normalised + last) + last * classes + classes


@pytest.mark.parametrize(
    ("name", "table", "count"), [("resnetv2-101", TABLE_101, 44_541_480), ("resnetv2-50", TABLE_50, 25_549_352)]
)
def test_layer_table_and_size(name: str, table: Table, count: int) -> None:
    with torch.device("meta"):
        net, x = networks.build(name, 1000).eval(), torch.empty(1, 3, 224, 224)
    seen: dict[str, tuple[int, int, int, int, int]] = {}

    def note(name: str, module: nn.Conv2d, y: Tensor) -> None:
        assert module.padding == (module.kernel_size[0] // 2,) * 2
        seen[name] = (module.in_channels, module.out_channels, module.kernel_size[0], module.stride[0], y.shape[-1])

    for path, module in net.named_modules():
        if isinstance(module, nn.Conv2d):
            assert module.bias is None
            module.register_forward_hook(lambda m, _, y, path=path: note(path, m, y))
    assert net(x).shape == (1, 1000)
    assert seen == {path: tuple(row) for path, *row in layers(table)}
    assert sum(p.numel() for p in net.parameters()) == count == size(table, 1000)
    # 101 = the stem, three in each block, the head
    assert 2 + 3 * sum(row[0] for row in table) == int(name.rpartition("-")[2])


def test_names_are_those_of_timm() -> None:
    names = {"stem.conv.weight", *(f"norm.{end}" for end in ("weight", "bias", "running_mean", "running_var"))}
    for path, *_ in layers(TABLE_50):
        names.add(f"{path}.weight")
        block, _, conv = path.rpartition(".conv")
        if conv in ("1", "2", "3"):
            names |= {f"{block}.norm{conv}.{end}" for end in ("weight", "bias", "running_mean", "running_var")}
    with torch.device("meta"):
        ours = {
            name for name in networks.build("resnetv2-50", 2).state_dict() if not name.endswith("num_batches_tracked")
        }
    assert ours - {"head.weight", "head.bias"} == names


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
