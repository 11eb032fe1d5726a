"""Batch norm with groups against float64 arithmetic written out, and against PyTorch's own module."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from adamatch.networks.norm import (
    BatchNorm,
    depends_on_batch,
    estimate_statistics,
    has_batch_norm,
    keep_statistics,
    unrecorded,
)


def layer(channels: int = 6, slope: float = 0.1) -> BatchNorm:
    norm = BatchNorm(channels, slope=slope)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    norm.get_buffer("running_mean").normal_()
    norm.get_buffer("running_var").uniform_(0.5, 2.0)
    return norm


def by_hand(x: np.ndarray, norm: BatchNorm) -> np.ndarray:
    """One group, float64, as the definition says."""
    x = x.astype(np.float64)
    mean, var = x.mean((0, 2, 3), keepdims=True), x.var((0, 2, 3), keepdims=True)
    weight, bias = (p.detach().double().numpy()[:, None, None] for p in (norm.weight, norm.bias))
    z = (x - mean) / np.sqrt(var + 1e-6) * weight + bias
    return np.asarray(np.where(z > 0, z, norm.slope * z))


def images(n: int = 10, channels: int = 6) -> Tensor:
    return (torch.randn(n, channels, 3, 5) * 2 + 1).contiguous(memory_format=torch.channels_last)


@settings(max_examples=20)
@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4), slope=st.sampled_from([0.1, 1.0]))
def test_each_group_has_statistics_of_its_own(sizes: list[int], slope: float) -> None:
    norm, x = layer(slope=slope), images(sum(sizes))
    expected = np.concatenate([by_hand(part.numpy(), norm) for part in torch.split(x, sizes)])
    y = norm(x, groups=tuple(sizes))
    np.testing.assert_allclose(y.detach().numpy(), expected, rtol=1e-4, atol=1e-5)
    assert y.is_contiguous(memory_format=torch.channels_last)


def test_only_the_last_group_is_recorded_with_its_unbiased_variance() -> None:
    norm, x = layer(), images()
    assert norm.running_mean is not None
    assert norm.running_var is not None
    mean, var = norm.running_mean.double(), norm.running_var.double()
    norm(x, groups=(4, 6))
    last = x[4:].double()
    for value, expected in (
        (norm.running_mean, 0.999 * mean + 0.001 * last.mean((0, 2, 3))),
        (norm.running_var, 0.999 * var + 0.001 * last.var((0, 2, 3), correction=1)),
    ):
        torch.testing.assert_close(value.double(), expected, rtol=1e-6, atol=1e-7)


def test_evaluation_uses_and_keeps_the_running_statistics() -> None:
    norm, x = layer().eval(), images()
    before = copy.deepcopy(norm.state_dict())
    together, alone = norm(x), norm(x[:1])
    torch.testing.assert_close(together[:1], alone)
    assert all(torch.equal(before[key], value) for key, value in norm.state_dict().items())


def test_add_is_the_sum_and_its_activation() -> None:
    norm, a, b = layer(), images(), images()
    total, y = norm.add(a, b, groups=(3, 7))
    torch.testing.assert_close(total, a + b)
    with unrecorded(norm):
        torch.testing.assert_close(y, norm(a + b, groups=(3, 7)))


def test_statistics_are_float32_for_bfloat16_images() -> None:
    norm, x = layer(), images(64).bfloat16()
    y = norm(x, groups=(20, 44))
    assert y.dtype == torch.bfloat16
    expected = np.concatenate([by_hand(part.float().numpy(), norm) for part in torch.split(x, [20, 44])])
    assert np.linalg.norm(y.detach().float().numpy() - expected) / np.linalg.norm(expected) < 4e-3


@pytest.mark.parametrize("make", [BatchNorm, nn.BatchNorm2d])
def test_unrecorded_leaves_every_buffer_alone(make: type[nn.Module]) -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 1), make(4))
    before, x = copy.deepcopy(net.state_dict()), torch.randn(8, 3, 4, 4)
    with unrecorded(net):
        y = net(x)
    assert all(torch.equal(before[key], value) for key, value in net.state_dict().items())
    torch.testing.assert_close(y, net(x))
    assert not torch.equal(before["1.running_mean"], net.state_dict()["1.running_mean"])


@pytest.mark.parametrize("make", [BatchNorm, nn.BatchNorm2d])
def test_estimated_statistics_are_the_mean_over_batches(make: type[nn.Module]) -> None:
    norm, batches = make(4), [torch.randn(8, 4, 3, 3) * scale + scale for scale in (1, 2, 5)]
    momentum = norm.momentum
    estimate_statistics(norm, batches)
    expected = np.mean([[x.numpy().mean((0, 2, 3)), x.numpy().var((0, 2, 3), ddof=1)] for x in batches], 0)
    np.testing.assert_allclose(norm.get_buffer("running_mean"), expected[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(norm.get_buffer("running_var"), expected[1], rtol=1e-5)
    assert norm.momentum == momentum


@pytest.mark.parametrize("make", [BatchNorm, nn.BatchNorm2d])
def test_statistics_that_were_not_trained_stay_as_they_are(make: type[nn.Module]) -> None:
    net = nn.Sequential(make(4), make(4))
    for norm in net:
        norm.get_buffer("running_mean").normal_()
    like = copy.deepcopy(net)
    like[1].get_buffer("running_mean").normal_()
    x = torch.randn(8, 4, 3, 3)
    expected = net[0].eval()(x).mean((0, 2, 3))
    estimate_statistics(net, [x], like=like)
    assert torch.equal(net[0].get_buffer("running_mean"), like[0].get_buffer("running_mean"))
    torch.testing.assert_close(net[1].get_buffer("running_mean"), expected)
    before = copy.deepcopy(net.state_dict())
    estimate_statistics(net, iter([x]), like=copy.deepcopy(net))
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())


@pytest.mark.parametrize("make", [BatchNorm, nn.BatchNorm2d])
def test_kept_statistics_normalise_training_batches_until_it_trains_anew(make: type[nn.Module]) -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 1), make(4), nn.Dropout()).train()
    nn.init.normal_(net.get_buffer("1.running_mean"))
    before, x = copy.deepcopy(net.state_dict()), torch.randn(8, 3, 4, 4)
    expected = net.eval()(x)
    assert depends_on_batch(net.train())
    keep_statistics(net)
    assert not depends_on_batch(net)
    assert has_batch_norm(net)
    assert net[2].training
    torch.testing.assert_close(net[:2](x), expected)
    net[:2](x).square().sum().backward()
    assert all(each.grad is not None and each.grad.abs().sum() > 0 for each in net.parameters())
    assert all(torch.equal(before[key], value) for key, value in net.state_dict().items())
    net.train()(x)
    assert not torch.equal(before["1.running_mean"], net.get_buffer("1.running_mean"))


def test_recording_returns_after_an_error() -> None:
    net = nn.BatchNorm1d(4)
    with pytest.raises(ValueError, match="2D or 3D"), unrecorded(net):
        net(torch.randn(4))
    assert net.track_running_stats


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.first, self.second = nn.Conv2d(6, 6, 3, padding=1), layer(), layer()

    def forward(self, x: Tensor, groups: tuple[int, ...] | None = None) -> Tensor:
        total, y = self.second.add(self.conv(self.first(x, groups)), x, groups)
        return total + y


def test_compiles_as_one_graph() -> None:
    torch.manual_seed(0)
    net, x = Two(), images()
    plain = copy.deepcopy(net)
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    for groups in (None, (4, 6)):
        with unrecorded(net), unrecorded(plain):
            torch.testing.assert_close(compiled(x, groups=groups), plain(x, groups=groups))
        torch.testing.assert_close(compiled(x, groups=groups), plain(x, groups=groups))
        torch.testing.assert_close(net.second.running_var, plain.second.running_var)
