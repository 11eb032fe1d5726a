"""Names of files -> paths, labels and class names: folders, CSV lists, lists of paths, DataFrames, several of these."""

import csv
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from PIL import Image

from adamatch.base.errors import InputError
from adamatch.base.regular_files import read_file
from adamatch.base.urls import Url, is_url
from adamatch.images.decode import kinds
from adamatch.images.labels import known_rows, some, translate
from adamatch.images.store import Labels

File = Path | Url
Listing = tuple[list[File], Labels | None, tuple[str, ...]]
Row = tuple[File, str | None]  # a file and the name of its class; None where there are no labels

# Files beside images that are not images. Any other file that cannot be read is reported, not ignored.
SIDECARS = {".txt", ".csv", ".tsv", ".json", ".jsonl", ".xml", ".yaml", ".yml", ".md", ".html", ".ini", ".log", ".db"}
SIDECARS |= {".parquet", ".pq", ".part"}  # tables of predictions, and unfinished ones
PATH_HEADERS = ("path", "file", "filename", "file_name", "filepath", "image", "image_path")
LABEL_HEADERS = ("label", "class", "class_name", "category", "target")


@dataclass(frozen=True)
class Wanted:
    """What to list."""

    labelled: bool | None = None  # True: labels are needed; False: every image, without its label; None: what is there
    classes: Sequence[str] | None = None  # in this order; None: those that are found, sorted
    missing: bool = False  # files that do not exist are listed, too
    drop_unknown: bool = False  # images of other classes than `classes` are left out, rather than an error
    notes: list[str] = field(default_factory=list)  # for the user: what was left out


def list_files(source: Any, wanted: Wanted) -> Listing:
    """Paths, labels (None: there are none) and class names of anything that names files (`names_files`)."""
    rows = _rows(source, wanted)
    where = where_of(source)
    if not rows:
        raise InputError(f"{where} holds no images")
    names = [name for _, name in rows if name is not None]
    if not names:
        return [path for path, _ in rows], None, tuple(wanted.classes or ())
    classes = tuple(sorted(set(names)) if wanted.classes is None else wanted.classes)
    kept, labels = assign(names, classes, wanted, where)
    return [rows[row][0] for row in kept], labels, classes


def assign(names: Sequence[str], classes: Sequence[str], wanted: Wanted, where: str) -> tuple[Sequence[int], Labels]:
    """The rows of `names` that are wanted, and their indices in `classes`."""
    kept = known_rows(names, classes, where, wanted.notes) if wanted.drop_unknown else range(len(names))
    labels = translate([names[row] for row in kept], classes, where)
    if wanted.labelled and len(classes) < 2:
        why = "".join(f" ({note})" for note in wanted.notes)
        raise InputError(f"{where} has one class only ({classes[0]}): a classifier needs at least two{why}")
    return kept, labels


def names_files(source: Any) -> bool:
    """Whether images are given by the names of files or folders."""
    if isinstance(source, Mapping):
        return bool(source) and all(names_files(each) for each in source.values())
    return isinstance(source, (str, Path)) or is_frame(source) or _paths_and_labels(source) is not None


def is_frame(source: Any) -> bool:
    """A DataFrame of pandas or polars."""
    return type(source).__name__ == "DataFrame" and type(source).__module__.split(".")[0] in ("pandas", "polars")


def is_list(path: str | Path) -> bool:
    return Path(path).suffix.lower() == ".csv"


def contains(source: Any, path: str | Path) -> bool:
    """Whether a path lies in a folder that was given as images."""
    whole = Path(path).resolve()
    return any(os.path.isdir(each) and whole.is_relative_to(each.resolve()) for each in _named(source))


def lies_in(source: Any, folder: Path) -> bool:
    """Whether any of the folders, lists and files that were given, or that a list names, lies in this folder."""
    named = _named(source)
    lists = [each for each in named if is_list(each) and os.path.isfile(each)]
    paths = [path for each in lists for path in list_files(each, Wanted(labelled=False, missing=True))[0]]
    every = [each for each in (*named, *paths) if isinstance(each, Path)]
    return any(each.resolve().is_relative_to(folder.resolve()) for each in every)


def same_files(source: Any, target: Any) -> bool:
    """Whether two sources are the same folders and files."""
    first, second = (each if isinstance(each, (list, tuple)) else [each] for each in (source, target))
    if not (_are_paths(first) and _are_paths(second)):
        return False
    return [Path(each).resolve() for each in first] == [Path(each).resolve() for each in second]


def _rows(source: Any, wanted: Wanted) -> list[Row]:
    if isinstance(source, Url):
        return [(source, None)]
    if isinstance(source, (str, Path)):
        path = Path(source)
        if is_list(path):
            return _csv(path, wanted)
        return [(path, None)] if os.path.isfile(path) and not wanted.labelled else _folder(path, wanted)
    if isinstance(source, Mapping):
        return _named_sources({str(name): each for name, each in source.items()}, wanted)
    if is_frame(source):
        paths, labels = _columns(source, wanted)
    else:
        paths, labels = _paths_and_labels(source) or ([], None)
        if labels is None:
            bare = [each for each in paths if isinstance(each, Url) or (os.path.isfile(each) and not is_list(each))]
            if wanted.labelled and bare:
                raise InputError(f"{bare[0]} has no label: give (paths, labels), pairs of these, or folders")
            return _several([(str(each), each) for each in paths], wanted)
    where, rows = where_of(source), []
    if labels is not None and len(labels) != len(paths):
        raise InputError(f"{where} has {len(paths)} paths and {len(labels)} labels: there must be one label for each")
    without = labels is None or wanted.labelled is False
    names = [None] * len(paths) if without else [_name(label) for label in labels or ()]
    for row, (path, name) in enumerate(zip(paths, names, strict=True)):
        if not isinstance(path, (str, Path)):
            raise InputError(f"{where}, row {row}: a path is missing")
        hint = f"paths are relative to {Path.cwd()}"
        hint = "addresses in a table are not fetched: give them as a list" if is_url(path) else hint
        path = path if isinstance(path, Url) else Path(path)
        rows.append(_row(path, name, f"{where}, row {row}", hint, wanted))
    return rows


def _row(path: File, name: str | None, where: str, hint: str, wanted: Wanted) -> Row:
    """One row of a table, whose file is there, and which has a label where it needs one."""
    # os.path: pathlib's is_file() raises where a name is too long.
    if isinstance(path, Path) and not os.path.isfile(path) and not wanted.missing:
        what = "is not a regular file" if os.path.exists(path) else "does not exist"
        raise InputError(f"{where}: {path} {what} ({hint})")
    if name == "":
        raise InputError(f"{where}: the label is missing (give all images one, or none)")
    return path, name


def _csv(file: Path, wanted: Wanted) -> list[Row]:
    """A list of `path,label` (label may be missing), with or without a header; paths are relative to the file."""
    try:
        reader = csv.reader(io.StringIO(read_file(file).decode("utf-8-sig"), newline=""), skipinitialspace=True)
        lines = [(reader.line_num, [cell.strip() for cell in row]) for row in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{file} cannot be read as CSV in UTF-8 ({error}): save it as UTF-8") from None
    lines = [(number, cells) for number, cells in lines if any(cells)]
    header = [cell.lower() for cell in lines[0][1]] if lines else []
    at_path, at_label = 0, 1
    if any(name in PATH_HEADERS for name in header) and not os.path.isfile(file.parent / lines[0][1][0]):
        at_path = next(i for i, name in enumerate(header) if name in PATH_HEADERS)
        at_label = next((i for i, name in enumerate(header) if name in LABEL_HEADERS), len(header))
        lines = lines[1:]
    has_labels = wanted.labelled is not False and any(len(cells) > at_label for _, cells in lines)
    if wanted.labelled and lines and not has_labels:
        raise InputError(f"{file} has no labels: add a column `label`")
    rows = []
    for number, cells in lines:
        path, label = (cells[at] if len(cells) > at else "" for at in (at_path, at_label))
        header_hint = "a header? its columns are path,label, separated by commas"
        hint = header_hint if number == 1 else f"paths are relative to {file.parent}"
        name = label if has_labels else None
        rows.append(_row(_found(file.parent, path), name, f"{file}, line {number}", hint, wanted))
    return rows


def _found(folder: Path, name: str) -> Path:
    """A path as a list has it: relative to the list, and perhaps written on Windows."""
    path = folder / name
    return folder / name.replace("\\", "/") if "\\" in name and not os.path.isfile(path) else path


def _columns(frame: Any, wanted: Wanted) -> tuple[list[Any], list[Any] | None]:
    """The columns `path` and `label` of a DataFrame, by these or the other names that CSV lists may have."""
    names = {str(name).lower(): name for name in frame.columns}
    path = next((names[name] for name in PATH_HEADERS if name in names), None)
    label = next((names[name] for name in LABEL_HEADERS if name in names), None)
    if path is None:
        found = ", ".join(map(str, frame.columns))
        raise InputError(f"the DataFrame has no column `path` (it has {found}): rename the one that holds the files")
    if label is None and wanted.labelled:
        raise InputError("the DataFrame has no column `label`, and here labels are needed")
    return list(frame[path]), None if label is None else list(frame[label])


def _named_sources(sources: Mapping[str, Any], wanted: Wanted) -> list[Row]:
    """Several as one. Where none has labels, the names are the classes: {"cat": folder of cats, "dog": ...}."""
    if wanted.labelled is not False:
        looked = replace(wanted, labelled=None, classes=None, drop_unknown=False, notes=[])
        found = {name: _rows(each, looked) for name, each in sources.items()}
        if all(rows and rows[0][1] is None for rows in found.values()):
            return [(path, name) for name, rows in found.items() for path, _ in rows]
    return _several(sources.items(), wanted)


def _several(sources: Iterable[tuple[str, Any]], wanted: Wanted) -> list[Row]:
    """Several as one: the classes are those of all of them."""
    each_own = replace(wanted, classes=None, drop_unknown=False)
    found = [(name, _rows(source, each_own)) for name, source in sources]
    for name, rows in found:
        if not rows:
            raise InputError(f"{name} holds no images")
    without = [name for name, rows in found if rows[0][1] is None]
    if 0 < len(without) < len(found):
        raise InputError(f"{without[0]} has no labels, and others that were given with it have: label all, or none")
    if not without and wanted.classes is None:  # a class that some lack is most often one class under two names
        classes = [(name, {str(label) for _, label in rows}) for name, rows in found]
        every = set().union(*(own for _, own in classes))
        if lacking := [f"{name} has no {some(sorted(every - own))}" for name, own in classes if every - own]:
            wanted.notes.append(f"not every source has every class: {'; '.join(lacking)}")
    return [row for _, rows in found for row in rows]


def _folder(folder: Path, wanted: Wanted) -> list[Row]:
    """One folder per class, or images alone (no labels)."""
    if not os.path.isdir(folder):  # not is_dir(): a name that is too long would raise its own error
        raise InputError(f"{folder} {'is not a folder' if os.path.exists(folder) else 'does not exist'}")
    if wanted.labelled is False:
        return [(path, None) for path in _below(folder)]
    inside = sorted(folder.iterdir())
    here = [path for path in inside if not path.is_dir() and _may_be_image(path.name)]
    found = {sub.name: list(_below(sub)) for sub in inside if sub.is_dir() and not sub.name.startswith(".")}
    if not any(found.values()):
        if wanted.labelled and here:
            raise InputError(f"{folder} has images but no labels: put them into one folder per class")
        return [(path, None) for path in here]
    notes, extensions = wanted.notes, _extensions()
    if loose := [path.name for path in here if path.suffix.lower() in extensions]:
        count = f"{len(loose)} images are" if len(loose) > 1 else "1 image is"
        notes.append(f"{folder}: {count} beside the class folders ({some(loose)}): left out, without a class")
    if hidden := [sub.name for sub in inside if sub.name.startswith(".") and _holds_images(sub, extensions)]:
        notes.append(f"{folder}: {some(hidden)}: hidden, so not taken for a class (remove the dot if it is one)")
    empty = [name for name, paths in found.items() if not paths]
    if empty and wanted.classes is None:
        notes.append(f"{folder}: no images in {some(empty)}: not taken for a class")
    return [(path, name) for name, paths in found.items() for path in paths]


def walk(top: Path, onerror: Callable[[OSError], None] | None = None) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Each folder with the names of its folders (none hidden) and files, sorted; follows no link twice or upwards."""
    seen = {str(above) for above in top.resolve().parents}
    for here, folders, names in os.walk(top, followlinks=True, onerror=onerror):
        real = os.path.realpath(here)
        folders[:] = [] if real in seen else sorted(name for name in folders if not name.startswith("."))
        if real not in seen:
            yield Path(here), folders, sorted(names)
        seen.add(real)


def _below(folder: Path) -> Iterator[Path]:
    """Everything below a folder that may be an image, in a fixed order."""
    for here, _, names in walk(folder, _refuse):
        yield from (here / name for name in names if _may_be_image(name))


def _refuse(error: OSError) -> None:
    raise InputError(f"{error.filename} cannot be read ({error.strerror}): change its permissions, or leave it out")


def _holds_images(folder: Path, extensions: set[str]) -> bool:
    try:
        return folder.is_dir() and any(path.suffix.lower() in extensions for path in folder.iterdir())
    except OSError:
        return False


def _may_be_image(name: str) -> bool:
    return not name.startswith(".") and Path(name).suffix.lower() not in SIDECARS


def _extensions() -> set[str]:
    wanted = kinds()  # first: it may register more
    return {extension for extension, kind in Image.registered_extensions().items() if kind in wanted}


def _name(label: Any) -> str:
    """A label as a name; nothing where it is missing (None, NaN). Pandas turns a 3 beside a gap into 3.0."""
    if label is None or label != label:  # NaN
        return ""
    return str(int(label) if isinstance(label, float) and label.is_integer() else label).strip()


def where_of(source: Any) -> str:
    """What an error or a note calls the source."""
    if isinstance(source, Mapping) or _are_paths(source):
        return some(map(str, source))
    return str(source) if isinstance(source, (str, Path)) else "the DataFrame" if is_frame(source) else "the list"


def _paths_and_labels(source: Any) -> tuple[list[Any], list[Any] | None] | None:
    """(paths, labels), each a list, an array or a column; pairs of a path and a label; paths alone (labels: None)."""
    if isinstance(source, tuple) and len(source) == 2 and not isinstance(source[0], (str, Path)):
        paths, labels = map(_as_list, source)
        if paths and labels is not None and _are_paths(paths):
            return paths, labels
    if _are_paths(source):
        return list(source), None
    pairs = isinstance(source, (list, tuple)) and bool(source)
    if pairs and all(isinstance(each, (list, tuple)) and len(each) == 2 and _are_paths(each[:1]) for each in source):
        return [path for path, _ in source], [label for _, label in source]
    return None


def _as_list(values: Any) -> list[Any] | None:
    """A list, a one-dimensional array or a column as a list."""
    if isinstance(values, (list, tuple)):
        return list(values)
    if getattr(values, "ndim", 1) == 1:
        for name in ("tolist", "to_list"):
            if hasattr(values, name):
                return list(getattr(values, name)())
    return None


def _are_paths(source: Any) -> bool:
    return isinstance(source, (list, tuple)) and bool(source) and all(isinstance(each, (str, Path)) for each in source)


def _named(source: Any) -> list[Path]:
    """The paths that were given, as far as the source names files."""
    if isinstance(source, Mapping):
        return [path for each in source.values() for path in _named(each)]
    if isinstance(source, (str, Path)):
        return [] if isinstance(source, Url) else [Path(source)]
    paths, _ = _paths_and_labels(source) or ([], None)
    return [Path(each) for each in paths if not isinstance(each, Url)]
