"""The command line: a thin layer over the library. Mistakes get one line and exit code 2.

Its modules import torch, which takes seconds, only inside of the commands: `adamatch --help` answers at once.
"""

import importlib
import sys
import warnings
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

import adamatch
from adamatch.base import interrupts
from adamatch.base.cli_names import as_command
from adamatch.base.console import write_anything
from adamatch.base.errors import InputError, Interruption, StoppedElsewhere, is_out_of_memory, shown
from adamatch.cli.ask import ask
from adamatch.cli.choose import choose
from adamatch.cli.fit import demo, fit
from adamatch.cli.options import name_methods_and_networks
from adamatch.cli.train import train
from adamatch.cli.use import evaluate, export, predict, report, verify

LATER = {"data": "adamatch.datasets.commands", "grid": "adamatch.grid.commands"}


class Group(TyperGroup):
    """Commands that have commands are imported when one of them is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in LATER:
            self.commands[args[0]] = typer.main.get_group(importlib.import_module(LATER[args[0]]).app)
        found = super().resolve_command(ctx, args)
        if {"-h", "--help"} & {*args}:
            name_methods_and_networks(found[1])
        return found

    def invoke(self, ctx: Any) -> Any:
        with as_command():
            return super().invoke(ctx)


app = typer.Typer(
    cls=Group,
    help="Train an image classifier for images with few or no labels, with the help of labelled ones (AdaMatch).",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""[bold]Start with[/bold]: adamatch demo

[bold]Your own images[/bold]: adamatch fit --source photos --target art --out runs/art

[bold]Then[/bold]: adamatch predict runs/art new/*.jpg --csv out.csv""",
)
app.add_typer(typer.Typer(), name="data", help="The benchmarks' images: list, download, prepare, verify.")
app.add_typer(typer.Typer(), name="grid", help="Many runs: the paper's experiments and tables.")
for command in (demo, fit, ask, predict, evaluate, report, choose, export, verify, train):
    app.command()(command)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(adamatch.__version__)
        raise typer.Exit


@app.callback()
def _options_of_all(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version")
    ] = False,
) -> None: ...


def main() -> None:
    """The entry point: what went wrong is one line, exit code 2; an interrupted run says how to go on."""
    write_anything()
    warnings.formatwarning = lambda message, *_: f"warning: {message}\n"
    try:
        app()
    except (KeyboardInterrupt, SystemExit) as end:  # typer makes the second of the first
        code = interrupts.STOPPED if isinstance(end, KeyboardInterrupt) else end.code
        if code == interrupts.STOPPED:
            print("stopped", file=sys.stderr)
        sys.exit(code)
    except StoppedElsewhere:
        sys.exit(2)
    except InputError as error:
        _fail(str(error))
    except OSError as error:  # a full disk, a folder that may not be written, ...
        where = f"{error.filename}: " if error.filename else ""
        _fail(shown(f"{where}{error.strerror or error}"))
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        _fail("out of memory: end what else uses it, or give fewer or smaller images")
    except Interruption as stop:
        from adamatch.train import distributed

        if distributed.speaks():
            again = ", without --overwrite," if "--overwrite" in sys.argv else ""
            print(f"{shown(str(stop))}; run the same command again{again} to resume", file=sys.stderr)
        sys.exit(interrupts.STOPPED)


def _fail(line: str) -> NoReturn:
    print(f"error: {line}", file=sys.stderr)
    sys.exit(2)
