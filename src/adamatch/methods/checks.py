"""What a training loop of one's own gives a method: checked, and completed, before the equations see it."""

from typing import Any

import torch
from torch import Tensor, nn

from adamatch.base.errors import InputError, shortened


def images(**given: Tensor) -> None:
    """Weak and strong views, by name: of the same images where the names say so, all of one shape, dtype and device."""
    for name, x in given.items():
        if not isinstance(x, Tensor):
            raise InputError(f"{name} is a tensor of images, not {type(x).__name__}")
        if not x.is_floating_point():
            how = "make it float with adamatch.augment.views.normalise"
            raise InputError(f"{name} holds {_dtype(x)}, and a network needs floats: {how}")
        if x.ndim < 2 or not len(x):
            raise InputError(f"{name} has the shape {list(x.shape)}: images are [n, 3, height, width], at least one")
    first, like = next(iter(given.items()))
    for name, x in given.items():
        for what, its, wanted in (
            ("images of the shape", list(x.shape[1:]), list(like.shape[1:])),
            ("values of", _dtype(x), _dtype(like)),
            ("images on", str(x.device), str(like.device)),
        ):
            if its != wanted:
                raise InputError(f"{name} holds {what} {its}, {first} {wanted}: they share a batch, and must agree")
    for weak, strong in (("x_sl_w", "x_sl_s"), ("x_tu_w", "x_tu_s")):
        if len(given[weak]) != len(given[strong]):
            counts = f"{weak} has {len(given[weak])} images and {strong} {len(given[strong])}"
            raise InputError(f"{counts}: they are two views of the same images")


def probabilities(y_sl: Tensor, x_sl: Tensor, classes: int) -> Tensor:
    """Class indices [n], or probabilities [n, k] as they are, as probabilities [n, k]."""
    if not isinstance(y_sl, Tensor):
        raise InputError(f"y_sl is a tensor of labels, not {type(y_sl).__name__}")
    if y_sl.device != x_sl.device:
        raise InputError(f"y_sl is on {y_sl.device}, the images are on {x_sl.device}: move the labels there")
    n, shape = len(x_sl), list(y_sl.shape)
    if y_sl.is_floating_point():
        if shape != [n, classes]:
            kinds = f"probabilities are [{n}, {classes}] here, class indices whole numbers [{n}] (y_sl.long())"
            raise InputError(f"y_sl holds floats of the shape {shape}: {kinds}")
        return y_sl.to(precision(x_sl))
    if shape != [n] or y_sl.dtype == torch.bool:
        raise InputError(f"y_sl is {_dtype(y_sl)} {shape}: give class indices [{n}], one for each labelled image")
    low, high = (int(end) for end in y_sl.long().aminmax())
    if low < 0 or high >= classes:
        raise InputError(f"y_sl runs from {low} to {high}, but there are {classes} classes: 0 to {classes - 1}")
    return nn.functional.one_hot(y_sl.long(), classes).to(precision(x_sl))


def part_done(progress: float | Tensor, x: Tensor) -> Tensor:
    """How much of the run is done, as a tensor []."""
    if isinstance(progress, Tensor):
        if progress.numel() != 1:
            raise InputError(f"progress is one number, not {list(progress.shape)}")
        return progress.detach().to(x.device, precision(x)).reshape(())
    if not isinstance(progress, (int, float)) or not 0 <= progress <= 1:
        raise InputError(f"progress is the part of the run that is done, from 0 to 1, not {shortened(progress)}")
    return torch.tensor(progress, dtype=precision(x), device=x.device)


def factors(lam: Tensor | None, x_sl: Tensor, classes: int, generator: torch.Generator | None) -> Tensor:
    """One for each logit of both views [2n, k]; drawn where none are given."""
    shape = (2 * len(x_sl), classes)
    if lam is None:
        where = x_sl.device if generator is None else generator.device
        return torch.rand(shape, dtype=precision(x_sl), device=where, generator=generator).to(x_sl.device)
    if not isinstance(lam, Tensor) or lam.shape != shape:
        found = list(lam.shape) if isinstance(lam, Tensor) else type(lam).__name__
        raise InputError(f"lam is {list(shape)}, one number for each logit of both views, not {found}: or leave it out")
    return lam.to(x_sl.device, precision(x_sl))


def precision(x: Tensor) -> torch.dtype:
    """What the loss is computed in: single, where images are half or single."""
    return torch.promote_types(x.dtype, torch.float32)


class Logits(nn.Module):
    """A network whose output is checked."""

    def __init__(self, net: nn.Module, classes: int) -> None:
        super().__init__()
        if not isinstance(net, nn.Module):
            raise InputError(f"net is a torch module, not {shortened(net)}")
        self.net, self.classes = net, classes
        self.takes_groups = getattr(net, "takes_groups", False)

    def forward(self, x: Tensor, **groups: Any) -> Tensor:
        z = self.net(x, **groups)
        if not isinstance(z, Tensor):
            how = "wrap it in a module whose forward returns the logits"
            raise InputError(f"the network gives {type(z).__name__}, not a tensor of logits: {how}")
        if z.shape != (len(x), self.classes):
            wanted = f"{self.classes} classes need [{len(x)}, {self.classes}]"
            raise InputError(f"the network gives {list(z.shape)} for {len(x)} images: {wanted}")
        return z


def _dtype(x: Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")
