"""What the scripts of this folder share: their command line, and result files whose rows say how they were measured."""

import argparse
import json
import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

Row = dict[str, Any]
MEASURED = ("accuracy", "seconds", "machine", "versions", "date")  # what a row repeats of a run's result


def options(text: str | None, out: str | None = None) -> argparse.ArgumentParser:
    """A command line that shows the script's docstring as help, with --out where `out` is its default (empty: none)."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    if out is not None:
        parser.add_argument("--out", type=Path, required=not out, default=Path(out) if out else None)
    return parser


def write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")


def collect(
    path: Path, names: Sequence[str], every: Iterable[tuple[Any, ...]], measure: Callable[..., Row], processes: int = 1
) -> list[Row]:
    """The rows of a result file. Those that are missing are measured, each in a new process, and written as they come.

    `names` are the columns that tell rows apart; `every` has their values, in the order of the file.
    """
    rows: list[Row] = json.loads(path.read_text()) if path.exists() else []
    order = {key: number for number, key in enumerate(every)}

    def key(row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in names)

    missing = order.keys() - set(map(key, rows))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, max_tasks_per_child=1) as pool:
        for future in as_completed([pool.submit(measure, *each) for each in order if each in missing]):
            rows = sorted([*rows, future.result()], key=lambda row: order.get(key(row), len(order)))
            write(path, rows)
            print(*key(future.result()), f"{future.result()['accuracy']:.1f}", sep="\t", flush=True)
    return rows
