"""Images that are easy to tell apart, and networks of one's own, for tests of the library's outside."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

CLASSES = ("blue", "green", "red")
TINY: dict[str, Any] = {"size": 8, "images": 8, "batch": 4, "device": "cpu", "quiet": True}


def arrays(count: int, seed: int = 0, dark: int = 0) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """uint8 (n, 8, 8, 3) in red, green or blue with noise; `dark` shifts the domain."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 3
    pixels = rng.integers(0, 80, (count, 8, 8, 3))
    pixels[np.arange(count), ..., 2 - labels] += 150 - dark
    return pixels.astype(np.uint8), labels


def network(norm: bool) -> nn.Module:
    middle = [nn.BatchNorm2d(8)] if norm else []
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), *middle, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3)
    )
