"""The contract between a method and the loop: what a step is shown, and what it does with it.

Symbols are the paper's: `sl` source labelled, `tu` target unlabelled, `w` and `s` weak and strong view.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from adamatch.base.errors import InputError
from adamatch.methods import checks

Metrics = dict[str, Tensor]


class Batch(NamedTuple):
    """One step's input: images float [n, 3, h, w], labels as probabilities, progress of the run from 0 to 1."""

    x_sl_w: Tensor  # [n_sl, 3, h, w]
    x_sl_s: Tensor
    y_sl: Tensor  # [n_sl, k]
    x_tu_w: Tensor  # [n_tu, 3, h, w]
    x_tu_s: Tensor
    progress: Tensor  # []
    lam: Tensor  # [2 * n_sl, k], uniform in [0, 1)
    y_tu_first: Tensor = torch.zeros(0)  # [n_tu, k], propagated labels times their weights; empty: there are none


class Phase(NamedTuple):
    """One update of a step: its loss, and which parameters follow it."""

    loss: Callable[[nn.Module, Batch], tuple[Tensor, Metrics]]
    trains: Literal["all", "features", "heads"] = "all"


class Pass(NamedTuple):
    """Images that go through the network at once."""

    images: int
    groups: tuple[int, ...] | None = None  # of images, where each is normalised by its own batch statistics
    trained: bool = True  # forwards and back; else forwards alone, which is a third of the work


class Method(nn.Module):
    """The contract with the loop: what a step does, phase by phase. State that a method carries is its buffers."""

    classes: int
    phases: list[Phase]
    unlabelled: bool = True  # whether it looks at unlabelled images
    weight_decay: bool = True  # whether the recipe's weight decay applies

    def forward(
        self,
        net: nn.Module,
        *,
        x_sl_w: Tensor,
        x_sl_s: Tensor,
        y_sl: Tensor,
        x_tu_w: Tensor,
        x_tu_s: Tensor,
        progress: float | Tensor,
        lam: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[Tensor, Metrics]:
        """The loss of one step and its metrics, for a training loop of one's own. The input is checked.

        net             a module that gives logits [n, classes]
        x_sl_w, x_sl_s  weak and strong views of labelled images, float [n, 3, height, width]
        y_sl            their labels: class indices [n], or probabilities [n, classes]
        x_tu_w, x_tu_s  weak and strong views of unlabelled images; there may be more of them
        progress        how much of the run is done, from 0 to 1: step / steps
        lam             factors of the interpolation, [2n, classes]; None: drawn from torch's generator, or `generator`

        Checking labels waits for the device once a step; `loss`, which takes a `Batch` and checks nothing, does not.
        """
        if len(self.phases) != 1:
            name, count = type(self).__name__, len(self.phases)
            raise InputError(f"{name} has {count} updates a step: call the loss of each of its `phases` with a Batch")
        checks.images(x_sl_w=x_sl_w, x_sl_s=x_sl_s, x_tu_w=x_tu_w, x_tu_s=x_tu_s)
        for own in self.buffers():
            if own.device != x_sl_w.device:
                where = f"the images are on {x_sl_w.device}, the method's averages on {own.device}"
                raise InputError(f"{where}: call .to({str(x_sl_w.device)!r}) of the method, too")
        batch = Batch(
            x_sl_w,
            x_sl_s,
            checks.probabilities(y_sl, x_sl_w, self.classes),
            x_tu_w,
            x_tu_s,
            checks.part_done(progress, x_sl_w),
            checks.factors(lam, x_sl_w, self.classes, generator),
        )
        return self.phases[0].loss(checks.Logits(net, self.classes), batch)

    @classmethod
    def passes(cls, labelled: int, unlabelled: int) -> list[Pass]:
        """What a step sends through the network, of so many images of each kind: by default both views at once."""
        return [Pass(2 * labelled + (2 * unlabelled if cls.unlabelled else 0))]

    @classmethod
    def images_per_step(cls, labelled: int, unlabelled: int) -> float:
        """The cost of a step: images that go forwards and back through the network; forwards alone counts a third."""
        return sum(each.images * (1 if each.trained else 1 / 3) for each in cls.passes(labelled, unlabelled))

    @classmethod
    def generations(cls, options: Mapping[str, Any]) -> int:
        """How many networks are trained before the last one, each to teach the next."""
        return 0

    @property
    def shares(self) -> Tensor | None:
        """How often each class comes in the target [k], as far as the method knows."""
        return None
