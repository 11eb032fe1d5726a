"""Metrics of the steps: they stay on the device until they are read; and warnings when pseudo-labels look wrong."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from adamatch.base import ranks

SAVED, COUNT = "metrics.", "metrics_count"  # names in a checkpoint
FEW = 0.01  # of the unlabelled images above the threshold: fewer are warned of
NEARLY_ALL = 0.99  # the same as below with few classes, where three times a class's share is more
COLLAPSED = 0.5  # of the pseudo-labels in one class (three times its share at least)


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
        """Means since the last `clear`, and the first bad step (-1: none): this rank's, or of all ranks `together`."""
        count = max(1.0, float(self.count))
        sums = {name: ranks.mean(value) for name, value in self.sums.items()} if together else self.sums
        bad = ranks.everyone(int(self.bad)) if together else [int(self.bad)]
        means: dict[str, float | list[float]] = {name: (value / count).tolist() for name, value in sums.items()}
        return means, min((step for step in bad if step >= 0), default=-1)

    def state(self) -> dict[str, Tensor]:
        """Sums since the last `clear`, of all ranks together, for a checkpoint."""
        return {SAVED + name: ranks.mean(value) for name, value in self.sums.items()} | {COUNT: self.count}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """From a checkpoint; one that was saved at an evaluation has no sums."""
        device, found = self.count.device, [name for name in tensors if name.startswith(SAVED)]
        self.sums = {name.removeprefix(SAVED): tensors[name].to(device) for name in found}
        self.count = tensors.get(COUNT, self.count).to(device)

    def clear(self) -> None:
        for value in (*self.sums.values(), self.count):
            value.zero_()


def warnings_of(row: Mapping[str, Any], classes: Sequence[str]) -> list[str]:
    """Warnings, without looking at any label, from one row of metrics."""
    lines = []
    mask, threshold = row.get("mask"), row.get("threshold", math.nan)
    if isinstance(mask, float) and mask < FEW:
        passing = f"only {mask:.1%} of unlabelled images pass the threshold ({threshold:.2f})"
        lines.append(f"{passing}: nothing is learnt from the rest")
    counts = row.get("pseudo_labels")
    if isinstance(counts, list) and (total := sum(counts)) > FEW:
        share = max(counts) / total
        if share > min(NEARLY_ALL, max(COLLAPSED, 3 / len(classes))):
            largest = f"class {classes[counts.index(max(counts))]!r} has {share:.0%} of the pseudo-labels"
            lines.append(f"{largest}: the others may be collapsing into it")
    return lines
