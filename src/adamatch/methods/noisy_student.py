"""NoisyStudent (Xie et al., CVPR 2020): a teacher's confident soft predictions become labels of the next student."""

from collections.abc import Mapping
from typing import Any, Literal

from torch import Tensor, nn

from adamatch.methods import arguments
from adamatch.methods.baseline import Supervised
from adamatch.methods.contract import Batch, Method, Metrics, Phase


class NoisyStudent(Method):
    """The loss of teacher and students alike: supervised, with labels that may be soft.

    tau           predictions with a top probability above it are kept as labels
    generations   how many students follow the first teacher, each taught by the one before
    source_loss   "sum" of the two views' losses, or "half" of it, as in AdaMatch
    """

    unlabelled = False

    def __init__(
        self,
        classes: int,
        *,
        tau: float = 0.9,
        generations: int = 1,
        source_loss: Literal["sum", "half"] = "half",
    ) -> None:
        super().__init__()
        self.classes = classes
        self.tau = arguments.probability("tau", tau)
        arguments.count("generations", generations)  # of the run, not of the loss
        self.supervised = Supervised(classes, source_loss=source_loss)
        self.phases = [Phase(self.loss)]

    @classmethod
    def generations(cls, options: Mapping[str, Any]) -> int:
        return arguments.count("generations", options.get("generations", 1))

    def loss(self, net: nn.Module, batch: Batch) -> tuple[Tensor, Metrics]:
        return self.supervised.loss(net, batch)

    def keep(self, y: Tensor) -> Tensor:
        """Which predictions y [n, k] of the teacher become labels: bool [n]."""
        return y.amax(1) > self.tau
