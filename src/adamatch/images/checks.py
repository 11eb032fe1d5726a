"""What is wrong with the user's images, found before training. Labels of the target are not looked at.

`fit` prints what is found, and the verdict and the page take it over.
"""

import itertools
import re
import unicodedata
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple

import numpy as np

from adamatch.images.labels import some
from adamatch.images.pixels import empty, first_same, nearly_same, one_colour
from adamatch.images.store import Labels, Pixels
from adamatch.images.user_data import HELD_OUT, UserData

MOST = 50_000  # images of a kind that are looked at, spread evenly
COMPARED = 4000  # of these, by their looks
LEAST, SOME = 3, 0.01  # images that are nearly empty, or nearly the same: at least so many, and such a part
UNUSUAL = 2  # times the part of nearly empty images among the labelled ones
TINY = 4  # times that an image is enlarged
FEW = round(1 / HELD_OUT)  # images of a class, of which one is held out
LONG, ALIKE = 6, 0.9  # letters of a name of which one may be wrong, and how alike difflib then calls the names
SHOWN = 24  # images that show what is meant


class Finding(NamedTuple):
    """A word for programs, a line for people, and the images that show it.

    `rows` count the unlabelled images as they are trained on, `pairs` the labelled ones. `files` are for people.
    """

    kind: str
    line: str
    rows: Sequence[int] = ()
    pairs: Sequence[int] = ()
    files: Sequence[str] = ()


def look(data: UserData, *, same: bool) -> list[Finding]:
    """All that is found. `same`: source and target are one set, so that the same images are no surprise."""
    found = [unreadable(data), two_classes(data), None if same else in_both(data), trained_on(data)]
    found += [check(data, role) for role in ("source", "target") if role in data.seen for check in (blank, tiny)]
    found += [few_images(data)]
    return [each for each in found if each] + alike_names(data.seen["source"].classes)


def unreadable(data: UserData) -> Finding | None:
    """Files that were left out."""
    bad, count = data.skipped, len(data.skipped) + sum(map(len, data.seen.values()))
    line = f"{len(bad)} of {count:,} images cannot be read: left out"
    return Finding("unreadable", line, files=list(bad.values())) if bad else None


def two_classes(data: UserData) -> Finding | None:
    """The same pixels under two labels of the source, as far as the run may use these."""
    labels, rows = data.seen["source"].labels, np.union1d(data.trained, data.held_out)
    assert labels is not None
    rows, images = _spread(data, "source", MOST, rows)
    first = rows[first_same(images, images)]
    pairs = np.stack([first, rows], 1)[labels[first] != labels[rows]]
    if not len(pairs):
        return None
    line = f"{_are(len(pairs), 'image')} in two classes of the source: keep each in one"
    files = [" = ".join(_names(data, "source", pair)) for pair in pairs[:SHOWN]]
    return Finding("two classes", line, **_shown(data, "source", pairs.ravel()), files=files)


def in_both(data: UserData) -> Finding | None:
    """Images in source and target: nearly the same, where these are many; else with the same pixels."""
    if "target" not in data.seen:
        return None
    (rows, images), (others, labelled) = (_spread(data, role, COMPARED) for role in ("target", "source"))
    near = nearly_same(images, labelled)
    pairs, how = np.stack([rows[near[:, 0]], others[near[:, 1]]], 1), "nearly the same as labelled ones"
    if len(pairs) < max(LEAST, SOME * len(rows)):
        (rows, images), (others, labelled) = (_spread(data, role, MOST) for role in ("target", "source"))
        first = first_same(images, labelled)
        first[empty(images)] = -1  # they are all the same, and told of elsewhere
        pairs, how = np.stack([rows, others[first]], 1)[first >= 0], "also among the labelled ones"
    if not len(pairs):
        return None
    pairs = pairs[np.argsort(~np.isin(pairs[:, 1], data.trained), kind="stable")]  # what can be shown comes first
    line = f"{_of(len(pairs), data, 'target')} {how}: then estimates are too good"
    shown = _shown(data, "target", pairs[:, 0]) | _shown(data, "source", pairs[:, 1])
    files = [f"{_names(data, 'target', [a])[0]} = {_names(data, 'source', [b])[0]}" for a, b in pairs[:SHOWN]]
    return Finding("same images", line, **shown, files=files)


def trained_on(data: UserData) -> Finding | None:
    """Test images, of which the pixels alone are looked at, among the images that are trained on with their labels."""
    if "test" not in data.seen:
        return None
    rows, images = _spread(data, "test", MOST)
    labelled = _spread(data, "source", MOST, data.trained)[1]
    if "target_labels" in data.seen:
        labelled = [*labelled, *_spread(data, "target_labels", MOST)[1]]
    rows = rows[first_same(images, labelled) >= 0]
    if not len(rows):
        return None
    trained = f"{len(rows)} of {len(data.seen['test']):,} test images are trained on with their labels"
    line = f"{trained}: leave them out, accuracy will be too high"
    return Finding("test images", line, files=_names(data, "test", rows))


def blank(data: UserData, role: str) -> Finding | None:
    """Images of one colour; of the target also nearly empty ones, where they are many and not so in the source."""
    rows, images = _spread(data, role, MOST)
    nearly = empty(images)
    if role == "target" and len(nearly) >= max(LEAST, SOME * len(images)):
        labelled = _spread(data, "source", MOST)[1]
        usual = len(empty(labelled)) / len(labelled)
        found = nearly if len(nearly) / len(images) > UNUSUAL * usual else one_colour(images, nearly)
    else:
        found = one_colour(images, nearly)
    line = f"{_of(len(found), data, role)} empty or of one colour: take them out, they teach nothing"
    return _finding("empty", line, data, role, rows[found])


def tiny(data: UserData, role: str) -> Finding | None:
    """Files of which the short side is far below the size of training."""
    sides = np.array(data.seen[role].info.get("sides", ()))
    rows = np.flatnonzero(sides * TINY <= data.size)
    line = f"{_of(len(rows), data, role)} tiny: enlarged {TINY} times and more to {data.size} pixels"
    return _finding("tiny", line, data, role, rows)


def few_images(data: UserData) -> Finding | None:
    """Classes of which no image is held out, where all labels are used."""
    labels, classes = data.seen["source"].labels, data.seen["source"].classes
    assert labels is not None
    counts = np.bincount(labels, minlength=len(classes))
    few = [number for number in np.argsort(counts, kind="stable") if 0 < counts[number] < FEW]
    if data.labels_per_class or not few:
        return None
    told = some([f"{classes[number]} ({counts[number]})" for number in few], 10)
    line = f"fewer than {FEW} images have {told}: none is held out, so nothing tells how well these are learnt"
    rows = np.flatnonzero(np.isin(labels, few))
    return Finding("few images", line, **_shown(data, "source", rows))


def alike_names(classes: Sequence[str]) -> list[Finding]:
    """Names that are likely of one class: they differ in case, blanks, signs, a plural's ending, or one letter."""
    groups: dict[str, list[str]] = {}
    for name in classes:
        groups.setdefault(_plain(name), []).append(name)
    alike = [group for group in groups.values() if len(group) > 1]
    long = [(plain, group[0]) for plain, group in groups.items() if len(plain) >= LONG]
    alike += [[a, b] for (x, a), (y, b) in itertools.combinations(long, 2) if _one_letter_apart(x, y)]
    return [Finding("names", f"are these the same class? {' and '.join(map(repr, group))}") for group in alike]


def _one_letter_apart(first: str, second: str) -> bool:
    """Not at the beginning (typical, atypical), nor a digit."""
    if first[0] != second[0] or abs(len(first) - len(second)) > 1 or not (first + second).isalpha():
        return False
    return SequenceMatcher(None, first, second).ratio() > ALIKE


def _plain(name: str) -> str:
    letters = re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", name).casefold())
    if not any(sign.isalpha() for sign in letters):
        return name  # numbers, or signs alone: 1.0 and 10 are two classes
    for ending, instead in (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("shes", "sh"), ("s", "")):
        if letters.endswith(ending) and len(letters) >= len(ending) + 2 and not letters.endswith(("ss", "us", "is")):
            return letters.removesuffix(ending) + instead
    return letters


def _spread(data: UserData, role: str, most: int, rows: Labels | None = None) -> tuple[Labels, list[Pixels]]:
    """At most so many rows of a store, or of these of its rows, spread evenly; and their images, not copied."""
    images = data.seen[role].images
    rows = np.arange(len(images)) if rows is None else rows
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), most)).round().astype(np.int64))]
    return rows, [images[row] for row in rows]


def _finding(kind: str, line: str, data: UserData, role: str, rows: Labels) -> Finding | None:
    """None without rows."""
    return Finding(kind, line, **_shown(data, role, rows), files=_names(data, role, rows)) if len(rows) else None


def _shown(data: UserData, role: str, rows: Labels) -> dict[str, Any]:
    """Rows of a store as a finding counts them. Of the source, those that are trained on have pictures."""
    if role == "target":
        return {"rows": rows[:SHOWN].tolist()}
    pool, name = data.trained, "pairs"
    if "target" not in data.seen:  # the source's own images are the unlabelled ones
        pool, name = np.setdiff1d(np.arange(len(data.seen["source"])), data.held_out), "rows"
    at = np.searchsorted(pool, rows[np.isin(rows, pool)])
    return {name: at[:SHOWN].tolist()}


def _names(data: UserData, role: str, rows: Iterable[int]) -> list[str]:
    """Files, or numbers of images."""
    files = data.seen[role].info.get("files")
    return [str(files[row]) if files else f"{role} image {row}" for row in itertools.islice(rows, SHOWN)]


def _of(count: int, data: UserData, role: str) -> str:
    return f"{count} of {len(data.seen[role]):,} {role} images {'is' if count == 1 else 'are'}"


def _are(count: int, what: str) -> str:
    return f"1 {what} is" if count == 1 else f"{count} {what}s are"
