"""`model.ask`: questions and answers from Python."""

import webbrowser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adamatch.ask import estimate
from adamatch.ask.answers import CANNOT_TELL, Answer, Book, answer_of
from adamatch.ask.estimate import Estimate, Summary
from adamatch.ask.server import Desk, Server
from adamatch.base.errors import InputError, shortened

Label = str | int | None  # a class, or what is none; numbers are names of classes, where labels came as numbers


class Questions:
    """Images of a run's target that wait for an answer: `paths` (or "#index"), and what the model takes them for."""

    def __init__(
        self, folder: Path, number: int = 30, *, more: int = 0, seed: int = 0, images: Sequence[Any] | None = None
    ) -> None:
        self.folder, self._images = folder, images
        with Book.opened(folder, images) as book:
            book.want(number, more, seed, images)
            waiting = [each for each, given in zip(book.questions, book.answers(), strict=True) if given is None]
            classes = book.target.classes
            self.paths = tuple(each.name for each in waiting)
            self.guesses = tuple(classes[book.target.said.classes[each.row]] for each in waiting)

    def __len__(self) -> int:
        return len(self.paths)

    def __repr__(self) -> str:
        return "\n".join([f"adamatch: {len(self)} questions of {self.folder}", *self.summary.lines])

    @property
    def summary(self) -> Summary:
        """All that the answers say until now."""
        return estimate.summarise(Book.read(self.folder, self._images))

    def answer(self, labels: Sequence[Label] | Mapping[str, Label]) -> Estimate | None:
        """Keep a label for each of `paths`, or for some by their path; returns the accuracy as it is known then.

        A label is a class, "none of these", or "cannot tell" (None).
        """
        if not isinstance(labels, Mapping):
            if isinstance(labels, str) or len(labels) != len(self):
                raise InputError(
                    f"there are {len(self)} questions and {len(labels)} labels: give one for each of paths"
                )
            labels = dict(zip(self.paths, labels, strict=True))
        with Book.opened(self.folder, self._images) as book:
            numbers = {question.name: number for number, question in enumerate(book.questions)}
            found: dict[int, Answer] = {}
            for name, label in labels.items():
                if name not in numbers:
                    raise InputError(f"{shortened(name)} was not asked, or changed since: answer those in paths")
                found[numbers[name]] = answer_of(CANNOT_TELL if label is None else str(label), book.target.classes)
            book.answer_all(found)
            return estimate.summarise(book).accuracy

    def open(self, *, browser: bool = True) -> Summary:
        """Show them on a page of this machine until it is finished, or interrupted."""
        with Book.opened(self.folder, self._images) as book:
            return serve(book, browser=browser, images=self._images)


def serve(book: Book, *, port: int = 0, browser: bool = True, images: Sequence[Any] | None = None) -> Summary:
    """Serve the page until it is finished, or Ctrl-C; every answer is kept at once."""
    desk = Desk(book, images)
    server = Server(desk, port)
    server.start()
    try:
        print(f"{len(book.questions)} questions, {book.open} open. The page: {server.address}", flush=True)
        if not browser:
            number = server.server_port
            print(f"From another machine: ssh -N -L {number}:127.0.0.1:{number} THIS_MACHINE, then open that address")
        elif not _opened(server.address):
            print("no browser could be started: open that address in one of this machine, or give --no-browser")
        print("Ctrl-C ends it; every answer is kept", flush=True)
        desk.finished.wait()
    except KeyboardInterrupt:
        pass
    finally:
        server.stop()
    return estimate.summarise(book)


def _opened(address: str) -> bool:
    try:
        return webbrowser.open(address)
    except (OSError, webbrowser.Error):
        return False
