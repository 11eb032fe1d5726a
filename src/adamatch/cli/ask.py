"""`adamatch ask`: some target images are answered by a person, which measures accuracy."""

import json
from pathlib import Path
from typing import Annotated

import typer

from adamatch.base import interrupts
from adamatch.base.console import say
from adamatch.base.errors import InputError

MOST = 1_000_000  # questions


def ask(
    run: Annotated[Path, typer.Argument(help="The folder that fit made")],
    number: Annotated[int, typer.Option(help="How many images to ask about, in all", min=1, max=MOST)] = 30,
    more: Annotated[int, typer.Option(help="So many more, once the others are answered", min=0, max=MOST)] = 0,
    seed: Annotated[int, typer.Option(help="Random seed of the draw", min=0, max=2**48)] = 0,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the page's address, and how to reach it over SSH")
    ] = False,
    port: Annotated[int, typer.Option(help="The page's port (default: any that is free)", min=0, max=65535)] = 0,
    to: Annotated[Path | None, typer.Option(help="No page: write the questions as a CSV file, to be filled in")] = None,
    from_: Annotated[Path | None, typer.Option("--from", help="No page: take the answers of such a file")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="No page: print what the answers say as JSON")] = False,
) -> None:
    """Thirty target images, answered on a page: how accurate the model is, with an honest range.

    The page is on this machine alone. Every answer is kept at once, in answers.csv in the run's folder.

    [bold]Examples[/bold]:

      adamatch ask runs/art

      adamatch ask runs/art --more 30

      adamatch ask runs/art --to questions.csv
    """
    from adamatch.ask import answers, estimate
    from adamatch.ask.answers import Book
    from adamatch.ask.questions import serve
    from adamatch.base.files import destination, writing

    if to is not None and from_ is not None:
        raise InputError("--to writes questions, --from reads answers: give one of them")
    if as_json and to is None and from_ is None:
        _tell(estimate.summarise(Book.read(run)), as_json)
        return
    with interrupts.working(), Book.opened(run) as book:
        if from_ is not None:
            found = answers.read_questions(book, from_)
            kept = book.answer_all(found)
            say(f"{kept} new answers of {len(found)} in {from_}", stderr=as_json)
            _tell(estimate.summarise(book), as_json)
            return
        if to is None and not book.target.files:
            given = f"adamatch.load({str(run)!r}).ask(images=ARRAY)"
            raise InputError(f"{run} was trained on arrays, which have no files to show: in Python, {given} has them")
        book.want(number, more, seed)
        if to is not None:
            with writing(to):
                answers.write_questions(book, destination(to))
            then = f"fill in the column answer, then adamatch ask {run} --from {to}"
            say(f"{len(book.questions)} questions in {to}: {then}")
            return
        _tell(serve(book, port=port, browser=not no_browser), as_json)


def _tell(summary: object, as_json: bool) -> None:
    from adamatch.ask.estimate import Summary

    assert isinstance(summary, Summary)
    if as_json:
        say(json.dumps(summary.to_json()))
        return
    for line in summary.lines:
        say(line)
