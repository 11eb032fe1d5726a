"""Predictions into files as they come: CSV, Parquet. Until all are there a file is called FILE.part."""

import csv
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from adamatch.errors import InputError
from adamatch.model import Predictions, csv_rows

Write = Callable[[Predictions], None]
COLUMNS = ("path", "class", "probability")  # then one for each class


@contextmanager
def csv_file(file: Path, classes: Sequence[str]) -> Iterator[Write]:
    """path, class, probability, then the probability of every class."""
    with _part(file) as part, part.open("w", newline="", encoding="utf-8", errors="surrogateescape") as text:
        rows = csv.writer(text)
        none = Predictions((), np.zeros((0, len(classes)), np.float32), tuple(classes))
        rows.writerows(csv_rows(none))  # the head

        def write(found: Predictions) -> None:
            rows.writerows(csv_rows(found)[1:])
            text.flush()

        yield write


@contextmanager
def parquet_file(file: Path, classes: Sequence[str]) -> Iterator[Write]:
    """The same columns; a row group for each portion."""
    if importlib.util.find_spec("pyarrow") is None:
        raise InputError("a Parquet file needs pyarrow: pip install 'adamatch[parquet]', or use --csv")
    import pyarrow
    from pyarrow import parquet

    names = [f"{name} (class)" if name in COLUMNS else name for name in classes]
    kinds: list[Any] = [pyarrow.string(), pyarrow.string(), *[pyarrow.float32()] * (len(names) + 1)]
    schema = pyarrow.schema(list(zip([*COLUMNS, *names], kinds, strict=True)))
    with _part(file) as part, parquet.ParquetWriter(part, schema) as rows:

        def write(found: Predictions) -> None:
            paths = [path.encode(errors="backslashreplace").decode() for path in found.paths]  # names that are no text
            columns = [paths, found.labels, found.probabilities.max(1), *found.probabilities.T]
            rows.write_table(pyarrow.table([pyarrow.array(each) for each in columns], schema=schema))

        yield write


@contextmanager
def _part(file: Path) -> Iterator[Path]:
    if not file.parent.is_dir():
        raise InputError(f"{file.parent} does not exist: make it, or choose another place for {file.name}")
    if file.exists() and not file.is_file():  # a pipe or a device, which is not to be replaced
        yield file
        return
    part = file.with_name(f"{file.name}.part")
    yield part
    part.replace(file)
