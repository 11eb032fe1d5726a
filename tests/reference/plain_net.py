"""WRN-tiny in float64, block by block as the paper's code nests them, with batch-norm statistics written out."""

import torch
import torch.nn.functional as F
from torch import Tensor

SLOPE, EPSILON = 0.1, 1e-6
STRIDES = (1, 2, 2)  # of the three blocks: half the side at each scale after the first

Values = dict[str, Tensor]  # weights, or running statistics, by the names of a state dict


class Net:
    """A forward over `weights`. In training, batches are normalised by their own statistics; `record` keeps them."""

    def __init__(self, weights: Values, running: Values, momentum: float) -> None:
        self.weights, self.running, self.momentum = weights, running, momentum

    def logits(self, x: Tensor, *, training: bool, record: bool = False) -> Tensor:
        return self.head(self.features(x, training=training, record=record))

    def head(self, h: Tensor, name: str = "head") -> Tensor:
        return h @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def features(self, x: Tensor, *, training: bool, record: bool = False) -> Tensor:
        """x [n, 3, side, side] -> [n, d]."""

        def active(values: Tensor, norm: str) -> Tensor:
            y = self._normalised(values, norm, training, record)
            return torch.where(y > 0, y, SLOPE * y)

        x = F.conv2d(x, self.weights["stem.weight"], padding=1)
        for number, stride in enumerate(STRIDES):
            block = f"blocks.{number}"
            y = active(x, f"norms.{number}")
            if number == 0:
                x = y  # the first block of all activates before its skip
            if f"{block}.skip.weight" in self.weights:
                x = F.conv2d(x, self.weights[f"{block}.skip.weight"], stride=stride)
            y = F.conv2d(y, self.weights[f"{block}.conv1.weight"], stride=stride, padding=1)
            x = x + F.conv2d(active(y, f"{block}.norm"), self.weights[f"{block}.conv2.weight"], padding=1)
        return active(x, f"norms.{len(STRIDES)}").mean((2, 3))

    def _normalised(self, x: Tensor, norm: str, training: bool, record: bool) -> Tensor:
        mean, var = self.running[f"{norm}.running_mean"], self.running[f"{norm}.running_var"]
        if training:
            count = x.numel() // x.shape[1]
            mean = x.sum((0, 2, 3)) / count
            var = ((x - mean[:, None, None]) ** 2).sum((0, 2, 3)) / count
            if record:
                self._record(f"{norm}.running_mean", mean)
                self._record(f"{norm}.running_var", var * count / (count - 1))
        scale = self.weights[f"{norm}.weight"] / torch.sqrt(var + EPSILON)
        return (x - mean[:, None, None]) * scale[:, None, None] + self.weights[f"{norm}.bias"][:, None, None]

    def _record(self, name: str, value: Tensor) -> None:
        self.running[name] = (1 - self.momentum) * self.running[name] + self.momentum * value.detach()
