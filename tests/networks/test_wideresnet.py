"""Wide residual networks against a plain float64 version of their published description, and their size."""

import copy
import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

from adamatch import networks
from adamatch.base.errors import InputError
from adamatch.networks import WideResNet
from adamatch.networks.norm import BatchNorm, unrecorded

State = dict[str, Tensor]


def tiny(seed: int = 0) -> WideResNet:
    """Three scales of two blocks, float64, with norms that do something."""
    torch.manual_seed(seed)
    net = WideResNet(5, widths=(4, 6, 8), blocks=2, stem=3).double()
    for module in net.modules():
        if isinstance(module, BatchNorm):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias)
            module.get_buffer("running_mean").normal_()
            module.get_buffer("running_var").uniform_(0.5, 2.0)
    return net


def norm_leaky(state: State, name: str, x: Tensor, training: bool) -> Tensor:
    mean = x.mean((0, 2, 3)) if training else state[f"{name}.running_mean"]
    var = ((x - mean[:, None, None]) ** 2).mean((0, 2, 3)) if training else state[f"{name}.running_var"]
    scale = state[f"{name}.weight"] / (var + 1e-6).sqrt()
    z = (x - mean[:, None, None]) * scale[:, None, None] + state[f"{name}.bias"][:, None, None]
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


def test_the_depth_in_the_name_counts_convolutions() -> None:
    """Zagoruyko and Komodakis: the stem, two in each block, and three skips, 6n + 4 in all."""
    net = networks.build("wrn-28-2", 10)
    assert sum(isinstance(module, nn.Conv2d) for module in net.modules()) == 28


def test_initial_weights_have_the_published_spread() -> None:
    torch.manual_seed(0)
    net = networks.build("wrn-28-2", 10)
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            std = math.sqrt(2 / (module.kernel_size[0] * module.kernel_size[1] * module.out_channels))
            near = 5 / math.sqrt(2 * module.weight.numel())  # five standard errors
            assert module.bias is None
            assert module.weight.std().item() == pytest.approx(std, rel=near)
            assert abs(module.weight.mean().item()) < 5 * std / math.sqrt(module.weight.numel())
        if isinstance(module, BatchNorm):
            assert (module.eps, module.momentum, module.slope) == (1e-6, 0.001, 0.1)
            assert module.weight.eq(1).all()
            assert module.bias.eq(0).all()
    head = net.get_parameter("head.weight")
    assert head.std().item() == pytest.approx(math.sqrt(2 / (128 + 10)), rel=5 / math.sqrt(2 * head.numel()))
    assert net.get_parameter("head.bias").eq(0).all()


@pytest.mark.parametrize("training", [True, False])
def test_forward_is_the_published_description(training: bool) -> None:
    net, x = tiny().train(training), torch.randn(6, 3, 12, 12, dtype=torch.float64)
    state = copy.deepcopy(net.state_dict())
    torch.testing.assert_close(net(x), plain(state, x, 3, 2, training), rtol=1e-9, atol=1e-9)


def test_gradients_are_those_of_the_published_description() -> None:
    net, x = tiny().train(), torch.randn(4, 3, 8, 8, dtype=torch.float64)
    names, values = zip(*net.named_parameters(), strict=True)
    state = dict(net.state_dict()) | dict(zip(names, values, strict=True))
    seed = torch.randn(4, 5, dtype=torch.float64)
    reference = torch.autograd.grad((plain(state, x, 3, 2, True) * seed).sum(), values)
    torch.testing.assert_close(torch.autograd.grad((net(x) * seed).sum(), values), reference, rtol=1e-8, atol=1e-9)


def test_features_are_what_the_head_reads() -> None:
    net, x = tiny().eval(), torch.randn(2, 3, 8, 8, dtype=torch.float64)
    assert net.features(x).shape == (2, 8)
    torch.testing.assert_close(net(x), net.head(net.features(x)))


def test_groups_equal_separate_forwards_and_record_the_last_one() -> None:
    net, a, b = tiny().train(), *torch.randn(2, 5, 3, 8, 8, dtype=torch.float64)
    apart, together = copy.deepcopy(net), net(torch.cat([a, b]), groups=(5, 5))
    with unrecorded(apart):
        first = apart(a)
    torch.testing.assert_close(together, torch.cat([first, apart(b)]))
    assert not torch.allclose(together, net(torch.cat([a, b])))
    for (name, value), other in zip(tiny().named_buffers(), apart.buffers(), strict=True):
        assert name.endswith("num_batches_tracked") or not torch.equal(value, other), name  # something was recorded
    both = copy.deepcopy(tiny()).train()
    both(torch.cat([a, b]), groups=(5, 5))
    torch.testing.assert_close(dict(both.named_buffers()), dict(apart.named_buffers()))


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
