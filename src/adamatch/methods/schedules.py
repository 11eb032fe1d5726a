"""What changes over a run, by its progress from 0 to 1."""

import torch
from torch import Tensor


def warm_up(progress: Tensor, over: float = 0.5) -> Tensor:
    """mu(t): from 0 to 1 by a cosine over the first half (or another part) of the run, then 1; section 3.1."""
    return 0.5 - torch.cos(torch.clamp(torch.pi / over * progress, max=torch.pi)) / 2


def let_go(progress: Tensor) -> Tensor:
    """1 in the first half of the run, then by a cosine to 0: alignment fades out as the target loss faded in."""
    return 0.5 + torch.cos(torch.clamp(2 * torch.pi * progress - torch.pi, min=0)) / 2
