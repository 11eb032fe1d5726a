"""`adamatch predict` and `adamatch evaluate`: what a trained model says of images."""

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from adamatch.base import interrupts
from adamatch.base.console import say
from adamatch.cli.options import Device, SkipBad

CSV_HELP = (
    "Write path, class and probabilities here (- is stdout). A name that begins with = + - @, a tab or the end of a line "
    "gets an apostrophe before it, so that no spreadsheet takes it for a formula"
)


def predict(
    run: Annotated[Path, typer.Argument(help="The folder that fit or train made")],
    paths: Annotated[list[Path], typer.Argument(help="Images, folders or CSV lists")],
    csv_file: Annotated[Path | None, typer.Option("--csv", help=CSV_HELP)] = None,
    parquet_file: Annotated[Path | None, typer.Option("--parquet", help="The same as Parquet (needs pyarrow)")] = None,
    device: Device = "auto",
    skip_bad: SkipBad = False,
) -> None:
    """Predict classes and probabilities of any number of images: files are written as the images are read.

    [bold]Examples[/bold]:

      adamatch predict runs/art new/cat.png new/dog.png

      adamatch predict runs/art new/ --csv out.csv
    """
    from adamatch import model
    from adamatch.report import prediction_files, printed

    wanted = ((csv_file, prediction_files.csv_file), (parquet_file, prediction_files.parquet_file))
    files = [(file, write) for file, write in wanted if file is not None]
    if not files:
        found = model.load(run, device=device).predict(paths, skip_bad=skip_bad)
        _warn([*found.notes, *model.left_out(found.skipped)])
        printed.predictions(found)
        return
    prediction_files.refuse_the_same([file for file, _ in files], paths)
    with ExitStack() as open_files:
        trained = model.load(run, device=device)
        open_files.enter_context(interrupts.working())  # what is half written must not stay
        count, parts = trained.stream(paths, skip_bad=skip_bad)  # first: the files may be among the images
        writes = [open_files.enter_context(write(file, trained.classes)) for file, write in files]
        done, skipped = 0, dict[str, str]()
        with printed.bar(f"predicting with {run}", count) as advance:
            for part in parts:
                _warn(list(part.notes))
                for write_part in writes:
                    write_part(part)
                done, skipped = done + len(part), skipped | dict(part.skipped)
                advance(len(part) + len(part.skipped))
    _warn(model.left_out(skipped))
    names = " and ".join(prediction_files.name_of(file) for file, _ in files)
    say(f"{done} predictions in {names}", stderr=any(prediction_files.is_stdout(file) for file, _ in files))


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
    from adamatch.report import printed

    score = model.load(run, device=device).evaluate(images, skip_bad=skip_bad)
    _warn([*score.notes, *model.left_out(score.skipped)])
    printed.score(score)


def _warn(lines: list[str]) -> None:
    for line in lines:
        say(f"warning: {line}", stderr=True)
