"""The verdict for a person to read."""

from collections.abc import Mapping
from typing import Any

from adamatch.base.cli_names import argument
from adamatch.verdict.accuracy import ENOUGH

ALONE = "the same network trained on the labelled images alone"
NAMED = 3  # moves between classes that are told
LITTLE = 1.0  # points of accuracy: a difference that is no gain


def estimated_gain(verdict: Mapping[str, Any]) -> float | None:
    """Points over the twin, judged without labels; None where too few images were held out to tell even its sign."""
    gain: float | None = verdict.get("gain")
    return gain if verdict.get("held_out", 0) >= ENOUGH else None


def head(gain: float, *, measured: bool) -> tuple[str, str]:
    """The verdict in words, and as a class of the page's style sheet: good, poor or open. `gain` is in points."""
    likely = "" if measured else "likely "
    if abs(gain) <= LITTLE:
        return f"Adaptation {likely}changed little", "open"
    return (f"Adaptation {likely}helped", "good") if gain > 0 else (f"Adaptation {likely}did harm", "poor")


def how_good(accuracy: float | None, low: float | None, high: float | None) -> str:
    """Accuracy on the target in percent, as far as it is known: measured, and a range without labels."""
    span = "" if low is None or high is None else f"between {low:.0f} and {high:.0f} %"
    if accuracy is not None:
        estimate = f"; without labels it was put {span}" if span else ""
        return f"The model is right on {accuracy:.1f} % of the labelled target images{estimate}."
    if span:
        return f"Of the target images, {span} are likely right, judged without labels."
    remedy = "answer thirty questions (adamatch ask), or give labelled target images as a test set"
    return f"How many target images are right cannot be told without labels: {remedy}."


def what_changed(gain: float | None, changed: float | None, *, measured: bool) -> str:
    """Beside a twin: the gain in points, and the part of predictions that differ in percent; None: not known."""
    if gain is None and changed is None:
        return f"There is nothing yet to compare with {ALONE}."
    if gain is None:
        return f"It predicts another class than {ALONE} for {changed:.0f} % of the target images."
    likely, better = "" if measured else "likely ", "better" if gain >= 0 else "worse"
    others = f"; {changed:.0f} % of its predictions differ" if changed is not None else ""
    return f"It is {likely}{abs(gain):.1f} points {better} than {ALONE}{others}."


def rows(verdict: Mapping[str, Any], *, measured: bool = False) -> list[tuple[str, str]]:
    """A short table, from judge.json: a question, and the answer. What is not known, or was measured, is not in it."""
    told = [] if measured else [("accuracy on the target", _range(verdict))]
    gain = estimated_gain(verdict)
    if gain is not None and not measured:
        told.append(("gain over the labelled images alone", f"about {gain:+.0f} points (an estimate)"))
    if verdict["twin"] is not None:
        twin = verdict["twin"]
        moves = ", ".join(f"{a} -> {b} ({count})" for a, b, count in twin["moves"][:NAMED])
        share = (
            f"{twin['changed']:,} of {verdict['looked_at']:,} target predictions ({1 - twin['agreement'] / 100:.0%})"
        )
        told.append(("adaptation changed", share + (f", most {moves}" if moves else "")))
    return told


def table(verdict: Mapping[str, Any], *, measured: bool = False) -> list[tuple[str, str]]:
    """The same, with accuracy on held-out images and the warnings."""
    told = rows(verdict, measured=measured)
    if verdict["held_out"]:
        told.append(("accuracy on held-out images", f"{verdict['source_accuracy']:.1f} %"))
    return told + _warnings(verdict)


def lines(verdict: Mapping[str, Any]) -> list[str]:
    """What adaptation changed, and the warnings."""
    return [f"{name}: {value}" for name, value in (*rows(verdict, measured=True), *_warnings(verdict))]


def _warnings(verdict: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [("warning", each["line"]) for each in verdict["warnings"]]


def _range(verdict: Mapping[str, Any]) -> str:
    low, high = verdict["range"]["at_least"], verdict["range"]["at_best"]
    if low is None or high is None:
        remedy = f"adamatch ask shows thirty images to label; or give labelled ones as {argument('test')}"
        return f"cannot be told without labels ({remedy})"
    return f"between {low:.0f} and {high:.0f} % (an estimate without labels)"
