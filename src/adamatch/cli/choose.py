"""`adamatch choose`: which of several runs to keep, without labels of the target."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from adamatch.base.console import print_table
from adamatch.base.errors import InputError, shortened, unknown

if TYPE_CHECKING:
    from adamatch.config.run import Run
    from adamatch.verdict.evidence import Evidence

SHOWN = ("ensemble", "names", "density", "information")  # scores beside that of the rule
NAMED = 3  # classes that an error names
OTHER_IMAGES = "{} was trained for other target images than {}, or at another size: choose among runs on the same ones"


def choose(
    runs: Annotated[
        list[Path], typer.Argument(help="Folders that fit or train made: other seeds, methods, learning rates")
    ],
    rule: Annotated[
        str, typer.Option(help="ensemble, names, density, information, transport, certainty, ...")
    ] = "ensemble",
) -> None:
    """Choose among runs on the same target, without a label of it.

    By default the one that agrees most with all of them together: give three or more. "names" takes the one with the fewest
    images under a wrong name, judged by its twin. The other columns have the scores of other rules: the larger, the better.

    [bold]Example[/bold]: adamatch choose runs/seed0 runs/seed1 runs/seed2
    """
    from adamatch.verdict import choice

    if rule not in choice.RULES:
        raise unknown("rule", rule, choice.RULES)
    read = [_read(path) for path in runs]
    _check_same(runs, read)
    read = _in_common(runs, read)
    known = [found for _, found in read]
    scores = {name: choice.among(known, name) for name in dict.fromkeys((rule, *SHOWN))}
    best = int(scores[rule].argmax())
    table = Table("run", "method", "seed", *scores, "its best step", box=SIMPLE_HEAD)
    for number, (path, (run, found)) in enumerate(zip(runs, read, strict=True)):
        step = f"{found.steps[choice.choose(found, rule)]} of {found.steps[-1]}"
        style = "bold" if number == best else ""
        table.add_row(
            Text(str(path)),
            run.method,
            str(run.seed),
            *(f"{each[number]:.3f}" for each in scores.values()),
            step,
            style=style,
        )
    print_table(table)
    typer.echo(f"chosen, by {rule}: {runs[best]}")


def _read(path: Path) -> "tuple[Run, Evidence]":
    from adamatch.config.run import Run
    from adamatch.verdict import evidence
    from adamatch.verdict.verdict import TWIN

    try:
        run = Run.from_json((path / "run.json").read_text())
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"{path} is no run: give folders that fit or train made") from None
    if not (path / "result.json").is_file():
        raise InputError(f"{path} is not finished: run its command again, or choose among the others")
    found = evidence.read(path)
    if found is None:
        raise InputError(f"{path} has no outputs/: it is of an older version")
    return run, found.with_twin(evidence.read(path / TWIN))


def _check_same(runs: Sequence[Path], read: "Sequence[tuple[Run, Evidence]]") -> None:
    """That answers can be compared: they are of the same target images, and the numbers of classes mean the same."""
    from adamatch.report.record import target_of

    _check_alike(runs, [target_of(run) for run, _ in read], OTHER_IMAGES)
    named = [(path, names) for path in runs if (names := _classes(path))]
    for path, names in named[1:]:
        first, theirs = named[0]
        if names != theirs:
            differ = _difference(names, theirs)
            raise InputError(f"{path} has other classes than {first} ({differ}): choose among runs with the same ones")


def _in_common(runs: Sequence[Path], read: "Sequence[tuple[Run, Evidence]]") -> "list[tuple[Run, Evidence]]":
    """The same, of the target images that all runs have: where labels are of the target itself, seeds hold out others."""
    from adamatch.verdict import eval_outputs

    keys = [eval_outputs.images(path) for path in runs]
    known = all(len(mine) == len(found.last) for mine, (_, found) in zip(keys, read, strict=True))
    if not known:  # an older version wrote one of them
        _check_alike(runs, [found.last.shape for _, found in read], OTHER_IMAGES)
        return list(read)
    common = sorted(set.intersection(*map(set, keys)))
    if not common:
        raise InputError(f"{runs[0]} and the others have no target image in common: choose among runs on the same ones")
    rows = [{key: row for row, key in enumerate(mine)} for mine in keys]
    return [(run, found.of([mine[key] for key in common])) for mine, (run, found) in zip(rows, read, strict=True)]


def _check_alike(runs: Sequence[Path], facts: Sequence[object], message: str) -> None:
    for path, fact in zip(runs, facts, strict=True):
        if fact != facts[0]:
            raise InputError(message.format(path, runs[0]))


def _classes(path: Path) -> tuple[str, ...]:
    """As they were written beside the outputs; empty where they were not."""
    from adamatch.base.files import read_json
    from adamatch.verdict import eval_outputs

    try:
        return tuple(read_json(path / eval_outputs.FOLDER / eval_outputs.CLASSES)["classes"])
    except (OSError, ValueError, KeyError, TypeError):
        return ()


def _difference(ours: Sequence[str], theirs: Sequence[str]) -> str:
    new, gone = ([name for name in one if name not in other] for one, other in ((ours, theirs), (theirs, ours)))
    told = [f"{what} {_some(names)}" for what, names in (("it has", new), ("it lacks", gone)) if names]
    return ", ".join(told) or f"the same ones in another order, which begins with {_some(ours)}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(shortened, names[:NAMED])) + (", ..." if len(names) > NAMED else "")
