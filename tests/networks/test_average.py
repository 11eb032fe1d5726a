"""The weight average against its formula, written out in NumPy."""

import numpy as np
import torch
from torch import nn

from adamatch.networks import WeightAverage, WideResNet
from adamatch.networks.average import mean_of


def tiny(seed: int = 0) -> WideResNet:
    torch.manual_seed(seed)
    return WideResNet(3, widths=(4, 6), blocks=1, stem=3)


def disturb(net: nn.Module) -> None:
    with torch.no_grad():
        for value in net.state_dict().values():
            value.copy_(torch.rand_like(value) if value.is_floating_point() else value + 1)


def test_weights_and_statistics_follow_the_formula_and_counters_are_copied() -> None:
    net = tiny()
    average = WeightAverage(net, decay=0.9)
    expected = {name: value.double().numpy().copy() for name, value in net.state_dict().items()}
    for _ in range(4):
        disturb(net)
        average.update(net)
        for name, value in net.state_dict().items():
            new = value.double().numpy()
            expected[name] = 0.9 * expected[name] + 0.1 * new if value.is_floating_point() else new.copy()
    names = {name.rpartition(".")[2] for name in expected}
    assert names == {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}
    for name, value in average.net.state_dict().items():
        np.testing.assert_allclose(value.numpy(), expected[name], rtol=1e-5, atol=1e-7, err_msg=name)


def test_a_mask_of_attention_stays_as_it_is() -> None:
    net = nn.Linear(2, 2)
    net.register_buffer("mask", torch.tensor([0, float("-inf")]))
    average = WeightAverage(net)
    average.update(net)
    assert torch.equal(average.net.state_dict()["mask"], torch.tensor([0, float("-inf")]))


def test_tied_weights_are_averaged_once() -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 2, bias=False)
    second.weight = first.weight
    net = nn.Sequential(first, second)
    average = WeightAverage(net, decay=0.9)
    before = first.weight.detach().clone()
    disturb(net)
    average.update(net)
    torch.testing.assert_close(average.net.state_dict()["1.weight"], 0.9 * before + 0.1 * first.weight.detach())


def test_it_always_evaluates_and_is_never_trained() -> None:
    net = tiny().train()
    average = WeightAverage(net).train()
    assert not any(module.training for module in average.net.modules())
    assert not any(parameter.requires_grad for parameter in average.parameters())
    assert net.training
    assert all(parameter.requires_grad for parameter in net.parameters())
    x, before = torch.randn(4, 3, 8, 8), {name: value.clone() for name, value in average.state_dict().items()}
    torch.testing.assert_close(average(x), net.eval()(x))
    torch.testing.assert_close(dict(average.state_dict()), before)  # a forward records nothing


def test_several_networks_have_a_mean_in_which_each_counts_the_same() -> None:
    nets = [tiny(seed) for seed in range(3)]
    for net in nets:
        disturb(net)
    mean = mean_of(iter(nets)).state_dict()
    for name, value in mean.items():
        each = [net.state_dict()[name].double() for net in nets]
        assert not value.is_floating_point() or np.allclose(value.numpy(), sum(each).numpy() / 3, atol=1e-6)
