"""Errors meant for the person at the keyboard: one line that names the thing and the remedy."""

import difflib
from collections.abc import Iterable

LONGEST = 60  # characters of what was given that an error repeats


class InputError(ValueError):
    """What was asked for cannot be done; the message is one line and says what to do instead."""


def shortened(value: object) -> str:
    """What was given, for an error's one line: of something very long, the beginning."""
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text)} characters)"


def unknown(kind: str, name: object, valid: Iterable[str]) -> InputError:
    """An error for a name that does not exist, with the nearest one that does."""
    names = sorted(valid)
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return InputError(f"no {kind} is called {shortened(name)}: {hint}there are {', '.join(names)}")
