"""`adamatch train`: one run of the paper."""

from pathlib import Path
from typing import Annotated, Any

import typer

from adamatch.base import interrupts
from adamatch.base.cli_names import options
from adamatch.cli.options import Device, NoCompile, Overwrite, Precision, Quiet, Seed


def train(
    benchmark: Annotated[
        str, typer.Option(help="handwriting needs no data; see `adamatch data list` for the others")
    ] = "handwriting",
    task: Annotated[str, typer.Option(help="uda, ssl, ssda or oracle")] = "uda",
    source: Annotated[str, typer.Option(help='A domain, or "all": every one but the target')] = "",
    target: Annotated[str, typer.Option(help="A domain")] = "",
    labels: Annotated[int, typer.Option(help="Labelled target images per class, for ssl and ssda")] = 0,
    method: Annotated[
        str, typer.Option(help="adamatch, fixmatch+, mcd, noisystudent, baseline_bn, supervised")
    ] = "adamatch",
    budget: Annotated[
        str,
        typer.Option(
            help="paper, or fast: a million images at most (for digits a recipe of its own: docs/what-matters.md)"
        ),
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
    network: Annotated[
        str | None, typer.Option(help="wrn-28-2, wrn-34-2, resnetv2-101, efficientnet-lite0, timm:NAME, ...")
    ] = None,
    strong: Annotated[str | None, typer.Option(help="cta, cta-published, randaugment or cutout")] = None,
    mirror: Annotated[
        bool | None, typer.Option("--mirror/--no-mirror", help="Whether weak augmentation flips horizontally")
    ] = None,
    repeat: Annotated[
        bool | None,
        typer.Option(
            "--repeat/--no-repeat",
            help="May few target labels fill half of a labelled batch, from the first step on (ssda)?",
        ),
    ] = None,
    statistics: Annotated[
        str | None,
        typer.Option(
            help="Batch norm's: global, rank (each GPU its own, as in the authors' code) or kept (as they start)"
        ),
    ] = None,
    weights: Annotated[
        str, typer.Option(help="Starting weights: imagenet, none, a safetensors or PyTorch file, or timm:NAME")
    ] = "none",
    seed: Seed = 0,
    out: Annotated[
        Path | None, typer.Option(help="The run's folder; by default under runs/, by its configuration")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Where prepared sets are stored (default: $ADAMATCH_DATA, else ./data)")
    ] = None,
    place: Annotated[str, typer.Option(help="Where images are stored: auto, device (the GPU), host or disk")] = "auto",
    device: Device = "auto",
    precision: Precision = "auto",
    no_compile: NoCompile = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """One run of the paper: any method, task and pair of a benchmark. If it is stopped, run the same command again: it resumes.

    [bold]Examples[/bold]:

      adamatch train --source rendered --target handwritten

      adamatch train --benchmark digitfive --source mnist --target svhn

      adamatch train --benchmark cifar10 --task ssl --target cifar10 --labels 4

    [bold]Ablations[/bold]: --option interpolate=false, --option align=none, --option threshold=fixed
    """
    from adamatch import experiment
    from adamatch.config.run import AS_PRINTED, PRETRAINED, Run, recipe
    from adamatch.report import printed
    from adamatch.train import distributed, speed

    machine = speed.choose(device, precision, False if no_compile else None)
    with interrupts.working(out), distributed.joined(machine.device):
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
        if repeat:
            overrides |= AS_PRINTED
        weights = "" if weights == "none" else weights
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
            recipe=recipe(benchmark, budget, task, **overrides),
        )
        folder = out or experiment.RUNS / run.name
        how: dict[str, Any] = {"data": data, "machine": machine, "overwrite": overwrite, "quiet": quiet, "place": place}
        result = experiment.train(run, out=folder, **how)
    if distributed.speaks():
        printed.result(result, folder)
