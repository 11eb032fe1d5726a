"""The verdict in two sentences, and the numbers beside it."""

from dataclasses import dataclass
from typing import Any

from adamatch.report.prediction_summary import Answers
from adamatch.report.record import Record
from adamatch.verdict.verdict import ALONE

TWIN = "the same network trained on the labelled images alone"
LITTLE = 1.0  # points of accuracy: a smaller difference is called none


@dataclass(frozen=True)
class Verdict:
    """Everything in percent; None: not known."""

    head: str
    tone: str  # good, poor, open: a class of the style sheet
    sentences: tuple[str, str]
    accuracy: float | None = None  # measured on labelled target images
    at_least: float | None = None
    at_best: float | None = None
    gain: float | None = None
    measured_gain: bool = False
    changed: float | None = None
    twin: float | None = None  # its measured accuracy
    chance: float | None = None


def verdict(record: Record, answers: Answers | None) -> Verdict:
    span = record.verdict.get("range", {})
    low, high = span.get("at_least"), span.get("at_best")
    accuracy = record.accuracy
    twin = record.twin.accuracy if record.twin and record.twin.test == record.test else None  # of the same images
    measured = accuracy is not None and twin is not None
    gain = accuracy - twin if accuracy is not None and twin is not None else record.verdict.get("gain")
    changed = None
    if answers is not None and answers.twin is not None and len(answers.rows):
        changed = 100 * float(answers.changed.mean())
    head, tone = _head(record, gain)
    sentences = _first(record, accuracy, low, high), _second(record, gain, changed, measured)
    chance = 100 / len(record.classes) if record.classes else None
    return Verdict(head, tone, sentences, accuracy, low, high, gain, measured, changed, twin, chance)


def _head(record: Record, gain: float | None) -> tuple[str, str]:
    if not record.result:
        return "Under way", "open"
    if gain is None:
        return ("Trained without adaptation" if record.run.method == ALONE else "Trained"), "open"
    if gain > LITTLE:
        return "Adaptation helped", "good"
    return ("Adaptation did harm", "poor") if gain < -LITTLE else ("Adaptation changed little", "open")


def _first(record: Record, accuracy: float | None, low: float | None, high: float | None) -> str:
    """How good it is."""
    if not record.result:
        done = int(record.rows[-1]["step"]) if record.rows else 0
        last = record.run.recipe.last_step
        return f"The run has done {done:,} of {last:,} steps: what is below is from its last evaluation."
    span = _span(low, high)
    if accuracy is not None:
        put = "it was put" if low is not None and high is not None else "the estimate is"
        estimate = f"; without labels {put} {span}" if span else ""
        return f"The model is right on {accuracy:.1f} % of the labelled target images{estimate}."
    if span:
        return f"Of the target images, {span} are likely right, judged without labels."
    why = "there were no labels to measure it, and the run has no estimate"
    return f"How many target images are right is not known: {why}."


def _span(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f"between {low:.0f} and {high:.0f} %"
    return f"at least {low:.0f} %" if low is not None else f"at best {high:.0f} %" if high is not None else ""


def _second(record: Record, gain: float | None, changed: float | None, measured: bool) -> str:
    """What adaptation changed."""
    if record.run.method == ALONE:
        return "It was trained on labelled images alone: the target images changed nothing."
    if record.twin is None:
        return "What adaptation changed is not known: there is no twin trained on the labelled images alone beside it."
    if gain is None and changed is None:
        return f"There is nothing yet to compare with {TWIN}."
    if gain is None:
        return f"It answers {changed:.0f} % of the target images differently than {TWIN}."
    likely, better = "" if measured else "likely ", "better" if gain >= 0 else "worse"
    answers = f", and answers {changed:.0f} % of the images differently" if changed is not None else ""
    return f"It is {likely}{abs(gain):.1f} points {better} than {TWIN}{answers}."


def warnings(record: Record) -> list[dict[str, Any]]:
    """Of the verdict: `rows` of the target that show it, and of labelled images where they come in `pairs`."""
    found: list[dict[str, Any]] = record.verdict.get("warnings", [])
    return found
