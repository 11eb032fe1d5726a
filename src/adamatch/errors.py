"""Errors meant for the person at the keyboard: one line that names the thing and the remedy."""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """What was asked for cannot be done; the message is one line and says what to do instead."""


class Elsewhere(InputError):  # noqa: N818
    """Another rank has ended the run, and says why."""


class Interruption(Exception):  # noqa: N818
    """The run was asked to stop and wrote a checkpoint."""


def unknown(kind: str, name: object, valid: Iterable[str]) -> InputError:
    """An error for a name that does not exist, with the nearest one that does."""
    names = sorted(valid)
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return InputError(f"no {kind} is called {name!r}: {hint}there are {', '.join(names)}")
