"""The verdict for a person to read."""

from collections.abc import Mapping
from typing import Any

from adamatch.base.cli_names import argument

NAMED = 3  # moves between classes that are told
LITTLE = 1.0  # points of accuracy: a difference that is no gain


def rows(verdict: Mapping[str, Any], *, measured: bool = False) -> list[tuple[str, str]]:
    """A short table, from judge.json: a question, and the answer. What is not known, or was measured, is not in it."""
    told = [] if measured else [("accuracy on the target", _range(verdict))]
    if verdict["gain"] is not None and not measured:
        told.append(("gain over the labelled images alone", f"about {verdict['gain']:+.0f} points (an estimate)"))
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


def lines(verdict: Mapping[str, Any], *, measured: bool = False) -> list[str]:
    """The same, but for held-out images, as lines."""
    return [f"{name}: {value}" for name, value in (*rows(verdict, measured=measured), *_warnings(verdict))]


def verdict_on(gain: float) -> tuple[str, str]:
    """In words, and as a class of the page's style sheet: good, poor or open. `gain` is in points."""
    if abs(gain) <= LITTLE:
        return "Adaptation changed little", "open"
    return ("Adaptation helped", "good") if gain > 0 else ("Adaptation did harm", "poor")


def _warnings(verdict: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [("warning", each["line"]) for each in verdict["warnings"]]


def _range(verdict: Mapping[str, Any]) -> str:
    low, high = verdict["range"]["at_least"], verdict["range"]["at_best"]
    if low is None or high is None:
        remedy = f"label some target images, and give them as {argument('test')}"
        return f"cannot be told without labels ({remedy})"
    return f"between {low:.0f} and {high:.0f} % (an estimate without labels)"
