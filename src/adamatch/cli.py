"""The command line: a thin layer over the library. Mistakes get one line and exit code 2."""

import csv
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

import adamatch
from adamatch import experiment, model
from adamatch.data.commands import app as data_app
from adamatch.demo import demo as run_demo
from adamatch.errors import InputError
from adamatch.grid.commands import app as grid_app
from adamatch.train import speed
from adamatch.train.folder import RunFolder
from adamatch.train.loop import Interruption
from adamatch.train.run import PRETRAINED, Run, recipe

app = typer.Typer(
    help="Train an image classifier for images with few or no labels, from images that have them (AdaMatch, ICLR 2022).",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data_app, name="data", help="The benchmarks' images: list, download, prepare, verify.")
app.add_typer(grid_app, name="grid", help="Many runs: the paper's experiments and tables.")

Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1")]
Precision = Annotated[str, typer.Option(help="auto, bf16 or fp32")]
NoCompile = Annotated[bool, typer.Option("--no-compile", help="Do not compile the step (slower, starts at once)")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave out images that cannot be read, and list them")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the run that is in the folder")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print results and warnings only")]


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where runs, summary.json and pictures go")] = Path("runs/demo"),
    seed: int = 0,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """No data, no GPU: digits drawn with fonts -> real handwriting, in about two minutes.

    Trains the same network twice, without and with adaptation, and shows the difference.

    [bold]Example[/bold]: adamatch demo
    """
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
    seed: int = 0,
    device: Device = "auto",
    precision: Precision = "auto",
    no_compile: NoCompile = False,
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Train on your own images.

    [bold]Labelled photos, unlabelled sketches[/bold] (unsupervised domain adaptation):

        adamatch fit --source photos --target sketches --out runs/sketches

    [bold]... and a few labelled sketches[/bold] (semi-supervised domain adaptation):

        adamatch fit --source photos --target sketches --target-labels few --out runs/sketches

    [bold]One folder with few labels[/bold] (semi-supervised learning):

        adamatch fit --source photos --target photos --labels-per-class 10 --out runs/photos

    Then: adamatch predict runs/sketches new/*.jpg --csv out.csv
    """
    adamatch.fit(
        source=source,
        target=target,
        out=out,
        target_labels=target_labels,
        test=test,
        labels_per_class=labels_per_class,
        method=method,
        network=network,
        size=_number("size", size),
        images=_number("images", images),
        batch=_number("batch", batch),
        device=device,
        precision=precision,
        compile=False if no_compile else None,
        seed=seed,
        skip_bad=skip_bad,
        overwrite=overwrite,
        quiet=quiet,
    )
    _print_result(RunFolder(out).result() or {}, out)


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(help="The folder that fit or train made")],
    paths: Annotated[list[Path], typer.Argument(help="Images, folders or CSV lists")],
    csv_file: Annotated[Path | None, typer.Option("--csv", help="Write path, class and probabilities here")] = None,
    device: Device = "auto",
    skip_bad: SkipBad = False,
) -> None:
    """Classes and probabilities of new images.

    [bold]Examples[/bold]: adamatch predict runs/sketches new/cat.png
              adamatch predict runs/sketches new/ --csv out.csv
    """
    loaded = model.load(run, device=device)
    rows = [["path", "class", "probability", *loaded.classes]]
    for path in paths:
        rows += model.csv_rows(loaded.predict(path, skip_bad=skip_bad))[1:]
    if csv_file is None:
        table = Table("image", "class", "probability")
        for row in rows[1:]:
            table.add_row(*row[:3])
        Console().print(table)
    else:
        with csv_file.open("w", newline="") as file:
            csv.writer(file).writerows(rows)
        typer.echo(f"{len(rows) - 1} predictions in {csv_file}")


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(help="The folder that fit or train made")],
    images: Annotated[Path, typer.Argument(help="Labelled images: one folder per class, or a CSV of path,label")],
    device: Device = "auto",
    skip_bad: SkipBad = False,
) -> None:
    """Accuracy on labelled images, in all and per class.

    [bold]Example[/bold]: adamatch evaluate runs/sketches labelled-sketches/
    """
    score = model.load(run, device=device).evaluate(images, skip_bad=skip_bad)
    table = Table("class", "images", "accuracy", "most taken for")
    for number, (name, count, accuracy) in enumerate(score.per_class()):
        wrong = score.confusion[number].copy()
        wrong[number] = 0
        other = score.classes[int(wrong.argmax())] if wrong.any() else ""
        table.add_row(name, str(count), f"{accuracy:.1f} %" if count else "-", other)
    Console().print(table)
    typer.echo(f"accuracy {score.accuracy:.2f} % on {int(score.confusion.sum())} images")


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
    budget: Annotated[str, typer.Option(help="paper, or fast: the same with fewer images")] = "paper",
    option: Annotated[
        list[str] | None, typer.Option(help="An argument of the method, e.g. align=none, interpolate=false")
    ] = None,
    images: Annotated[int | None, typer.Option(help="Labelled images to train for")] = None,
    batch: int | None = None,
    uratio: int | None = None,
    tau: float | None = None,
    lr: float | None = None,
    weight_decay: float | None = None,
    network: str | None = None,
    strong: Annotated[str | None, typer.Option(help="cta, randaugment or cutout")] = None,
    mirror: Annotated[bool | None, typer.Option("--mirror/--no-mirror")] = None,
    weights: Annotated[str, typer.Option(help="Starting weights: a safetensors or PyTorch file, or timm:NAME")] = "",
    seed: int = 0,
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

        adamatch train --benchmark digitfive --task uda --source mnist --target svhn --budget fast

        adamatch train --benchmark digitfive --task ssda --labels 5 --source mnist --target svhn --method fixmatch+

    An ablation: --option interpolate=false, --option align=none, --option threshold=fixed
    """
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
        options=_options(option or []),
        seed=seed,
        budget=budget,
        weights=weights,
        recipe=recipe(benchmark, budget, **overrides),
    )
    machine = speed.choose(device, precision, False if no_compile else None)
    folder = out or experiment.RUNS / run.name
    result = experiment.train(run, out=folder, data=data, machine=machine, overwrite=overwrite, quiet=quiet, place=place)  # type: ignore[arg-type]
    _print_result(result, folder)


def main() -> None:
    """The entry point: an InputError is one line, exit code 2; an interrupted run says how to go on."""
    try:
        app()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except Interruption as stop:
        print(f"{stop}; give the same command again to go on", file=sys.stderr)
        sys.exit(130)


def _number(name: str, text: str) -> int | str:
    if text == "auto":
        return text
    try:
        return int(text.replace("_", "").replace(",", ""))
    except ValueError:
        raise InputError(f"--{name} takes auto or a whole number, not {text!r}") from None


def _options(texts: list[str]) -> dict[str, Any]:
    """name=value pairs; true, false and numbers are understood."""
    words: dict[str, Any] = {"true": True, "false": False}
    options: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--option takes name=value, not {text!r}")
        try:
            options[name] = words[value.lower()] if value.lower() in words else float(value) if "." in value else int(value)
        except ValueError:
            options[name] = value
    return options


def _print_result(result: dict[str, Any], folder: Path) -> None:
    for name, key in (("target", "accuracy"), ("source", "source_accuracy")):
        if result.get(key) is not None:
            typer.echo(f"{name} accuracy {result[key]:.2f} % (median of the last {result['median_of']} evaluations)")
    typer.echo(f"{result.get('seconds', 0):.0f} s of training; the model is in {folder}")
