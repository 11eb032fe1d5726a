"""`adamatch train`: one run of the paper."""

from pathlib import Path
from typing import Annotated, Any

import typer

from adamatch.base import interrupts
from adamatch.base.cli_names import options
from adamatch.cli.options import Device, Log, Method, NoCompile, Overwrite, Precision, Quiet, Seed, with_settings


@with_settings
def train(
    *,
    benchmark: Annotated[
        str, typer.Option(help="handwriting needs no data; see `adamatch data list` for the others")
    ] = "handwriting",
    task: Annotated[str, typer.Option(help="uda, ssl, ssda or oracle")] = "uda",
    source: Annotated[str, typer.Option(help='A domain, or "all": all but the target')] = "",
    target: Annotated[str, typer.Option(help="A domain")] = "",
    labels: Annotated[int, typer.Option(help="Labelled target images per class, for ssl and ssda")] = 0,
    method: Method = "adamatch",
    budget: Annotated[
        str,
        typer.Option(
            help="paper, or fast: a million images at most (for digits a recipe of its own: docs/what-matters.md)"
        ),
    ] = "paper",
    option: Annotated[
        list[str] | None, typer.Option(help="An argument of the method, e.g. align=none, interpolate=false")
    ] = None,
    weights: Annotated[
        str, typer.Option(help="Starting weights: imagenet, none, a safetensors or PyTorch file, or timm:NAME")
    ] = "none",
    seed: Seed = 0,
    out: Annotated[
        Path | None, typer.Option(help="The run's folder (default: runs/NAME, named after the configuration)")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Where prepared sets are stored (default: $ADAMATCH_DATA, else ./data)")
    ] = None,
    device: Device = "auto",
    precision: Precision = "auto",
    no_compile: NoCompile = False,
    overwrite: Overwrite = False,
    log: Log = None,
    quiet: Quiet = False,
    settings: dict[str, Any],
) -> None:
    """One run of the paper: any method, task and pair of a benchmark. If it is stopped, the same command resumes it.

    [bold]Examples[/bold]:

      adamatch train --source rendered --target handwritten

      adamatch train --benchmark digitfive --source mnist --target svhn

      adamatch train --benchmark cifar10 --task ssl --target cifar10 --labels 4

    [bold]Ablations[/bold]: --option interpolate=false, --option align=none, --option threshold=fixed
    """
    from adamatch import experiment
    from adamatch.config.presets import AS_PRINTED, PRETRAINED, recipe
    from adamatch.config.run import Run
    from adamatch.report import printed
    from adamatch.train import distributed, speed

    machine = speed.choose(device, precision, False if no_compile else None)
    with interrupts.working(out), distributed.joined(machine.device):
        if settings["repeat"]:
            settings |= AS_PRINTED
        weights = "" if weights == "none" else weights
        if weights:  # the paper's protocol, unless told otherwise
            settings = {**PRETRAINED, **{name: value for name, value in settings.items() if value is not None}}
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
            recipe=recipe(benchmark, budget, task, **settings),
        )
        folder = out or experiment.RUNS / run.name
        how: dict[str, Any] = {"data": data, "machine": machine, "overwrite": overwrite, "quiet": quiet, "log": log}
        result = experiment.train(run, out=folder, **how)
    if distributed.speaks():
        printed.result(result, folder)
