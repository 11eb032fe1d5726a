"""What the answers say: accuracy of model and twin, their difference, wrong names, class shares; with intervals.

"Cannot tell" may be anything: the estimate leaves it out, and the interval holds whether all of these are right or
wrong. "None of these" is wrong for every model.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from adamatch.ask import intervals
from adamatch.ask.answers import ANSWERS, CLASS, NONE, QUESTIONS, UNSURE, Answer, Book, Question

LEVEL = round(100 * intervals.LEVEL)
MANY = 3  # questions for each class: with fewer, little is said of single classes
NAMED = 5  # groups that are named


@dataclass(frozen=True)
class Estimate:
    """In percent, from n answers: the true value lies between low and high, with a probability of 95 %."""

    value: float
    low: float
    high: float
    n: int

    @property
    def range(self) -> str:
        """Rounded outwards."""
        return f"{_floor(self.low)} to {_ceil(self.high)}"

    def __str__(self) -> str:
        return f"{self.value:.0f} % ({LEVEL} %: {self.range}), from {counted(self.n, 'answer')}"


@dataclass(frozen=True)
class Group:
    """The images that the model calls by one name: how many of those that were asked are something else."""

    name: str
    images: int
    asked: int
    right: int
    others: tuple[tuple[str, int], ...]  # what the wrong ones are, the most frequent first

    @property
    def wrong(self) -> int:
        return self.asked - self.right

    def __str__(self) -> str:
        others = ", ".join(f"{count} {'was' if count == 1 else 'were'} {name}" for name, count in self.others)
        return f"of {counted(self.asked, 'image')} called {self.name}, {others}"


@dataclass(frozen=True)
class Summary:
    """All that is known from the answers of a run."""

    asked: int
    answered: int
    unsure: int
    images: int
    classes: int
    accuracy: Estimate | None  # None: nothing is answered yet
    twin: Estimate | None
    gain: Estimate | None  # of the model over the twin, in points
    of_no_class: Estimate | None
    shares: dict[str, Estimate]
    groups: tuple[Group, ...]  # with mistakes, the most first
    mistakes: tuple[tuple[int, str, str], ...]  # row in images.json, guess, truth ("" where it is of no class)
    notes: tuple[str, ...]
    run: str

    @property
    def lines(self) -> list[str]:
        """For people."""
        if self.accuracy is None:
            nothing = f"{counted(self.asked, 'question')} wait for answers" if self.asked else "nothing was asked yet"
            return [f"Accuracy: not known, {nothing}: adamatch ask {self.run}", *self.notes]
        lines = [f"Accuracy: {self.accuracy}" + (f" ({self.unsure} more cannot be told)" if self.unsure else "")]
        if self.twin is not None:
            lines.append(f"Without adaptation: {self.twin.value:.0f} % ({LEVEL} %: {self.twin.range})")
        if (gain := self.gain) is not None and gain.low == gain.high == 0:
            lines.append("Both say the same of every image")
        elif gain is not None:
            between = f"{_signed(_floor(gain.low))} to {_signed(_ceil(gain.high))}"
            lines.append(f"Adaptation changed it by {_signed(round(gain.value))} points ({LEVEL} %: {between})")
        lines += self._mistakes()
        if (none := self.of_no_class) is not None and none.value:
            lines.append(f"Of no class: about {none.value:.0f} % of the images ({LEVEL} %: {none.range})")
        if self.answered < MANY * self.classes:
            lines.append(
                f"{self.answered} answers measure the accuracy in all as well as with few classes. "
                f"Of {self.classes} single classes they say little"
            )
        return [*lines, *self.notes, *self._next()]

    def _mistakes(self) -> list[str]:
        """Groups of which several were asked have a line each, single images one together."""
        several = [each for each in self.groups if each.asked > 1]
        lines = [f"Wrong names: {each}" for each in several[:NAMED]]
        single = [f"{each.name} was {each.others[0][0]}" for each in self.groups if each.asked == 1]
        more = len(several[NAMED:]) + len(single[NAMED:])
        if single:
            lines.append(f"Wrong names of single images: {', '.join(single[:NAMED])}")
        return lines + ([f"Wrong names in {counted(more, 'more group')}"] if more else [])

    def _next(self) -> list[str]:
        lines = []
        if self.answered < self.asked:
            lines.append(f"Open: {counted(self.asked - self.answered, 'question')}: adamatch ask {self.run}")
        elif self.asked < self.images:
            lines.append(f"For a narrower range: adamatch ask {self.run} --more 30")
        if self.mistakes:
            lines.append(f"To learn from the answers: adamatch fit ... --target-labels {self.run} --out ANOTHER")
        return lines

    def to_json(self) -> dict[str, Any]:
        """For machines: numbers are in percent."""
        return {name: value for name, value in asdict(self).items() if name != "run"} | {"lines": self.lines}


def summary(folder: str | Path) -> Summary | None:
    """Of a run's folder; None where nothing was ever asked."""
    folder = Path(folder)
    if not (folder / QUESTIONS).is_file() and not (folder / ANSWERS).is_file():
        return None
    return summarise(Book.read(folder))


def summarise(book: Book) -> Summary:
    target, population = book.target, len(book.target)
    pairs = [(q, a) for q, a in zip(book.questions, book.answers(), strict=True) if a is not None]
    known = [(q, a) for q, a in pairs if a.kind != UNSURE]
    unsure = len(pairs) - len(known)

    def share(hits: int) -> Estimate:
        """Of all images, from the hits among the known answers; what nobody could tell may all be hits, or none."""
        low = intervals.count(hits, len(pairs), population).low
        high = intervals.count(hits + unsure, len(pairs), population).high
        return _estimate(hits / len(known), low / population, high / population, len(known))

    def right(said: Any) -> int:
        return sum(a.kind == CLASS and a.label == target.classes[said.classes[q.row]] for q, a in known)

    some = bool(known)
    labels = Counter(a.label for _, a in known if a.kind == CLASS)
    mistakes = [
        (int(target.rows[q.row]), target.classes[target.said.classes[q.row]], a.label)
        for q, a in known
        if a.label != target.classes[target.said.classes[q.row]]
    ]
    return Summary(
        asked=len(book.questions),
        answered=len(pairs),
        unsure=unsure,
        images=population,
        classes=len(target.classes),
        accuracy=share(right(target.said)) if some else None,
        twin=share(right(target.twin)) if some and target.twin else None,
        gain=_gain(book, pairs) if some and target.twin else None,
        of_no_class=share(sum(a.kind == NONE for _, a in known)) if some else None,
        shares={name: share(labels[name]) for name in target.classes} if some else {},
        groups=_groups(book, known),
        mistakes=tuple(mistakes),
        notes=tuple(_notes(book)),
        run=str(book.folder),
    )


def _gain(book: Book, pairs: Sequence[tuple[Question, Answer]]) -> Estimate:
    """Only images on which both differ matter. How many these are is known; the answers say who is right on them."""
    target, differs = book.target, book.target.differs
    assert target.twin is not None
    count, score, unsure, known = int(differs.sum()), 0, 0, 0
    for question, answer in pairs:
        if differs[question.row]:
            unsure += answer.kind == UNSURE
            known += answer.kind != UNSURE
            if answer.kind == CLASS:
                says = [target.classes[each.classes[question.row]] for each in (target.said, target.twin)]
                score += (says[0] == answer.label) - (says[1] == answer.label)
    low = intervals.difference(score - unsure, known + unsure, count).low
    high = intervals.difference(score + unsure, known + unsure, count).high
    part = count / len(target)
    return _estimate(score / known * part if known else 0.0, low / len(target), high / len(target), known)


def _groups(book: Book, known: Sequence[tuple[Question, Answer]]) -> tuple[Group, ...]:
    target = book.target
    asked: dict[int, list[str]] = {}
    for question, answer in known:
        asked.setdefault(int(target.said.classes[question.row]), []).append(answer.label or "none of the classes")
    groups = []
    for number, labels in asked.items():
        name = target.classes[number]
        others = Counter(label for label in labels if label != name).most_common()
        if others:
            images = int((target.said.classes == number).sum())
            groups.append(Group(name, images, len(labels), labels.count(name), tuple(others)))
    return tuple(sorted(groups, key=lambda each: (-each.wrong, each.asked, each.name)))


def _notes(book: Book) -> list[str]:
    notes = []
    if book.gone:
        count = counted(len(book.gone), "image")
        notes.append(f"Changed or gone since the draw, and not counted: {count} ({book.gone[0]})")
    if book.earlier:
        notes.append(
            "The target has other images than when it was asked before: earlier answers are kept as labels only"
        )
    return notes


def _estimate(value: float, low: float, high: float, n: int) -> Estimate:
    return Estimate(round(100 * value, 4), round(100 * low, 4), round(100 * high, 4), n)


def counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'s' * (number != 1)}"


def _floor(value: float) -> int:
    return math.floor(value + 1e-9)


def _ceil(value: float) -> int:
    return math.ceil(value - 1e-9)


def _signed(value: int) -> str:
    return f"+{value}" if value > 0 else str(value)
