"""Modules of one's own as data: what they compute comes back, and nothing else can be made to run."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from colours import CLASSES, arrays, network
from torch import Tensor, nn
from torch.nn.functional import interpolate, scaled_dot_product_attention

from adamatch import Model, load, networks
from adamatch.base.errors import InputError
from adamatch.networks import graph
from adamatch.networks.graph import Graph, describe
from adamatch.train import speed


class Attention(nn.Module):
    """Patches, a class token, heads: sizes that depend on the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, 16))
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        tokens = torch.cat([self.token.expand(len(x), -1, -1), self.patches(x).flatten(2).transpose(1, 2)], 1)
        heads = tokens.view(len(x), -1, 2, 8).transpose(1, 2)
        mixed = scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).reshape(len(x), -1, 16)
        logits: Tensor = self.head(mixed[:, 0])
        return logits


class Constants(nn.Module):
    """Tensors beside its state dict, made on the device, and a resize."""

    shift: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.plain = torch.tensor([1.0, 2.0, 4.0])
        self.register_buffer("shift", torch.tensor(0.5), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        means = interpolate(x, scale_factor=2.0, mode="bilinear").mean((2, 3)) * self.plain + self.shift
        logits: Tensor = self.linear(means) + torch.arange(3, device=x.device) + torch.zeros(len(x), 3, device=x.device)
        return logits


class Undecided(nn.Module):
    """Asks its data which way to go."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.linear(x.mean((2, 3)))
        return logits if x.sum() > 0 else -logits


@pytest.mark.parametrize("net", [Attention(), Constants(), network(norm=True)], ids=["attention", "constants", "norm"])
def test_a_graph_computes_what_the_module_does(net: nn.Module) -> None:
    graph = Graph(describe(net, 8), net.state_dict())
    assert graph.state_dict().keys() == net.state_dict().keys()
    for count in (1, 2, 7):
        images = torch.randn(count, 3, 8, 8)
        assert torch.allclose(graph(images), net.eval()(images), atol=1e-6)
    assert describe(graph, 8)  # a copy can be copied


def test_a_saved_module_is_opened_without_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(network(norm=True).eval(), CLASSES, 8, machine=speed.choose("cpu"))
    model.save(tmp_path)
    images = arrays(6)[0]
    again = load(tmp_path, device="cpu")
    assert np.abs(again.predict(images).probabilities - model.predict(images).probabilities).max() < 1e-6
    monkeypatch.setattr("adamatch.networks.graph.export", None)
    model.save(tmp_path)  # what still holds is not made again
    assert json.loads((tmp_path / "model.json").read_text())["closed"] == ""
    Model(network(norm=False).eval(), CLASSES, 8, machine=speed.choose("cpu")).save(tmp_path)
    assert not (tmp_path / "network.json").exists()  # of another network it is not kept


def test_what_cannot_be_exported_says_what_to_do(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Model(Undecided().eval(), CLASSES, 8, machine=speed.choose("cpu")).save(tmp_path)
    with pytest.raises(InputError, match=r"torch\.export cannot take Undecided .*give it as net= to adamatch\.load"):
        load(tmp_path)
    assert load(tmp_path, net=Undecided(), device="cpu").classes == CLASSES
    assert capfd.readouterr() == ("", "")  # torch prints whole programs where it fails


@pytest.mark.parametrize(
    "name",
    ["aten::from_file.default", "aten::__class__.mro", "os::system", "aten::add", "eval", "aten::_assert_async.msg"],
)
def test_nothing_runs_but_core_operators(tmp_path: Path, name: str) -> None:
    model = Model(network(norm=False).eval(), CLASSES, 8, machine=speed.choose("cpu"))
    model.save(tmp_path)
    facts = json.loads((tmp_path / "network.json").read_text())
    facts["steps"][0][0] = name
    (tmp_path / "network.json").write_text(json.dumps(facts))
    with pytest.raises(InputError, match="core operators"):
        load(tmp_path)


@pytest.mark.parametrize("damage", ["", "{}", "[1]", '{"version": 9}'])
def test_a_damaged_description_is_refused(tmp_path: Path, damage: str) -> None:
    Model(network(norm=False).eval(), CLASSES, 8, machine=speed.choose("cpu")).save(tmp_path)
    (tmp_path / "network.json").write_text(damage)
    with pytest.raises(InputError, match=r"network\.json cannot be used"):
        load(tmp_path)


def test_a_name_of_torch_must_be_of_its_kind() -> None:
    net = Constants()
    text = (
        describe(net, 8)
        .replace('{"dtype": "float32"}', '{"dtype": "load"}')
        .replace('{"layout": "strided"}', '{"layout": "os"}')
    )
    with pytest.raises(TypeError, match="is no"):
        Graph(text, net.state_dict())(torch.zeros(1, 3, 8, 8))


@pytest.mark.parametrize("name", ["wrn-tiny", "efficientnet-lite0"])
def test_the_packages_networks_leave_open_how_many_images_come(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else torch.export has to read their code, which takes twice as long."""
    ways, whole = [], torch.export.export

    def watched(*args: Any, strict: bool, **kwargs: Any) -> torch.export.ExportedProgram:
        ways.append(strict)
        return whole(*args, strict=strict, **kwargs)

    monkeypatch.setattr(torch.export, "export", watched)
    program = graph.export(networks.build(name, 3).eval(), torch.randn(3, 3, 32, 32))
    assert ways == [False]
    assert program.module()(torch.randn(5, 3, 32, 32)).shape == (5, 3)
