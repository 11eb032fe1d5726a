"""`adamatch choose`: which of several runs to keep, without labels of the target."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from adamatch.base.console import print_table
from adamatch.base.errors import InputError, unknown

if TYPE_CHECKING:
    from adamatch.config.run import Run
    from adamatch.verdict.eval_outputs import EvalOutputs

SHOWN = ("ensemble", "names", "density", "information")  # scores beside that of the rule
NAMED = 3  # classes that an error names


def choose(
    runs: Annotated[
        list[Path], typer.Argument(help="Folders that fit or train made: other seeds, methods, learning rates")
    ],
    rule: Annotated[
        str, typer.Option(help="ensemble, names, density, information, transport or certainty")
    ] = "ensemble",
) -> None:
    """Choose among runs on the same target, without a label of it.

    By default the one that agrees most with all of them together: give three or more. "names" takes the one with the
    fewest images under a wrong name, judged by its twin. The other columns have the scores of other rules: the larger,
    the better.

    [bold]Example[/bold]: adamatch choose runs/seed0 runs/seed1 runs/seed2
    """
    from adamatch.verdict import model_selection

    if rule not in model_selection.RULES:
        raise unknown("rule", rule, model_selection.RULES)
    configurations, outputs = zip(*map(_read, runs), strict=True)
    _check_same(runs, configurations)
    compared = _on_common_images(runs, outputs)
    scores = {name: model_selection.scores(compared, name) for name in dict.fromkeys((rule, *SHOWN))}
    best = int(scores[rule].argmax())
    table = Table("run", "method", "seed", *scores, "its best step", box=SIMPLE_HEAD)
    for number, (path, run, found) in enumerate(zip(runs, configurations, compared, strict=True)):
        step = f"{found.steps[model_selection.best_evaluation(found, rule)]} of {found.steps[-1]}"
        cells = [f"{each[number]:.3f}" for each in scores.values()]
        style = "bold" if number == best else ""
        table.add_row(Text(str(path)), run.method, str(run.seed), *cells, step, style=style)
    print_table(table)
    typer.echo(f"chosen, by {rule}: {runs[best]}")


def _read(path: Path) -> "tuple[Run, EvalOutputs]":
    from adamatch.config.run import Run
    from adamatch.verdict import eval_outputs
    from adamatch.verdict.verdict import TWIN

    try:
        run = Run.read(path / "run.json")
    except (OSError, ValueError):
        raise InputError(f"{path} is no run: give folders that fit or train made") from None
    if not (path / "result.json").is_file():
        raise InputError(f"{path} is not finished: run its command again, or choose among the others")
    outputs = eval_outputs.read(path)
    if outputs is None:
        raise InputError(f"{path} has no outputs/: run its command again with --overwrite, or choose among the others")
    return run, outputs.with_twin(eval_outputs.read(path / TWIN))


def _check_same(runs: Sequence[Path], configurations: "Sequence[Run]") -> None:
    """That predictions can be compared: for the same target images, and with the same numbers for the classes."""
    from adamatch.report.record import target_of
    from adamatch.verdict import eval_outputs

    first, classes = configurations[0], eval_outputs.facts(runs[0]).classes
    for path, run in zip(runs, configurations, strict=True):
        if target_of(run) != target_of(first):
            raise InputError(
                f"{path} was trained for other target images than {runs[0]}, or at another size: "
                "choose among runs on the same ones"
            )
        if (names := eval_outputs.facts(path).classes) != classes:
            differ = [repr(name) for name in (*names, *classes) if (name in names) != (name in classes)][:NAMED]
            told = ", ".join(differ) or "the same in another order"
            raise InputError(f"{path} has other classes than {runs[0]} ({told}): choose among runs with the same ones")


def _on_common_images(runs: Sequence[Path], outputs: "Sequence[EvalOutputs]") -> "list[EvalOutputs]":
    """Of the target images that all runs have: where labels are of the target itself, seeds hold out others."""
    from adamatch.verdict import eval_outputs

    rows = [{key: row for row, key in enumerate(eval_outputs.facts(path).images)} for path in runs]
    common = sorted(set.intersection(*map(set, rows)))
    if not common:
        raise InputError(f"{runs[0]} and the others have no target image in common: choose among runs on the same ones")
    return [found.of([mine[key] for key in common]) for mine, found in zip(rows, outputs, strict=True)]
