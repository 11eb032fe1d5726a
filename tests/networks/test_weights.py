"""Starting weights: what is loaded, what is not, and what a person is told."""

import re
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor, nn

from adamatch.base.errors import InputError
from adamatch.networks import EfficientNetLite, ResNetV2, WideResNet, weights
from adamatch.networks.weights import Report, load_weights

State = dict[str, Tensor]
Net = TypeVar("Net", bound=nn.Module)


def wide(classes: int = 5, seed: int = 0, width: int = 4) -> WideResNet:
    torch.manual_seed(seed)
    return shaken(WideResNet(classes, widths=(width, 2 * width), blocks=2, stem=3))


def deep(classes: int = 5, seed: int = 0) -> ResNetV2:
    torch.manual_seed(seed)
    return shaken(ResNetV2(classes, blocks=(2, 1), width=4))


def shaken(net: Net) -> Net:
    """With statistics and norms of its own, so that two networks differ in every tensor."""
    for name, value in net.state_dict().items():
        if value.ndim == 1:
            value.uniform_(0.5, 2.0) if "var" in name else value.normal_()
    return net


def state_of(net: nn.Module) -> State:
    return {name: value.clone() for name, value in net.state_dict().items()}


def save(folder: Path, state: dict[str, Any], name: str = "weights.pt") -> Path:
    path = folder / name
    if name.endswith(".safetensors"):
        save_file(state, path)
    else:
        torch.save(state, path)
    return path


def agree(net: nn.Module, state: State, but: str = "no name") -> bool:
    ours = {name: value for name, value in net.state_dict().items() if value.is_floating_point()}
    return all(torch.equal(value, state[name]) for name, value in ours.items() if not name.startswith(but))


@pytest.mark.parametrize("build", [wide, deep])
@pytest.mark.parametrize("name", ["model.safetensors", "weights.pt", "weights.pth"])
def test_a_round_trip_loads_everything(build: Any, name: str, tmp_path: Path) -> None:
    there, here = state_of(build(seed=1)), build(seed=2)
    report = load_weights(here, save(tmp_path, there, name))
    assert agree(here, there)
    assert (report.fresh, dict(report.misfits), report.unused, report.notes) == ((), {}, (), ())
    assert report.share == 1.0
    assert "100.0% of the network's parameters" in str(report)
    assert "classifier: loaded" in str(report)


def test_a_head_for_other_classes_stays_new(tmp_path: Path) -> None:
    there, here = state_of(wide(7, seed=1)), wide(5, seed=2)
    before = state_of(here)
    report = load_weights(here, save(tmp_path, there))
    assert agree(here, there, but="head")
    assert torch.equal(here.head.weight, before["head.weight"])
    assert torch.equal(here.head.bias, before["head.bias"])
    assert (report.fresh, dict(report.misfits), report.unused) == ((), {}, ())
    assert "classifier: new, for your 5 classes (there it has 7)" in str(report)
    assert 0.9 < report.share < 1
    body = {name: value for name, value in there.items() if "head" not in name}
    assert "there is none there" in load_weights(here, save(tmp_path, body)).head


@pytest.mark.parametrize("prefix", ["module.", "model.", "net.", "module.model.", "_orig_mod.module."])
@pytest.mark.parametrize("container", [None, "state_dict", "model"])
def test_wrappers_and_containers(prefix: str, container: str | None, tmp_path: Path) -> None:
    there, here = state_of(wide(seed=1)), wide(seed=2)
    wrapped: dict[str, Any] = {prefix + name: value for name, value in there.items()}
    report = load_weights(here, save(tmp_path, {container: wrapped, "epoch": 3} if container else wrapped))
    assert agree(here, there)
    assert report.unused == ()
    assert f"{len(report.loaded)} of them have another name there" in str(report)


def test_a_network_whose_own_names_begin_with_a_wrapper(tmp_path: Path) -> None:
    here, there = nn.ModuleDict({"model": wide(seed=1)}), wide(seed=2)
    load_weights(here, save(tmp_path, state_of(there)))
    assert agree(here["model"], state_of(there))
    load_weights(there, save(tmp_path, state_of(nn.ModuleDict({"model": wide(seed=3)}))))
    assert agree(there, state_of(wide(seed=3)))


def as_torchvision(state: State) -> State:
    """A pre-activation network under torchvision's names."""
    renamed = {}
    for name, value in state.items():
        new = re.sub(r"stages\.(\d)\.blocks\.", lambda found: f"layer{int(found[1]) + 1}.", name)
        new = new.replace("stem.conv", "conv1").replace("downsample.conv", "downsample.0").replace("head", "fc")
        renamed[re.sub(r"\.norm(\d)\.", r".bn\1.", new)] = value
    return renamed


def test_timms_form_is_the_same_function(tmp_path: Path) -> None:
    teacher, here = deep(seed=1).eval(), deep(seed=2).eval()
    there = state_of(teacher)
    there["head.fc.weight"], there["head.fc.bias"] = there.pop("head.weight")[:, :, None, None], there.pop("head.bias")
    report = load_weights(here, save(tmp_path, there, "timm.safetensors"))
    x = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(here(x), teacher(x))
    assert report.share == 1.0


def test_of_a_network_without_pre_activation_only_convolutions_are_taken(tmp_path: Path) -> None:
    there, here = as_torchvision(state_of(deep(seed=1))), deep(seed=2)
    before, there = state_of(here), {name: value for name, value in there.items() if not name.startswith("norm.")}
    for name in list(there):
        if "bn3" in name and there[name].ndim:
            there[name] = torch.rand(4 * len(there[name]))  # there it stands after the last convolution
        if "bn1" in name and there[name].ndim:
            there[name] = there[name.replace("bn1", "bn2")].clone()
    report = load_weights(here, save(tmp_path, there))
    assert all(
        value.ndim == 4 for name, value in here.state_dict().items() if name in report.loaded and "head" not in name
    )
    assert torch.equal(here.get_parameter("stem.conv.weight"), there["conv1.weight"])
    name = "stages.0.blocks.0.norm1.weight"
    assert torch.equal(here.state_dict()[name], before[name])
    assert name in report.fresh
    assert "norms stand elsewhere" in str(report)


@pytest.mark.parametrize("prefix", ["", "net."])  # of a built-in network; of timm's inside of its wrapper
def test_the_names_of_imagenets_wheels_are_understood(prefix: str, tmp_path: Path) -> None:
    """EfficientNet-PyTorch numbers the blocks of all scales in one row, and norms from 0."""
    here = nn.ModuleDict({"net": EfficientNetLite(5)}) if prefix else EfficientNetLite(5)
    there = {
        "_conv_stem.weight": torch.randn(32, 3, 3, 3),
        "_bn0.bias": torch.randn(32),
        "_blocks.0._depthwise_conv.weight": torch.randn(32, 1, 3, 3),
        "_blocks.0._bn2.bias": torch.randn(16),
        "_blocks.3._expand_conv.weight": torch.randn(144, 24, 1, 1),  # the first block of the third scale
        "_blocks.3._bn2.bias": torch.randn(40),
        "_fc.weight": torch.randn(5, 1280),
        "_fc.bias": torch.randn(5),
    }
    names = ["conv_stem.weight", "bn1.bias", "blocks.0.0.conv_dw.weight", "blocks.0.0.bn2.bias"]
    names += ["blocks.2.0.conv_pw.weight", "blocks.2.0.bn3.bias", "head.weight", "head.bias"]
    report = load_weights(here, save(tmp_path, there))
    assert dict(report.loaded) == {prefix + name: other for name, other in zip(names, there, strict=True)}
    assert all(torch.equal(here.state_dict()[name], there[other]) for name, other in report.loaded.items())


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_tensor_is_loaded_fresh_or_a_misfit(data: st.DataObject, tmp_path: Path) -> None:
    here, there = wide(seed=2), state_of(wide(seed=1))
    body = [name for name, value in there.items() if value.is_floating_point() and "head" not in name]
    gone = set(data.draw(st.lists(st.sampled_from(body), max_size=8)))
    bent = set(data.draw(st.lists(st.sampled_from(body), max_size=8))) - gone
    state = {name: value[..., :1].repeat_interleave(11, -1) if name in bent else value for name, value in there.items()}
    report = load_weights(here, save(tmp_path, {name: value for name, value in state.items() if name not in gone}))
    assert set(report.fresh) == gone
    assert set(report.misfits) == bent
    assert set(report.loaded) == {*body, "head.weight", "head.bias"} - gone - bent
    assert report.unused == ()
    assert isinstance(report, Report)


def test_half_precision_and_extra_tensors(tmp_path: Path) -> None:
    there, here = state_of(wide(seed=1)), wide(seed=2)
    half = {name: value.half() if value.is_floating_point() else value for name, value in there.items()}
    report = load_weights(here, save(tmp_path, half | {"extra\x1b[2J": torch.zeros(3, 3, 3)}))
    assert here.stem.weight.dtype == torch.float32
    torch.testing.assert_close(here.stem.weight.detach(), half["stem.weight"].float())
    assert r"unused: 1: extra\x1b[2J" in str(report)
    without = {name: value for name, value in there.items() if "running" not in name}
    assert "no batch-norm statistics" in str(load_weights(here, save(tmp_path, without)))


def test_nothing_that_fits_is_an_error_and_changes_nothing(tmp_path: Path) -> None:
    here = wide()
    before, there = state_of(here), state_of(wide(seed=1))
    there = {name: value[..., :1, :1] for name, value in there.items() if value.ndim == 4 and "skip" not in name}
    shapes = r"\(stem.weight is 3x3x1x1 there and 3x3x3x3 here\)"
    with pytest.raises(InputError, match=f"none of its 9 tensors fits this network {shapes}"):
        load_weights(here, save(tmp_path, there))
    with pytest.raises(InputError, match="none of its 2 tensors fits this network: give weights of the same"):
        load_weights(here, save(tmp_path, {"a": torch.zeros(2), "b": torch.zeros(3, 3)}))
    assert agree(here, before)


def test_files_that_are_no_weights(tmp_path: Path) -> None:
    (tmp_path / "garbage.pt").write_bytes(b"garbage" * 100)
    (tmp_path / "empty.pt").write_bytes(b"")
    (tmp_path / "garbage.safetensors").write_bytes(b"garbage" * 100)
    torch.save(wide(), tmp_path / "module.pt")  # a pickled object could run code: only tensors are read
    torch.save([torch.zeros(3)], tmp_path / "list.pt")
    torch.save({"epoch": 3}, tmp_path / "none.pt")
    names = ("garbage.pt", "empty.pt", "garbage.safetensors", "module.pt", "list.pt", "none.pt", "absent.pt", "")
    for name in names:
        with pytest.raises(InputError) as error:
            load_weights(wide(), tmp_path / name)
        assert str(tmp_path) in str(error.value)
        assert "give a .safetensors file" in str(error.value)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "state",
    [
        {"a.weight": torch.ones(3, 3).to_sparse()},
        {"head.fc.weight": torch.ones(1).expand(10**6, 10**6, 1, 1)[:, ::2]},
        {"layer" + "9" * 5000 + ".0.conv1.weight": torch.ones(4, 3, 3, 3)},
        {1: {2: {3: torch.ones(1)}}, None: torch.ones(2), ("a", "b"): torch.ones(2, 2)},
    ],
    ids=["sparse", "larger than memory", "a name without end", "names that are none"],
)
def test_odd_weights_are_one_line(state: Any, tmp_path: Path) -> None:
    """They load as weights should; what they hold is no network's."""
    with pytest.raises(InputError, match=r"weights\.pt(:| cannot be read| holds no)") as error:
        load_weights(wide(), save(tmp_path, state))
    assert "\n" not in str(error.value)


def test_weights_of_timm_for_another_network_note_how_they_know_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "timm_state", lambda name: deep(1000, seed=1).state_dict())
    monkeypatch.setattr(weights, "timm_mean", lambda name: (0.485, 0.456, 0.406))
    here = deep(seed=2)
    report = load_weights(here, "timm:known")
    assert agree(here, state_of(deep(1000, seed=1)), but="head")
    assert "starting weights: timm:known" in str(report)
    assert "mean (0.485, 0.456, 0.406)" in str(report)
