"""The command line: a thin layer over the library. Mistakes get one line and exit code 2."""

import sys
from typing import Annotated

import typer

import adamatch
from adamatch.cli.choose import choose
from adamatch.cli.fit import demo, fit
from adamatch.cli.train import train
from adamatch.cli.use import evaluate, predict
from adamatch.errors import InputError
from adamatch.grid.commands import app as grid_app
from adamatch.sets.commands import app as data_app
from adamatch.train import distributed
from adamatch.train.loop import Interruption

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
for command in (demo, fit, predict, evaluate, choose, train):
    app.command()(command)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(adamatch.__version__)
        raise typer.Exit


@app.callback()
def _options_of_all(
    version: Annotated[bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version")] = False,
) -> None: ...


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
