"""Errors meant for the person at the keyboard: one line that names the thing and the remedy."""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """What was asked for cannot be done; the message is one line and says what to do instead."""


def unknown(kind: str, name: object, valid: Iterable[str]) -> InputError:
    """An error for a name that does not exist, with the nearest one that does."""
    names = sorted(valid)
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return InputError(f"no {kind} is called {name!r}: {hint}there are {', '.join(names)}")


def reason(error: BaseException, most: int = 200) -> str:
    """What a library says went wrong, on one line; its name where it says nothing."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= most else f"{text[:most]} ..."
