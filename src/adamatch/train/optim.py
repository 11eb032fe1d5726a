"""SGD as the authors use it (momentum, a cosine that ends at a quarter, L2 on weights only), and AdamW."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from adamatch.config.recipe import Recipe


def learning_rate(start: float, end: float, progress: float) -> float:
    """start * cos(arccos(end) * progress): from `start` to `start * end`."""
    return start * math.cos(math.acos(end) * progress)


def make_optimiser(groups: list[dict[str, Any]], recipe: Recipe) -> torch.optim.Optimizer:
    """For groups whose learning rate is a tensor that the step refills, so that a captured step follows it."""
    if recipe.optimiser == "adamw":
        on_gpu = groups[0]["params"][0].is_cuda
        return torch.optim.AdamW(groups, betas=(recipe.momentum, 0.999), fused=True, capturable=on_gpu)
    return torch.optim.SGD(groups, momentum=recipe.momentum, fused=True)


def decay_weights(parameters: Sequence[nn.Parameter], weight_decay: float) -> list[dict[str, Any]]:
    """An optimiser's groups: weights are decayed, biases and norms are not."""
    decayed = [parameter for parameter in parameters if parameter.ndim > 1]
    free = [parameter for parameter in parameters if parameter.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": free, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def optimiser_state(parameter: nn.Parameter, saved: Tensor) -> Tensor:
    """Optimiser state of a parameter, from a checkpoint: on its device, in its memory layout."""
    like = torch.empty_like(parameter) if saved.shape == parameter.shape else torch.empty_like(saved)
    return like.detach().to(parameter.device).copy_(saved)
