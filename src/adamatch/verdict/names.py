"""Names of classes that are likely one class: they differ in case, spaces, signs or a plural's ending alone."""

import re
import unicodedata
from collections.abc import Sequence


def alike(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Groups of two or more, in the order given. Names of digits alone are never alike."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_plain(name), []).append(name)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def _plain(name: str) -> str:
    text = unicodedata.normalize("NFKC", name).casefold()
    letters = re.sub(r"[\W_]+", "", text)
    if not any(sign.isalpha() for sign in letters):
        return name  # numbers, or signs alone: 1.0 and 10 are two classes
    for ending, instead in (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("shes", "sh"), ("s", "")):
        if letters.endswith(ending) and len(letters) >= len(ending) + 2 and not letters.endswith(("ss", "us", "is")):
            return letters.removesuffix(ending) + instead
    return letters
