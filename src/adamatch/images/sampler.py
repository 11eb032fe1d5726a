"""Endless shuffled index streams: the same on every machine for a seed, and resumed from one number."""

import torch
from torch import Tensor

BLOCK = 64  # batches that are shuffled and sent to the device at a time, at least


class IndexStream:
    """Indices 0..n-1 in random order, epoch after epoch, `batch` at a time; `taken` batches were handed out so far.

    Orders are drawn on the host from (seed, block) alone, so that a stream can be resumed anywhere, on any device.
    """

    def __init__(self, n: int, batch: int, seed: int, device: torch.device) -> None:
        self.n, self.batch, self.seed, self.device = n, batch, seed, device
        self.epochs = -(-BLOCK * batch // n)  # in one block
        self.taken = 0
        self._block = -1
        self._order = torch.empty(0, dtype=torch.long)

    def next(self) -> Tensor:
        """The next batch's indices [batch], on the device."""
        block, start = divmod(self.taken * self.batch, self.epochs * self.n)
        self.taken += 1
        picked = self._order_of(block)[start : start + self.batch]
        lacking = self.batch - len(picked)  # they are in the next block
        return torch.cat([picked, self._order_of(block + 1)[:lacking]]) if lacking else picked

    def _order_of(self, block: int) -> Tensor:
        if block != self._block:
            self._order, self._block = self._shuffled(block), block
        return self._order

    def _shuffled(self, block: int) -> Tensor:
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + block) % 2**63)
        order = torch.cat([torch.randperm(self.n, generator=generator) for _ in range(self.epochs)])
        return order.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else order
