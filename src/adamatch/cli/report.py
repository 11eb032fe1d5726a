"""`adamatch report`: a page to look at, of one run or of several side by side."""

from pathlib import Path
from typing import Annotated

import typer

from adamatch.base import interrupts
from adamatch.base.console import say
from adamatch.base.errors import InputError


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders that fit or train made; they may still be running")],
    out: Annotated[
        Path | None, typer.Option(help="The page (default: report.html in the run's folder; of several runs, here)")
    ] = None,
    twin: Annotated[
        Path | None,
        typer.Option(help="A run of the same network on the labelled images alone, to compare one run with"),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Where prepared sets are stored (default: $ADAMATCH_DATA, else ./data)")
    ] = None,
) -> None:
    """A page to look at: one file, which opens in any browser and fetches nothing.

    [bold]Examples[/bold]:

      adamatch report runs/art

      adamatch report runs/art runs/art-seed1 runs/art-fixmatch --out compared.html
    """
    from adamatch.report import compare, page  # templates and their kin take a moment to import

    if len(runs) > 1 and twin is not None:
        raise InputError("--twin belongs to one run: give one, or leave --twin out")
    with interrupts.working():
        if len(runs) == 1:
            say(str(page.write(runs[0], to=out, twin=twin, data=data)))
        else:
            say(str(compare.write(runs, to=out or Path(page.NAME), data=data)))
