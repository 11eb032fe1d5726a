"""Progress of training on the terminal: a bar with speed, time left and losses; messages appear above it."""

import time
from collections.abc import Mapping
from typing import Any, Self

from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from adamatch.base import ranks
from adamatch.base.console import duration
from adamatch.config.recipe import Recipe
from adamatch.train.execution import Execution

SHOWN = {"loss_source": "source", "loss_target": "target", "threshold": "threshold", "mask": "mask"}
LINE_EVERY = 30.0  # seconds, where there is no terminal to draw a bar on
ESTIMATE_AFTER = 20  # steps after which the first estimate of the whole time is given


class Progress:
    """The progress bar of training: on terminals only, and on the first of several ranks."""

    def __init__(self, recipe: Recipe, execution: Execution) -> None:
        self.recipe, self.execution = recipe, execution
        self.quiet = execution.quiet or ranks.rank() > 0
        speed, shown = TextColumn("{task.fields[speed]}"), TextColumn("{task.fields[shown]}")
        columns = BarColumn(bar_width=20), TaskProgressColumn(), speed, TimeRemainingColumn(), shown
        hidden = self.quiet or not execution.console.is_terminal
        self.bar = Bar(*columns, console=execution.console, disable=hidden, transient=True)
        self.task = self.bar.add_task("", total=recipe.last_step, speed="", shown="")
        self.warned: set[str] = set()
        self.began = self.last = self.told = time.monotonic()
        self.from_step = self.taken = self.taken_before = 0
        self.estimated = self.reported = False
        self.accuracy = ""

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def due(self, done: int) -> bool:
        """Whether a second has passed, so that metrics may be read from the device; `done`: steps since this start."""
        self.taken = done
        if done == 1:
            self.begin()
        return not self.quiet and time.monotonic() - self.last > 1

    def begin(self) -> None:
        """Measure the speed from here on: first steps compile and allocate."""
        self.began, self.taken_before = time.monotonic(), self.taken

    def step(self, done: int, metrics: Mapping[str, Any]) -> None:
        """After metrics were read: `done` steps are computed, not only queued."""
        now = time.monotonic()
        steps = self.taken - self.taken_before
        if steps >= ESTIMATE_AFTER and not self.estimated:
            self.estimated = True
            whole = self.recipe.last_step * (now - self.began) / steps
            self.execution.say(
                f"{self.recipe.last_step} steps of {self.recipe.batch} labelled images, about {duration(whole)}"
            )
        if now > self.last and done > self.from_step > 0:
            speed = (done - self.from_step) * self.recipe.batch / (now - self.last)
            self.bar.update(self.task, speed=f"{speed:,.0f} images/s")
        self.last, self.from_step = now, done
        self.bar.update(self.task, completed=done, shown=self._shown(metrics))

    def _shown(self, metrics: Mapping[str, Any]) -> str:
        shown = [f"{name} {metrics[key]:.2f}" for key, name in SHOWN.items() if isinstance(metrics.get(key), float)]
        return "  ".join([*shown, self.accuracy])

    def report(self, row: Mapping[str, Any], warnings: list[str]) -> None:
        """A row of metrics with its evaluation."""
        if "target" in row:
            self.accuracy = f"accuracy {row['target']:.1f}"
        if not self.reported:
            self.reported = True
            self.begin()  # the first evaluation takes longer than those that follow
        self.step(int(row["step"]), row)
        if (
            not self.execution.console.is_terminal and time.monotonic() - self.told > LINE_EVERY
        ):  # a log file has no bar
            self.told = time.monotonic()
            self.execution.say(f"step {row['step']} of {self.recipe.last_step}  {self._shown(row)}")
        for line in warnings:
            kind = line.split(":")[1]
            if kind not in self.warned:
                self.warned.add(kind)
                self.execution.warn(f"step {row['step']}: {line}")
