"""Images that are named in Python: paths with labels or without, several folders, data frames -> one listing of files."""

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from adamatch.base.errors import InputError
from adamatch.images.arrays import some
from adamatch.images.listing import LABEL_HEADERS, PATH_HEADERS, Listing, is_list, list_csv, list_images, with_classes


@dataclass(frozen=True)
class Asked:
    """What is wanted of a listing; `notes` are for the person who gave it.

    labelled=False takes every image and no labels; True insists on labels; None takes what is there.
    """

    labelled: bool | None = None
    classes: Sequence[str] | None = None  # None: those that are found
    missing: bool = False  # files that do not exist are listed, too
    leave: bool = False  # images of other classes than these are left out, rather than an error
    notes: list[str] = field(default_factory=list)


def names_files(source: Any) -> bool:
    """Whether images are given by the names of files or folders."""
    if isinstance(source, (str, Path)) or is_frame(source):
        return True
    if isinstance(source, Mapping):
        return bool(source) and all(names_files(each) for each in source.values())
    if isinstance(source, (list, tuple)):
        return _are_paths(source) or _are_pairs(source) or _paths_and_labels(source) is not None
    return False


def listed(source: Any) -> Any:
    """Names of files that come one after the other (a glob, a set, an array, a Series) as a list; all else as it is."""
    if isinstance(source, (set, frozenset)):
        return sorted(source, key=str) if _are_paths(list(source)) else source
    if getattr(source, "ndim", 0) == 1 and hasattr(source, "tolist"):
        values = source.tolist()
        return values if _are_paths(values) else source
    if isinstance(source, Iterator):
        first = list(itertools.islice(source, 1))
        whole = itertools.chain(first, source)
        return list(whole) if _are_paths(first) else whole
    return source


def is_frame(source: Any) -> bool:
    """A DataFrame of pandas or polars."""
    return type(source).__name__ == "DataFrame" and type(source).__module__.split(".")[0] in ("pandas", "polars")


def list_any(source: Any, asked: Asked) -> Listing:
    """Paths, labels and class names of whatever names files (`names_files`)."""
    paths, labels, names = _list(source, asked)
    if asked.labelled and len(names) < 2:
        where = source if isinstance(source, (str, Path)) else "the source"
        why = "".join(f" ({note})" for note in asked.notes)
        raise InputError(f"{where} has one class only ({names[0]}): a classifier needs at least two{why}")
    return paths, labels, names


def _list(source: Any, asked: Asked) -> Listing:
    if isinstance(source, (str, Path)):
        return _list_one(Path(source), asked)
    if is_frame(source):
        return _list_frame(source, asked)
    if isinstance(source, Mapping):
        return _together([(str(name), each) for name, each in source.items()], asked)
    if (given := _paths_and_labels(source)) is not None:
        return _with_labels(*given, "the list of paths", asked)
    if _are_paths(source):
        bare = [each for each in source if os.path.isfile(each) and not is_list(each)]
        if asked.labelled and bare:
            raise InputError(f"{bare[0]} has no label: give (paths, labels), pairs of a path and a label, or folders")
        return _together([(str(each), each) for each in source], asked)
    paths, labels = zip(*source, strict=True)
    return _with_labels(paths, labels, "the list of pairs", asked)


def _list_one(path: Path, asked: Asked) -> Listing:
    if is_list(path):
        return list_csv(path, **vars(asked))
    if path.is_file() and not asked.labelled:
        return [path], None, tuple(asked.classes or ())
    return list_images(path, **{name: value for name, value in vars(asked).items() if name != "missing"})


def _list_frame(frame: Any, asked: Asked) -> Listing:
    """The columns `path` and `label`, by these or the other names that CSV lists may have; paths are relative to here."""
    names = {str(name).lower(): name for name in frame.columns}
    at_path = next((names[name] for name in PATH_HEADERS if name in names), None)
    at_label = next((names[name] for name in LABEL_HEADERS if name in names), None)
    if at_path is None:
        listed = ", ".join(map(str, frame.columns))
        raise InputError(f"the DataFrame has no column `path` (it has {listed}): rename the one that holds the files")
    if at_label is None and asked.labelled:
        raise InputError("the DataFrame has no column `label`, and here labels are needed")
    labels = None if at_label is None else list(frame[at_label])
    return _with_labels(list(frame[at_path]), labels, "the DataFrame", asked)


def _with_labels(paths: Iterable[Any], labels: Iterable[Any] | None, where: str, asked: Asked) -> Listing:
    """Names of files with labels of any kind: words, or whole numbers, which are names as well."""
    found = [Path(each) if isinstance(each, (str, Path)) else None for each in paths]
    given = [None] * len(found) if labels is None else list(labels)
    if len(given) != len(found):
        raise InputError(f"{where} has {len(found)} paths and {len(given)} labels: there must be one label for each")
    if not found:
        raise InputError(f"{where} holds no images")
    pairs: list[tuple[Path, str]] = []
    has_labels = labels is not None and asked.labelled is not False
    for row, (path, label) in enumerate(zip(found, given, strict=True)):
        if path is None:
            raise InputError(f"{where}, row {row}: a path is missing")
        if not path.is_file() and not asked.missing:
            raise InputError(f"{where}, row {row}: {path} does not exist (paths are relative to {Path.cwd()})")
        name = _name(label)
        if has_labels and not name:
            raise InputError(f"{where}, row {row}: the label is missing (give all images one, or none)")
        pairs.append((path, name))
    if not has_labels:
        return [path for path, _ in pairs], None, tuple(asked.classes or ())
    return with_classes(pairs, where, asked.classes, asked.leave, asked.notes)


def _together(sources: Sequence[tuple[str, Any]], asked: Asked) -> Listing:
    """Several as one: the classes are those of all of them."""
    each_own = replace(asked, classes=None, leave=False)
    listings = [(name, *_list(source, each_own)) for name, source in sources]
    paths = [path for _, found, _, _ in listings for path in found]
    unlabelled = [name for name, _, labels, _ in listings if labels is None]
    if len(unlabelled) == len(listings):
        return paths, None, tuple(asked.classes or ())
    if unlabelled:
        raise InputError(f"{unlabelled[0]} has no labels, and others that were given with it have: label all, or none")
    named = [(name, [names[label] for label in labels]) for name, _, labels, names in listings if labels is not None]
    if asked.classes is None:
        _compare(named, asked.notes)
    pairs = list(zip(paths, (label for _, labels in named for label in labels), strict=True))
    return with_classes(pairs, some(name for name, _ in sources), asked.classes, asked.leave, asked.notes)


def _compare(named: Sequence[tuple[str, Sequence[str]]], notes: list[str]) -> None:
    """Classes that not all of several sources have are most often the same under two names: they are named."""
    every = {label for _, labels in named for label in labels}
    lacking = [f"{name} has no {some(sorted(every - set(has)))}" for name, has in named if every - set(has)]
    if lacking:
        notes.append(f"not every source has every class: {'; '.join(lacking)}")


def _name(label: Any) -> str:
    """A label as a name; nothing where it is missing (None, NaN). What pandas made 3.0 of was a 3."""
    if label is None or label != label:  # NaN
        return ""
    return str(int(label) if isinstance(label, float) and label.is_integer() else label).strip()


def _paths_and_labels(source: Any) -> tuple[list[Any], list[Any]] | None:
    """(paths, labels), each a list, an array or a column."""
    if not (isinstance(source, tuple) and len(source) == 2) or isinstance(source[0], (str, Path)):
        return None
    paths = _plain(source[0])
    if paths is None or not paths or not all(isinstance(each, (str, Path)) for each in paths):
        return None
    labels = _plain(source[1])
    return None if labels is None else (paths, labels)


def _plain(values: Any) -> list[Any] | None:
    if isinstance(values, (list, tuple)):
        return list(values)
    if getattr(values, "ndim", 1) != 1 or isinstance(values, (str, bytes, Mapping)):
        return None
    for name in ("tolist", "to_list"):
        if hasattr(values, name):
            found = getattr(values, name)()
            return found if isinstance(found, list) else None
    return None


def _are_paths(source: Sequence[Any]) -> bool:
    return bool(source) and all(isinstance(each, (str, Path)) for each in source)


def _are_pairs(source: Sequence[Any]) -> bool:
    """Pairs of a path and a label."""
    return bool(source) and all(
        isinstance(each, (list, tuple)) and len(each) == 2 and isinstance(each[0], (str, Path)) for each in source
    )


def contains(source: Any, path: str | Path) -> bool:
    """Whether a path lies in a folder that was given as images."""
    whole = Path(path).resolve()
    return any(each.is_dir() and whole.is_relative_to(each.resolve()) for each in _named(source))


def lies_in(source: Any, folder: Path) -> bool:
    """Whether any of the folders, lists and files that were given, or that a list names, lies in this folder."""
    given = _named(source)
    lists = [each for each in given if is_list(each) and each.is_file()]
    rows = [path for each in lists for path in list_csv(each, labelled=False, missing=True)[0]]
    return any(each.resolve().is_relative_to(folder.resolve()) for each in (*given, *rows))


def _named(source: Any) -> list[Path]:
    """What was given by name, as far as it was."""
    if isinstance(source, Mapping):
        return [path for each in source.values() for path in _named(each)]
    if isinstance(source, (list, tuple)):
        pairs = _paths_and_labels(source)
        given = pairs[0] if pairs else [each[0] for each in source] if _are_pairs(source) else source
        return [Path(each) for each in given] if _are_paths(given) else []
    return [Path(source)] if isinstance(source, (str, Path)) else []


def same_files(source: Any, target: Any) -> bool:
    """Whether two sources are made of the same folders and files."""
    first, second = (each if isinstance(each, (list, tuple)) else [each] for each in (source, target))
    if not (_are_paths(first) and _are_paths(second)):
        return False
    return [Path(each).resolve() for each in first] == [Path(each).resolve() for each in second]
