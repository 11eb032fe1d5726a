"""Errors meant for the person at the keyboard: one line that names the thing and the remedy."""

import difflib
import unicodedata
from collections.abc import Iterable

UNSHOWN = {
    "Cc",
    "Cf",
    "Cs",
    "Zl",
    "Zp",
}  # Unicode's controls, directions of writing, halves of characters, ends of lines
JOINERS = "\u200c\u200d"  # they belong to the writing of some languages, and to emoji
NO_MEMORY = (
    "out of memory",
    "allocate memory",
    "not enough memory",
    "alloc_failed",
)  # PyTorch, its allocators, cuDNN, cuBLAS
LONGEST = 60  # characters of what was given that an error repeats


class InputError(ValueError):
    """What was asked for cannot be done; the message is one line and says what to do instead."""

    def __init__(self, message: object = "") -> None:
        super().__init__(shown(str(message)))


def shown(text: str) -> str:
    """A name as a terminal may have it: what would move the cursor, break the line or turn it round stands as \\x1b or so."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(c) if unicodedata.category(c) in UNSHOWN and c not in JOINERS else c for c in text)


def _escaped(c: str) -> str:
    if "\udc80" <= c <= "\udcff":  # a byte of a file's name that is no text
        return f"\\x{ord(c) - 0xDC00:02x}"
    return c.encode("unicode_escape").decode()


class Elsewhere(InputError):  # noqa: N818
    """Another rank has ended the run, and says why."""


class Interruption(Exception):  # noqa: N818
    """The run was asked to stop; what it has done is saved."""


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


def reason(error: BaseException, most: int = 200) -> str:
    """What a library says went wrong, on one line; its name where it says nothing."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= most else f"{text[:most]} ..."


def is_out_of_memory(error: BaseException | None) -> bool:
    """Of a GPU or of the machine, at the bottom of it: every library has words of its own."""
    while error is not None:
        if isinstance(error, MemoryError) or any(words in str(error).lower() for words in NO_MEMORY):
            return True
        error = error.__cause__ or error.__context__
    return False
