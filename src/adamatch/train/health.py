"""What a run's metrics say of its health, without a label: warnings when pseudo-labels are missing or one-sided."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

FEW = 0.01  # part of unlabelled images that pass the threshold
NEARLY_ALL = 0.99  # with few classes, where three times its share is more
SWALLOWED = 0.5  # part of the pseudo-labels in one class (three times its share at least)


def warnings_of(row: Mapping[str, Any], classes: Sequence[str]) -> list[str]:
    """Lines for a person, from one row of metrics."""
    lines = []
    mask, threshold = row.get("mask"), row.get("threshold", math.nan)
    if isinstance(mask, float) and mask < FEW:
        lines.append(
            f"only {mask:.1%} of unlabelled images pass the threshold ({threshold:.2f}): nothing is learnt from the rest"
        )
    counts = row.get("pseudo_labels")
    if isinstance(counts, list) and (total := sum(counts)) > FEW:
        share = max(counts) / total
        if share > min(NEARLY_ALL, max(SWALLOWED, 3 / len(classes))):
            largest = classes[counts.index(max(counts))]
            lines.append(
                f"class {largest!r} has {share:.0%} of the pseudo-labels: the others may be collapsing into it"
            )
    return lines
