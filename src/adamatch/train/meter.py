"""Metrics that stay on the device until somebody asks: sums of what the steps measured, and the first step that went wrong."""

from collections.abc import Mapping

import torch
from torch import Tensor

from adamatch.base import ranks

SAVED, COUNT = "metrics.", "metrics_count"  # names in a checkpoint


class Meter:
    """Adds up metrics step by step without a host read; `read()` is the only one."""

    def __init__(self, device: torch.device) -> None:
        self.sums: dict[str, Tensor] = {}
        self.count = torch.zeros((), device=device)
        self.steps = torch.zeros((), dtype=torch.long, device=device)  # since the start of this process
        self.bad = torch.full((), -1, dtype=torch.long, device=device)  # the first of them whose loss was not finite

    def add(self, metrics: dict[str, Tensor]) -> None:
        if not self.sums:
            self.sums = {name: torch.zeros_like(value) for name, value in metrics.items()}
        for name, value in metrics.items():
            self.sums[name] += value
        wrong = (self.bad < 0) & ~torch.isfinite(metrics["loss"])
        self.bad.copy_(torch.where(wrong, self.steps, self.bad))
        self.count += 1
        self.steps += 1

    def read(self, together: bool = False) -> tuple[dict[str, float | list[float]], int]:
        """Means since the last `clear`, and the first bad step (-1: none): this rank's; or of all, who then read `together`."""
        count = max(1.0, float(self.count))
        sums = {name: ranks.mean(value) for name, value in self.sums.items()} if together else self.sums
        bad = ranks.everyone(int(self.bad)) if together else [int(self.bad)]
        means: dict[str, float | list[float]] = {name: (value / count).tolist() for name, value in sums.items()}
        return means, min((step for step in bad if step >= 0), default=-1)

    def state(self) -> dict[str, Tensor]:
        """What was added since the last `clear`, of all ranks together, for a checkpoint."""
        return {SAVED + name: ranks.mean(value) for name, value in self.sums.items()} | {COUNT: self.count}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """From a checkpoint; one of an earlier version has nothing."""
        device = self.count.device
        self.sums = {
            name.removeprefix(SAVED): value.to(device) for name, value in tensors.items() if name.startswith(SAVED)
        }
        self.count = tensors.get(COUNT, self.count).to(device)

    def clear(self) -> None:
        for value in (*self.sums.values(), self.count):
            value.zero_()
