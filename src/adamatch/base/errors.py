"""Errors meant for the user: one line that names the thing and the remedy."""

import difflib
import unicodedata
from collections.abc import Iterable

UNPRINTABLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # Unicode's controls, bidirectional marks, surrogates, line separators
JOINERS = "\u200c\u200d"  # they belong to the writing of some languages, and to emoji
# How PyTorch, its allocators, cuDNN and cuBLAS say it.
NO_MEMORY = ("out of memory", "allocate memory", "not enough memory", "alloc_failed")
LONGEST = 60  # characters of a value that an error repeats


class InputError(ValueError):
    """The request cannot be met; the message is one line and says what to do instead."""

    def __init__(self, message: object = "") -> None:
        super().__init__(shown(str(message)))


class StoppedElsewhere(InputError):  # noqa: N818
    """Another rank has ended the run, and says why."""


class Interruption(Exception):  # noqa: N818
    """The run was asked to stop; its state is saved."""


def shown(text: str) -> str:
    """Safe to print: what would move the cursor, break the line or reverse it is escaped, as \\x1b."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(c) if unicodedata.category(c) in UNPRINTABLE and c not in JOINERS else c for c in text)


def _escaped(c: str) -> str:
    if "\udc80" <= c <= "\udcff":  # a byte of a file's name that is no text
        return f"\\x{ord(c) - 0xDC00:02x}"
    return c.encode("unicode_escape").decode()


def shortened(value: object) -> str:
    """A value for an error's one line: of a long one, the beginning."""
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text)} characters)"


def unknown(kind: str, name: object, valid: Iterable[str]) -> InputError:
    """An error for a name that does not exist, with the nearest one that does."""
    names = sorted(valid)
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return InputError(f"no {kind} is called {shortened(name)}: {hint}there are {', '.join(names)}")


def reason(error: BaseException, most: int = 200) -> str:
    """A library's error on one line; its class where it has no text."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= most else f"{text[:most]} ..."


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether the error, or one that it came from, says that a GPU or the machine has no memory left."""
    while error is not None:
        if isinstance(error, MemoryError) or any(words in str(error).lower() for words in NO_MEMORY):
            return True
        error = error.__cause__ or error.__context__
    return False
