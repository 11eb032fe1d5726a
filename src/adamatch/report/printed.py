"""Results in the terminal: what a run reached, predictions, and accuracy class by class."""

import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from adamatch.base.console import print_table, say
from adamatch.base.errors import shown
from adamatch.evaluate import Score
from adamatch.predictions import Predictions
from adamatch.report import measured
from adamatch.report.record import Trained
from adamatch.verdict import summary


def result(found: Mapping[str, Any], folder: Path) -> None:
    """A benchmark's run, from its result.json."""
    for name, key in (("target", "accuracy"), ("source", "source_accuracy")):
        if found[key] is not None:
            say(f"{name} accuracy {found[key]:.2f} % ({measured.of_last(measured.median_of(found, name))})")
    say(f"{found['seconds']:.0f} s of training; the model is in {folder}")


def ending(model: Trained, folder: Path) -> None:
    """What is known of a model for one's own images, and what to do with it."""
    found, task = model.history.get("judge"), model.history["run"]["task"]
    known = measured.lines(
        model.history["estimate"], task=task, classes=len(model.classes), estimated=found is not None
    )
    for line in (*known, *(summary.lines(found) if found else ())):
        say(line)
    say(f"the model is in {folder}: adamatch predict {shlex.quote(str(folder))} IMAGES")
    if (folder / "report.html").exists():
        say(f"to look at: {folder / 'report.html'}")


def predictions(found: Predictions) -> None:
    table = Table("image", "class", box=SIMPLE_HEAD)
    table.add_column("probability", justify="right")
    for path, label, row in zip(found.paths, found.labels, found.probabilities, strict=True):
        table.add_row(Text(shown(path)), Text(shown(label)), f"{row.max():.1%}")
    print_table(table)


def score(found: Score) -> None:
    table = Table("class", box=SIMPLE_HEAD)
    for column in ("images", "accuracy"):
        table.add_column(column, justify="right")
    table.add_column("mistaken for")
    for number, (name, count, accuracy) in enumerate(found.per_class()):
        wrong = found.confusion[number].copy()
        wrong[number] = 0
        other = f"{found.classes[int(wrong.argmax())]} ({wrong.max()})" if wrong.any() else ""
        table.add_row(Text(shown(name)), str(count), f"{accuracy:.1f} %" if count else "-", Text(shown(other)))
    print_table(table)
    say(f"accuracy {found.accuracy:.2f} % on {int(found.confusion.sum())} images")


@contextmanager
def bar(what: str, count: int) -> Iterator[Callable[[int], None]]:
    """A bar in a terminal, on stderr; call it with how many more are done. `count` 0: the whole is not known."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=count or None)
        yield lambda more: progress.update(task, advance=more)
