"""The questions of a run and their answers, on the disk at every moment.

questions.json holds the images that were drawn, and appears whole or not at all. answers.csv holds a row for each
answer, synced before the next question is shown; the last row of an image counts. Its owner alone may read it. An
answer belongs to an image by the checksum of its file: it holds wherever that image is, also for another model.
"""

import csv
import datetime
import hashlib
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from adamatch.ask import sample
from adamatch.ask.target import Target
from adamatch.base import locks
from adamatch.base.console import no_formula
from adamatch.base.errors import InputError, shortened, shown, unknown
from adamatch.base.files import checksum, disk_is_full, disk_reason, parse, sync, unsealed, write_atomically
from adamatch.base.files import sealed as with_checksum
from adamatch.base.regular_files import read_file, read_own

QUESTIONS, ANSWERS, LOCK = "questions.json", "answers.csv", ".ask.lock"
VERSION = 1
COLUMNS = ("path", "sha256", "kind", "label", "probability", "draw", "time")
CLASS, NONE, UNSURE, UNDONE = "class", "none", "unsure", "undone"
NONE_OF_THESE, CANNOT_TELL = "none of these", "cannot tell"
WORDS = {NONE_OF_THESE: NONE, "none": NONE, CANNOT_TELL: UNSURE, "unsure": UNSURE, "?": UNSURE}


class Answer(NamedTuple):
    """A class by its name, or another kind."""

    kind: str
    label: str = ""


class Question(NamedTuple):
    """An image that was drawn: its row of the target, and its name and checksum then."""

    row: int
    name: str
    sha256: str  # empty for arrays that are not at hand
    draw: int
    probability: float  # with which it would be drawn, by this draw or one before it

    @property
    def key(self) -> str:
        return self.sha256 or cell(self.name)


def cell(text: str) -> str:
    """As it is written into a CSV file: on one line, and no formula."""
    return no_formula(shown(text))


def answer_of(text: str, classes: Sequence[str]) -> Answer:
    """What a person wrote: a class, "none of these" or "cannot tell". Names of classes come first."""
    text = text.strip()
    names = {name: name for name in classes} | {cell(name): name for name in classes}
    if found := names.get(text):
        return Answer(CLASS, found)
    if kind := WORDS.get(text.lower()):
        return Answer(kind)
    alike = [name for name in classes if name.lower() == text.lower()]
    if len(alike) == 1:
        return Answer(CLASS, alike[0])
    raise unknown("class", text, (*classes, NONE_OF_THESE, CANNOT_TELL))


@dataclass
class Book:
    """Questions and answers of a run. Those who write hold its lock (`opened`)."""

    folder: Path
    target: Target
    draws: list[dict[str, Any]] = field(default_factory=list)  # of questions.json
    questions: list[Question] = field(default_factory=list)  # that belong to the target as it is
    given: dict[str, Answer] = field(default_factory=dict)  # by `Question.key`
    gone: list[str] = field(default_factory=list)  # images that are missing or changed since they were drawn
    earlier: int = 0  # draws from another list of images: their answers stay labels, and do not count

    @classmethod
    def read(cls, folder: Path, images: Sequence[Any] | None = None) -> Self:
        """Of a run's folder; `images`: the target's arrays, where it has no files."""
        book = cls(folder, Target.read(folder))
        book.draws = _draws(folder / QUESTIONS)
        book.given = _rows(folder / ANSWERS, book.target.classes)
        book._take(images)
        return book

    @classmethod
    @contextmanager
    def opened(cls, folder: Path, images: Sequence[Any] | None = None) -> Iterator[Self]:
        """To write; refused while another page is open."""
        Target.read(folder)  # says what is wrong with the folder
        try:
            lock = locks.take(folder / LOCK)
        except OSError as error:
            raise InputError(f"{folder} cannot be written ({disk_reason(error)}): copy it to where it can") from None
        if lock is None:
            raise InputError(f"{folder} is being asked already, by another page or command: use that, or end it first")
        try:
            yield cls.read(folder, images)
        finally:
            lock.release()

    def _take(self, images: Sequence[Any] | None) -> None:
        """The questions of draws from this list of images, where each is as it was."""
        mine = [each for each in self.draws if each["identity"] == self.target.identity]
        self.earlier, self.questions, self.gone = len(self.draws) - len(mine), [], []
        for drawn in mine:
            for row, sha256 in drawn["images"]:
                name = self.target.names[row]
                if sha256 and (self.target.files or images is not None) and _sha256(self.target, row, images) != sha256:
                    self.gone.append(name)
                else:
                    self.questions.append(Question(row, name, sha256, drawn["number"], drawn["probability"]))

    def want(self, number: int, more: int, seed: int, images: Sequence[Any] | None = None) -> None:
        """Draw what is missing from `number` questions in all, then `more`, once none of those before is open."""
        if more and self.questions and self.open:
            raise InputError(f"questions are open ({self.open}): answer them first, then ask for more")
        if not len(self.target):
            raise InputError(
                f"{self.folder}: every image of the target was trained on with its label: none is left to ask"
            )
        drawn = len(self.questions) + len(self.gone)
        self.draw(max(0, number - drawn) + more, seed, images)

    def draw(self, number: int, seed: int = 0, images: Sequence[Any] | None = None) -> None:
        """Draw so many more, among the images that were not drawn yet."""
        mine = [each for each in self.draws if each["identity"] == self.target.identity]
        done = [row for each in mine for row, _ in each["images"]]
        said = self.target.said
        ordered = sample.order(said.classes, said.confidence, self.target.differs)
        ordered = ordered[~np.isin(ordered, done)]
        rows = sample.draw(ordered, number, np.random.default_rng([seed, len(self.draws)])).tolist()
        if not rows:
            return
        if self.target.files:
            for row in rows:
                if not os.path.isfile(self.target.names[row]):
                    raise InputError(f"{self.target.names[row]} is gone: bring the target's images back to their place")
        drawn = {
            "number": len(self.draws) + 1,
            "seed": seed,
            "model": self.target.model,
            "identity": self.target.identity,
            "probability": (len(done) + len(rows)) / len(self.target),
            "images": [[row, _sha256(self.target, row, images)] for row in rows],
        }
        facts = with_checksum({"version": VERSION, "draws": [*self.draws, drawn]})
        write_atomically(self.folder / QUESTIONS, json.dumps(facts, indent=1))
        self.draws.append(drawn)
        self._take(images)

    def answers(self) -> list[Answer | None]:
        """Of each question."""
        return [self.given.get(each.key) for each in self.questions]

    @property
    def open(self) -> int:
        """How many questions wait for an answer."""
        return self.answers().count(None)

    @property
    def last(self) -> int | None:
        """The question that was answered last."""
        numbers = {each.key: number for number, each in enumerate(self.questions)}
        return next((numbers[key] for key in reversed(self.given) if key in numbers), None)

    def answer(self, number: int, answer: Answer | None) -> None:
        """Keep the answer to a question, None to take it back; on return it is on the disk."""
        question = self.questions[number]
        if answer is not None and answer.kind == CLASS and answer.label not in self.target.classes:
            raise unknown("class", answer.label, self.target.classes)
        kind, label = answer or Answer(UNDONE)
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        place = [f"{question.probability:.6g}", str(question.draw), now]
        _append(self.folder / ANSWERS, [cell(question.name), question.sha256, kind, cell(label), *place])
        self.given.pop(question.key, None)
        if answer is not None:
            self.given[question.key] = answer  # as the last

    def answer_all(self, found: Mapping[int, Answer]) -> int:
        """Keep those that are new; how many these are."""
        new = {
            number: answer for number, answer in found.items() if self.given.get(self.questions[number].key) != answer
        }
        for number, answer in new.items():
            self.answer(number, answer)
        return len(new)


class Labelled(NamedTuple):
    """The images that were given a class, in the form that `fit` takes, and those that are of none."""

    given: tuple[list[Path], list[str]]
    of_none: frozenset[Path]


def is_asked(images: Any) -> bool:
    """Whether it is the folder of a run with answers."""
    return isinstance(images, (str, Path)) and Path(images, ANSWERS).is_file() and Path(images, QUESTIONS).is_file()


def labelled(folder: str | Path) -> Labelled:
    """Of a run's folder, to train with."""
    book = Book.read(Path(folder))
    if not book.target.files:
        how = "give these images with their labels, as (images, labels)"
        raise InputError(f"{folder} was asked about arrays, which have no files: {how}")
    known = [(Path(q.name), a) for q, a in zip(book.questions, book.answers(), strict=True) if a is not None]
    named = [(path, answer.label) for path, answer in known if answer.kind == CLASS]
    if not named:
        raise InputError(f"{folder} has no answer that names a class: adamatch ask {folder}")
    of_none = frozenset(path for path, answer in known if answer.kind == NONE)
    return Labelled(([path for path, _ in named], [label for _, label in named]), of_none)


def _sha256(target: Target, row: int, images: Sequence[Any] | None) -> str:
    """Of an image's file or its pixels; empty where neither is at hand."""
    if target.files:
        try:
            return checksum(Path(target.names[row]))
        except (OSError, InputError):
            return "missing"
    return (
        "" if images is None else hashlib.sha256(np.ascontiguousarray(images[target.rows[row]]).tobytes()).hexdigest()
    )


def _draws(path: Path) -> list[dict[str, Any]]:
    try:
        facts = unsealed(parse(read_own(path)))
        if facts["version"] == VERSION:
            return list(facts["draws"])
        why = "was written by another version of adamatch"
    except FileNotFoundError:
        return []
    except (ValueError, KeyError) as error:
        if isinstance(error, InputError):
            raise
        why = "is damaged"
    raise InputError(f"{path} {why}: move it away to draw anew (the answers stay)")


def _rows(path: Path, classes: Sequence[str]) -> dict[str, Answer]:
    """The last answer to each image. Rows that were cut off, and classes that the run does not have, do not count."""
    try:
        text = read_own(path).decode("utf-8", "replace")
    except FileNotFoundError:
        return {}
    names, found = {cell(name): name for name in classes}, dict[str, Answer]()
    for line in text.split("\n")[:-1]:  # what comes after the last end of a line was cut off
        row = next(csv.reader([line.rstrip("\r")]), [])
        if len(row) != len(COLUMNS) or row[2] not in (CLASS, NONE, UNSURE, UNDONE):
            continue
        name, sha256, kind, label, *_ = row
        if kind == CLASS and label not in names:
            continue
        found.pop(sha256 or name, None)
        if kind != UNDONE:
            found[sha256 or name] = Answer(kind, names[label] if kind == CLASS else "")
    return found


def _append(path: Path, row: Sequence[str]) -> None:
    """One more row, on the disk. After an error the file is as it was, as far as the disk allows."""
    made = io.StringIO()
    csv.writer(made, lineterminator="\n").writerow(row)
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    try:
        file = os.open(path, flags, 0o600)
        try:
            size = os.fstat(file).st_size
            head = "" if size else ",".join(COLUMNS) + "\n"
            if size and not read_own(path).endswith(b"\n"):  # a row was cut off: it stays a line of its own
                head = "\n"
            try:
                _write(file, (head + made.getvalue()).encode())
                os.fsync(file)
            except OSError:
                with suppress(OSError):
                    os.ftruncate(file, size)
                raise
        finally:
            os.close(file)
        if not size:
            sync(path.parent)
    except OSError as error:
        remedy = "make room" if disk_is_full(error) else "see to it"
        raise InputError(f"the answer was not kept, {path}: {disk_reason(error)}: {remedy}, and answer again") from None


def _write(file: int, content: bytes) -> None:
    while content:
        content = content[os.write(file, content) :]


def write_questions(book: Book, file: Path) -> None:
    """A table of path, guess, answer for any editor or spreadsheet; answers that are there stand in it."""
    made = io.StringIO()
    rows = csv.writer(made)
    rows.writerow(("path", "guess", "answer"))
    for question, answer in zip(book.questions, book.answers(), strict=True):
        guess = book.target.classes[book.target.said.classes[question.row]]
        text = "" if answer is None else answer.label or {NONE: NONE_OF_THESE, UNSURE: CANNOT_TELL}[answer.kind]
        rows.writerow((cell(question.name), cell(guess), cell(text)))
    write_atomically(file, made.getvalue())


def read_questions(book: Book, file: Path) -> dict[int, Answer]:
    """The answers in such a table, by the questions' numbers. What is wrong is one line; then none is kept."""
    try:
        reader = csv.DictReader(io.StringIO(read_file(file).decode("utf-8-sig"), newline=""))
        rows = [(reader.line_num, row) for row in reader]
        named = {"path", "answer"} <= {*(reader.fieldnames or ())}
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{file} cannot be read as CSV in UTF-8 ({error}): save it as UTF-8") from None
    if not named:
        raise InputError(f"{file} has no columns path and answer: make it with --to, and fill in the column answer")
    numbers = {cell(question.name): number for number, question in enumerate(book.questions)}
    numbers |= {question.name: number for number, question in enumerate(book.questions)}
    found: dict[int, Answer] = {}
    for line, row in rows:
        name, text = (row["path"] or "").strip(), (row["answer"] or "").strip()
        if not text:
            continue
        if name not in numbers:
            gone = " (it is missing or changed since)" if name in map(cell, book.gone) else ""
            asked = f"{shortened(name)} was not asked in {book.folder}{gone}"
            raise InputError(f"{file}, line {line}: {asked}: give the table that --to wrote for this run")
        try:
            answer = answer_of(text, book.target.classes)
        except InputError as error:
            raise InputError(f"{file}, line {line}: {error}") from None
        if found.setdefault(numbers[name], answer) != answer:
            raise InputError(f"{file}, line {line}: {shortened(name)} has two answers: leave one")
    return found
