"""Learning from labelled images alone: without the unlabelled ones, or with them in batch norm only (appendix B)."""

from typing import Literal

from torch import Tensor, nn

from adamatch.methods import arguments, parts
from adamatch.methods.contract import Batch, Method, Metrics, Phase


class Supervised(Method):
    """Weak and strong views of the labelled batch: "source-only"; the Oracle where both domains have labels.

    source_loss   "sum" of the two views' losses, or "half" of it, as in AdaMatch
    """

    unlabelled = False

    def __init__(self, classes: int, *, source_loss: Literal["sum", "half"] = "half") -> None:
        super().__init__()
        self.classes = classes
        self.view_weight = arguments.view_weight(source_loss)
        self.phases = [Phase(self.loss)]

    def loss(self, net: nn.Module, batch: Batch) -> tuple[Tensor, Metrics]:
        z_w, z_s = parts.forward_joint(net, batch.x_sl_w, batch.x_sl_s)
        loss = self.view_weight * (parts.labelled_mean(batch.y_sl, z_w) + parts.labelled_mean(batch.y_sl, z_s))
        return loss, {"loss_source": loss.detach()}


class BaselineBN(Method):
    """The same loss, with unlabelled images in the batch: they move batch-norm statistics only; appendix B."""

    def __init__(self, classes: int, *, source_loss: Literal["sum", "half"] = "half") -> None:
        super().__init__()
        self.classes = classes
        self.view_weight = arguments.view_weight(source_loss)
        self.phases = [Phase(self.loss)]

    def loss(self, net: nn.Module, batch: Batch) -> tuple[Tensor, Metrics]:
        z_sl_w, z_sl_s, _, _ = parts.forward_joint(net, batch.x_sl_w, batch.x_sl_s, batch.x_tu_w, batch.x_tu_s)
        loss = self.view_weight * (parts.labelled_mean(batch.y_sl, z_sl_w) + parts.labelled_mean(batch.y_sl, z_sl_s))
        return loss, {"loss_source": loss.detach()}
