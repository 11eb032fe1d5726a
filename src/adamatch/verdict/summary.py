"""The verdict for a person to read."""

from collections.abc import Mapping
from typing import Any

NAMED = 3  # moves between classes that are told


def rows(verdict: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A short table, from judge.json: a question, and the answer. What is not known is not in it."""
    told = [("accuracy on the target", _range(verdict))]
    if verdict["gain"] is not None:
        told.append(("gain over the labelled images alone", f"about {verdict['gain']:+.0f} points (an estimate)"))
    if verdict["twin"] is not None:
        twin = verdict["twin"]
        moves = ", ".join(f"{a} -> {b} ({count})" for a, b, count in twin["moves"][:NAMED])
        share = (
            f"{twin['changed']:,} of {verdict['looked_at']:,} target predictions ({1 - twin['agreement'] / 100:.0%})"
        )
        told.append(("adaptation changed", share + (f", most {moves}" if moves else "")))
    return told


def table(verdict: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The same, with accuracy on held-out images and the warnings."""
    accuracy = f"{verdict['source_accuracy']:.1f} %" if verdict["held_out"] else ""
    held_out = [("accuracy on held-out images", accuracy)] if accuracy else []
    return [*rows(verdict), *held_out, *(("warning", each["line"]) for each in verdict["warnings"])]


def lines(verdict: Mapping[str, Any]) -> list[str]:
    """As lines, with the warnings."""
    warnings = [("warning", each["line"]) for each in verdict["warnings"]]
    return [f"{name}: {value}" for name, value in (*rows(verdict), *warnings)]


def readable(found: Any) -> bool:
    """Whether it is a verdict: one that was read from a file may be anything."""
    try:
        return bool(table(found)) and all(isinstance(text, str) for row in table(found) for text in row)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError):
        return False


def _range(verdict: Mapping[str, Any]) -> str:
    low, high = verdict["range"]["at_least"], verdict["range"]["at_best"]
    if low is None and high is None:
        why = " without labels: see the warning"
        return f"not known{why if verdict['held_out'] else ': no labelled images were held out to judge by'}"
    if low is None:
        span = f"at best {high:.0f}"
    elif high is None:
        span = f"at least {low:.0f}"
    else:
        span = f"between {low:.0f} and {high:.0f}"
    return f"{span} % (an estimate without labels)"
