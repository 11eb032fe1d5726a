"""How a run is executed: machine, messages, stop signals. Nothing of it is part of the run's id."""

import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import torch
from rich.console import Console

from adamatch.base import ranks
from adamatch.base.console import Stage, console, progress_bar
from adamatch.base.errors import shown
from adamatch.images.feed import Place
from adamatch.train import speed
from adamatch.train.speed import Machine

STOPPING = (signal.SIGINT, signal.SIGTERM)
ASK_EVERY = 8  # steps after which ranks ask each other whether one of them has to stop


@dataclass(frozen=True)
class Execution:
    """Settings of the execution that all parts of a run share."""

    machine: Machine = field(default_factory=speed.choose)
    place: Place = "auto"  # where images are stored
    quiet: bool = False
    seconds_per_checkpoint: float = 30.0
    log: str | None = None  # a tracker beside TensorBoard: wandb or mlflow
    brief: bool = False  # for a twin: no repeated messages, and predictions are saved at the end only
    whose: str = ""  # before the names of its stages: "twin: "
    twin_cost: float = 0.0  # of the twin that is trained afterwards, relative to the run; 0: none is
    maps: dict[Any, Any] = field(default_factory=dict)  # cached outputs of frozen blocks, which a twin uses again
    began: float = field(default_factory=time.monotonic)
    console: Console = field(default_factory=partial(console, stderr=True))  # one, so that lines appear above a bar

    def say(self, text: str) -> None:
        """A note for the person at the terminal."""
        if not self.quiet:
            self._print(text, "dim")

    def warn(self, text: str) -> None:
        """Printed even where it is quiet."""
        self._print(f"warning: {text}", "yellow")

    def _print(self, text: str, style: str) -> None:
        for line in text.split("\n") if ranks.rank() == 0 else ():  # of several ranks, the first prints
            self.console.print(shown(line), style=style)

    def bar(self, what: str, total: int | None = None) -> AbstractContextManager[Stage]:
        """A stage of the work, shown on the first of several ranks."""
        return progress_bar(f"{self.whose}{what}", total, quiet=self.quiet or ranks.rank() > 0, out=self.console)

    def restarted(self) -> Self:
        """The same, with the clock restarted."""
        return replace(self, began=time.monotonic())


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Collects SIGINT and SIGTERM in a list, so that a loop can stop after its step."""
    noted: list[int] = []
    try:
        before = {each: signal.signal(each, lambda number, _: noted.append(number)) for each in STOPPING}
    except ValueError:  # not in the main thread, which alone handles signals
        before = {}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stop_agreed(noted: list[int], done: int, last: bool) -> bool:
    """Whether the run is to stop after this step, on all ranks."""
    if ranks.count() == 1:
        return bool(noted)
    return (last or done % ASK_EVERY == 0) and bool(ranks.total(torch.tensor(len(noted))))
