"""SGD as the authors use it: momentum, a cosine that ends at a quarter, L2 on weights only."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


def learning_rate(start: float, end: float, progress: float) -> float:
    """start * cos(arccos(end) * progress): from `start` to `start * end`."""
    return start * math.cos(math.acos(end) * progress)


def sgd(parameters: Sequence[nn.Parameter], *, lr: Tensor, momentum: float, weight_decay: float) -> torch.optim.SGD:
    """`lr` is a tensor that the loop refills, so that a captured step follows it."""
    return torch.optim.SGD(decay_weights(parameters, weight_decay), lr=lr, momentum=momentum, fused=True)


def decay_weights(parameters: Sequence[nn.Parameter], weight_decay: float) -> list[dict[str, Any]]:
    """An optimiser's groups: weights are decayed, biases and norms are not."""
    decayed = [parameter for parameter in parameters if parameter.ndim > 1]
    free = [parameter for parameter in parameters if parameter.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": free, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]
