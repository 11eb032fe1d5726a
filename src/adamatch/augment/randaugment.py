"""RandAugment (Cubuk et al., 2020) over CTAugment's operations, at random levels as in FixMatch: nothing is learned."""

import torch
from torch import Tensor, nn

from adamatch.augment.ops import OPS, Tables, apply

PER_OPERATION = 3  # uniforms: operation, level, rescale's method
CUTOUT = OPS.index("cutout")  # left out, because every strong view ends with one


class RandAugment(nn.Module):
    """`depth` operations per image, each at a random level; a function of images and uniforms u [B,draws] alone."""

    def __init__(self, size: int, depth: int = 2, translate: str = "meant") -> None:
        super().__init__()
        self.draws = PER_OPERATION * depth
        self.tables = Tables(size, translate)

    def forward(self, x: Tensor, u: Tensor) -> Tensor:
        """x uint8 [B,3,size,size], u [B,draws] -> uint8 [B,3,size,size]."""
        for choice, level, level2 in (part.unbind(1) for part in torch.split(u, PER_OPERATION, dim=1)):
            op = (choice * (len(OPS) - 1)).long()
            op = op + (op >= CUTOUT).long()
            x = apply(x, op, level, level2, u[:, :2], self.tables)
        return x
