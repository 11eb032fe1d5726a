"""What a run's folder holds, read for the page: whatever is there, and a line for whatever is not."""

import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from adamatch.data.store import Labels
from adamatch.errors import InputError
from adamatch.judge.outputs import CLASSES, FOLDER, Probabilities

TWIN = "twin"
UNREADABLE = (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile)  # what a damaged or half-written file raises


@dataclass(frozen=True)
class Record:
    """One run. `said` is what the network said of "target" and held-out "source" images at `step`, where it is kept."""

    path: Path
    run: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    result: Mapping[str, Any]  # empty while it is under way
    verdict: Mapping[str, Any]
    step: int
    said: Mapping[str, Probabilities]
    classes: tuple[str, ...]  # empty where the folder does not name them
    held: Labels | None  # the labels of said["source"]
    twin: "Record | None" = None
    missing: tuple[str, ...] = ()

    @property
    def recipe(self) -> Mapping[str, Any]:
        return section(self.run, "recipe")

    @property
    def finished(self) -> bool:
        return bool(self.result)

    @property
    def last_step(self) -> int:
        """Where the run ends, 0 if that cannot be told."""
        images, batch, stop = (number(self.recipe.get(name)) or 0 for name in ("images", "batch", "stop"))
        return int(min(images, stop or images) // batch) if batch else 0


def read(path: str | Path, twin: str | Path | None = None) -> Record:
    """The run in a folder; its twin is in `twin`, or in the folder twin/ inside it."""
    path = Path(path)
    run = _run(path)
    missing: list[str] = []
    rows = _rows(path / "metrics.jsonl")
    if not rows:
        missing.append("There are no curves: metrics.jsonl holds no evaluation yet.")
    result, verdict = _optional(path / "result.json", missing), _optional(path / "judge.json", missing)
    step, said = _said(path / FOLDER, int(number(verdict.get("chosen_step")) or 0))
    if not said:
        missing.append("There are no answers to show: outputs/ is empty. Runs of older versions did not write them.")
    names = _optional(path / FOLDER / CLASSES, missing)
    classes = names.get("classes") or _optional(path / "model.json", []).get("classes") or ()
    held = names.get("source")
    if held is None or "source" not in said or len(held) != len(said["source"]):
        held = None
    beside = Path(twin) if twin else path / TWIN
    return Record(
        path,
        run,
        rows,
        result,
        verdict,
        step,
        said,
        tuple(map(str, classes)),
        None if held is None else np.asarray(held, np.int64),
        read(beside) if twin or (beside / "run.json").is_file() else None,
        tuple(missing),
    )


def number(value: Any) -> float | None:
    """A finite number, or None for anything else."""
    usable = isinstance(value, int | float) and not isinstance(value, bool) and np.isfinite(value)
    return float(value) if usable else None


def section(facts: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A part of a JSON file that is an object; empty if it is something else."""
    found = facts.get(name)
    return found if isinstance(found, dict) else {}


def _run(path: Path) -> Mapping[str, Any]:
    try:
        run = json.loads((path / "run.json").read_text())
    except (FileNotFoundError, NotADirectoryError):
        what = "is no run's folder (it has no run.json)" if path.exists() else "does not exist"
        raise InputError(f"{path} {what}: give a folder that fit or train made") from None
    except (OSError, ValueError):
        run = None
    if not isinstance(run, dict):
        raise InputError(f"{path}/run.json cannot be read: copy it anew, or give another run's folder")
    return run


def _optional(path: Path, missing: list[str]) -> Mapping[str, Any]:
    """A JSON object, empty where there is none; a damaged file is noted."""
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        found = None
    if isinstance(found, dict):
        return found
    missing.append(f"{path.name} is damaged: what it holds is not shown.")
    return {}


def _rows(path: Path) -> list[dict[str, Any]]:
    """Of a run under way, the last line may be half written."""
    rows = []
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return []
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and number(row.get("step")) is not None:
            rows.append(row)
    return rows


def _said(folder: Path, wanted: int) -> tuple[int, Mapping[str, Probabilities]]:
    """What was said at a step, or at the last one that can be read."""
    steps = {int(file.stem[5:]): file for file in folder.glob("step-*.npz") if file.stem[5:].isdecimal()}
    for step in sorted(steps, key=lambda each: (each == wanted, each), reverse=True):
        try:
            with np.load(steps[step], allow_pickle=False) as arrays:
                found = {name: arrays[name] for name in ("target", "source") if name in arrays}
        except UNREADABLE:
            continue
        if "target" in found and found["target"].ndim == 2:
            return step, found
    return 0, {}
