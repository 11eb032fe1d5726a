"""How a run is carried out: on what, from where, how loudly. None of it is part of what the run is."""

import time
from dataclasses import dataclass, field, replace
from typing import Any, Self

from adamatch.images.feed import Place
from adamatch.train import speed
from adamatch.train.speed import Machine

SECONDS_PER_CHECKPOINT = 30.0


@dataclass(frozen=True)
class Execution:
    """What every part of a run needs to know of its surroundings."""

    machine: Machine = field(default_factory=speed.choose)
    place: Place = "auto"  # where images wait
    quiet: bool = False
    seconds_per_checkpoint: float = SECONDS_PER_CHECKPOINT
    brief: bool = False  # a twin's: what its run has said is not said again, and outputs are noted at the end alone
    maps: dict[Any, Any] = field(
        default_factory=dict
    )  # what frozen blocks made of images, for a twin that wants the same
    began: float = field(default_factory=time.monotonic)

    def anew(self) -> Self:
        """The same, of something that begins now."""
        return replace(self, began=time.monotonic())
