"""`adamatch choose`: which of several runs to keep, without labels of the target."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from adamatch.errors import InputError, unknown
from adamatch.terminal import print_table

if TYPE_CHECKING:
    from adamatch.judge.evidence import Evidence
    from adamatch.train.run import Run

SHOWN = ("ensemble", "names", "density", "information")  # scores beside that of the rule


def choose(
    runs: Annotated[list[Path], typer.Argument(help="Folders that fit or train made: other seeds, methods, learning rates")],
    rule: Annotated[str, typer.Option(help="ensemble, names, density, information, transport, certainty, ...")] = "ensemble",
) -> None:
    """Choose among runs on the same target, without a label of it.

    By default the one that agrees most with all of them together: give three or more. "names" takes the one with the fewest
    images under a wrong name, judged by its twin. The other columns have the scores of other rules: the larger, the better.

    [bold]Example[/bold]: adamatch choose runs/seed0 runs/seed1 runs/seed2
    """
    from adamatch.judge import choice

    if rule not in choice.RULES:
        raise unknown("rule", rule, choice.RULES)
    read = [_read(path) for path in runs]
    known = [found for _, found in read]
    for path, (run, found) in zip(runs, read, strict=True):
        first, other = read[0]
        if (run.benchmark, run.target) != (first.benchmark, first.target) or found.last.shape != other.last.shape:
            raise InputError(f"{path} was trained for other target images than {runs[0]}: choose among runs on the same ones")
    scores = {name: choice.among(known, name) for name in dict.fromkeys((rule, *SHOWN))}
    best = int(scores[rule].argmax())
    table = Table("run", "method", "seed", *scores, "its best step", box=SIMPLE_HEAD)
    for number, (path, (run, found)) in enumerate(zip(runs, read, strict=True)):
        step = f"{found.steps[choice.choose(found, rule)]} of {found.steps[-1]}"
        style = "bold" if number == best else ""
        table.add_row(
            Text(str(path)), run.method, str(run.seed), *(f"{each[number]:.3f}" for each in scores.values()), step, style=style
        )
    print_table(table)
    typer.echo(f"chosen, by {rule}: {runs[best]}")


def _read(path: Path) -> "tuple[Run, Evidence]":
    from adamatch import twin
    from adamatch.judge import evidence
    from adamatch.train.run import Run

    try:
        run = Run.from_json((path / "run.json").read_text())
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"{path} is no run: give folders that fit or train made") from None
    found = evidence.read(path)
    if found is None:
        raise InputError(f"{path} has no outputs/: its run has not been evaluated yet, or is of an older version")
    return run, found.with_twin(evidence.read(path / twin.FOLDER))
