"""What a classifier says of images, and where it is written: CSV, Parquet, and copies of the images in folders.

Files are written as predictions come. Until all are there a file is called FILE.part. After an error, or Ctrl-C, the
part is removed: it does not say what is missing from it. CSV may also go to stdout (- or /dev/stdout) or into a pipe.
Pipes and devices are never replaced.
"""

import csv
import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self, TextIO, overload
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from adamatch.base.console import no_formula
from adamatch.base.errors import InputError
from adamatch.base.files import destination, writing
from adamatch.evaluate import Score

LISTED = 20  # unreadable images that are named one by one
TABLES = (".csv", ".tsv", ".txt", ".parquet", ".pq")
COPIES = "copies.csv"  # in a folder of sorted images: where each came from
UNSAFE = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|]')  # no name of a folder, on one system or another
RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)  # names of devices on Windows
LONGEST = 60  # characters of a folder's name


class Prediction(NamedTuple):
    """Of one image: its path (or number), the most likely class, its probability, and those of all classes."""

    path: str
    label: str
    confidence: float
    probabilities: NDArray[np.float32]


@dataclass(frozen=True)
class Predictions:
    """For each image: its path (or number), the most likely class, and the probabilities (n, k) of all.

    A sequence of `Prediction`; a slice of it is `Predictions` again.
    """

    paths: tuple[str, ...]
    probabilities: NDArray[np.float32]
    classes: tuple[str, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)  # what could not be read, and why
    notes: tuple[str, ...] = ()  # what a person should know of how images were read

    @property
    def labels(self) -> list[str]:
        return [self.classes[i] for i in self.probabilities.argmax(1)]

    @property
    def confidence(self) -> NDArray[np.float32]:
        """The probability of each image's most likely class (n,)."""
        found: NDArray[np.float32] = self.probabilities.max(1, initial=0)
        return found

    def likeliest(self, count: int) -> NDArray[np.int64]:
        """Numbers of each image's most probable classes (n, count), the most probable first."""
        return np.argsort(-self.probabilities, axis=1, kind="stable")[:, :count]

    def __len__(self) -> int:
        return len(self.paths)

    def __iter__(self) -> Iterator[Prediction]:
        return (self[row] for row in range(len(self)))

    @overload
    def __getitem__(self, row: int) -> Prediction: ...
    @overload
    def __getitem__(self, row: slice) -> Self: ...
    def __getitem__(self, row: int | slice) -> Prediction | Self:
        if isinstance(row, slice):
            return replace(self, paths=self.paths[row], probabilities=self.probabilities[row])
        found = self.probabilities[row]
        return Prediction(self.paths[row], self.classes[found.argmax()], float(found.max()), found)

    def to_csv(self, path: str | Path) -> Path:
        """A file of path, class, probability, then the probability of every class."""
        check_outputs([Path(path)], [])
        with csv_file(Path(path), self.classes) as write:
            write(self)
        return Path(path)

    def to_pandas(self) -> Any:
        """The same as a DataFrame, if pandas is installed."""
        try:
            import pandas as pd
        except ImportError:
            raise InputError("pandas is not installed: pip install pandas, or use to_csv") from None
        values = [self.paths, self.labels, self.confidence, *self.probabilities.T]
        return pd.DataFrame(dict(zip(columns(self.classes), values, strict=True)))


Write = Callable[[Predictions], None]


def columns(classes: Sequence[str], top: int | None = None) -> list[str]:
    """path, class, probability, then one for every class; a class whose name is taken gets " (class)" behind it.

    With `top`, the next likely classes instead: class_2, probability_2, class_3 and so on.
    """
    names = dict.fromkeys(("path", "class", "probability"))
    if top is not None:
        places = range(2, min(top, len(classes)) + 1)
        return [*names, *(f"{name}_{place}" for place in places for name in ("class", "probability"))]
    for name in classes:
        while name in names:
            name += " (class)"
        names[name] = None
    return list(names)


def csv_rows(predictions: Predictions, top: int | None = None) -> list[list[str]]:
    """A header of `columns`, then a row for each image."""
    names = [*map(no_formula, predictions.classes)]
    rows, best = [columns(names, top)], predictions.likeliest(top or 1)
    for path, row, order in zip(predictions.paths, predictions.probabilities, best, strict=True):
        likely = [cell for number in order for cell in (names[number], f"{row[number]:.4f}")]
        rows.append([no_formula(path), *likely, *(f"{value:.4f}" for value in row if top is None)])
    return rows


def left_out(skipped: Mapping[str, str]) -> list[str]:
    """A line for each image that could not be read; of very many, the first twenty and how many more."""
    lines = [f"left out: {why}" for why in list(skipped.values())[:LISTED]]
    return lines + [f"left out: {len(skipped) - LISTED} more"] * (len(skipped) > LISTED)


def is_stdout(file: Path) -> bool:
    return file in (Path("-"), Path("/dev/stdout"))


def name_of(file: Path) -> str:
    """For people."""
    return "stdout" if is_stdout(file) else str(file)


def check_outputs(files: Sequence[Path], inputs: Sequence[Path]) -> None:
    """Nothing is written twice, and nothing is written over that is read, or is no table."""
    for number, file in enumerate(files):
        if any(_same(file, other) for other in files[:number]):
            raise InputError(f"{file} would be written twice, by --csv and by --parquet: give each a file of its own")
        if any(_same(file, other) for other in inputs):
            raise InputError(f"{file} is among the images and lists that are read: choose another file to write")
        if file.is_file() and file.suffix.lower() not in TABLES:
            why = f"{file} exists and does not end as a table does (.csv, .parquet)"
            raise InputError(f"{why}: choose another file to write")


def _same(one: Path, other: Path) -> bool:
    if os.path.exists(one) and os.path.exists(other):
        return os.path.samefile(one, other)
    return os.path.realpath(one) == os.path.realpath(other)


@contextmanager
def csv_file(file: Path, classes: Sequence[str], top: int | None = None) -> Iterator[Write]:
    """Rows of `csv_rows`, one header."""
    with _csv(file) as write:
        write([columns([*map(no_formula, classes)], top)])
        yield lambda found: write(csv_rows(found, top)[1:])


def evaluation_csv(file: Path, found: Score) -> None:
    """path, truth, prediction and confidence of each image."""
    names = [*map(no_formula, found.classes)]
    with _csv(file) as write:
        write([["path", "truth", "prediction", "confidence"]])
        rows = zip(found.paths, found.truth, found.predicted, found.confidence, strict=True)
        write([no_formula(path), names[is_], names[taken], f"{sure:.4f}"] for path, is_, taken, sure in rows)


@contextmanager
def _csv(file: Path) -> Iterator[Callable[[Iterable[list[str]]], None]]:
    """Call it with rows."""

    def start(part: Path) -> TextIO:
        to = os.dup(sys.stdout.fileno()) if is_stdout(file) else part  # so that stdout is not closed at the end
        return open(to, "w", newline="", encoding="utf-8", errors="surrogateescape")

    with _complete(file, start) as text:

        def write(rows: Iterable[list[str]]) -> None:
            with writing(name_of(file)):
                csv.writer(text).writerows(rows)
                text.flush()

        yield write


@contextmanager
def parquet_file(file: Path, classes: Sequence[str], top: int | None = None) -> Iterator[Write]:
    """The same columns; a row group for each portion."""
    if importlib.util.find_spec("pyarrow") is None:
        raise InputError("a Parquet file needs pyarrow: pip install 'adamatch[parquet]', or use --csv")
    if is_stdout(file):
        raise InputError("Parquet is not written to stdout: give the name of a file, or use --csv -")
    import pyarrow
    from pyarrow import parquet

    names, top = _as_text(classes), min(top or 1, len(classes)) if top is not None else None
    likely: list[Any] = [pyarrow.string(), pyarrow.float32()] * (top or 1)
    kinds = [pyarrow.string(), *likely, *[pyarrow.float32()] * (len(classes) if top is None else 0)]
    schema = pyarrow.schema(list(zip(columns(names, top), kinds, strict=True)))
    with _complete(file, lambda part: parquet.ParquetWriter(part, schema)) as rows:

        def write(found: Predictions) -> None:
            values: list[Any] = [_as_text(found.paths)]
            for place in found.likeliest(top or 1).T:
                values += [[names[number] for number in place], found.probabilities[range(len(found)), place]]
            values += [*found.probabilities.T] if top is None else []
            with writing(file):
                rows.write_table(pyarrow.table([pyarrow.array(each) for each in values], schema=schema))

        yield write


def _as_text(names: Iterable[str]) -> list[str]:
    """Names of files and folders need not be text."""
    return [name.encode(errors="backslashreplace").decode() for name in names]


def check_folder(folder: Path, inputs: Sequence[Path]) -> None:
    """Where images are sorted into: new or empty, and not among those that are read."""
    if os.path.exists(folder) and not (folder.is_dir() and not any(folder.iterdir())):
        raise InputError(f"{folder} is there and not empty: give a new folder to sort into")
    for each in inputs:
        if os.path.isdir(each) and folder.resolve().is_relative_to(each.resolve()):
            raise InputError(f"{folder} lies in {each}, whose images are read: choose a folder beside it")


@contextmanager
def sorted_into(folder: Path, classes: Sequence[str]) -> Iterator[Write]:
    """A copy of each image in the folder of its class; copies.csv says where it came from.

    The folder is empty at first, and of images of the same name the later ones get a number: nothing is replaced.
    """
    taken: dict[str, dict[str, int]] = {"": {COPIES: 1}}
    places = dict(zip(classes, (_unused(_folder_name(name), taken[""]) for name in classes), strict=True))
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        text = open(folder / COPIES, "x", newline="", encoding="utf-8", errors="surrogateescape")  # noqa: SIM115
    with text:
        rows = csv.writer(text)
        rows.writerow(["from", "to", "class", "probability"])

        def write(found: Predictions) -> None:
            for path, label, confidence, _ in found:
                if not os.path.isfile(path):
                    raise InputError(f"{path} is no file that could be copied: give images, folders or lists of files")
                to = Path(places[label], _unused(Path(path).name, taken.setdefault(label, {})))
                with writing(folder / to):
                    (folder / to).parent.mkdir(exist_ok=True)
                    shutil.copy2(path, folder / to)
                    rows.writerow([*map(no_formula, (path, str(to), label)), f"{confidence:.4f}"])
            with writing(folder / COPIES):
                text.flush()

        yield write


def _folder_name(name: str) -> str:
    """Of a class, so that every system can have it, and none hides it or takes it for the folder above."""
    safe = UNSAFE.sub("_", name).strip(" .")[:LONGEST].rstrip(" .") or "_"
    return f"_{safe}" if RESERVED.fullmatch(safe) else safe


def _unused(name: str, taken: dict[str, int]) -> str:
    """The name, or with a number behind it; names that differ in case alone are the same file on some systems."""

    def key(name: str) -> str:
        return normalize("NFC", name).casefold()

    (stem, end), found = os.path.splitext(name), name
    while key(found) in taken:
        taken[key(name)] += 1
        found = f"{stem}-{taken[key(name)]}{end}"
    taken[key(found)] = 1
    return found


@contextmanager
def _complete(file: Path, start: Callable[[Path], Any]) -> Iterator[Any]:
    """What `start` opened. It gets the name `file` once all is written, or is removed."""
    passed_on = is_stdout(file) or (os.path.exists(file) and not os.path.isfile(file) and not os.path.isdir(file))
    end = file if passed_on else destination(file)
    part = file if passed_on else end.with_name(f"{end.name}.part")
    try:
        with writing(name_of(file)):
            opened = start(part)
        try:
            yield opened
        except BaseException:
            with suppress(OSError):  # it was said already
                opened.close()
            raise
        with writing(name_of(file)):
            opened.close()
            if not passed_on:
                part.replace(end)
    finally:
        if not passed_on:
            with suppress(OSError):
                part.unlink(missing_ok=True)
