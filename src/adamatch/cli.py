"""The command line: a thin layer over the library. Mistakes get one line and exit code 2."""

import csv
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import adamatch
from adamatch import experiment, model
from adamatch.errors import InputError
from adamatch.given import number, options
from adamatch.grid.commands import app as grid_app
from adamatch.report import show
from adamatch.sets.commands import app as data_app
from adamatch.train import distributed, speed
from adamatch.train.loop import Interruption
from adamatch.train.run import PRETRAINED, Run, recipe

app = typer.Typer(
    help="Train an image classifier for images with few or no labels, from images that have them (AdaMatch, ICLR 2022).",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""[bold]Start with[/bold]: adamatch demo

[bold]Your own images[/bold]: adamatch fit --source photos --target art --out runs/art

[bold]Then[/bold]: adamatch predict runs/art new/*.jpg --csv out.csv""",
)
app.add_typer(data_app, name="data", help="The benchmarks' images: list, download, prepare, verify.")
app.add_typer(grid_app, name="grid", help="Many runs: the paper's experiments and tables.")

Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1")]
Precision = Annotated[str, typer.Option(help="auto, bf16 or fp32")]
NoCompile = Annotated[bool, typer.Option("--no-compile", help="Do not compile the step (slower, starts at once)")]
Seed = Annotated[int, typer.Option(help="Of all that is random: the same seed, the same run")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave out images that cannot be read, and list them")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the run that is in the folder")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print results and warnings only")]


def _version(asked: bool) -> None:
    if asked:
        typer.echo(adamatch.__version__)
        raise typer.Exit


@app.callback()
def _options_of_all(
    version: Annotated[bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version")] = False,
) -> None: ...


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where runs, summary.json and pictures go")] = Path("runs/demo"),
    seed: Seed = 0,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """No data, no GPU: digits drawn with fonts -> real handwriting, in about two minutes.

    Trains the same network twice, without and with adaptation, and shows the difference.

    [bold]Example[/bold]: adamatch demo
    """
    from adamatch.demo import demo as run_demo  # matplotlib takes a second to import

    run_demo(out, seed=seed, quiet=quiet, overwrite=overwrite)


@app.command()
def fit(
    source: Annotated[Path, typer.Option(help="Labelled images: one folder per class, or a CSV of path,label")],
    target: Annotated[
        Path, typer.Option(help="Images to adapt to: any folder or CSV; labels are neither needed nor looked at")
    ],
    out: Annotated[Path, typer.Option(help="The run's folder; give it again to go on with an interrupted run")],
    target_labels: Annotated[Path | None, typer.Option(help="A few labelled target images, if you have them")] = None,
    test: Annotated[Path | None, typer.Option(help="Labelled target images to evaluate on; they choose nothing")] = None,
    labels_per_class: Annotated[int | None, typer.Option(help="Use only so many labels of each source class")] = None,
    method: Annotated[str, typer.Option(help="adamatch, fixmatch+, mcd, noisystudent, baseline_bn, supervised")] = "adamatch",
    network: Annotated[str, typer.Option(help="auto, wrn-small, wrn-28-2, wrn-34-2, resnetv2-101")] = "auto",
    size: Annotated[str, typer.Option(help="Side of the images in training: auto, 32, 64, ...")] = "auto",
    images: Annotated[str, typer.Option(help="Labelled images to train for: auto, or a number")] = "auto",
    batch: Annotated[str, typer.Option(help="Labelled images in a step: auto (64), or a number")] = "auto",
    lr: Annotated[float, typer.Option(help="Learning rate at the start")] = 0.03,
    strong: Annotated[str, typer.Option(help="Strong views: cta, randaugment or cutout")] = "cta",
    mirror: Annotated[
        bool, typer.Option("--mirror/--no-mirror", help="May views be mirrored? Not of digits, letters, left and right")
    ] = True,
    repeat: Annotated[
        bool, typer.Option("--repeat/--no-repeat", help="May few target labels fill half of a labelled batch, as in the paper?")
    ] = False,
    seed: Seed = 0,
    device: Device = "auto",
    precision: Precision = "auto",
    no_compile: NoCompile = False,
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
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
    trained = adamatch.fit(
        source=source,
        target=target,
        out=out,
        target_labels=target_labels,
        test=test,
        labels_per_class=labels_per_class,
        method=method,
        network=network,
        size=number("size", size),
        images=number("images", images),
        batch=number("batch", batch),
        lr=lr,
        strong=strong,
        mirror=mirror,
        repeat=repeat,
        device=device,
        precision=precision,
        compile=False if no_compile else None,
        seed=seed,
        skip_bad=skip_bad,
        overwrite=overwrite,
        quiet=quiet,
    )
    if distributed.speaks():
        show.estimate(trained, out)


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(help="The folder that fit or train made")],
    paths: Annotated[list[Path], typer.Argument(help="Images, folders or CSV lists")],
    csv_file: Annotated[Path | None, typer.Option("--csv", help="Write path, class and probabilities here")] = None,
    device: Device = "auto",
    skip_bad: SkipBad = False,
) -> None:
    """Classes and probabilities of new images.

    [bold]Examples[/bold]:

      adamatch predict runs/art new/cat.png new/dog.png

      adamatch predict runs/art new/ --csv out.csv
    """
    if csv_file is not None and not csv_file.parent.is_dir():
        raise InputError(f"{csv_file.parent} does not exist: make it, or choose another place for the CSV file")
    found = model.load(run, device=device).predict(paths, skip_bad=skip_bad)
    for line in model.left_out(found.skipped):
        typer.echo(f"warning: {line}", err=True)
    if csv_file is None:
        show.predictions(found)
    else:
        with csv_file.open("w", newline="", errors="surrogateescape") as file:
            csv.writer(file).writerows(model.csv_rows(found))
        typer.echo(f"{len(found)} predictions in {csv_file}")


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(help="The folder that fit or train made")],
    images: Annotated[Path, typer.Argument(help="Labelled images: one folder per class, or a CSV of path,label")],
    device: Device = "auto",
    skip_bad: SkipBad = False,
) -> None:
    """Accuracy on labelled images, in all and per class.

    [bold]Example[/bold]: adamatch evaluate runs/art labelled-art/
    """
    score = model.load(run, device=device).evaluate(images, skip_bad=skip_bad)
    for line in model.left_out(score.skipped):
        typer.echo(f"warning: {line}", err=True)
    show.score(score)


@app.command()
def train(
    benchmark: Annotated[
        str, typer.Option(help="handwriting needs no data; see `adamatch data list` for the others")
    ] = "handwriting",
    task: Annotated[str, typer.Option(help="uda, ssl, ssda or oracle")] = "uda",
    source: Annotated[str, typer.Option(help='A domain, or "all": every one but the target')] = "",
    target: Annotated[str, typer.Option(help="A domain")] = "",
    labels: Annotated[int, typer.Option(help="Labelled target images per class, for ssl and ssda")] = 0,
    method: Annotated[str, typer.Option(help="adamatch, fixmatch+, mcd, noisystudent, baseline_bn, supervised")] = "adamatch",
    budget: Annotated[
        str, typer.Option(help="paper, or fast: fewer images (for digits a recipe of its own: docs/what-matters.md)")
    ] = "paper",
    option: Annotated[
        list[str] | None, typer.Option(help="An argument of the method, e.g. align=none, interpolate=false")
    ] = None,
    images: Annotated[int | None, typer.Option(help="Labelled images to train for, instead of the benchmark's")] = None,
    batch: Annotated[int | None, typer.Option(help="Labelled images in a step")] = None,
    uratio: Annotated[int | None, typer.Option(help="Unlabelled images for each labelled one")] = None,
    tau: Annotated[float | None, typer.Option(help="Confidence threshold")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate at the start")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="L2 on weights")] = None,
    network: Annotated[str | None, typer.Option(help="wrn-small, wrn-28-2, wrn-34-2, resnetv2-101, ...")] = None,
    strong: Annotated[str | None, typer.Option(help="cta, randaugment or cutout")] = None,
    mirror: Annotated[bool | None, typer.Option("--mirror/--no-mirror", help="Whether weak views may be mirrored")] = None,
    repeat: Annotated[
        bool | None, typer.Option("--repeat/--no-repeat", help="May few target labels fill half of a labelled batch (ssda)?")
    ] = None,
    statistics: Annotated[
        str | None, typer.Option(help="Batch norm's on several GPUs: global, or rank (each its own, as in the authors' code)")
    ] = None,
    weights: Annotated[str, typer.Option(help="Starting weights: a safetensors or PyTorch file, or timm:NAME")] = "",
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option(help="The run's folder; by default under runs/, by its configuration")] = None,
    data: Annotated[Path | None, typer.Option(help="Where prepared sets lie (default: $ADAMATCH_DATA, else ./data)")] = None,
    place: Annotated[str, typer.Option(help="Where images wait: auto, device, host or disk")] = "auto",
    device: Device = "auto",
    precision: Precision = "auto",
    no_compile: NoCompile = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """One run of the paper: any method, task and pair of a benchmark. Stopped at any moment, the same line goes on with it.

    [bold]Examples[/bold]:

      adamatch train --source rendered --target handwritten

      adamatch train --benchmark digitfive --source mnist --target svhn

      adamatch train --benchmark cifar10 --task ssl --target cifar10 --labels 4

    [bold]Ablations[/bold]: --option interpolate=false, --option align=none, --option threshold=fixed
    """
    machine = speed.choose(device, precision, False if no_compile else None)
    with distributed.joined(machine.device):
        overrides: dict[str, Any] = {
            "images": images,
            "batch": batch,
            "uratio": uratio,
            "tau": tau,
            "lr": lr,
            "weight_decay": weight_decay,
            "network": network,
            "strong": strong,
            "mirror": mirror,
            "repeat": repeat,
            "statistics": statistics,
        }
        if weights:  # the paper's protocol, unless told otherwise
            overrides = {**PRETRAINED, **{name: value for name, value in overrides.items() if value is not None}}
        run = Run(
            benchmark=benchmark,
            task=task,
            source=source,
            target=target,
            labels=labels,
            method=method,
            options=options(option or []),
            seed=seed,
            budget=budget,
            weights=weights,
            recipe=recipe(benchmark, budget, **overrides),
        )
        folder = out or experiment.RUNS / run.name
        result = experiment.train(run, out=folder, data=data, machine=machine, overwrite=overwrite, quiet=quiet, place=place)  # type: ignore[arg-type]
    if distributed.speaks():
        show.result(result, folder)


def main() -> None:
    """The entry point: what went wrong is one line, exit code 2; an interrupted run says how to go on."""
    try:
        app()
    except distributed.Elsewhere:
        sys.exit(2)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:  # a full disk, a folder that may not be written, ...
        print(f"error: {f'{error.filename}: ' if error.filename else ''}{error.strerror or error}", file=sys.stderr)
        sys.exit(2)
    except Interruption as stop:
        if distributed.speaks():
            again = ", without --overwrite," if "--overwrite" in sys.argv else ""
            print(f"{stop}; give the same command again{again} to go on", file=sys.stderr)
        sys.exit(130)
