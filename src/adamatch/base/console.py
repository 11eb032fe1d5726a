"""Output: lines and tables as wide as the terminal (unlimited in a file or a pipe), and cells of a spreadsheet.

Names of files and classes come from outside: Rich takes none of them for its markup, and `shown` escapes the rest.
"""

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from adamatch.base.errors import shown

WIDEST = 1000
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


@contextmanager
def progress_bar(
    what: str, total: int | None = None, *, quiet: bool = False, out: Console | None = None
) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal (stderr), removed at the end; call it with how many more are done. `total` None: unknown."""
    out = out or console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=out, transient=True, disable=quiet or not out.is_terminal) as bar:
        task = bar.add_task(shown(what), total=total)
        yield lambda more: bar.advance(task, more)


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
