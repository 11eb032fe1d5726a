"""What a classifier says of images, and the files it is written to: CSV and Parquet.

Files are written as predictions come. Until all are there a file is called FILE.part. After an error, or Ctrl-C, the
part is removed: it does not say what is missing from it. CSV may also go to stdout (- or /dev/stdout) or into a pipe.
Pipes and devices are never replaced.
"""

import csv
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self, TextIO, overload

import numpy as np
from numpy.typing import NDArray

from adamatch.base.console import no_formula
from adamatch.base.errors import InputError
from adamatch.base.files import destination, writing

LISTED = 20  # unreadable images that are named one by one
TABLES = (".csv", ".tsv", ".txt", ".parquet", ".pq")


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


def columns(classes: Iterable[str]) -> list[str]:
    """path, class, probability, then one for every class; a class whose name is taken gets " (class)" behind it."""
    names = dict.fromkeys(("path", "class", "probability"))
    for name in classes:
        while name in names:
            name += " (class)"
        names[name] = None
    return list(names)


def csv_rows(predictions: Predictions) -> list[list[str]]:
    """A header of `columns`, then a row for each image."""
    rows = [columns(map(no_formula, predictions.classes))]
    for path, label, row in zip(predictions.paths, predictions.labels, predictions.probabilities, strict=True):
        rows.append([no_formula(path), no_formula(label), f"{row.max():.4f}", *(f"{value:.4f}" for value in row)])
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
def csv_file(file: Path, classes: Sequence[str]) -> Iterator[Write]:
    """Rows of `csv_rows`, one header."""

    def start(part: Path) -> TextIO:
        to = os.dup(sys.stdout.fileno()) if is_stdout(file) else part  # so that stdout is not closed at the end
        return open(to, "w", newline="", encoding="utf-8", errors="surrogateescape")

    with _complete(file, start) as text:
        rows = csv.writer(text)
        with writing(name_of(file)):
            rows.writerow(columns(map(no_formula, classes)))

        def write(found: Predictions) -> None:
            with writing(name_of(file)):
                rows.writerows(csv_rows(found)[1:])
                text.flush()

        yield write


@contextmanager
def parquet_file(file: Path, classes: Sequence[str]) -> Iterator[Write]:
    """The same columns; a row group for each portion."""
    if importlib.util.find_spec("pyarrow") is None:
        raise InputError("a Parquet file needs pyarrow: pip install 'adamatch[parquet]', or use --csv")
    if is_stdout(file):
        raise InputError("Parquet is not written to stdout: give the name of a file, or use --csv -")
    import pyarrow
    from pyarrow import parquet

    kinds: list[Any] = [pyarrow.string(), pyarrow.string(), *[pyarrow.float32()] * (len(classes) + 1)]
    schema = pyarrow.schema(list(zip(_as_text(columns(classes)), kinds, strict=True)))
    with _complete(file, lambda part: parquet.ParquetWriter(part, schema)) as rows:

        def write(found: Predictions) -> None:
            values = [*map(_as_text, (found.paths, found.labels)), found.probabilities.max(1), *found.probabilities.T]
            with writing(file):
                rows.write_table(pyarrow.table([pyarrow.array(each) for each in values], schema=schema))

        yield write


def _as_text(names: Iterable[str]) -> list[str]:
    """Names of files and folders need not be text."""
    return [name.encode(errors="backslashreplace").decode() for name in names]


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
