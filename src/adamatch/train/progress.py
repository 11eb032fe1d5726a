"""Progress of training: a stage like any other, with speed and losses; messages appear above its bar."""

import time
from collections.abc import Mapping
from typing import Any, Self

from adamatch.base import ranks
from adamatch.base.console import duration
from adamatch.config.recipe import Recipe
from adamatch.train.execution import Execution

LOSSES = {"loss_source": "source loss", "loss_target": "target loss"}
FEWEST, ENOUGH, SECONDS = 3, 20, 10.0  # steps (so many of these, after so many seconds) from which on the time is told


class Progress:
    """How far training is: a bar on a terminal, a line each 30 s elsewhere, both on the first of several ranks."""

    def __init__(self, recipe: Recipe, execution: Execution) -> None:
        self.recipe, self.execution = recipe, execution
        self.quiet = execution.quiet or ranks.rank() > 0
        self.bar = execution.bar("training", recipe.last_step)
        self.warned: set[str] = set()
        self.taken, self.last = 0, time.monotonic()
        self.told = self.reported = False
        self.accuracy = ""

    def __enter__(self) -> Self:
        self.stage = self.bar.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.bar.__exit__(*error)

    def due(self, done: int) -> bool:
        """Whether a second has passed, so that metrics may be read from the device; `done` steps are begun."""
        first, self.taken = not self.taken, done
        if first:
            self.begin()
        return not self.quiet and time.monotonic() - self.last > 1

    def begin(self) -> None:
        """Measure the speed from here on: first steps compile and allocate."""
        self.stage.at(self.taken, self.recipe.last_step)
        self.stage.restart()

    def step(self, done: int, metrics: Mapping[str, Any]) -> None:
        """After metrics were read: `done` steps are computed, not only queued."""
        self.last = time.monotonic()
        self.stage.at(done, self.recipe.last_step)
        steps, passed = done - self.stage.before, self.last - self.stage.began
        if steps > 0 and passed > 0:
            speed = f"{steps * self.recipe.batch / passed:,.0f} images/s"
            self.stage.note = ", ".join(filter(None, (speed, *_shown(metrics), self.accuracy)))
        if not self.told and (steps >= ENOUGH or (steps >= FEWEST and passed >= SECONDS)):
            self.told = True
            left = (self.recipe.last_step - done) * passed / steps
            twin = self.execution.twin_cost * self.recipe.last_step * passed / steps
            # Small batches do not keep a machine busy: measured times of twins were up to twice their share.
            then = f", then about {duration(twin)} to {duration(2 * twin)} for the twin" if twin else ""
            self.execution.say(f"training takes about {duration(left)} more{then}")

    def report(self, row: Mapping[str, Any], warnings: list[str]) -> None:
        """A row of metrics with its evaluation."""
        if "target" in row:
            self.accuracy = f"accuracy {row['target']:.1f} %"
        if not self.reported:
            self.reported = True
            self.taken = int(row["step"])
            self.begin()  # the first evaluation takes longer than those that follow
        self.step(int(row["step"]), row)
        for line in warnings:
            kind = line.split(":")[1]
            if kind not in self.warned:
                self.warned.add(kind)
                self.execution.warn(f"step {row['step']}: {line}")


def _shown(metrics: Mapping[str, Any]) -> list[str]:
    found = [f"{name} {metrics[key]:.2f}" for key, name in LOSSES.items() if isinstance(metrics.get(key), float)]
    if isinstance(metrics.get("mask"), float):
        found.append(f"{metrics['mask']:.0%} of the target used")
    return found
