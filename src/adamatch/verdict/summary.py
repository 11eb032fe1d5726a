"""The verdict for a person to read."""

from collections.abc import Mapping
from typing import Any

NAMED = 3  # moves between classes that are told


def rows(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A short table, from judge.json: what is asked, and the answer. What is not known is not in it."""
    told = [("accuracy on the target", _range(found))]
    if found["gain"] is not None:
        told.append(("gain over the labelled images alone", f"about {found['gain']:+.0f} points (an estimate)"))
    if found["twin"] is not None:
        twin = found["twin"]
        moves = ", ".join(f"{a} -> {b} ({count})" for a, b, count in twin["moves"][:NAMED])
        share = f"{twin['changed']:,} of {found['looked_at']:,} target predictions ({1 - twin['agreement'] / 100:.0%})"
        told.append(("adaptation changed", share + (f", most {moves}" if moves else "")))
    return told


def table(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The same, with accuracy on held-out images and the warnings."""
    held_out = [("accuracy on held-out images", f"{found['source_accuracy']:.1f} %")] if found["held_out"] else []
    return [*rows(found), *held_out, *(("warning", each["line"]) for each in found["warnings"])]


def lines(found: Mapping[str, Any]) -> list[str]:
    """As lines, with the warnings."""
    return [
        *(f"{name}: {value}" for name, value in rows(found)),
        *(f"warning: {each['line']}" for each in found["warnings"]),
    ]


def readable(found: Any) -> bool:
    """Whether it is a verdict: one that was read from a file may be anything."""
    try:
        return bool(table(found)) and all(isinstance(text, str) for row in table(found) for text in row)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError):
        return False


def _range(found: Mapping[str, Any]) -> str:
    low, high = found["range"]["at_least"], found["range"]["at_best"]
    if low is None and high is None:
        return "not known" + (
            " without labels: see the warning"
            if found["held_out"]
            else ": no labelled images were held out to judge by"
        )
    if low is None:
        return f"at best {high:.0f} % (an estimate without labels)"
    if high is None:
        return f"at least {low:.0f} % (an estimate without labels)"
    return f"between {low:.0f} and {high:.0f} % (an estimate without labels)"
