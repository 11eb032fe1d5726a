"""Output: lines and tables as wide as the terminal (unlimited in a file or a pipe), and cells of a spreadsheet.

Names of files and classes come from outside: Rich takes none of them for its markup, and `shown` escapes the rest.
"""

import io
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.measure import Measurement
from rich.progress import Progress, ProgressColumn, Task, TextColumn
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from adamatch.base.errors import shown

WIDEST = 1000
EVERY = 30.0  # seconds between two lines of a stage, where there is no terminal to draw a bar on
ESTIMATE_AFTER = 3.0  # seconds of a stage, from which on the time left is told
FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n")


def console(*, stderr: bool = False) -> Console:
    """One that prints text as it is."""
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=True)


def say(line: str, *, stderr: bool = False) -> None:
    console(stderr=stderr).print(shown(line))


def print_table(table: Table, *, stderr: bool = False) -> None:
    out = console(stderr=stderr)
    out.soft_wrap = False
    if not out.is_terminal:
        out.width = max(out.width, Measurement.get(out, out.options.update(max_width=WIDEST), table).maximum)
    out.print(table)


class Stage:
    """How far a stage of the work is: call it with how many more are done. `total` None: not known."""

    def __init__(self, name: str, total: int | None = None) -> None:
        self.name, self.total, self.done, self.note = name, total, 0, ""
        self.restart()

    def restart(self) -> None:
        """Measure the speed from here on: what was done before was not done now, or took longer than usual."""
        self.began, self.before = time.monotonic(), self.done

    def __call__(self, more: int) -> None:
        self.done += more

    def at(self, done: int, total: int) -> None:
        self.done, self.total = done, total or None

    @property
    def left(self) -> float | None:
        """Seconds, at the speed that was measured; None where that says nothing yet."""
        passed, done = time.monotonic() - self.began, self.done - self.before
        if self.total is None or done <= 0 or passed < ESTIMATE_AFTER:
            return None
        return max(0, self.total - self.done) * passed / done

    def __str__(self) -> str:
        """1,200 of 4,000, about 12 s left."""
        count = f"{self.done:,} of {self.total:,}" if self.total else f"{self.done:,}" if self.done else ""
        left = None if self.left is None else f"about {duration(self.left)} left"
        return ", ".join(filter(None, (count, left, self.note)))


class _Bar(ProgressColumn):
    def render(self, task: Task) -> ProgressBar:
        stage = task.fields["stage"]
        total, now = stage.total, task.get_time()
        return ProgressBar(total, stage.done, width=20, pulse=total is None, animation_time=now)


class _Told(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(shown(str(task.fields["stage"])), no_wrap=True, overflow="ellipsis")


@contextmanager
def progress_bar(
    what: str, total: int | None = None, *, quiet: bool = False, out: Console | None = None
) -> Iterator[Stage]:
    """A stage by its name, on stderr: a bar on a terminal, removed at the end; elsewhere a line, and one each 30 s."""
    out, stage, ended = out or console(stderr=True), Stage(what, total), threading.Event()
    if quiet:
        yield stage
        return
    if out.is_terminal:
        columns = (TextColumn("{task.description}", markup=False), _Bar(), _Told())
        with Progress(*columns, console=out, transient=True) as bar:
            bar.add_task(shown(what), total=None, stage=stage)
            yield stage
        return
    out.print(shown(what), style="dim")
    lines = threading.Thread(target=_tell, args=(stage, out, ended), daemon=True)
    lines.start()
    try:
        yield stage
    finally:
        ended.set()
        lines.join()


def _tell(stage: Stage, out: Console, ended: threading.Event) -> None:
    """A line each 30 s, whether or not the stage moves."""
    since = time.monotonic()
    while not ended.wait(EVERY):
        told = str(stage) or f"for {duration(time.monotonic() - since)}"
        out.print(shown(f"{stage.name}: {told}"), style="dim")


def percent(share: float) -> str:
    """5%; below one percent with a decimal."""
    return f"{share:.1%}" if 0 < share < 0.01 else f"{share:.0%}"


def duration(seconds: float) -> str:
    """12 s, 12 min, 12.3 h."""
    if seconds < 7200:
        return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def no_formula(text: str) -> str:
    """A cell of a CSV file: a spreadsheet would run what begins like a formula, so an apostrophe comes before it."""
    return f"'{text}" if text.startswith(FORMULAS) and len(text) > 1 else text


def write_anything() -> None:
    """On a console without Unicode, print characters that it lacks escaped instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
