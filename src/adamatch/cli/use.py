"""What is done with a finished run: `adamatch predict`, `evaluate`, `report` and `export`."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from adamatch.base import interrupts
from adamatch.base.console import progress_bar, say
from adamatch.base.errors import InputError
from adamatch.cli.options import Device, SkipBad

Run = Annotated[Path, typer.Argument(help="The folder that fit or train made")]
CSV_HELP = (
    "Write path, class and probabilities here (- is stdout). A name that begins with = + - @, a tab or the end of a "
    "line gets an apostrophe before it, so that no spreadsheet takes it for a formula"
)


def predict(
    run: Run,
    paths: Annotated[list[Path], typer.Argument(help="Images, folders or CSV lists")],
    csv_file: Annotated[Path | None, typer.Option("--csv", help=CSV_HELP)] = None,
    parquet_file: Annotated[Path | None, typer.Option("--parquet", help="The same as Parquet (needs pyarrow)")] = None,
    top: Annotated[
        int | None,
        typer.Option(
            min=1, max=10_000, help="The most likely classes, so many (in files: instead of every class's probability)"
        ),
    ] = None,
    sort_into: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Copy each image into DIR/CLASS; DIR/copies.csv says where it came from"),
    ] = None,
    device: Device = "auto",
    skip_bad: SkipBad = False,
) -> None:
    """Predict classes and probabilities of any number of images: files are written as the images are read.

    [bold]Examples[/bold]:

      adamatch predict runs/art new/cat.png new/dog.png

      adamatch predict runs/art new/ --csv out.csv

      adamatch predict runs/art new/ --sort-into sorted
    """
    from adamatch import predictions
    from adamatch.model import Model
    from adamatch.report import printed

    wanted = ((csv_file, predictions.csv_file), (parquet_file, predictions.parquet_file))
    files = [(file, partial(write, file, top=top)) for file, write in wanted if file is not None]
    writers: list[Callable[..., AbstractContextManager[predictions.Write]]] = [write for _, write in files]
    if sort_into is not None:
        predictions.check_folder(sort_into, paths)
        writers.append(partial(predictions.sorted_into, sort_into))
    if not writers:
        found = Model.load_for_predictions(run, device=device).predict(paths, skip_bad=skip_bad)
        _warn([*found.notes, *predictions.left_out(found.skipped)])
        printed.predictions(found, top or 1)
        return
    predictions.check_outputs([file for file, _ in files], paths)
    with ExitStack() as open_files:
        model = Model.load_for_predictions(run, device=device)
        open_files.enter_context(interrupts.working())  # what is half written must not stay
        count, parts = model.stream(paths, skip_bad=skip_bad)  # first: the files may be among the images
        writes = [open_files.enter_context(write(classes=model.classes)) for write in writers]
        done, skipped = 0, dict[str, str]()
        with progress_bar(f"predicting with {run}", count or None) as advance:
            for part in parts:
                _warn(list(part.notes))
                for write_part in writes:
                    write_part(part)
                done, skipped = done + len(part), skipped | dict(part.skipped)
                advance(len(part) + len(part.skipped))
    _warn(predictions.left_out(skipped))
    to_stdout = any(predictions.is_stdout(file) for file, _ in files)
    if files:
        say(f"{done} predictions in {' and '.join(predictions.name_of(file) for file, _ in files)}", stderr=to_stdout)
    if sort_into is not None:
        say(f"{done} images copied into {sort_into}: {sort_into / predictions.COPIES} lists them", stderr=to_stdout)


def evaluate(
    run: Run,
    images: Annotated[Path, typer.Argument(help="Labelled images: one folder per class, or a CSV of path,label")],
    csv_file: Annotated[
        Path | None, typer.Option("--csv", help="Write path, truth, prediction and confidence here (- is stdout)")
    ] = None,
    page_file: Annotated[
        Path | None,
        typer.Option("--page", metavar="FILE.html", help="A page of the mistakes with their pictures, worst first"),
    ] = None,
    device: Device = "auto",
    skip_bad: SkipBad = False,
) -> None:
    """Accuracy on labelled images, in all and per class, and the mistakes.

    [bold]Examples[/bold]:

      adamatch evaluate runs/art labelled-art/

      adamatch evaluate runs/art labelled-art/ --csv answers.csv --page mistakes.html
    """
    from adamatch import predictions
    from adamatch.model import Model
    from adamatch.report import mistakes, page, printed

    predictions.check_outputs([csv_file] if csv_file else [], [images])
    if page_file is not None:
        page.check(page_file)
    model = Model.load_for_predictions(run, device=device)
    score = model.evaluate(images, skip_bad=skip_bad)
    _warn([*score.notes, *predictions.left_out(score.skipped)])
    if csv_file is not None:
        predictions.evaluation_csv(csv_file, score)
    if csv_file is None or not predictions.is_stdout(csv_file):
        printed.score(score)
    if page_file is not None:
        made = mistakes.write(score, page_file, name=images.name, shape=model.shape, white=model.white)
        say(f"to look at: {made}", stderr=csv_file is not None and predictions.is_stdout(csv_file))


def verify(
    folders: Annotated[list[Path], typer.Argument(help="Runs, saved models, or stores of `data prepare`")],
) -> None:
    """Compare every file with what was written: its size and its checksum. Exit code 1: one is damaged or missing.

    [bold]Example[/bold]: adamatch verify runs/art
    """
    from adamatch.base import manifest
    from adamatch.images.reading import is_store
    from adamatch.images.store import Store

    damaged = False
    for folder in folders:
        if is_store(folder):
            Store.open(folder, whole=True)  # an error is its line
            found = []
        else:
            found = list(manifest.problems(folder))
        for line in found or [f"{folder}: every file is as it was written"]:
            say(line)
        damaged = damaged or bool(found)
    if damaged:
        raise typer.Exit(1)


def _warn(lines: list[str]) -> None:
    for line in lines:
        say(f"warning: {line}", stderr=True)


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders that fit or train made; they may still be running")],
    out: Annotated[
        Path | None, typer.Option(help="The page (default: report.html in the run's folder; of several runs, here)")
    ] = None,
    twin: Annotated[
        Path | None, typer.Option(help="A run of the same network on the labelled images only, to compare with")
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
    from adamatch.model import load
    from adamatch.report import compare, page

    if len(runs) > 1 and twin is not None:
        raise InputError("--twin belongs to one run: give one, or leave --twin out")
    with interrupts.working():
        if len(runs) == 1:
            made = page.write(runs[0], load=load, to=out, twin=twin, data=data)
        else:
            made = compare.write(runs, to=out or Path(page.NAME), data=data)
    say(str(made))


def export(
    run: Run,
    to: Annotated[
        str | None,
        typer.Option(help="onnx, or torch (a program of torch.export). Default: as --out ends; without it, onnx"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The file to write (default: model.onnx or model.pt2 in the run)")
    ] = None,
) -> None:
    """One file for use elsewhere: uint8 images in, probabilities out.

    The file is compared with `adamatch predict` before it is written. examples/infer_onnx.py uses it without torch.

    [bold]Examples[/bold]:

      adamatch export runs/art --to onnx

      adamatch export runs/art --out art.pt2
    """
    from adamatch.base.files import destination
    from adamatch.export import SUFFIXES, format_of
    from adamatch.model import load

    file = out or run / f"model{SUFFIXES.get(to or 'onnx', '')}"
    if out is not None:  # before the model is read, which takes a while
        destination(out)
    to = format_of(file, to)
    model = load(run, device="cpu")
    with interrupts.working():
        difference = model.export(file, to=to)
    say(f"{file}: uint8 RGB images [n, {model.size}, {model.size}, 3] in, {len(model.classes)} probabilities out")
    say(f"largest difference to adamatch predict: {difference:.1g} in probability")
