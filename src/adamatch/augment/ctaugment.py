"""CTAugment (Berthelot et al., ReMixMatch, 2020): random operations whose levels are learned by probing the network."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from adamatch.augment.ops import METHODS, OPS, Tables, apply
from adamatch.base import ranks

LEVELS = 17  # bins of a level
BINS = {"posterize": 8, "identity": 0}  # operations with fewer
PER_OPERATION = 7  # uniforms: operation, bin and place in the bin for each of two levels, cutout's place (2)
BELOW_ONE = 1 - 2**-24


class Policy(NamedTuple):
    """What was done to a batch: op int64, level and level2 (rescale's method) float32, each [B,depth]."""

    op: Tensor
    level: Tensor
    level2: Tensor


class CTAugment(nn.Module):
    """A chain of `depth` operations per image, at levels under which the network still recognises images.

    A pure function of images uint8 [B,3,size,size] and uniforms u [B,draws] in [0,1); only `update` moves the rates.
    """

    rates: Tensor
    rates2: Tensor
    bins: Tensor

    def __init__(
        self, size: int, depth: int = 2, threshold: float = 0.8, decay: float = 0.99, translate: str = "meant"
    ) -> None:
        super().__init__()
        self.depth, self.threshold, self.decay = depth, threshold, decay
        self.draws = PER_OPERATION * depth
        self.tables = Tables(size, translate)
        self.register_buffer("rates", torch.ones(len(OPS), LEVELS))
        self.register_buffer("rates2", torch.ones(METHODS))
        self.register_buffer("bins", torch.tensor([BINS.get(name, LEVELS) for name in OPS]), persistent=False)

    def forward(self, x: Tensor, u: Tensor) -> Tensor:
        """Images under the learned policy."""
        return self._chain(x, self.learned_policy(u), u)

    def probe(self, x: Tensor, u: Tensor) -> tuple[Tensor, Policy]:
        """Images under a random policy, and that policy, for `update`."""
        policy = self.random_policy(u)
        return self._chain(x, policy, u), policy

    def learned_policy(self, u: Tensor) -> Policy:
        """Operations uniformly, the bin of a level by its rate, uniformly inside the bin."""
        op, level, level2, _ = self._parts(u)
        chosen, method = _draw(self.weights()[op], level[..., 0]), _draw(self.weights2(), level2[..., 0])
        bins = self.bins[op].clamp(min=1)
        return Policy(op, _inside(chosen, level[..., 1], bins), _inside(method, level2[..., 1], METHODS))

    def random_policy(self, u: Tensor) -> Policy:
        """Operations and levels uniformly."""
        op, level, level2, _ = self._parts(u)
        return Policy(op, level[..., 1], level2[..., 1])

    @torch.no_grad()
    def update(self, policy: Policy, proximity: Tensor) -> None:
        """Move the rate of every bin that was used towards how well its image [B] was recognised (1 = fully).

        As if image after image, operation after operation: rate = decay * rate + (1 - decay) * proximity.
        """
        op, level, level2 = (ranks.gathered(v).flatten() for v in policy)
        proximity = ranks.gathered(proximity.float()).repeat_interleave(self.depth)
        bins = self.bins[op]
        cell = torch.where(bins > 0, op * LEVELS + _bin(level, bins), -1)
        cell2 = torch.where(op == OPS.index("rescale"), _bin(level2, METHODS), -1)
        self.rates.copy_(_move(self.rates, cell, proximity, self.decay))
        self.rates2.copy_(_move(self.rates2, cell2, proximity, self.decay))

    def weights(self) -> Tensor:
        """How likely a level's bins are, up to a factor: [operations,LEVELS], zero for bins that are not there."""
        exists = torch.arange(LEVELS, device=self.bins.device) < self.bins.unsqueeze(1).clamp(min=1)
        return self._likely(torch.where(exists, self.rates + (1 - self.decay), 0.0))

    def weights2(self) -> Tensor:
        """The same for rescale's methods: [METHODS]."""
        return self._likely(self.rates2 + (1 - self.decay))

    def _likely(self, rates: Tensor) -> Tensor:
        relative = rates / rates.amax(-1, keepdim=True)
        return torch.where(relative < self.threshold, 0.0, relative)

    def _parts(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Operation [B,depth], and the uniforms for level, level2 and place [B,depth,2] each."""
        choice, level, level2, place = torch.split(u.reshape(-1, self.depth, PER_OPERATION), [1, 2, 2, 2], dim=2)
        return (choice.squeeze(2) * len(OPS)).long(), level, level2, place

    def _chain(self, x: Tensor, policy: Policy, u: Tensor) -> Tensor:
        place = self._parts(u)[3]
        for i in range(self.depth):
            x = apply(x, policy.op[:, i], policy.level[:, i], policy.level2[:, i], place[:, i], self.tables)
        return x


def _draw(weights: Tensor, u: Tensor) -> Tensor:
    """Bin by inverse distribution function; weights [...,n] broadcast against u [...] -> int64 [...]."""
    reached = weights.cumsum(-1)
    # u * total stays below the total, so the first bin that passes it exists and has weight.
    return (reached <= (u * reached[..., -1]).unsqueeze(-1)).sum(-1)


def _inside(chosen: Tensor, u: Tensor, bins: Tensor | int) -> Tensor:
    """A level in the chosen one of `bins` equal parts of [0,1)."""
    return ((chosen + u) / bins).clamp(max=BELOW_ONE)


def _bin(level: Tensor, bins: Tensor | int) -> Tensor:
    """The bin a level counts for; 0.999 is published."""
    return (level.double() * bins * 0.999).long()


def _move(rates: Tensor, cell: Tensor, proximity: Tensor, decay: float) -> Tensor:
    """Exponential averages after hits of cells in order; cell int64 [N] into rates, -1 for none, proximity [N]."""
    later = (cell.unsqueeze(1) == cell.unsqueeze(0)).int().triu(1).sum(1)  # hits of the same cell still to come
    hit = cell.unsqueeze(1) == torch.arange(rates.numel(), device=rates.device)
    gain = torch.where(hit, ((1 - decay) * proximity * decay**later).unsqueeze(1), 0.0).sum(0)
    return rates * (decay ** hit.sum(0)).reshape(rates.shape) + gain.reshape(rates.shape)
