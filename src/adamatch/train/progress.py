"""What a person sees of a run while it goes on: a bar with speed, time left, losses; notes and warnings above it."""

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from adamatch.base import ranks
from adamatch.base.errors import shown
from adamatch.config.recipe import Recipe

SHOWN = {"loss_source": "source", "loss_target": "target", "threshold": "threshold", "mask": "mask"}
LINE_EVERY = 30.0  # seconds, where there is no terminal to draw a bar on
ESTIMATE_AFTER = 20  # steps after which the first estimate of the whole time is given


def bar_before(quiet: bool) -> Bar:
    """Of work that comes before the first step: gone when it is done, and drawn on a terminal alone."""
    console = Console(stderr=True)
    return Bar(console=console, transient=True, disable=quiet or ranks.rank() > 0 or not console.is_terminal)


class Progress:
    """Quiet, it keeps to itself all but warnings. Of several ranks, only the first says anything."""

    def __init__(self, recipe: Recipe, *, quiet: bool = False, console: Console | None = None) -> None:
        self.recipe, self.mute = recipe, ranks.rank() > 0
        self.quiet = quiet or self.mute
        self.console = console or Console(stderr=True)
        self.bar = Bar(
            BarColumn(bar_width=20),
            TaskProgressColumn(),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[shown]}"),
            console=self.console,
            disable=self.quiet or not self.console.is_terminal,
            transient=True,
        )
        self.task = self.bar.add_task("", total=recipe.last_step, speed="", shown="")
        self.warned: set[str] = set()
        self.began = self.last = self.told = time.monotonic()
        self.from_step = self.taken = self.taken_before = 0
        self.estimated = self.reported = False
        self.accuracy = ""

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def say(self, line: str) -> None:
        if not self.quiet:
            self._print(line, "dim")

    def warn(self, line: str) -> None:
        """Said even where it is quiet."""
        if not self.mute:
            self._print(f"warning: {line}", "yellow")

    def _print(self, text: str, style: str) -> None:
        for line in text.split("\n"):
            self.console.print(shown(line), style=style, markup=False, emoji=False, highlight=False, soft_wrap=True)

    def due(self, done: int) -> bool:
        """After so many steps of this start, whether a second has passed: metrics are read from the device no more often."""
        self.taken = done
        if done == 1:
            self.begin()
        return not self.quiet and time.monotonic() - self.last > 1

    def begin(self) -> None:
        """The speed is taken from here on: what was done for the first time compiled and allocated."""
        self.began, self.taken_before = time.monotonic(), self.taken

    def step(self, done: int, metrics: Mapping[str, Any]) -> None:
        """What the device had computed when this was read: steps that only wait in its queue are not in the time."""
        now = time.monotonic()
        steps = self.taken - self.taken_before
        if steps >= ESTIMATE_AFTER and not self.estimated:
            self.estimated = True
            whole = self.recipe.last_step * (now - self.began) / steps
            self.say(f"{self.recipe.last_step} steps of {self.recipe.batch} labelled images, about {_time(whole)}")
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
        if not self.console.is_terminal and time.monotonic() - self.told > LINE_EVERY:  # a log file has no bar
            self.told = time.monotonic()
            self.say(f"step {row['step']} of {self.recipe.last_step}  {self._shown(row)}")
        for line in warnings:
            if line.split(":")[1] not in self.warned:  # each kind once
                self.warned.add(line.split(":")[1])
                self.warn(f"step {row['step']}: {line}")


def _time(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )
