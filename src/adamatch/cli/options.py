"""Options that several commands have, and those that follow from the schema of settings."""

import inspect
from collections.abc import Callable
from dataclasses import Field
from typing import Annotated, Any

import typer

from adamatch.base.cli_names import number
from adamatch.config.recipe import Recipe
from adamatch.config.schema import settings_of

Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps")]
Precision = Annotated[str, typer.Option(help="auto, bf16 or fp32")]
NoCompile = Annotated[bool, typer.Option("--no-compile", help="Do not compile the step (slower, starts at once)")]
Seed = Annotated[int, typer.Option(help="Random seed. On a CPU the same seed gives the same run, on a GPU nearly")]
Seeds = Annotated[
    int, typer.Option(help="Train so many seeds, one after another, and make one model of those that agree")
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave out any number of unreadable images, not just a few")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the run that is in the folder")]
Method = Annotated[str, typer.Option(help="{methods}")]
Log = Annotated[str | None, typer.Option(help="Configuration, metrics and result to wandb or mlflow, too")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print results and warnings only")]


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for every setting of the schema; it gets them as `settings`."""
    usual = {"fit": "auto", "train": "the benchmark's"}[command.__name__]
    fields = {each.name: each for each in settings_of(Recipe, command.__name__)}

    def run(**given: Any) -> None:
        found = {name: given.pop(name) for name in fields}
        command(**given, settings={name: _value(fields[name], value) for name, value in found.items()})

    parameters = dict(inspect.signature(command).parameters)
    del parameters["settings"]
    added = [_option(field, usual) for field in fields.values()]
    run.__signature__ = inspect.Signature([*parameters.values(), *added])  # type: ignore[attr-defined]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


def name_methods_and_networks(command: Any) -> None:
    """Add the names to a command's help. They are imported only now: that takes seconds."""
    if not {"method", "network"} & {option.name for option in command.params}:
        return
    from adamatch.methods import METHODS
    from adamatch.networks import NETWORKS

    names = {"methods": ", ".join(METHODS), "networks": ", ".join([*NETWORKS, "timm:NAME"])}
    for option in command.params:
        if option.name in ("method", "network"):
            option.help = option.help.format(**names)


def _option(field: Field[Any], usual: str) -> inspect.Parameter:
    name, about, numeric = field.name.replace("_", "-"), field.metadata["about"], field.type in (int, float)
    names = (f"--{name}/--no-{name}",) if field.type is bool else ()
    option = typer.Option(*names, help=about, show_default=usual, metavar="NUMBER" if numeric else None)
    kind: Any = bool | None if field.type is bool else str | None
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option]
    )


def _value(field: Field[Any], given: Any) -> Any:
    """Numbers arrive as text, for they may be "auto"."""
    if isinstance(given, str) and field.type in (int, float) and given != "all":
        return number(field.name, given, field.type)
    return given
