"""Means and variances of a batch [groups, 2, C]: recorded, and made those of all ranks."""

import torch
from torch import Tensor

from adamatch.base import ranks


def record(
    stats: Tensor, pixels: int, running_mean: Tensor | None, running_var: Tensor | None, momentum: float, shared: bool
) -> None:
    """Running statistics, if there are any, towards the last group's, the variance unbiased as PyTorch has it.

    pixels: of the last group on this rank; `shared`: `stats` are of all ranks.
    """
    if running_mean is None or running_var is None:
        return
    count = pixels * ranks.count() if shared else pixels
    mean, var = stats[-1, 0], stats[-1, 1] * (count / max(1, count - 1))
    torch._foreach_lerp_([running_mean, running_var], [mean, var], momentum)


def of_all_ranks(stats: Tensor) -> Tensor:
    """Mean and biased variance [groups, 2, C] of this rank's images -> of all ranks' (as many each; Chan et al.)."""
    each = ranks.every(stats)  # [ranks, groups, 2, C]
    mean = each[:, :, 0].mean(0)
    var = each[:, :, 1].mean(0) + (each[:, :, 0] - mean).square().mean(0)
    return torch.stack([mean, var], 1)
