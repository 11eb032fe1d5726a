"""`adamatch demo`: the demonstration; `adamatch fit`: the user's images."""

from pathlib import Path
from typing import Annotated, Any

import typer

import adamatch
from adamatch.base import interrupts
from adamatch.cli.options import (
    Device,
    Log,
    Method,
    NoCompile,
    Overwrite,
    Precision,
    Quiet,
    Seed,
    Seeds,
    SkipBad,
    with_settings,
)


def demo(
    out: Annotated[Path, typer.Option(help="Where runs, summary.json and pictures go")] = Path("runs/demo"),
    images: Annotated[int | None, typer.Option(help="Labelled images to train for (default: 40,000)")] = None,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """No data, no GPU: digits drawn with fonts -> real handwriting, in about two minutes.

    Trains the same network twice, without and with adaptation, and shows the difference.

    [bold]Example[/bold]: adamatch demo
    """
    from adamatch.demo import demo as run_demo  # matplotlib takes a second to import

    with interrupts.working():
        run_demo(out, images=images, seed=seed, quiet=quiet, overwrite=overwrite)


@with_settings
def fit(
    source: Annotated[Path, typer.Option(help="Labelled images: one folder per class, or a CSV of path,label")],
    target: Annotated[
        Path, typer.Option(help="Images to adapt to: any folder or CSV; labels are neither needed nor used")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the run. To resume an interrupted run, repeat the command")],
    *,
    target_labels: Annotated[
        Path | None, typer.Option(help="A few labelled target images, or a run that was asked (adamatch ask)")
    ] = None,
    test: Annotated[
        Path | None, typer.Option(help="Labelled target images to evaluate on; used for measuring only")
    ] = None,
    labels_per_class: Annotated[int | None, typer.Option(help="Use only so many labels of each source class")] = None,
    method: Method = "adamatch",
    weights: Annotated[
        str,
        typer.Option(help="What the network starts from: auto, imagenet, none, a file of weights, or a run's folder"),
    ] = "auto",
    no_twin: Annotated[
        bool,
        typer.Option(
            "--no-twin", help="Skip the second training, on labelled images only, that shows what adaptation changes"
        ),
    ] = False,
    seed: Seed = 0,
    seeds: Seeds = 1,
    device: Device = "auto",
    precision: Precision = "auto",
    no_compile: NoCompile = False,
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    no_report: Annotated[bool, typer.Option("--no-report", help="Do not make the page report.html")] = False,
    log: Log = None,
    quiet: Quiet = False,
    settings: dict[str, Any],
) -> None:
    """Train on your own images.

    [bold]Labelled photos, unlabelled paintings[/bold] (unsupervised domain adaptation):

      adamatch fit --source photos --target art --out runs/art

    [bold]... and a few labelled paintings[/bold] (semi-supervised domain adaptation):

      adamatch fit --source photos --target art --target-labels few --out runs/few

    [bold]One folder with few labels[/bold] (semi-supervised learning):

      adamatch fit --source art --target art --labels-per-class 10 --out runs/ssl

    [bold]Then[/bold]: adamatch predict runs/art new/*.jpg --csv out.csv
    """
    run_fit = adamatch.fit  # imported now: until here Ctrl-C ends all at once
    with interrupts.working(out):
        trained = run_fit(
            source=source,
            target=target,
            out=out,
            target_labels=target_labels,
            test=test,
            labels_per_class=labels_per_class,
            method=method,
            weights=weights,
            twin=not no_twin,
            device=device,
            precision=precision,
            compile=False if no_compile else None,
            seed=seed,
            seeds=seeds,
            skip_bad=skip_bad,
            overwrite=overwrite,
            report=not no_report,
            log=log,
            quiet=quiet,
            **{name: value for name, value in settings.items() if value is not None},
        )
    from adamatch.report import printed
    from adamatch.train import distributed

    if quiet and distributed.speaks():  # else it is printed already
        printed.ending(trained, out)
