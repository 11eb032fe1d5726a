"""From a batch of uint8 images to its weak and strong views, normalised; and the probes from which CTAugment learns."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from adamatch.augment.ctaugment import CTAugment, Policy
from adamatch.augment.randaugment import RandAugment
from adamatch.augment.weak import cutout, shift_mirror
from adamatch.base.errors import InputError, unknown

WEAK, CUTOUT = 3, 2  # uniforms per image
STRONG: dict[str, Callable[[int], nn.Module] | None] = {
    "cutout": None,
    "cta": CTAugment,
    "cta-published": partial(CTAugment, translate="published"),  # whose translations move nothing
    "randaugment": RandAugment,
}


def normalise(x: Tensor) -> Tensor:
    """uint8 -> float in about [-1, 1], as the authors do. What frozen layers have made of images stays as it is."""
    return (x.float() - 127.5) / 128 if x.dtype == torch.uint8 else x.float()


class Views(nn.Module):
    """Weak: shift and mirror. Strong: shift and mirror, then `strong`, then cutout of half the side.

    `draws` says how many uniforms per image each call takes.
    """

    def __init__(self, size: int, *, strong: str = "cta", mirror: bool = True) -> None:
        super().__init__()
        if strong not in STRONG:
            raise unknown("strong view", strong, STRONG)
        make = STRONG[strong]
        self.policy = make(size) if make else None
        self.size, self.mirror = size, mirror
        self.policy_draws = int(getattr(self.policy, "draws", 0))
        self.draws = 2 * WEAK + self.policy_draws + CUTOUT

    def forward(self, x: Tensor, u: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """x: uint8 [B, 3, H, W], u: uniforms [B, draws] (None: drawn here) -> weak and strong, float [B, 3, H, W]."""
        if u is None:  # a loop of one's own: what it gives is checked
            if not isinstance(x, Tensor) or x.dtype != torch.uint8 or x.shape[1:] != (3, self.size, self.size):
                found = f"{x.dtype} {list(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
                raise InputError(f"views are made of uint8 images [n, 3, {self.size}, {self.size}], not of {found}")
            u = torch.rand(len(x), self.draws, device=x.device)
        for_weak, for_strong, for_policy, for_cutout = torch.split(u, [WEAK, WEAK, self.policy_draws, CUTOUT], dim=1)
        weak = shift_mirror(x, for_weak, mirror=self.mirror)
        strong = shift_mirror(x, for_strong, mirror=self.mirror)
        if self.policy is not None:
            strong = self.policy(strong, for_policy)
        return normalise(weak), normalise(cutout(strong, for_cutout))

    @property
    def learns(self) -> bool:
        """Whether the strong view has rates that are to be probed and updated."""
        return isinstance(self.policy, CTAugment)

    def probe(self, x: Tensor, u: Tensor) -> tuple[Tensor, Policy]:
        """A weak view under a random policy, to see how well a network still recognises it; u: [B, draws]."""
        assert isinstance(self.policy, CTAugment)
        probe, policy = self.policy.probe(
            shift_mirror(x, u[:, :WEAK], mirror=self.mirror), u[:, WEAK : WEAK + self.policy_draws]
        )
        return normalise(probe), policy

    def learn(self, policy: Policy, predicted: Tensor, labels: Tensor) -> None:
        """Move the rates towards 1 - |p - y|_1 / 2; predicted, labels: probabilities [B, k]."""
        assert isinstance(self.policy, CTAugment)
        self.policy.update(policy, 1 - 0.5 * torch.abs(predicted - labels).sum(1))


class Picked(nn.Module):
    """Views that were made before, half of them weak, then half strong: one of each is drawn for every image."""

    draws = 2
    learns = False

    def forward(self, x: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        """x: float16 [B, views, h, w, C], u: [B, 2] -> weak and strong, float [B, C, h, w]."""
        half = x.shape[1] // 2
        image, which = torch.arange(len(x), device=x.device), (u * half).long()
        weak, strong = x[image, which[:, 0]], x[image, half + which[:, 1]]
        return weak.permute(0, 3, 1, 2).float(), strong.permute(0, 3, 1, 2).float()
