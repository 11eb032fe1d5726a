"""Which images a folder or a CSV file names, and of which class they are."""

import csv
import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from PIL import Image

from adamatch.base.errors import InputError
from adamatch.base.regular_files import read_file
from adamatch.images.arrays import known, some, translate
from adamatch.images.decode import kinds
from adamatch.images.store import Labels

Listing = tuple[list[Path], Labels | None, tuple[str, ...]]

# Files that lie beside images and are none. Anything else that cannot be read is reported, not passed over.
SIDECARS = {".txt", ".csv", ".tsv", ".json", ".jsonl", ".xml", ".yaml", ".yml", ".md", ".html", ".ini", ".log", ".db"}
SIDECARS |= {".parquet", ".pq", ".part"}  # tables of predictions, and half of one
PATH_HEADERS = ("path", "file", "filename", "file_name", "filepath", "image", "image_path")
FORM = "path,label, separated by commas"
LABEL_HEADERS = ("label", "class", "class_name", "category", "target")


def list_images(
    folder: str | Path,
    *,
    labelled: bool | None = None,
    classes: Sequence[str] | None = None,
    leave: bool = False,
    notes: list[str] | None = None,
) -> Listing:
    """Paths, labels and class names of a folder: one folder per class, or images alone (no labels).

    labelled=False takes every image below the folder and no labels; True insists on class folders; None takes what is there.
    `leave`: images of classes that are not in `classes` are left out, rather than an error. What is left out goes to `notes`.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder} {'is not a folder' if folder.exists() else 'does not exist'}")
    if labelled is False:
        return _some(list(_below(folder)), folder), None, tuple(classes or ())
    found = {
        sub.name: list(_below(sub)) for sub in sorted(folder.iterdir()) if sub.is_dir() and not sub.name.startswith(".")
    }
    here = [path for path in sorted(folder.iterdir()) if not path.is_dir() and _may_be_image(path.name)]
    if not any(found.values()):
        if labelled and here:
            raise InputError(
                f"{folder} has images but no labels: put them into one folder per class ({folder}/NAME/...)"
            )
        return _some(here, folder), None, tuple(classes or ())
    notes = [] if notes is None else notes
    loose = [path for path in here if path.suffix.lower() in _extensions()]
    if loose:
        count = f"{len(loose)} images are" if len(loose) > 1 else "1 image is"
        notes.append(
            f"{folder}: {count} beside the class folders ({some(path.name for path in loose)}): left out, without a class"
        )
    if hidden := [sub.name for sub in sorted(folder.iterdir()) if sub.name.startswith(".") and _holds_images(sub)]:
        notes.append(
            f"{folder}: {some(hidden)}: hidden, so not taken for a class; rename what is one (no dot in front)"
        )
    empty = [name for name, paths in found.items() if not paths]
    if empty and classes is None:
        notes.append(f"{folder}: no images in {some(empty)}: not taken for a class")
    pairs = [(path, name) for name, paths in found.items() for path in paths]
    return with_classes(pairs, str(folder), classes, leave, notes)


def is_list(path: str | Path) -> bool:
    return Path(path).suffix.lower() == ".csv"


def list_csv(
    file: str | Path,
    *,
    labelled: bool | None = None,
    classes: Sequence[str] | None = None,
    missing: bool = False,
    leave: bool = False,
    notes: list[str] | None = None,
) -> Listing:
    """The same of a CSV file of `path,label` (label may be missing), with or without a header; paths relative to the file.

    `missing`: files that do not exist are listed too.
    """
    file = Path(file)
    try:
        reader = csv.reader(io.StringIO(read_file(file).decode("utf-8-sig"), newline=""), skipinitialspace=True)
        rows = [
            (reader.line_num, [cell.strip() for cell in row]) for row in reader if any(cell.strip() for cell in row)
        ]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{file} cannot be read as CSV in UTF-8 ({error}): save it as UTF-8") from None
    header = [cell.lower() for cell in rows[0][1]] if rows else []
    at_path, at_label = 0, 1
    if any(name in PATH_HEADERS for name in header) and not os.path.isfile(file.parent / rows[0][1][0]):
        at_path = next(i for i, name in enumerate(header) if name in PATH_HEADERS)
        at_label = next((i for i, name in enumerate(header) if name in LABEL_HEADERS), len(header))
        rows = rows[1:]
    has_labels = labelled is not False and any(len(row) > at_label for _, row in rows)
    pairs: list[tuple[Path, str]] = []
    for line, row in rows:
        path = _found(file.parent, row[at_path]) if len(row) > at_path else file.parent
        if not os.path.isfile(path) and not missing:  # pathlib's raises where a name is too long
            hint = f" (a header? its columns are {FORM})" if line == 1 else f" (paths are relative to {file.parent})"
            what = "is not a regular file" if os.path.exists(path) else "does not exist"
            raise InputError(f"{file}, line {line}: {path} {what}{hint}")
        label = row[at_label] if has_labels and len(row) > at_label else ""
        if has_labels and not label:
            raise InputError(f"{file}, line {line}: the label is missing (give all images one, or none)")
        pairs.append((path, label))
    if not has_labels:
        if labelled and pairs:
            raise InputError(f"{file} has no labels: add a column `label`")
        return _some([path for path, _ in pairs], file), None, tuple(classes or ())
    return with_classes(pairs, str(file), classes, leave, [] if notes is None else notes)


def with_classes(
    pairs: Sequence[tuple[Path, str]], where: str, classes: Sequence[str] | None, leave: bool, notes: list[str]
) -> Listing:
    """A listing of paths with the names of their classes."""
    names = tuple(classes) if classes is not None else tuple(sorted({name for _, name in pairs}))
    if leave:
        pairs = [pairs[row] for row in known([name for _, name in pairs], names, where, notes)]
    return [path for path, _ in pairs], translate([name for _, name in pairs], names, where), names


def _found(folder: Path, name: str) -> Path:
    """A path as a list has it: relative to the list, and perhaps written on Windows."""
    path = folder / name
    other = folder / name.replace("\\", "/")
    return other if "\\" in name and not os.path.isfile(path) else path


def _some(paths: list[Path], where: Path) -> list[Path]:
    if not paths:
        raise InputError(f"{where} holds no images")
    return paths


def _below(folder: Path) -> Iterator[Path]:
    """Everything below a folder that may be an image, in a fixed order; follows links, but none twice or upwards."""
    seen = {str(above) for above in folder.resolve().parents}
    for here, folders, names in os.walk(folder, followlinks=True, onerror=_refuse):
        real = os.path.realpath(here)
        folders[:] = [] if real in seen else sorted(name for name in folders if not name.startswith("."))
        if real not in seen:
            yield from (Path(here, name) for name in sorted(names) if _may_be_image(name))
        seen.add(real)


def _refuse(error: OSError) -> None:
    raise InputError(f"{error.filename} cannot be read ({error.strerror}): change its permissions, or leave it out")


def _holds_images(folder: Path) -> bool:
    try:
        return folder.is_dir() and any(path.suffix.lower() in _extensions() for path in folder.iterdir())
    except OSError:
        return False


def _may_be_image(name: str) -> bool:
    return not name.startswith(".") and Path(name).suffix.lower() not in SIDECARS


def _extensions() -> set[str]:
    wanted = kinds()  # first: it may register more
    return {extension for extension, kind in Image.registered_extensions().items() if kind in wanted}
