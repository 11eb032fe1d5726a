"""`adamatch predict` and `adamatch evaluate`: what a trained model says of images."""

from pathlib import Path
from typing import Annotated

import typer

from adamatch.cli.options import Device, SkipBad
from adamatch.errors import InputError
from adamatch.terminal import say

CSV_HELP = (
    "Write path, class and probabilities here. A name that begins with = + - @, a tab or the end of a line gets an apostrophe "
    "before it, so that no spreadsheet takes it for a formula"
)


def predict(
    run: Annotated[Path, typer.Argument(help="The folder that fit or train made")],
    paths: Annotated[list[Path], typer.Argument(help="Images, folders or CSV lists")],
    csv_file: Annotated[Path | None, typer.Option("--csv", help=CSV_HELP)] = None,
    device: Device = "auto",
    skip_bad: SkipBad = False,
) -> None:
    """Classes and probabilities of new images.

    [bold]Examples[/bold]:

      adamatch predict runs/art new/cat.png new/dog.png

      adamatch predict runs/art new/ --csv out.csv
    """
    from adamatch import model
    from adamatch.report import show

    if csv_file is not None and not csv_file.parent.is_dir():
        raise InputError(f"{csv_file.parent} does not exist: make it, or choose another place for the CSV file")
    found = model.load(run, device=device).predict(paths, skip_bad=skip_bad)
    for line in model.left_out(found.skipped):
        say(f"warning: {line}", stderr=True)
    if csv_file is None:
        show.predictions(found)
    else:
        found.to_csv(csv_file)
        say(f"{len(found)} predictions in {csv_file}")


def evaluate(
    run: Annotated[Path, typer.Argument(help="The folder that fit or train made")],
    images: Annotated[Path, typer.Argument(help="Labelled images: one folder per class, or a CSV of path,label")],
    device: Device = "auto",
    skip_bad: SkipBad = False,
) -> None:
    """Accuracy on labelled images, in all and per class.

    [bold]Example[/bold]: adamatch evaluate runs/art labelled-art/
    """
    from adamatch import model
    from adamatch.report import show

    score = model.load(run, device=device).evaluate(images, skip_bad=skip_bad)
    for line in model.left_out(score.skipped):
        say(f"warning: {line}", stderr=True)
    show.score(score)
