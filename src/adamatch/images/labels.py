"""Names of classes -> class indices."""

import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np

from adamatch.base.errors import InputError
from adamatch.images.store import Labels


def translate(names: Sequence[str], classes: Sequence[str], where: str) -> Labels:
    """The index in `classes` of each of `names`; a name that is not there is an error that lists it."""
    index = {name: number for number, name in enumerate(classes)}
    if unknown := sorted(set(names) - set(index)):
        raise InputError(
            f"{where} has classes that were not learnt: {some(map(repr, unknown))} (there are "
            f"{some(map(repr, classes), 10)}){_hint(unknown, classes)}"
        )
    return np.array([index[name] for name in names], np.int64)


def known_rows(names: Sequence[str], classes: Sequence[str], where: str, notes: list[str]) -> list[int]:
    """The rows whose name is one of `classes`; how many others there are goes to the notes."""
    learnt = set(classes)
    rows = [row for row, name in enumerate(names) if name in learnt]
    unknown = sorted(set(names) - learnt)
    if not rows:
        found = f"it has {some(map(repr, unknown))}, not {some(map(repr, classes))}{_hint(unknown, classes)}"
        raise InputError(f"{where} has none of the classes that were learnt: {found}")
    if unknown:
        notes.append(
            f"{where}: {len(names) - len(rows)} of {len(names)} images are of classes that were not learnt "
            f"({some(map(repr, unknown))}): left out{_hint(unknown, classes)}"
        )
    return rows


def some(names: Iterable[str], most: int = 5) -> str:
    """The first of many names, and how many more there are."""
    listed = list(names)
    return ", ".join(listed[:most]) + (f" and {len(listed) - most} more" if len(listed) > most else "")


def _hint(unknown: Iterable[str], classes: Iterable[str]) -> str:
    """A remedy where names are nearly the same."""
    if {_plain(name) for name in unknown}.isdisjoint(map(_plain, classes)):
        return ""
    return "; some names differ in upper and lower case, blanks or kinds of accents alone: rename these"


def _plain(name: str) -> str:
    return unicodedata.normalize("NFC", " ".join(name.split())).casefold()
