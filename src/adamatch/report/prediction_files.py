"""Predictions into files as they come: CSV, Parquet. Until all are there a file is called FILE.part.

After an error, or Ctrl-C, the part is removed: it does not say what is missing from it, and no command goes on with it.
CSV may go to stdout as well (- or /dev/stdout), or into a pipe. Neither a pipe nor a device is replaced.
"""

import csv
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, TextIO, TypeVar

import numpy as np

from adamatch.base.errors import InputError
from adamatch.base.files import columns, place, writing
from adamatch.model import Predictions, csv_rows

Write = Callable[[Predictions], None]
TABLES = (".csv", ".tsv", ".txt", ".parquet", ".pq")


class _Opened(Protocol):
    def close(self) -> object: ...


T = TypeVar("T", bound=_Opened)


def is_stdout(file: Path) -> bool:
    return file in (Path("-"), Path("/dev/stdout"))


def name_of(file: Path) -> str:
    """For people."""
    return "stdout" if is_stdout(file) else str(file)


def refuse_the_same(files: Sequence[Path], inputs: Sequence[Path]) -> None:
    """Nothing is written twice, and nothing is written over that is read, or is no table."""
    for number, file in enumerate(files):
        if any(_same(file, other) for other in files[:number]):
            raise InputError(f"{file} would be written twice, by --csv and by --parquet: give each a file of its own")
        if any(_same(file, other) for other in inputs):
            raise InputError(f"{file} is among the images and lists that are read: choose another file to write")
        if file.is_file() and file.suffix.lower() not in TABLES:
            raise InputError(
                f"{file} exists and does not end as a table does (.csv, .parquet): choose another file to write"
            )


@contextmanager
def csv_file(file: Path, classes: Sequence[str]) -> Iterator[Write]:
    """path, class, probability, then the probability of every class."""

    def start(part: Path) -> TextIO:
        to = os.dup(sys.stdout.fileno()) if is_stdout(file) else part  # so that stdout is not closed at the end
        return open(to, "w", newline="", encoding="utf-8", errors="surrogateescape")

    with _whole(file, start) as text:
        rows = csv.writer(text)
        none = Predictions((), np.zeros((0, len(classes)), np.float32), tuple(classes))
        with writing(name_of(file)):
            rows.writerows(csv_rows(none))  # the head

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
    schema = pyarrow.schema(list(zip(columns(classes), kinds, strict=True)))
    with _whole(file, lambda part: parquet.ParquetWriter(part, schema)) as rows:

        def write(found: Predictions) -> None:
            paths = [path.encode(errors="backslashreplace").decode() for path in found.paths]  # names that are no text
            values = [paths, found.labels, found.probabilities.max(1), *found.probabilities.T]
            with writing(file):
                rows.write_table(pyarrow.table([pyarrow.array(each) for each in values], schema=schema))

        yield write


@contextmanager
def _whole(file: Path, start: Callable[[Path], T]) -> Iterator[T]:
    """What `start` opened; it has the name `file` once all is done, or is removed."""
    passed_on = is_stdout(file) or (os.path.exists(file) and not os.path.isfile(file) and not os.path.isdir(file))
    end = file if passed_on else place(file)
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


def _same(one: Path, other: Path) -> bool:
    if os.path.exists(one) and os.path.exists(other):
        return os.path.samefile(one, other)
    return os.path.realpath(one) == os.path.realpath(other)
